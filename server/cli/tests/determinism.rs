//! Replicas with several workers end bit-identical in every deterministic mode, and demonstrably not without
//! determinism.

use crate::support::cluster::{Cluster, Wish};
use memcached_client::load::{CheckedLoad, LoadDraw};
use node::digest;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const CLIENTS: u64 = 24;

#[test]
fn mixed_requests_leave_equal_states() {
    let requests = crate::support::size("CROSSCHECK_REQUESTS", 200_000, 10_000_000);
    for mode in ["RD00", "RDG0", "RDGX", "R0GV"] {
        let cluster = Cluster::up(&Wish { mode, workers: 4, ..Wish::default() });
        let load = CheckedLoad {
            clients: CLIENTS as usize,
            commands: Some(requests / 3 / CLIENTS),
            pipeline: 16,
            longest_value: 4096,
            patience: Duration::from_secs(20),
            ..CheckedLoad::on(cluster.clients())
        };
        let report = load.start().join_and_audit(cluster.clients());
        println!("{mode}: {report}");
        report.assert_undisturbed();
        cluster.assert_equal_state();
        cluster.finish();
    }
}

/// The negative control: the same conflicts that leave `RD00` equal must make the replicas of `R000` diverge, or they
/// prove nothing.
#[test]
fn conflicts_diverge_without_determinism_and_only_then() {
    for mode in ["R000", "RD00"] {
        let cluster = Cluster::up(&Wish { mode, workers: 4, ..Wish::default() });
        let mut diverged = false;
        for round in 0..20 {
            conflict(cluster.clients(), round);
            let digests = cluster.settled_digests(Duration::from_secs(3));
            diverged = digest::compare(&digests).is_err();
            if diverged {
                println!("{mode}: diverged in round {round}: {digests:?}");
                break;
            }
        }
        assert_eq!(diverged, mode == "R000", "{mode}");
        cluster.finish();
    }
}

/// Many clients write the same few keys; the order of the writes is the state. Replies are read, not judged: without
/// determinism they have no right value.
fn conflict(servers: &[SocketAddr], round: u64) {
    std::thread::scope(|scope| {
        for client in 0..16 {
            let server = servers[client as usize % servers.len()];
            scope.spawn(move || {
                let mut draw = LoadDraw::new(round << 32 | client);
                let mut stream = TcpStream::connect(server).expect("the replica accepts clients");
                stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout can be set");
                for burst in 0..40 {
                    let mut request = String::new();
                    for _ in 0..32 {
                        let value = format!("{client}.{burst}.{}", draw.below(1000));
                        request += &format!("set hot{} 0 0 {}\r\n{value}\r\n", draw.below(4), value.len());
                    }
                    stream.write_all(request.as_bytes()).expect("the replica reads");
                    // Whatever the replies are, each command has one of one line.
                    let mut lines = 0;
                    let mut chunk = [0; 4096];
                    while lines < 32 {
                        let count = stream.read(&mut chunk).expect("the replica answers");
                        assert!(count > 0, "the replica closed the connection");
                        lines += chunk[..count].iter().filter(|&&byte| byte == b'\n').count();
                    }
                }
            });
        }
    });
}
