//! The order's promises on a network that drops, doubles, delays, overtakes, corrupts and parts: agreement,
//! exactly once, no loss.

use order::OrderEngine;

use crate::harness::{Cluster, Weather};

fn established(replicas: u8, seed: u64) -> Cluster {
    let mut cluster = Cluster::new(replicas, seed);
    cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
    cluster
}

#[test]
fn three_and_five_replicas_agree_on_a_quiet_network() {
    for replicas in [3, 5] {
        let mut cluster = established(replicas, 7);
        cluster.load(1_000, 500);
        cluster.run_until_idle();
        assert_eq!(cluster.acked.len() as u64, cluster.submitted);
        assert!(cluster.submitted > 1_000);
    }
}

/// Loss, doubles, delays and broken bytes at once, with a leader that is killed meanwhile and comes back without
/// memory.
fn storm(replicas: u8, seed: u64, weather: Weather) {
    let mut cluster = established(replicas, seed);
    cluster.compacting = seed.is_multiple_of(2);
    cluster.weather = weather;
    cluster.load(800, 100);
    if let Some(leader) = cluster.leader() {
        cluster.kill(leader);
        cluster.load(700, 100);
        cluster.start_empty(leader);
    }
    cluster.load(800, 100);
    if cluster.compacting {
        let slot = cluster.running()[0];
        cluster.submit_checkpoint(slot);
    }
    cluster.load(800, 100);
    cluster.run_until_idle();
}

#[test]
fn promises_hold_when_frames_are_lost_doubled_late_and_out_of_order() {
    let weather = Weather { drop: 30, duplicate: 30, delay: 8, reorder: true, corrupt: 0 };
    for seed in 0..12 {
        storm(3, seed, weather);
    }
    for seed in 0..4 {
        storm(5, 100 + seed, weather);
    }
}

#[test]
fn promises_hold_when_bytes_are_corrupted_and_connections_reset() {
    let weather = Weather { corrupt: 10, delay: 4, ..Weather::default() };
    // With seed 153 a leader that stepped down took its own proposals, which no other replica had, for committed.
    for seed in 0..160 {
        storm(3, 200 + seed, weather);
    }
}

#[test]
fn the_minority_stops_and_catches_up_when_the_network_heals() {
    for seed in 0..6 {
        let mut cluster = established(5, 300 + seed);
        cluster.load(300, 100);
        let leader = cluster.leader().unwrap();
        let other = (leader + 1) % 5;
        for inside in [leader, other] {
            for outside in (0..5).filter(|slot| ![leader, other].contains(slot)) {
                cluster.cut_links.extend([(inside, outside), (outside, inside)]);
            }
        }
        cluster.load(2_500, 100);
        let elsewhere = cluster.leader().unwrap();
        assert!(![leader, other].contains(&elsewhere), "the majority elected its own leader");
        assert_eq!(
            cluster.replica(leader).orderer.engine_status().leader,
            None,
            "the old leader stepped down by itself"
        );
        cluster.run_until_idle();
        assert_eq!(cluster.acked.len() as u64, cluster.submitted, "also the minority's requests, in the end");
    }
}

#[test]
fn service_is_back_well_within_a_second_after_the_leader_is_killed() {
    let mut worst = 0;
    for seed in 0..20 {
        let mut cluster = established(3, 400 + seed);
        cluster.load(200, 200);
        let leader = cluster.leader().unwrap();
        cluster.kill(leader);
        let client = cluster.running()[0];
        let before = cluster.acked.len();
        cluster.submit(client);
        worst = worst.max(cluster.run_until(1_000, "service", |cluster| cluster.acked.len() > before));
    }
    assert!(worst < 400, "{worst} ms");
}

#[test]
fn a_leader_that_lives_and_orders_nothing_is_replaced() {
    for replicas in [3, 5] {
        for seed in 0..6 {
            let mut cluster = established(replicas, 430 + seed);
            cluster.load(200, 200);
            cluster.run_until_idle();
            let leader = cluster.leader().unwrap();
            cluster.replica(leader).deaf = true;
            let clients: Vec<u8> = cluster.running().into_iter().filter(|slot| *slot != leader).collect();
            clients.iter().for_each(|slot| assert!(cluster.submit(*slot)));
            cluster.run_until(5_000, "another leader", |cluster| {
                cluster.acked.len() as u64 == cluster.submitted
            });
            assert_ne!(cluster.leader(), Some(leader));
            let campaigns: u64 =
                clients.iter().map(|slot| cluster.replica(*slot).orderer.counters().impatient).sum();
            assert!((1..3).contains(&campaigns), "{campaigns} campaigns");
        }
    }
}

#[test]
fn with_three_replicas_a_follower_knows_by_itself_what_is_final() {
    for replicas in [3, 5] {
        let mut cluster = established(replicas, 450);
        cluster.run(200);
        let leader = cluster.leader().unwrap();
        let before = cluster.replica(leader).orderer.state().index;
        // No message reaches the leader any more, so it can send no commit index.
        cluster.cut_links.extend((0..replicas).map(|from| (from, leader)));
        cluster.submit(leader);
        cluster.run(50);
        let after: Vec<bool> =
            (0..replicas).map(|slot| cluster.replica(slot).orderer.state().index > before).collect();
        let expected: Vec<bool> = (0..replicas).map(|slot| replicas == 3 && slot != leader).collect();
        assert_eq!(after, expected, "{replicas} replicas, led by {leader}");
        cluster.kill(leader);
        cluster.run_until(2_000, "another leader", |cluster| cluster.leader().is_some());
        cluster.start_empty(leader);
        // The deliveries of a follower are part of every later order: `run_until_idle` compares them.
        cluster.run_until_idle();
    }
}

#[test]
fn leadership_is_handed_over_without_a_gap_in_service() {
    let mut cluster = established(3, 500);
    for round in 0..6u8 {
        cluster.load(100, 300);
        let leader = cluster.leader().unwrap();
        let next = (leader + 1 + round % 2) % 3;
        cluster.replica(leader).orderer.engine_mut().transfer_leader(next);
        cluster.run_until(200, "the hand-over", |cluster| cluster.leader() == Some(next));
    }
    cluster.run_until_idle();
    assert_eq!(cluster.acked.len() as u64, cluster.submitted);
}

/// A leader that is asked to stop names the voter that lacks the least, among those that it may name.
#[test]
fn the_leadership_goes_to_the_one_with_the_longest_log() {
    for first in [1, 2u8] {
        let mut cluster = established(3, 500);
        cluster.load(100, 300);
        let leader = cluster.leader().unwrap();
        let (behind, close) = ((leader + first) % 3, (leader + 3 - first) % 3);
        cluster.kill(behind);
        cluster.load(200, 300);
        let named =
            |cluster: &mut Cluster, among| cluster.replica(leader).orderer.engine_mut().successor(among);
        assert_eq!(named(&mut cluster, 0b111), Some(close), "{behind} lacks what came since it was killed");
        assert_eq!(named(&mut cluster, 1 << behind), Some(behind));
        assert_eq!(named(&mut cluster, 1 << leader), None);
        assert_eq!(cluster.replica(close).orderer.engine_mut().successor(0b111), None, "it does not lead");
    }
}

#[test]
fn the_leader_waits_for_a_slow_follower_but_not_for_a_stuck_one() {
    let mut cluster = established(3, 600);
    cluster.load(100, 200);
    let leader = cluster.leader().unwrap();
    let slow = (leader + 1) % 3;
    // Its pipeline makes no progress: it acknowledges entries but takes no delivery.
    cluster.replica(slow).stuck = true;
    cluster.load(450, 1_000);
    let behind = |cluster: &mut Cluster| {
        cluster.replica(leader).orderer.engine_status().last_index
            - cluster.replica(slow).orderer.state().index
    };
    assert!((200..=256 + 8).contains(&behind(&mut cluster)), "{} entries", behind(&mut cluster));
    cluster.run(order::limits::STUCK_TICKS * 25);
    let before = cluster.acked.len();
    cluster.load(1_000, 500);
    assert!(cluster.acked.len() > before + 500, "the others go on without it");
    cluster.replica(slow).stuck = false;
    cluster.run_until_idle();
    assert_eq!(cluster.acked.len() as u64, cluster.submitted, "and it catches up when it moves again");
}

#[test]
fn the_leader_does_not_wait_for_a_dead_follower() {
    let mut cluster = established(3, 601);
    cluster.load(100, 200);
    let dead = (cluster.leader().unwrap() + 1) % 3;
    cluster.kill(dead);
    let before = cluster.acked.len();
    cluster.load(1_000, 500);
    assert!(cluster.acked.len() > before + 500, "the others go on");
}

#[test]
fn a_full_queue_pushes_back_and_loses_nothing() {
    let mut cluster = established(3, 700);
    let slot = cluster.leader().unwrap();
    cluster.cut_links.extend([(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)]);
    let mut taken = 0;
    while cluster.submit(slot) {
        taken += 1;
    }
    assert!(!cluster.replica(slot).orderer.can_accept());
    assert!(taken >= order::limits::COLLECTED_REQUESTS);
    cluster.run_until_idle();
    assert_eq!(cluster.acked.len(), taken);
}
