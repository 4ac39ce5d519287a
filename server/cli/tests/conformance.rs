//! Byte-exact protocol exchanges: stock memcached and CrossCheck answer as the table specifies. Differences are in
//! memcached/DIFFERENCES.md, and tested with that crate.

use crate::support::cluster::{Cluster, Wish};
use crate::support::stock::{Stock, find};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn stock_memcached_is_as_the_table_says() {
    let Some(stock) = Stock::start() else { return };
    exchange(&[stock.server]);
}

#[test]
fn a_single_node_without_protection() {
    let cluster = Cluster::up(&Wish { replicas: 1, mode: "0000", workers: 1, ..Wish::default() });
    exchange(cluster.clients());
    cluster.finish();
}

#[test]
fn every_replica_of_a_cluster() {
    let cluster = Cluster::up(&Wish { workers: 4, ..Wish::default() });
    exchange(cluster.clients());
    cluster.assert_equal_state();
    cluster.finish();
}

/// The script needs only the standard library of Python 3.11.
fn exchange(servers: &[SocketAddr]) {
    let Some(python) = find("python3", "apt-get install python3") else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/clients/conformance.py");
    let output = Command::new(python)
        .arg(script)
        .args(servers.iter().map(SocketAddr::to_string))
        .stdin(Stdio::null())
        .output()
        .expect("python3 runs");
    let reported = String::from_utf8_lossy(&output.stdout);
    println!("{reported}");
    assert!(
        output.status.success(),
        "{}:\n{reported}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}
