//! How often `up` starts a replica again: at once after a single death, and no more than every 5 s if each start ends
//! soon.

use node::cluster::SupervisorEvent;
use rustix::process::Signal;

use crate::support::cluster::{Cluster, Wish};

/// The longest pause, in milliseconds.
const LONGEST_MS: u64 = 5_000;

#[test]
fn a_replica_that_dies_at_each_start_is_started_every_five_seconds_at_last() {
    let cluster =
        Cluster::up(&Wish { replicas: 1, mode: "00G0", workers: 1, restart_after: None, ..Wish::default() });
    let mut killed = Vec::new();
    cluster.wait_until("two of the longest pauses have begun", |cluster| {
        let pid = cluster.pid(0);
        if !killed.contains(&pid) {
            cluster.signal(0, Signal::KILL);
            killed.push(pid);
        }
        pauses(cluster).iter().filter(|pause| **pause == LONGEST_MS).count() == 2
    });
    let pauses = pauses(&cluster);
    assert_eq!(pauses[..6], [100, 200, 400, 800, 1_600, 3_200]);
    assert_eq!(pauses[6..], [LONGEST_MS; 2], "shorter ones come never again");
    cluster.finish();
}

/// The pauses before the starts of replica 1, in milliseconds.
fn pauses(cluster: &Cluster) -> Vec<u64> {
    let pause = |event| match event {
        SupervisorEvent::Died { pause_ms, .. } => Some(pause_ms),
        _ => None,
    };
    cluster.events().into_iter().filter_map(pause).collect()
}
