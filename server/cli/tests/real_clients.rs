//! Clients by other authors work, on several replicas at once: a crate, two Python libraries, and libmemcached's own
//! test.

use crate::support::cluster::{Cluster, Wish};
use crate::support::stock::{self, Stock};
use memcache::{Client, MemcacheError};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

#[test]
fn libraries_agree_with_their_models_on_stock_memcached() {
    let Some(server) = Stock::start() else { return };
    drive_crate(server.server, "stock", 300).expect("the crate gets along with memcached");
    if let Some(script) = drive_python(&[server.server]) {
        assert_passes(script);
    }
}

#[test]
fn libraries_on_all_replicas_at_once() {
    let cluster = Cluster::up(&Wish { workers: 4, ..Wish::default() });
    let script = drive_python(cluster.clients());
    std::thread::scope(|scope| {
        for (number, &server) in cluster.clients().iter().enumerate() {
            scope.spawn(move || {
                drive_crate(server, &format!("r{number}"), 500).expect("the crate gets along with us")
            });
        }
    });
    script.into_iter().for_each(assert_passes);
    cluster.assert_equal_state();
    cluster.finish();
}

#[test]
fn memccapable_passes_on_a_single_node_and_on_every_replica() {
    let install = "apt-get install libmemcached-tools";
    let Some(program) = stock::find("memccapable", install) else { return };
    for wish in [Wish { replicas: 1, mode: "0000", ..Wish::default() }, Wish::default()] {
        let cluster = Cluster::up(&wish);
        for server in cluster.clients() {
            let child = spawn(&program, &["-h", "127.0.0.1", "-p", &server.port().to_string()]);
            assert_passes(child);
        }
        cluster.finish();
    }
}

/// Rounds of all functions that the `memcache` crate offers, first in the text protocol, then in the binary one, which
/// is its default. `Err` when a call fails, panic when a result is wrong.
fn drive_crate(server: SocketAddr, name: &str, rounds: u64) -> Result<(), MemcacheError> {
    drive_crate_in("ascii", server, name, rounds / 2)?;
    drive_crate_in("binary", server, name, rounds / 2)
}

fn drive_crate_in(protocol: &str, server: SocketAddr, name: &str, rounds: u64) -> Result<(), MemcacheError> {
    let options = format!("protocol={protocol}&timeout=15&tcp_nodelay=true");
    let client = Client::connect(format!("memcache://{server}?{options}"))?;
    assert_eq!(client.version()?.len(), 1);
    // Version 0.21 drops every line of a text reply; the next calls still show that the reply was read to its end.
    client.stats()?;
    for round in 0..rounds {
        let key = &format!("crate-{protocol}-{name}-{}", round % 7);
        client.set(key, round + 1_000, 0)?;
        assert_eq!(client.get::<u64>(key)?, Some(round + 1_000));
        assert_eq!(client.increment(key, 5)?, round + 1_005);
        assert_eq!(client.decrement(key, 2)?, round + 1_003);
        // In text the crate takes NOT_STORED for success, so the value tells.
        assert_eq!(client.add(key, 1u64, 0).is_ok(), protocol == "ascii");
        assert_eq!(client.get::<u64>(key)?, Some(round + 1_003), "add on a key that is there");
        client.replace(key, "ab", 0)?;
        client.append(key, "c")?;
        client.prepend(key, "_")?;
        assert_eq!(client.get::<String>(key)?.as_deref(), Some("_abc"));
        assert!(client.touch(key, 1000)?);
        let both = client.gets::<(Vec<u8>, u32, Option<u64>)>(&[key, "crate-nobody"])?;
        assert_eq!(both.len(), 1);
        let (value, _, unique) = &both[key];
        assert_eq!(value, b"_abc");
        let unique = unique.expect("gets tells the cas unique");
        assert!(client.cas(key, "new", 0, unique)?);
        assert!(!client.cas(key, "newer", 0, unique)?);
        let long = vec![round as u8; 100_000];
        client.set(key, &long[..], 0)?;
        assert_eq!(client.get::<Vec<u8>>(key)?.as_ref(), Some(&long));
        assert!(client.delete(key)?);
        assert!(!client.delete(key)?);
        assert_eq!(client.get::<String>(key)?, None);
    }
    Ok(())
}

/// Starts the Python libraries on all of `servers`.
fn drive_python(servers: &[SocketAddr]) -> Option<Child> {
    let python = stock::python()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/clients/pymemcache_drive.py");
    let mut arguments = vec![script.to_string_lossy().into_owned(), "--rounds".into(), "700".into()];
    arguments.extend(servers.iter().map(SocketAddr::to_string));
    Some(spawn(&python, &arguments.iter().map(String::as_str).collect::<Vec<_>>()))
}

fn spawn(program: &Path, arguments: &[&str]) -> Child {
    let child = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    child.unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

fn assert_passes(child: Child) {
    let output = child.wait_with_output().expect("it was started");
    let reported = String::from_utf8_lossy(&output.stdout);
    println!("{reported}");
    assert!(output.status.success(), "{}:\n{reported}", output.status);
}
