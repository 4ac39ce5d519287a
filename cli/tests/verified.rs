//! Mode `R0GV`, with real processes: batches run first and are verified afterwards, through kills and faults.

use crate::failover::{kill_and_wait, load};
use crate::support::cluster::{Cluster, Wish};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;

fn up(workers: usize) -> Cluster {
    Cluster::up(&Wish { mode: "R0GV", workers, ..Wish::default() })
}

/// Kills one replica after the other, the primary of the view first.
#[test]
fn each_replica_is_killed_in_turn() {
    for workers in [1, 2] {
        let cluster = up(workers);
        let running = load(&cluster).start();
        for round in 0..3 {
            let victim = (cluster.leader() + round % 2) % 3;
            running.must_go_on(1_000, "before a replica is killed");
            kill_and_wait(&cluster, victim);
            running.must_go_on(300, "after a replica was killed");
        }
        let report = running.stop_and_audit(cluster.clients());
        println!("{workers} workers: {report}");
        report.assert_right();
        cluster.assert_equal_state();
        cluster.finish();
    }
}

/// A replica that was stopped is thousands of batches behind, and has given up what takes them back, when the primary
/// is killed: it keeps them, and the group goes on with it.
#[test]
fn the_primary_is_killed_while_another_replica_lags() {
    let cluster = up(2);
    let running = load(&cluster).start();
    for round in 0..2 {
        let primary = cluster.leader();
        let lags = (primary + 1 + round) % 3;
        running.must_go_on(1_000, "before a replica is stopped");
        cluster.signal(lags, Signal::STOP);
        running.must_go_on(20_000, "while a replica is stopped");
        cluster.signal(lags, Signal::CONT);
        std::thread::sleep(Duration::from_millis(100));
        kill_and_wait(&cluster, primary);
        running.must_go_on(300, "after the primary was killed");
    }
    let report = running.stop_and_audit(cluster.clients());
    println!("{report}; replaced: {:?}", cluster.replaced());
    report.assert_right();
    cluster.assert_equal_state();
    cluster.finish();
}

/// A fault in the execution at one of three: where the others agree without it, it runs the batch again; where the
/// verifiers wait for all tokens, all take the batch back. Either way the evidence names it.
#[test]
fn what_differs_at_one_replica_is_masked_and_level_again() {
    let cluster = up(2);
    let running = load(&cluster).start();
    running.must_go_on(500, "before the faults");
    let mut injected = [0; 3];
    for seed in 0..18 {
        let (victim, kind) = (seed % 3, ["in-request", "reply", "digest"][seed / 3 % 3]);
        let answer = cluster.ask(victim, &json!({"cmd": "inject", "kind": kind, "seed": seed}));
        injected[victim] += u64::from(answer["done"] == true);
        running.must_go_on(300, "after a fault");
        cluster.wait_serving();
    }
    let report = running.stop_and_audit(cluster.clients());
    println!("{injected:?} faults: {report}");
    report.assert_right();
    let told: Vec<Value> = (0..3).flat_map(|seen_by| cluster.evidence(seen_by, 0)).collect();
    println!("{} records; replaced: {:?}", told.len(), cluster.replaced());
    for victim in 0..3 {
        let is_masked = |record: &&Value| {
            let outcome = record["outcome"].as_str().unwrap_or_default();
            record["replica"] == json!(victim + 1) && outcome.starts_with("masked")
        };
        let masked = told.iter().filter(is_masked).count();
        assert!(
            masked > 0 && injected[victim] > 0,
            "replica {}: {masked} masked of {injected:?}",
            victim + 1
        );
    }
    cluster.assert_equal_state();
    cluster.finish();
}
