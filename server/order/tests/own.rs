//! A follower's own batches come back from the leader without their requests, and with them wherever the follower may
//! not have them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use order::{EngineFaults, FrameKind, OwnEntries};

use crate::harness::Cluster;

/// Bytes of each request; a head and the fields of an entry take about a fiftieth.
const LEN: u64 = 4_000;

/// Three replicas, the leader, and the follower whose requests are followed.
fn established(seed: u64, own_entries: OwnEntries) -> (Cluster, u8, u8) {
    let mut cluster = Cluster::new(3, seed);
    (0..3).for_each(|slot| _ = cluster.kill(slot));
    cluster.own_entries = own_entries;
    (0..3).for_each(|slot| cluster.start_empty(slot));
    cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
    cluster.run_until_idle();
    cluster.run(100);
    let leader = cluster.leader().unwrap();
    (cluster, leader, (leader + 1) % 3)
}

fn submit(cluster: &mut Cluster, slot: u8) {
    assert!(cluster.submit_long(slot, LEN as usize));
}

fn is_served(cluster: &mut Cluster) -> bool {
    cluster.acked.len() as u64 == cluster.submitted
}

/// Submits so many requests one after the other, and returns the bytes that the engine of `from` has sent to `to`
/// meanwhile, in requests.
fn requests_sent(cluster: &mut Cluster, origin: u8, count: u64, (from, to): (u8, u8)) -> u64 {
    let bytes = |cluster: &Cluster| cluster.sent.get(&(from, to, FrameKind::Order)).copied().unwrap_or(0);
    let before = bytes(cluster);
    for _ in 0..count {
        submit(cluster, origin);
        cluster.run_until(2_000, "service", is_served);
    }
    (bytes(cluster) - before) / LEN
}

/// As many batches as are needed to see that they come back as heads.
fn assert_heads(cluster: &mut Cluster, origin: u8) {
    let leader = cluster.leader().unwrap();
    assert_eq!(requests_sent(cluster, origin, 5, (leader, origin)), 0, "{}", cluster.describe());
}

fn assert_nobody_stopped(cluster: &mut Cluster) {
    cluster.run_until_idle();
    assert!((0..3).all(|slot| cluster.replica(slot).stopped.is_none()), "{}", cluster.describe());
}

#[test]
fn own_batches_come_back_without_their_requests_and_reach_the_others_with_them() {
    for left_out in [false, true] {
        let (mut cluster, leader, origin) = established(1, OwnEntries { left_out, ..Default::default() });
        let other = (leader + 2) % 3;
        let expected = if left_out { 0..3 } else { 50..53 };
        assert!(expected.contains(&requests_sent(&mut cluster, origin, 50, (leader, origin))));
        assert!((50..53).contains(&requests_sent(&mut cluster, origin, 50, (leader, other))));
        // The leader's own batches, and those of another follower.
        assert!((50..53).contains(&requests_sent(&mut cluster, leader, 50, (leader, origin))));
        assert!((50..53).contains(&requests_sent(&mut cluster, other, 50, (leader, origin))));
        assert_nobody_stopped(&mut cluster);
    }
}

/// What was lost on its way is refused, and comes whole; the next ones do not.
#[test]
fn after_a_refusal_entries_come_whole_and_later_ones_do_not() {
    let (mut cluster, leader, origin) = established(2, OwnEntries::default());
    cluster.cut_links.insert((leader, origin));
    submit(&mut cluster, origin);
    cluster.run(10);
    cluster.cut_links.clear();
    assert!((2..4).contains(&requests_sent(&mut cluster, origin, 1, (leader, origin))));
    assert_heads(&mut cluster, origin);
    assert_nobody_stopped(&mut cluster);
}

#[test]
fn after_a_reconnect_earlier_entries_come_whole() {
    let (mut cluster, leader, origin) = established(3, OwnEntries::default());
    cluster.cut_links.insert((leader, origin));
    submit(&mut cluster, origin);
    cluster.run(10);
    cluster.cut_links.clear();
    cluster.reconnect(leader, origin);
    assert!(requests_sent(&mut cluster, origin, 1, (leader, origin)) >= 1);
    assert_heads(&mut cluster, origin);
    assert_nobody_stopped(&mut cluster);
}

/// The new leader has the entry from the old one, and not from its origin.
#[test]
fn another_leader_sends_earlier_entries_whole() {
    let (mut cluster, leader, origin) = established(4, OwnEntries::default());
    let next = (leader + 2) % 3;
    cluster.cut_links.insert((leader, origin));
    submit(&mut cluster, origin);
    cluster.run(10);
    cluster.kill(leader);
    cluster.cut_links.clear();
    let before = cluster.sent.clone();
    cluster.run_until(3_000, "service", is_served);
    assert_eq!(cluster.leader(), Some(next), "the other one lacks an entry");
    let key = (next, origin, FrameKind::Order);
    assert!(cluster.sent[&key] - before.get(&key).unwrap_or(&0) >= LEN);
    assert_heads(&mut cluster, origin);
    cluster.start_empty(leader);
    assert_nobody_stopped(&mut cluster);
}

/// The batches of the process before are not this one's, and it does not have them.
#[test]
fn a_restarted_origin_gets_what_it_sent_before() {
    for seed in 5..15 {
        let (mut cluster, leader, origin) = established(seed, OwnEntries::default());
        for _ in 0..5 {
            submit(&mut cluster, origin);
            cluster.step();
        }
        cluster.kill(origin);
        cluster.start_empty(origin);
        submit(&mut cluster, leader);
        cluster.run(3_000);
        let lost = cluster.submitted - cluster.acked.len() as u64;
        assert!(lost <= 5, "only what the process had taken and was not answered");
        assert_nobody_stopped(&mut cluster);
        let leader = cluster.leader().unwrap();
        let mut heads = || requests_sent_of_new(&mut cluster, origin, (leader, origin));
        assert_eq!(heads(), 0);
    }
}

/// As [`requests_sent`], where earlier requests have no answer.
fn requests_sent_of_new(cluster: &mut Cluster, origin: u8, (from, to): (u8, u8)) -> u64 {
    let before = cluster.sent[&(from, to, FrameKind::Order)];
    for _ in 0..5 {
        submit(cluster, origin);
        let id = cluster.submitted;
        cluster.run_until(2_000, "service", |cluster| cluster.acked.contains(&id));
    }
    (cluster.sent[&(from, to, FrameKind::Order)] - before) / LEN
}

/// A batch of the follower is on its way; what the follower has kept of it changes. Returns the milliseconds until it
/// is served.
fn damage(cluster: &mut Cluster, origin: u8, at: usize) -> u64 {
    submit(cluster, origin);
    cluster.step();
    assert!(cluster.replica(origin).orderer.engine_mut().corrupt_own(at), "it is on its way");
    cluster.run_until(5_000, "service", is_served)
}

#[test]
fn damaged_requests_do_not_reach_the_log_and_are_blamed_on_their_keeper() {
    // The length of the request, its checksum, its bytes.
    for at in [0, 5, 8, 9, 2_000] {
        let (mut cluster, leader, origin) = established(20, OwnEntries::default());
        let milliseconds = damage(&mut cluster, origin, at);
        assert!(milliseconds < 150, "{milliseconds} ms");
        let blamed = |cluster: &mut Cluster, at: u8| cluster.replica(at).orderer.counters().blamed;
        let mut own = [0; order::limits::SLOTS];
        own[usize::from(origin)] = 1;
        assert_eq!(blamed(&mut cluster, origin), own);
        assert_eq!(blamed(&mut cluster, leader), [0; order::limits::SLOTS]);
        assert_heads(&mut cluster, origin);
        assert_nobody_stopped(&mut cluster);
    }
}

/// The reason for the comparison: the origin alone delivers other bytes.
#[test]
fn without_the_comparison_damaged_requests_are_delivered() {
    let own_entries = OwnEntries { compared: false, ..Default::default() };
    let (mut cluster, _, origin) = established(20, own_entries);
    let served = catch_unwind(AssertUnwindSafe(|| damage(&mut cluster, origin, 2_000)));
    let panic = served.expect_err("the harness compares what it executes");
    assert_eq!(panic.downcast_ref(), Some(&"assertion failed: request.is_intact()"));
}

/// The reason for whole entries after a refusal: the same head would come again and again, until the origin hands its
/// batch over once more.
#[test]
fn without_whole_entries_after_a_refusal_the_origin_waits() {
    let own_entries = OwnEntries { fall_back: false, ..Default::default() };
    let (mut cluster, _, origin) = established(20, own_entries);
    let milliseconds = damage(&mut cluster, origin, 2_000);
    assert!(milliseconds > 300, "{milliseconds} ms");
}

#[test]
fn a_lost_refusal_is_repeated() {
    let (mut cluster, leader, origin) = established(21, OwnEntries::default());
    submit(&mut cluster, origin);
    cluster.step();
    assert!(cluster.replica(origin).orderer.engine_mut().corrupt_own(2_000));
    cluster.step();
    cluster.cut_links.insert((origin, leader));
    cluster.run(120);
    cluster.cut_links.clear();
    assert!(!is_served(&mut cluster));
    let milliseconds = cluster.run_until(1_000, "service", is_served);
    assert!(milliseconds < 200, "{milliseconds} ms");
    assert_nobody_stopped(&mut cluster);
}

/// More than a follower keeps, by their bytes: the oldest are forgotten before they come back, and come whole.
#[test]
fn more_than_is_kept_is_ordered_as_well() {
    let (mut cluster, leader, origin) = established(22, OwnEntries::default());
    let len = 3 << 20;
    let sent =
        |cluster: &Cluster| cluster.sent.get(&(leader, origin, FrameKind::Order)).copied().unwrap_or(0);
    let before = sent(&cluster);
    cluster.cut_links.insert((leader, origin));
    for _ in 0..8 {
        assert!(cluster.submit_long(origin, len));
        cluster.run(2);
    }
    cluster.cut_links.clear();
    cluster.run_until(5_000, "service", is_served);
    assert!(sent(&cluster) - before >= 2 * len as u64);
    assert_nobody_stopped(&mut cluster);
}
