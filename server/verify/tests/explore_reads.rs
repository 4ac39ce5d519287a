//! Where reads that take no batch are bound, in every state of an exploration.
//!
//! The full sizes: `cargo test -p verify --test all -- explore_reads --ignored --nocapture --test-threads 1`

use verify::{Layout, Rules};

use crate::support::world::World;

const THREE: Layout = Layout::Crash { failures: 1 };
const MOST: usize = 120_000_000;

fn with_reads(mut world: World) -> World {
    world.reads = true;
    world
}

#[test]
fn a_quorum_has_all_that_was_acted_on() {
    with_reads(World::of_verifiers(THREE, 3, 2)).search(MOST).assert_none("reads, 3 views x 2 batches");
    with_reads(World::of_all(THREE, 2, 1)).search(MOST).assert_none("reads, all machines, 2 views x 1 batch");
}

#[test]
fn a_quorum_has_it_after_a_verifier_has_lost_its_memory() {
    let mut world = with_reads(World::of_verifiers(THREE, 1, 1));
    world.verifier_restarts = 1;
    world.search(MOST).assert_none("reads, memory loss, 1 view x 1 batch, 1 restart");
}

#[test]
fn a_quorum_has_it_with_a_witness_and_of_five() {
    let witness = World::of_verifiers(Layout::PairWithWitness, 3, 1);
    with_reads(witness).search(MOST).assert_none("reads, pair with witness, 3 views x 1 batch");
    let five = World::of_verifiers(Layout::Crash { failures: 2 }, 2, 1);
    with_reads(five).search(MOST).assert_none("reads, u = 2, 2 views x 1 batch");
}

#[test]
fn one_verifier_may_not_have_it() {
    let mut world = with_reads(World::of_verifiers(THREE, 1, 1));
    world.rules = Rules { read_quorum: false, ..Rules::ALL };
    world.search(MOST).assert_disagreement("reads bound by one verifier, 1 view x 1 batch");
}

#[test]
#[ignore = "a full size: see the file's head"]
fn full_memory_loss() {
    let mut world = with_reads(World::of_verifiers(THREE, 2, 1));
    world.verifier_restarts = 1;
    world.search(MOST).assert_none("reads, memory loss, 2 views x 1 batch, 1 restart");
}
