//! A flipped bit in any of the engine's own numbers, at one replica: the healthy ones agree and continue, and the
//! faulty one comes back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use order::EngineFaults;

use crate::harness::Cluster;

/// How long a healthy replica may make no progress, in milliseconds.
const PATIENCE: u64 = 8_000;
/// Bits that are flipped, one in each run: small and large changes.
const BITS: [u32; 8] = [0, 3, 8, 12, 20, 21, 40, 63];

/// Ordinal of the term among the numbers.
const TERM: usize = 0;

/// A replica that stops is started again without memory, as `crosscheck up` does it.
fn step(cluster: &mut Cluster) {
    cluster.step();
    for slot in cluster.running() {
        if cluster.replica(slot).stopped.is_some() {
            cluster.kill(slot);
            cluster.start_empty(slot);
        }
    }
}

fn load(cluster: &mut Cluster, milliseconds: u64) {
    for _ in 0..milliseconds {
        for slot in 0..3 {
            if cluster.rng.chance(100) {
                cluster.submit(slot);
            }
        }
        step(cluster);
    }
}

fn step_until(cluster: &mut Cluster, what: &str, done: impl Fn(&mut Cluster) -> bool) {
    let start = cluster.now;
    while !done(cluster) {
        assert!(cluster.now - start < PATIENCE, "{what}: {}", cluster.describe());
        step(cluster);
    }
}

/// When a number changes.
#[derive(Clone, Copy)]
enum When {
    /// Between two rounds of the loop.
    AtRest,
    /// Between two calls of the engine in one round: it has received frames and was not pumped yet.
    InRound,
}

/// Flips one bit of one number, at the leader or at a follower; returns the number's name, or `None` when there are no
/// more.
fn strike(seals: bool, when: When, at_leader: bool, (ordinal, bit): (usize, u32)) -> Option<&'static str> {
    let mut cluster = Cluster::new(3, 7 + u64::from(bit));
    for slot in 0..3 {
        cluster.kill(slot);
    }
    cluster.seals_numbers = seals;
    for slot in 0..3 {
        cluster.start_empty(slot);
    }
    cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
    load(&mut cluster, 200);
    let leader = cluster.leader().expect("there is one");
    let victim = if at_leader { leader } else { (leader + 1) % 3 };
    if matches!(when, When::InRound) {
        // Only then is there a round to be in.
        cluster.submit((leader + 2) % 3);
        cluster.run_until(1_000, "frames", |cluster| cluster.has_frames_for(victim));
        cluster.now += 1;
        cluster.deliver_frames();
    }
    let name = cluster.replica(victim).orderer.engine_mut().corrupt_number(ordinal, bit)?;
    load(&mut cluster, 300);
    for healthy in (0..3).filter(|&slot| slot != victim) {
        let asked = cluster.submitted + 1;
        step_until(&mut cluster, "a healthy replica has room", |cluster| cluster.submit(healthy));
        step_until(&mut cluster, "a healthy replica goes on", |cluster| cluster.acked.contains(&asked));
    }
    // A replica with a term that no other accepts is left behind, until it finds out that the others continue without
    // it and replaces itself.
    let is_shut_out = !seals && ordinal == TERM && bit > 20;
    let everybody: Vec<u8> = (0..3).filter(|slot| !is_shut_out || *slot != victim).collect();
    step_until(&mut cluster, "all have executed the same", |cluster| {
        let first = cluster.replica(everybody[0]).service.clone();
        everybody.iter().all(|slot| cluster.replica(*slot).service == first)
    });
    Some(name)
}

/// Flips a bit of every number; returns the names of those after which a check failed.
fn strike_all(seals: bool, when: When, bits: &[u32]) -> Vec<&'static str> {
    let mut amiss = Vec::new();
    let name_of = |ordinal| {
        let mut cluster = Cluster::new(3, 1);
        cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
        cluster.replica(0).orderer.engine_mut().corrupt_number(ordinal, 0)
    };
    for (at_leader, bit) in
        [false, true].into_iter().flat_map(|role| bits.iter().map(move |bit| (role, *bit)))
    {
        for (ordinal, name) in (0..).map_while(|ordinal| Some((ordinal, name_of(ordinal)?))) {
            if catch_unwind(AssertUnwindSafe(|| strike(seals, when, at_leader, (ordinal, bit)))).is_err() {
                amiss.push(name);
            }
        }
    }
    amiss
}

#[test]
fn a_wrong_number_of_the_engine_costs_one_replica_its_place_and_the_others_nothing() {
    assert_eq!(strike_all(true, When::AtRest, &BITS), Vec::<&str>::new());
}

/// Those that decide what is final are compared at each call. Another one that changes within the microseconds of a
/// round is sealed as it is, and costs no more than this either.
#[test]
fn a_number_that_changes_within_a_round_costs_no_more() {
    assert_eq!(strike_all(true, When::InRound, &[0, 12, 40]), Vec::<&str>::new());
}

/// A number that decides is found before the next call uses it: nothing that follows from it leaves.
#[test]
fn numbers_that_decide_are_compared_at_each_call_of_a_round() {
    for (ordinal, name) in [(0, "term"), (1, "vote"), (2, "own id"), (5, "committed"), (6, "persisted")] {
        let mut cluster = Cluster::new(3, 5);
        cluster.run_until(3_000, "a first leader", |cluster| cluster.leader().is_some());
        let victim = (cluster.leader().unwrap() + 1) % 3;
        cluster.submit((victim + 1) % 3);
        cluster.run_until(1_000, "frames", |cluster| cluster.has_frames_for(victim));
        cluster.now += 1;
        cluster.deliver_frames();
        let engine = cluster.replica(victim).orderer.engine_mut();
        assert_eq!(engine.corrupt_number(ordinal, 40), Some(name));
        cluster.step();
        let stopped = cluster.replica(victim).stopped.clone().expect(name);
        assert!(stopped.contains("changed outside of it"), "{name}: {stopped}");
    }
}

/// A term that is far ahead costs the healthy replicas an election at most: all of them accept it, or none does. This
/// holds even where the fault was not detected.
#[test]
fn a_term_far_ahead_stops_nobody() {
    for (at_leader, bit) in
        [false, true].into_iter().flat_map(|role| [19, 20, 21, 30, 47].map(|bit| (role, bit)))
    {
        assert_eq!(strike(false, When::AtRest, at_leader, (TERM, bit)), Some("term"));
    }
}

/// The reason for the seals: a replica that takes itself for another one is shut out for ever. (A leader that
/// overestimates a follower's progress finds out by itself: `check::leave_out_what_we_lack`.)
#[test]
fn without_the_seals_a_wrong_number_stops_replicas_for_ever() {
    let amiss = strike_all(false, When::AtRest, &BITS);
    assert!(amiss.contains(&"own id"), "{amiss:?}");
}
