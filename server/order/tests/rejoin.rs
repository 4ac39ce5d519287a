//! Replicas that lost their memory, fell behind the log, or hold a corrupt one: each comes back, and no replica founds
//! a second group.

use crate::harness::{Cluster, Weather, request};
use order::{EngineFaults, FrameKind, Output};

fn established(replicas: u8, seed: u64) -> Cluster {
    let mut cluster = Cluster::new(replicas, seed);
    cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
    cluster
}

/// The same, of replicas that keep so many bytes of their log for members that lack them.
fn established_keeping(replicas: u8, seed: u64, kept_bytes: u64) -> Cluster {
    let mut cluster = Cluster::new(0, seed);
    cluster.kept_bytes = kept_bytes;
    cluster.replicas = (0..replicas).map(|_| None).collect();
    (0..replicas).for_each(|slot| cluster.start_empty(slot));
    cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
    cluster
}

/// Separates a replica from all others, with orders going on among these, until the log that they keep lacks entries
/// that it needs. Returns it, and the leader of the others.
fn leave_behind(cluster: &mut Cluster) -> (u8, u8) {
    cluster.load(200, 200);
    let leader = cluster.leader().unwrap();
    let behind = (leader + 1) % cluster.size();
    for other in (0..cluster.size()).filter(|&other| other != behind) {
        cluster.cut_links.extend([(behind, other), (other, behind)]);
    }
    cluster.load(3_000, 200);
    for other in (0..cluster.size()).filter(|&other| other != behind) {
        while cluster.replica(other).orderer.compact_to(u64::MAX) {}
    }
    let last = cluster.replica(behind).orderer.engine_status().last_index;
    let first = cluster.replica(leader).orderer.engine_status().first_index;
    assert!(first > last + 1, "the log from {first} on does not continue at {last}");
    (behind, leader)
}

#[test]
fn a_restarted_replica_joins_as_a_learner_and_votes_when_it_has_caught_up() {
    for slot in 0..3 {
        let mut cluster = established(3, 10 + u64::from(slot));
        cluster.load(300, 200);
        cluster.kill(slot);
        cluster.load(500, 200);
        cluster.start_empty(slot);
        let watcher = (slot + 1) % 3;
        cluster.run_until(3_000, "a learner", |cluster| cluster.replica(watcher).members.is_learner(slot));
        cluster.run_until(3_000, "a voter", |cluster| cluster.replica(watcher).members.is_voter(slot));
        assert!(cluster.replica(slot).joined);
        cluster.load(200, 200);
        cluster.run_until_idle();
        assert!(cluster.replica(slot).service.len() > 200, "it has the whole history");
    }
}

/// Hardly longer than the state takes to get there: none of the steps waits for a tick; ticks come every 25 ms.
#[test]
fn a_restarted_replica_votes_again_within_a_tick_and_a_half() {
    let mut cluster = established(3, 15);
    cluster.transfer_ms = 5;
    cluster.load(300, 200);
    let slot = (cluster.leader().unwrap() + 1) % 3;
    cluster.kill(slot);
    cluster.load(500, 200);
    cluster.start_empty(slot);
    cluster.run_until(37, "a voter", |cluster| {
        let leader = cluster.leader().unwrap();
        cluster.replica(leader).members.is_voter(slot)
    });
    cluster.run_until_idle();
}

/// In a group that has hardly any log, too, a replica without state gets one before it votes.
#[test]
fn who_has_acknowledged_nothing_is_not_promoted() {
    let mut cluster = established(3, 16);
    cluster.transfer_ms = 500;
    let leader = cluster.leader().unwrap();
    let slot = (leader + 1) % 3;
    assert!((0..5).all(|_| cluster.submit(leader)));
    cluster.run(300);
    cluster.kill(slot);
    cluster.run(100);
    cluster.start_empty(slot);
    cluster.run_until(1_000, "a learner", |cluster| cluster.replica(leader).members.is_learner(slot));
    cluster.run(300);
    assert!(cluster.replica(leader).members.is_learner(slot), "its state is still on its way");
    cluster.run_until_idle();
}

#[test]
fn every_replica_is_restarted_in_turn_several_times_under_load() {
    let mut cluster = established(3, 20);
    cluster.compacting = true;
    for round in 0..9u8 {
        let slot = round % 3;
        cluster.kill(slot);
        cluster.load(300, 200);
        cluster.start_empty(slot);
        cluster.run_until(5_000, "back", |cluster| {
            let watcher = (slot + 1) % 3;
            let members = cluster.replica(watcher).members;
            members.voters.count_ones() == 3 && cluster.replica(slot).members == members
        });
        cluster.load(100, 200);
    }
    cluster.run_until_idle();
    assert!(cluster.acked.len() > 500);
}

#[test]
fn a_replica_that_crashes_while_it_joins_joins_again() {
    let mut cluster = established(3, 30);
    cluster.load(300, 200);
    cluster.transfer_ms = 150;
    cluster.kill(1);
    for _ in 0..4 {
        cluster.start_empty(1);
        cluster.run_until(3_000, "the transfer", |cluster| cluster.replica(1).fetching.is_some());
        cluster.load(50, 200);
        cluster.kill(1);
    }
    cluster.start_empty(1);
    cluster.run_until_idle();
}

#[test]
fn a_checkpoint_that_is_gone_is_replaced_by_another() {
    let mut cluster = established(3, 40);
    cluster.compacting = true;
    cluster.load(300, 200);
    cluster.kill(2);
    cluster.transfer_ms = 400;
    cluster.start_empty(2);
    cluster.run_until(3_000, "the transfer", |cluster| cluster.replica(2).fetching.is_some());
    let (wanted, _) = cluster.replica(2).fetching.unwrap();
    for slot in 0..2 {
        cluster.replica(slot).cuts.clear();
    }
    cluster.load(450, 200);
    cluster.transfer_ms = 20;
    cluster.run_until(5_000, "another checkpoint", |cluster| {
        cluster.replica(2).cuts.last_key_value().is_some_and(|(&cut, _)| cut > wanted)
    });
    cluster.run_until_idle();
}

#[test]
fn a_follower_behind_the_compacted_log_gets_the_state_instead() {
    let mut cluster = established_keeping(3, 50, 10_000);
    cluster.compacting = true;
    cluster.load(200, 200);
    let slot = (cluster.leader().unwrap() + 1) % 3;
    let others: Vec<u8> = (0..3).filter(|&other| other != slot).collect();
    for &other in &others {
        cluster.cut_links.extend([(slot, other), (other, slot)]);
    }
    cluster.load(1_500, 200);
    cluster.submit_checkpoint(others[0]);
    cluster.load(500, 200);
    let first = cluster.replica(others[0]).orderer.engine_status().first_index;
    let last = cluster.replica(slot).orderer.engine_status().last_index;
    assert!(first > last + 1, "compacted to {first}, the follower has {last}");
    cluster.cut_links.clear();
    cluster.run_until_idle();
    assert!(!cluster.replica(slot).joined, "under its old id: it never lost its memory");
}

#[test]
fn a_log_in_memory_is_shortened_without_a_checkpoint() {
    let mut cluster = established_keeping(3, 55, 10_000);
    cluster.load(200, 200);
    let slot = (cluster.leader().unwrap() + 1) % 3;
    let others: Vec<u8> = (0..3).filter(|&other| other != slot).collect();
    for &other in &others {
        cluster.cut_links.extend([(slot, other), (other, slot)]);
    }
    cluster.load(2_000, 200);
    for &other in &others {
        let orderer = &mut cluster.replica(other).orderer;
        let before = orderer.engine_status().log_bytes;
        while orderer.compact_to(u64::MAX) {}
        let after = orderer.engine_status();
        assert!(after.first_index > 100 && after.log_bytes < before / 4, "{before} bytes, then {after:?}");
    }
    let last = cluster.replica(slot).orderer.engine_status().last_index;
    assert!(cluster.replica(others[0]).orderer.engine_status().first_index > last + 1);
    cluster.cut_links.clear();
    cluster.run_until_idle();
}

#[test]
fn entries_that_a_silent_voter_lacks_are_kept_up_to_the_bound() {
    for kept_bytes in [order::limits::KEPT_BYTES, 10_000] {
        let mut cluster = established_keeping(3, 56, kept_bytes);
        cluster.load(200, 200);
        let behind = (cluster.leader().unwrap() + 1) % 3;
        for other in (0..3).filter(|&other| other != behind) {
            cluster.cut_links.extend([(behind, other), (other, behind)]);
        }
        cluster.load(3_000, 200);
        let last = cluster.replica(behind).orderer.engine_status().last_index;
        for other in (0..3).filter(|&other| other != behind) {
            while cluster.replica(other).orderer.compact_to(u64::MAX) {}
            let engine_status = cluster.replica(other).orderer.engine_status();
            let is_kept = engine_status.first_index <= last + 1;
            assert_eq!(is_kept, kept_bytes > 10_000, "{last} and {engine_status:?}");
        }
        cluster.run_until_idle();
    }
}

/// A leader that lets a replica in keeps the entries behind the state that it offers, and so do the others: the leader
/// may end before the replica has them.
#[test]
fn a_leader_that_ends_during_a_transfer_leaves_the_entries_after_the_state() {
    let mut cluster = established(3, 57);
    cluster.transfer_ms = 4_000;
    cluster.load(200, 200);
    let leader = cluster.leader().unwrap();
    let (joiner, other) = ((leader + 1) % 3, (leader + 2) % 3);
    cluster.kill(joiner);
    cluster.start_empty(joiner);
    cluster.run_until(3_000, "the transfer", |cluster| cluster.replica(joiner).fetching.is_some());
    let (cut, _) = cluster.replica(joiner).fetching.unwrap();
    cluster.load(2_000, 200);
    while cluster.replica(other).orderer.compact_to(u64::MAX) {}
    let first = cluster.replica(other).orderer.engine_status().first_index;
    assert!(first <= cut + 1, "the state is of entry {cut}, and the log begins at {first}");
    cluster.run_until_idle();
}

#[test]
fn a_former_leader_keeps_no_log_for_those_that_it_filled() {
    let mut cluster = established_keeping(3, 58, 10_000);
    cluster.transfer_ms = 60_000;
    cluster.load(200, 200);
    let leader = cluster.leader().unwrap();
    let joiner = (leader + 1) % 3;
    cluster.kill(joiner);
    cluster.start_empty(joiner);
    cluster.run_until(3_000, "the transfer", |cluster| cluster.replica(joiner).fetching.is_some());
    cluster.kill(joiner);
    while cluster.leader() == Some(leader) {
        cluster.replica((leader + 2) % 3).orderer.call_election();
        cluster.run(200);
    }
    cluster.load(12_000, 200);
    assert_ne!(cluster.leader(), Some(leader));
    while cluster.replica(leader).orderer.compact_to(u64::MAX) {}
    let engine_status = cluster.replica(leader).orderer.engine_status();
    assert!(engine_status.log_bytes < 200_000, "{engine_status:?}");
}

/// Of three replicas one is left behind, and one of the two that are level ends: the other one has everything, and no
/// CHECKPOINT can be ordered. It gives its state as it is, whether it led before or not.
#[test]
fn the_last_level_replica_fills_the_one_that_was_left_behind() {
    for ends_leader in [true, false] {
        let mut cluster = established_keeping(3, 59, 10_000);
        let (behind, leader) = leave_behind(&mut cluster);
        let other = (0..3).find(|slot| ![behind, leader].contains(slot)).unwrap();
        let (gone, left) = if ends_leader { (leader, other) } else { (other, leader) };
        cluster.kill(gone);
        cluster.cut_links.clear();
        let acked = cluster.acked.len();
        let level = |cluster: &mut Cluster| cluster.leader() == Some(left);
        cluster.run_until(5_000, "the one with everything leads", level);
        cluster.submit(left);
        let goes_on = |cluster: &mut Cluster| cluster.acked.len() > acked;
        cluster.run_until(5_000, "a reply", goes_on);
        assert!(cluster.replica(left).unordered_cuts > 0 && !cluster.replica(behind).joined);
        cluster.load(300, 200);
        cluster.start_empty(gone);
        cluster.run_until_idle();
    }
}

/// With five replicas, two level ones and one that was left behind are a majority.
#[test]
fn of_five_two_level_replicas_fill_the_third() {
    let mut cluster = established_keeping(5, 61, 10_000);
    let (behind, leader) = leave_behind(&mut cluster);
    let ended: Vec<u8> = (0..5).filter(|slot| ![behind, leader].contains(slot)).take(2).collect();
    let tolerance = cluster.replica(leader).orderer.tolerance().unwrap();
    assert_eq!((tolerance.failures, tolerance.away), (1, 1 << behind));
    ended.iter().for_each(|&slot| _ = cluster.kill(slot));
    cluster.cut_links.clear();
    let acked = cluster.acked.len();
    cluster.submit(leader);
    cluster.run_until(5_000, "a reply", |cluster| cluster.acked.len() > acked);
    ended.iter().for_each(|&slot| cluster.start_empty(slot));
    cluster.run_until_idle();
}

#[test]
fn a_leader_says_how_many_more_may_fail_and_why_not_more() {
    let mut cluster = established_keeping(3, 62, 10_000);
    let tolerance = |cluster: &mut Cluster| {
        let leader = cluster.leader().unwrap();
        cluster.replica(leader).orderer.tolerance().unwrap()
    };
    cluster.load(300, 200);
    let found = tolerance(&mut cluster);
    assert_eq!((found.failures, found.level), (1, 0b111), "{found:?}");
    let (behind, leader) = leave_behind(&mut cluster);
    let found = tolerance(&mut cluster);
    assert_eq!((found.failures, found.away), (0, 1 << behind), "{found:?}");
    // It is there again, and needs a state: still the others are the only ones with everything.
    cluster.transfer_ms = 1_000;
    cluster.cut_links.clear();
    cluster.run_until(3_000, "the transfer", |cluster| cluster.replica(behind).fetching.is_some());
    let found = tolerance(&mut cluster);
    assert_eq!((found.failures, found.behind), (0, 1 << behind), "{found:?}");
    cluster.run_until_idle();
    cluster.run(200);
    assert_eq!(tolerance(&mut cluster).failures, 1);
    // One that ended is away, then on its way in, and counts when it votes.
    let slot = (leader + 2) % 3;
    cluster.kill(slot);
    cluster.run(100);
    assert_eq!(tolerance(&mut cluster).away, 1 << slot);
    cluster.start_empty(slot);
    cluster.run_until(3_000, "the transfer", |cluster| cluster.replica(slot).fetching.is_some());
    let found = tolerance(&mut cluster);
    assert_eq!((found.failures, found.joining), (0, 1 << slot), "{found:?}");
    cluster.run_until_idle();
    cluster.run(200);
    assert_eq!(tolerance(&mut cluster).failures, 1);
}

#[test]
fn a_lone_survivor_of_two_lost_memories_founds_nothing_and_loses_nothing() {
    let mut cluster = established(3, 60);
    cluster.load(300, 200);
    for slot in [0, 1] {
        cluster.kill(slot);
        cluster.start_empty(slot);
    }
    cluster.run(5_000);
    for slot in [0, 1] {
        assert_eq!(cluster.replica(slot).orderer.engine_status().incarnation, None, "it waits");
    }
    assert!(!cluster.replica(2).service.is_empty());
    assert_eq!(cluster.leader(), None);
}

#[test]
fn a_fresh_majority_does_not_found_a_second_group() {
    // Two of three found nothing while the third, which may know better, is silent.
    let mut cluster = established(3, 70);
    cluster.load(300, 200);
    for slot in [0, 1] {
        cluster.cut_links.extend([(slot, 2), (2, slot)]);
        cluster.kill(slot);
        cluster.start_empty(slot);
    }
    cluster.run(5_000);
    assert_eq!(cluster.leader(), None, "no group of two forgetful replicas");
}

#[test]
fn a_replica_paused_for_long_is_served_past_and_catches_up() {
    let mut cluster = established(3, 80);
    let slot = (cluster.leader().unwrap() + 2) % 3;
    for other in (0..3).filter(|&other| other != slot) {
        cluster.cut_links.extend([(slot, other), (other, slot)]);
    }
    let before = cluster.acked.len();
    cluster.load(3_000, 200);
    assert!(cluster.acked.len() > before + 500);
    cluster.run_until_idle();
}

#[test]
fn an_entry_corrupted_in_memory_stops_its_replica_and_is_never_delivered() {
    let mut cluster = established(3, 90);
    cluster.load(200, 200);
    // At the leader, between its append and its delivery: the body a client sent is changed at rest.
    let leader = cluster.leader().unwrap();
    cluster.submit(leader);
    cluster.replica(leader).orderer.pump(0);
    while cluster.replica(leader).orderer.poll_output().is_some() {}
    let last = cluster.replica(leader).orderer.engine_status().last_index;
    assert!(cluster.replica(leader).orderer.engine_mut().corrupt_entry(last, 12));
    cluster.run_until(3_000, "the fail-stop", |cluster| cluster.replica(leader).stopped.is_some());
    let reason = cluster.replica(leader).stopped.clone().unwrap();
    assert!(reason.contains(&format!("log entry {last} is corrupt")), "{reason}");
    cluster.kill(leader);
    cluster.load(1_000, 200);
    cluster.start_empty(leader);
    cluster.run_until_idle();
}

#[test]
fn an_old_entry_corrupted_at_the_leader_reaches_no_follower() {
    let mut cluster = established(3, 95);
    let leader = cluster.leader().unwrap();
    let behind = (leader + 1) % 3;
    for other in (0..3).filter(|&other| other != behind) {
        cluster.cut_links.extend([(behind, other), (other, behind)]);
    }
    cluster.load(500, 200);
    assert_eq!(cluster.leader(), Some(leader));
    // Delivered long ago everywhere else; only the follower that was away still needs it.
    let index = cluster.replica(leader).orderer.state().index - 20;
    assert!(cluster.replica(leader).orderer.engine_mut().corrupt_entry(index, 12));
    cluster.cut_links.clear();
    cluster.run_until(3_000, "the fail-stop", |cluster| cluster.replica(leader).stopped.is_some());
    let reason = cluster.replica(leader).stopped.clone().unwrap();
    assert!(reason.contains(&format!("log entry {index} is corrupt")), "{reason}");
    assert!(cluster.replica(behind).orderer.counters().blamed[usize::from(leader)] > 0);
    cluster.kill(leader);
    cluster.load(1_000, 200);
    cluster.start_empty(leader);
    cluster.run_until_idle();
}

#[test]
fn frames_that_no_healthy_peer_sends_are_blamed_and_stop_nobody() {
    let mut cluster = established(3, 100);
    cluster.load(100, 200);
    let leader = cluster.leader().unwrap();
    let follower = (leader + 1) % 3;
    // A real frame of the leader, with each byte changed in turn after its frame checksum was verified.
    let orderer = &mut cluster.replica(leader).orderer;
    orderer.submit(request(bytes::Bytes::from_static(b"\0abcdefgh")), 0, 9).unwrap();
    orderer.pump(1);
    let mut body = None;
    while let Some(output) = orderer.poll_output() {
        if let Output::Send { to, kind: FrameKind::Order, body: sent, .. } = output
            && to == follower
        {
            body = Some(sent.joined());
        }
    }
    let body = body.expect("the leader appends");
    for at in 0..body.len() {
        for bit in [0, 3, 7] {
            let mut broken = body.to_vec();
            broken[at] ^= 1 << bit;
            let _ = cluster.replica(follower).orderer.on_frame(leader, FrameKind::Order, broken.into());
            cluster.replica(follower).orderer.pump(0);
        }
    }
    assert_eq!(cluster.replica(follower).stopped, None);
    assert!(cluster.replica(follower).orderer.counters().blamed[usize::from(leader)] > 100);
}

#[test]
fn storms_of_restarts_in_bad_weather() {
    for seed in 0..8 {
        let mut cluster = established(3, 200 + seed);
        cluster.compacting = true;
        cluster.weather = Weather { drop: 20, duplicate: 20, delay: 5, reorder: true, corrupt: 3 };
        for _ in 0..4 {
            cluster.load(200, 200);
            let slot = cluster.rng.modulo(3) as u8;
            let whole = cluster.replicas.iter().flatten().all(|r| r.members.voters.count_ones() == 3);
            if whole {
                cluster.kill(slot);
                cluster.load(200, 200);
                cluster.start_empty(slot);
            }
            cluster.load(600, 200);
        }
        cluster.run_until_idle();
    }
}
