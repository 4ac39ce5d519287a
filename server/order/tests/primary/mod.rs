//! Batches that a primary numbers, with views that begin after any of them: every replica has the same order, and each
//! request is executed once after all.

mod harness;

use bytes::Bytes;
use order::batch::{Batch, Request, checksum};
use order::{FrameKind, State};
use wire::SplitMix64;

use crate::harness::Weather;
use harness::Cluster;

const ALL: u16 = 0b111;

/// ASK-BATCH, by its first byte.
const ASK: (FrameKind, u8) = (FrameKind::Batch, 2);

#[test]
fn three_and_five_replicas_execute_the_same_batches() {
    for replicas in [3, 5] {
        let mut cluster = Cluster::new(replicas, 1);
        cluster.quorum = usize::from(replicas / 2);
        cluster.load(1_000, 500);
        cluster.run_until_idle();
        assert_eq!(cluster.acked, cluster.submitted);
        assert!(cluster.submitted.len() > 1_000);
    }
}

/// Near saturation a batch of the primary has several parts; without load it has one.
#[test]
fn batches_are_small_when_little_is_to_do_and_large_when_much_is() {
    let mut cluster = Cluster::new(3, 2);
    cluster.load(500, 20);
    cluster.run_until_idle();
    let (few, requests) = (cluster.chain.len(), cluster.acked.len());
    assert!(requests < 2 * few, "{requests} requests in {few} batches");
    for _ in 0..200 {
        (0..3).for_each(|slot| (0..100).for_each(|_| cluster.submit(slot)));
        cluster.step();
    }
    cluster.run_until_idle();
    let (many, requests) = (cluster.chain.len() - few, cluster.acked.len() - requests);
    assert!(requests > 200 * many, "{requests} requests in {many} batches");
}

/// Views begin again and again, with another primary or the same, after the stable batch or one beyond it; now and then
/// a replica takes batches back within a view.
fn storm(seed: u64, weather: Weather) -> Cluster {
    let mut cluster = Cluster::new(3, seed);
    cluster.load(50, 200);
    cluster.weather = weather;
    for round in 0..12 {
        cluster.load(60, 200);
        match round % 3 {
            0 => {
                let slot = cluster.rng.modulo(3) as u8;
                let (stable, last) = {
                    let replica = cluster.replica(slot);
                    (replica.stable(), replica.last().number)
                };
                let number = cluster.rng.within(stable, last);
                cluster.roll_back(slot, number);
            }
            _ => {
                let stable = cluster.chain.len() as u64;
                let newest = stable.max(cluster.executed());
                let base = cluster.rng.within(stable, newest);
                let primary = cluster.rng.modulo(3) as u8;
                cluster.change_view(primary, base, ALL);
            }
        }
    }
    cluster
}

#[test]
fn each_request_is_executed_once_whatever_views_roll_back() {
    for seed in 0..40 {
        let mut cluster = storm(seed, Weather::default());
        cluster.run_until_idle();
        assert_eq!(cluster.acked, cluster.submitted);
        assert!(cluster.submitted.len() > 300);
    }
}

/// Batches that wait for the executors are of what is rolled back, too.
#[test]
fn deliveries_that_wait_are_dropped_with_those_that_are_rolled_back() {
    for seed in 0..10 {
        let mut cluster = Cluster::new(3, 60 + seed);
        cluster.load(50, 200);
        cluster.run_until_idle();
        cluster.agrees = false;
        cluster.load(6, 300);
        cluster.replica(1).stuck = true;
        cluster.load(6, 300);
        let stable = cluster.chain.len() as u64;
        assert!(cluster.replica(1).last().number > stable);
        cluster.roll_back(1, stable);
        cluster.replica(1).stuck = false;
        cluster.agrees = true;
        cluster.run_until_idle();
        assert_eq!(cluster.acked, cluster.submitted);
    }
}

#[test]
fn the_same_with_frames_that_are_lost_doubled_late_and_out_of_order() {
    let weather = Weather { drop: 30, duplicate: 30, delay: 8, reorder: true, corrupt: 0 };
    for seed in 0..40 {
        let mut cluster = storm(100 + seed, weather);
        cluster.run_until_idle();
        assert_eq!(cluster.acked, cluster.submitted);
    }
}

#[test]
fn the_same_with_bytes_that_are_corrupted_and_connections_that_are_reset() {
    let weather = Weather { corrupt: 10, delay: 4, ..Weather::default() };
    for seed in 0..40 {
        let mut cluster = storm(200 + seed, weather);
        cluster.run_until_idle();
        assert_eq!(cluster.acked, cluster.submitted);
    }
}

/// The protection: who lacks a batch asks for it.
#[test]
fn without_requests_for_missing_batches_a_replica_stays_behind() {
    let weather = Weather { drop: 30, ..Weather::default() };
    let becomes_idle = |loses| {
        let mut cluster = Cluster::new(3, 300);
        cluster.loses = loses;
        cluster.weather = weather;
        cluster.load(300, 200);
        cluster.weather = Weather::default();
        cluster.within(3_000, Cluster::is_idle)
    };
    assert!(becomes_idle(None));
    assert!(!becomes_idle(Some(ASK)));
}

/// The primary dies when it has sent its last batch to one of the others; the next view begins with that batch or
/// without it.
#[test]
fn a_primary_that_dies_with_half_of_its_sends_made_loses_nothing_of_others() {
    for (seed, keeps_it) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut cluster = Cluster::new(3, 400 + seed);
        cluster.load(100, 200);
        cluster.run_until_idle();
        cluster.agrees = false;
        cluster.cut_links.insert((0, 2));
        (0..3).for_each(|slot| cluster.submit(slot));
        cluster.run(3);
        assert!(cluster.replica(1).last().number > cluster.replica(2).last().number);
        cluster.kill(0);
        cluster.cut_links.clear();
        cluster.agrees = true;
        let stable = cluster.chain.len() as u64;
        let base = if keeps_it { cluster.executed() } else { stable };
        let primary = 1 + (seed % 2) as u8;
        cluster.change_view(primary, base, 0b110);
        cluster.load(200, 200);
        cluster.run_until_idle();
    }
}

/// It executed a batch that only it had, missed the view that put others in its place, and learns of the next one.
#[test]
fn a_replica_that_missed_a_view_executes_what_that_view_decided() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(3, 450 + seed);
        cluster.load(100, 200);
        cluster.run_until_idle();
        cluster.late = Some(0);
        for other in [1, 2] {
            cluster.cut_links.extend([(0, other), (other, 0)]);
        }
        let stable = cluster.chain.len() as u64;
        (0..3).for_each(|_| cluster.submit(0));
        cluster.run(3);
        assert!(cluster.replica(0).last().number > stable, "the old primary is ahead on its own");
        cluster.change_view(1, stable, ALL);
        cluster.load(100, 200);
        cluster.late = None;
        cluster.cut_links.clear();
        let base = cluster.executed();
        assert!(base > stable + 3);
        cluster.change_view((seed % 3) as u8, base, ALL);
        cluster.run_until_idle();
        assert_eq!(cluster.acked, cluster.submitted);
    }
}

#[test]
fn a_replica_that_hangs_delays_no_other_and_catches_up() {
    let mut cluster = Cluster::new(3, 500);
    cluster.load(100, 200);
    cluster.replica(2).stuck = true;
    let before = cluster.acked.len();
    cluster.load(1_000, 300);
    assert!(cluster.acked.len() > before + 300);
    // What waits for its executors stays, although its host hears of the view once more.
    let view = cluster.view;
    cluster.replica(2).orderer.begin_view(view);
    cluster.replica(2).stuck = false;
    cluster.run_until_idle();
    assert_eq!(cluster.acked, cluster.submitted);
}

/// While nothing becomes stable, replicas execute a window of batches and stop; what they hold has a bound. All that
/// was submitted is executed when the agreement is back.
#[test]
fn a_full_window_of_own_batches_does_not_stop_the_group() {
    let mut cluster = Cluster::new(3, 600);
    cluster.agrees = false;
    for _ in 0..300 {
        (0..3).for_each(|slot| (0..40).for_each(|_| cluster.submit(slot)));
        cluster.step();
    }
    for slot in 0..3 {
        let (_, in_flight, _) = cluster.replica(slot).orderer.waiting();
        assert_eq!((cluster.replica(slot).last().number, in_flight), (8, 8), "{}", cluster.describe());
    }
    cluster.agrees = true;
    cluster.run_until_idle();
    assert_eq!(cluster.acked, cluster.submitted);
}

/// OFFER-STATE, by its first byte.
const OFFER: (FrameKind, u8) = (FrameKind::Control, 34);

#[test]
fn a_replica_that_lost_its_memory_takes_the_state_and_goes_on() {
    let mut installed = 0;
    for seed in 0..20 {
        let mut cluster = Cluster::new(3, 800 + seed);
        cluster.load(300, 200);
        cluster.kill(2);
        cluster.load(200, 200);
        cluster.start(2);
        cluster.load(300, 200);
        cluster.run_until_idle();
        let answered = cluster.acked.iter().filter(|id| **id >> 32 == 4).count();
        assert!(answered > 20, "it serves its own clients");
        installed += cluster.replica(2).installed;
    }
    assert_eq!(installed, 20, "batches that were stable before it came are not held for it");
}

/// Its batches are not held any more when it comes back.
#[test]
fn a_replica_that_was_away_for_too_long_takes_the_state() {
    let mut cluster = Cluster::new(3, 830);
    cluster.load(300, 200);
    cluster.run_until_idle();
    for other in [0, 1] {
        cluster.cut_links.extend([(2, other), (other, 2)]);
        cluster.replica(other).orderer.peer_down(2);
        cluster.replica(2).orderer.peer_down(other);
    }
    (0..12_000).for_each(|_| {
        let slot = cluster.rng.modulo(2) as u8;
        if cluster.rng.chance(100) {
            cluster.submit(slot);
        }
        cluster.step();
    });
    cluster.cut_links.clear();
    [0, 1].iter().for_each(|other| cluster.reconnect(*other, 2));
    cluster.run_until_idle();
    assert_eq!(cluster.replica(2).installed, 1);
    assert_eq!(cluster.acked, cluster.submitted);
}

#[test]
fn without_an_offer_of_a_state_a_replica_without_memory_stays_outside() {
    for (loses, is_in) in [(None, true), (Some(OFFER), false)] {
        let mut cluster = Cluster::new(3, 840);
        cluster.load(300, 200);
        cluster.run_until_idle();
        // Nothing from the beginning is held any more.
        cluster.kill(2);
        cluster.run(11_000);
        (0..3).for_each(|_| cluster.load(50, 200));
        cluster.loses = loses;
        cluster.start(2);
        assert_eq!(cluster.within(3_000, Cluster::is_idle), is_in);
    }
}

#[test]
fn every_replica_is_restarted_in_turn_and_the_primary_too() {
    for seed in 0..6 {
        let mut cluster = Cluster::new(3, 850 + seed);
        for round in 0..9u8 {
            let slot = round % 3;
            cluster.load(100, 200);
            cluster.kill(slot);
            let stable = cluster.chain.len() as u64;
            let base = stable.max(cluster.executed());
            cluster.change_view((slot + 1) % 3, base, ALL);
            cluster.load(100, 200);
            cluster.start(slot);
            let done = |cluster: &Cluster| {
                let all = cluster.replicas.iter().flatten();
                all.map(|replica| replica.last().number).min() >= Some(cluster.chain.len() as u64)
            };
            assert!(cluster.within(5_000, done), "{}", cluster.describe());
        }
        cluster.run_until_idle();
    }
}

/// A replica that joins is asked for nothing and asks again: its process ends, or the primary's does.
#[test]
fn who_is_joining_may_crash_and_so_may_the_primary() {
    let weather = Weather { drop: 20, duplicate: 20, delay: 8, reorder: true, corrupt: 0 };
    for seed in 0..20 {
        let mut cluster = Cluster::new(3, 870 + seed);
        cluster.load(200, 200);
        cluster.weather = weather;
        for _ in 0..3 {
            cluster.kill(2);
            cluster.load(20, 200);
            cluster.start(2);
            cluster.load(seed, 200);
        }
        let stable = cluster.chain.len() as u64;
        cluster.change_view(1, stable, ALL);
        cluster.load(300, 200);
        cluster.run_until_idle();
    }
}

/// Its host learned of no view yet: it takes the state first, and the view begins later.
#[test]
fn a_replica_may_have_the_state_before_it_has_a_view() {
    let mut cluster = Cluster::new(3, 900);
    cluster.load(300, 200);
    cluster.kill(2);
    cluster.load(100, 200);
    cluster.late = Some(2);
    cluster.start(2);
    cluster.load(1_500, 100);
    assert_eq!((cluster.replica(2).installed, cluster.replica(2).view), (1, 0));
    cluster.late = None;
    let base = cluster.executed();
    cluster.change_view(0, base, ALL);
    cluster.run_until_idle();
}

/// Bodies of any kind from a faulty replica, with right checksums of their frames: no replica stops, and nothing that
/// the primary has not numbered is executed.
#[test]
fn random_bodies_stop_no_replica() {
    let mut cluster = Cluster::new(3, 950);
    cluster.load(200, 200);
    let mut rng = SplitMix64::new(5);
    let mut refused = 0;
    for round in 0..40_000u64 {
        let (from, to) = (2, rng.modulo(2) as u8);
        let mut body: Vec<u8> = (0..rng.modulo(120)).map(|_| rng.next_u64() as u8).collect();
        let small = |rng: &mut SplitMix64| if rng.chance(500) { rng.modulo(300) } else { rng.next_u64() };
        let kinds = [FrameKind::Batch, FrameKind::Control, FrameKind::Forward, FrameKind::Order];
        let kind = kinds[rng.modulo(4) as usize];
        if rng.chance(700) {
            let (tag, view) = if kind == FrameKind::Batch {
                (1 + rng.modulo(3) as u8, if rng.chance(500) { 1 } else { small(&mut rng) })
            } else {
                (32 + rng.modulo(3) as u8, small(&mut rng))
            };
            body = [&[tag][..], &view.to_le_bytes(), &small(&mut rng).to_le_bytes()].concat();
            if tag == 1 {
                let request =
                    Request { checksum: checksum(b"x"), stream: 0, bytes: Bytes::from_static(b"x") };
                let batch = Batch::new(2, small(&mut rng), small(&mut rng), &[request]).encode();
                body.extend([rng.modulo(5) as u8, 1]);
                body.extend((batch.len() as u32).to_le_bytes());
                body.extend([&batch.head[..], &batch.body[..]].concat());
            }
        }
        let outcome = cluster.replica(to).orderer.on_frame(from, kind, body.into());
        refused += usize::from(outcome.is_err());
        if round % 40 == 0 {
            cluster.step();
        }
    }
    assert!(refused > 20_000, "{refused}");
    cluster.run(20);
    // It is answered that it lacks batches, for which it did not ask itself.
    cluster.replica(2).blamed.clear();
    cluster.load(500, 200);
    cluster.run_until_idle();
    assert_eq!(cluster.acked, cluster.submitted);
}

/// The outcome of a storm when a protection is removed: not settled, or a broken promise.
fn breaks(keeps: bool, forged: Option<fn(&State, &State) -> State>) -> bool {
    (0..10).any(|seed| {
        let mut cluster = Cluster::with(3, 700 + seed, keeps);
        cluster.load(50, 200);
        cluster.forged = forged;
        cluster.agrees = false;
        cluster.load(20, 300);
        let stable = cluster.chain.len() as u64;
        cluster.change_view(1, stable, ALL);
        cluster.agrees = true;
        cluster.load(200, 100);
        let idle = cluster.within(3_000, Cluster::is_idle);
        let ids: Vec<u64> = cluster.chain.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
        let once: std::collections::BTreeSet<u64> = ids.iter().copied().collect();
        !idle || once.len() < ids.len()
    })
}

#[test]
fn requests_survive_a_rewind_because_their_batches_are_kept_until_stable() {
    assert!(!breaks(true, None));
    assert!(breaks(false, None), "forgotten when they were delivered");
}

#[test]
fn requests_survive_a_rewind_because_the_order_state_is_rewound() {
    let newest = |right: &State, newest: &State| State { index: right.index, ..newest.clone() };
    assert!(breaks(true, Some(newest)), "batches count as delivered that were taken back");
    let oldest = |right: &State, _: &State| State { sessions: Default::default(), ..right.clone() };
    assert!(breaks(true, Some(oldest)), "batches count as new that were delivered");
}
