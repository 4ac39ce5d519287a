//! The order's promises on a network that drops, doubles, delays, overtakes, corrupts and parts: agreement, exactly once, no loss.

mod harness;

use harness::{Cluster, Weather};

fn established(replicas: u8, seed: u64) -> Cluster {
    let mut cluster = Cluster::new(replicas, seed);
    cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
    cluster
}

/// Submits at random replicas while `milliseconds` pass.
fn load(cluster: &mut Cluster, milliseconds: u64, per_mille: u64) {
    for _ in 0..milliseconds {
        for slot in cluster.running() {
            if cluster.rng.chance(per_mille) {
                cluster.submit(slot);
            }
        }
        cluster.step();
    }
}

#[test]
fn three_and_five_replicas_agree_on_a_quiet_network() {
    for replicas in [3, 5] {
        let mut cluster = established(replicas, 7);
        load(&mut cluster, 1_000, 500);
        cluster.settle();
        assert_eq!(cluster.acked.len() as u64, cluster.submitted);
        assert!(cluster.submitted > 1_000);
    }
}
