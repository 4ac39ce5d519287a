//! A leader whose stamps run ahead of f+1 clocks: they are refused, it is deposed, and time continues correctly.

use crate::harness::Cluster;

const HOUR: u64 = 3_600_000_000;
/// How long the group may take to have another leader and to order again, in milliseconds.
const PATIENCE: u64 = 2_000;

fn established(replicas: u8, seed: u64) -> Cluster {
    let mut cluster = Cluster::new(replicas, seed);
    cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
    cluster.load(300, 100);
    cluster
}

/// By how much the latest ordered time at each replica is ahead of the true time.
fn ahead(cluster: &mut Cluster) -> Vec<u64> {
    let now_us = 1_000 * cluster.now + 1_000_000_000;
    cluster.running().into_iter().map(|slot| cluster.replica(slot).last_time.saturating_sub(now_us)).collect()
}

#[test]
fn a_corrupted_stamp_is_ordered_by_nobody_and_its_leader_is_deposed() {
    for (number, bits) in [1 << 62, HOUR.next_power_of_two(), 1 << 40, u64::MAX >> 1].into_iter().enumerate()
    {
        for replicas in [3, 5] {
            let mut cluster = established(replicas, 40 + number as u64);
            let leader = cluster.leader().expect("there is one");
            cluster.replica(leader).orderer.corrupt_stamp(bits);
            cluster.load(PATIENCE, 100);
            assert!(
                ahead(&mut cluster).iter().all(|ahead| *ahead < 600_000),
                "{bits:x}: {:?}",
                ahead(&mut cluster)
            );
            assert_ne!(cluster.leader(), Some(leader), "{bits:x}");
            let named =
                |cluster: &mut Cluster, slot: u8| cluster.replica(slot).stamps_refused.contains(&leader);
            let by = cluster.running().into_iter().filter(|slot| named(&mut cluster, *slot)).count();
            assert!(by > 0, "{bits:x}");
            cluster.run_until_idle();
        }
    }
}

#[test]
fn a_leader_whose_clock_is_ahead_is_deposed_and_time_goes_on() {
    let mut cluster = established(3, 7);
    let leader = cluster.leader().expect("there is one");
    cluster.replica(leader).clock_us = HOUR as i64;
    cluster.load(PATIENCE, 100);
    assert_ne!(cluster.leader(), Some(leader));
    assert!(ahead(&mut cluster).iter().all(|ahead| *ahead < 600_000), "{:?}", ahead(&mut cluster));
    let acked = cluster.acked.len();
    cluster.load(500, 100);
    assert!(cluster.acked.len() > acked + 20, "requests are ordered again");
    cluster.run_until_idle();
}

/// The negative control: a follower that accepts any stamp lets one clock decide.
#[test]
fn where_any_stamp_is_believed_one_clock_moves_time_for_all() {
    let mut cluster = Cluster::new(3, 7);
    cluster.latest_us = None;
    cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
    cluster.load(300, 100);
    let leader = cluster.leader().expect("there is one");
    cluster.replica(leader).clock_us = HOUR as i64;
    cluster.load(500, 100);
    assert!(ahead(&mut cluster).iter().all(|ahead| *ahead > HOUR / 2));
}

/// An entry that was accepted when it was new stays valid: a replica whose clock was corrected meanwhile still gets it.
#[test]
fn entries_that_are_final_are_taken_whatever_their_stamps() {
    let mut cluster = Cluster::new(3, 11);
    cluster.latest_us = None;
    cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
    let leader = cluster.leader().expect("there is one");
    let away = (leader + 1) % 3;
    for peer in 0..3u8 {
        cluster.cut_links.extend([(peer, away), (away, peer)]);
    }
    cluster.replica(leader).clock_us = HOUR as i64;
    cluster.load(300, 100);
    cluster.replica(leader).clock_us = 0;
    cluster.latest_us = Some(500_000);
    cluster.cut_links.clear();
    cluster.load(1_500, 100);
    cluster.run_until_idle();
}
