//! A replica with more faults than any healthy machine has ends by itself, and is not started again; but only if the
//! others can do without it.

use crate::failover::load;
use crate::support::cluster::{Cluster, Wish};
use memcached_client::load::CheckedLoad;
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

/// Faults within 10 s that are accepted here.
const LIMIT: u32 = 5;

/// The message that a replica ends for this reason.
const ENDED: &str = "must not be started again on this machine";

fn wish(workers: usize) -> Wish {
    Wish { workers, faults_per_10s: LIMIT, ..Wish::default() }
}

/// Corrupts objects of a replica, or computations there, until it has ended.
fn corrupt_until_it_ends(cluster: &Cluster, victim: usize, kind: &str) {
    let mut seed = 0;
    cluster.wait_until("the replica has ended as broken hardware", |cluster| {
        seed += 1;
        cluster.try_ask(victim, &json!({"cmd": "inject", "kind": kind, "seed": seed}));
        cluster.drained() == [victim]
    });
}

#[test]
fn a_replica_with_broken_hardware_ends_and_the_others_go_on() {
    for (leader, workers) in [(false, 1), (true, 2)] {
        let cluster = Cluster::up(&wish(workers));
        let running = load(&cluster).start();
        running.must_go_on(1_000, "before the faults");
        let first = cluster.leader();
        let victim = if leader { first } else { (first + 1) % 3 };
        let process = cluster.pid(victim);
        corrupt_until_it_ends(&cluster, victim, "flip");
        let lines = cluster.lines(victim);
        let said: Vec<&String> = lines.iter().filter(|line| line.contains(ENDED)).collect();
        assert!(said.len() == 1 && said[0].contains("faults_per_10s is 5"), "{lines:#?}");
        running.must_go_on(2_000, "without the broken one");
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(cluster.pid(victim), process, "it is not started again");
        let there: Vec<usize> = (0..3).filter(|replica| *replica != victim).collect();
        for replica in &there {
            let status = cluster.status(*replica).expect("it is there");
            assert_eq!((&status["phase"], &status["tolerates"]), (&json!("serving"), &json!(0)), "{status}");
        }
        let clients: Vec<_> = there.iter().map(|replica| cluster.clients()[*replica]).collect();
        let report = running.stop_and_audit(&clients);
        println!("{report}");
        report.assert_right();
        cluster.finish();
    }
}

#[test]
fn a_replica_with_broken_hardware_stays_while_another_one_is_absent() {
    let cluster = Cluster::up(&wish(1));
    let leader = cluster.leader();
    let (away, victim) = ((leader + 1) % 3, (leader + 2) % 3);
    cluster.signal(away, Signal::STOP);
    cluster.wait_until("the others run every request twice", |cluster| {
        [leader, victim].iter().all(|replica| {
            cluster.status(*replica).is_some_and(|status| status["alone"] == true && status["tolerates"] == 0)
        })
    });
    let clients = [leader, victim].map(|replica| cluster.clients()[replica]);
    let running = CheckedLoad { seed: 9, ..CheckedLoad::on(&clients) }.start();
    running.must_go_on(500, "before the faults");
    let stays = |cluster: &Cluster| {
        let lines = cluster.lines(victim);
        lines.iter().filter(|line| line.contains("this replica would end")).cloned().collect::<Vec<_>>()
    };
    for seed in 0..4 * LIMIT {
        let injected = cluster.ask(victim, &json!({"cmd": "inject", "kind": "in-request", "seed": seed}));
        assert_eq!(injected["done"], true, "{injected}");
        running.must_go_on(200, "after a fault in a computation");
    }
    cluster.wait_until("it says that it cannot be spared", |cluster| !stays(cluster).is_empty());
    running.must_go_on(500, "with broken hardware");
    let said = stays(&cluster);
    assert!(said.len() == 1 && said[0].contains("not heard"), "{said:#?}");
    assert_eq!(cluster.drained(), [0; 0]);
    // Once the group can do without it, it ends.
    cluster.signal(away, Signal::CONT);
    corrupt_until_it_ends(&cluster, victim, "in-request");
    running.must_go_on(500, "without the broken one");
    let report = running.stop_and_audit(&clients[..1]);
    println!("{report}");
    report.assert_right();
    cluster.finish();
}
