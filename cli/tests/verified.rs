//! Mode `R0GV`, with real processes: batches run first and are verified afterwards, through kills and faults.

use crate::support::checker::Load;
use crate::support::cluster::{Cluster, Wish};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;

/// How long a client waits for a reply before it connects to another replica.
const CLIENT_PATIENCE: Duration = Duration::from_secs(2);

fn up(workers: usize) -> Cluster {
    Cluster::up(&Wish { mode: "R0GV", workers, ..Wish::default() })
}

fn load(cluster: &Cluster) -> Load {
    Load { patience: CLIENT_PATIENCE, ..Load::on(cluster.clients()) }
}

/// Kills one replica after the other, the primary of the view first. With one worker each: with several the group has
/// been seen to stop after a kill (docs/operations.md).
#[test]
fn each_replica_is_killed_in_turn() {
    let cluster = up(1);
    let running = load(&cluster).start();
    for round in 0..3 {
        let victim = (cluster.leader() + round % 2) % 3;
        running.must_go_on(1_000, "before a replica is killed");
        let before = cluster.pid(victim);
        cluster.signal(victim, Signal::KILL);
        running.must_go_on(300, "while a replica is down");
        cluster.wait_until("it was started again", |cluster| cluster.pid(victim) != before);
        cluster.wait_serving();
    }
    let report = running.stop_and_audit(cluster.clients());
    println!("{report}");
    report.assert_right();
    cluster.assert_equal_state();
    cluster.finish();
}

/// A fault in the execution at one of three: the others agree without it, and it runs the batch again.
#[test]
fn what_differs_at_one_replica_is_masked_and_level_again() {
    let cluster = up(2);
    let running = load(&cluster).start();
    running.must_go_on(500, "before the faults");
    let mut injected = 0;
    for seed in 0..18 {
        let (victim, kind) = (seed % 3, ["in-request", "reply", "digest"][seed / 3 % 3]);
        let answer = cluster.ask(victim, &json!({"cmd": "inject", "kind": kind, "seed": seed}));
        injected += u64::from(answer["done"] == true);
        running.must_go_on(300, "after a fault");
        cluster.wait_serving();
    }
    let report = running.stop_and_audit(cluster.clients());
    println!("{injected} faults: {report}");
    report.assert_right();
    let told: Vec<Value> = (0..3).flat_map(|victim| cluster.evidence(victim, 0)).collect();
    let masked = told
        .iter()
        .filter(|record| record["outcome"].as_str().is_some_and(|outcome| outcome.starts_with("masked")));
    println!("{} records, {} masked; replaced: {:?}", told.len(), masked.clone().count(), cluster.replaced());
    assert!(masked.count() >= 3, "{told:#?}");
    cluster.assert_equal_state();
    cluster.finish();
}
