//! Verifiers and executors that lose their memory are explored exhaustively.
//!
//! The full sizes: `cargo test -p verify --test all -- explore_memory --ignored --nocapture --test-threads 1`

use verify::{Layout, Rules};

use crate::support::world::World;

const THREE: Layout = Layout::Crash { failures: 1 };
const MOST: usize = 80_000_000;

#[test]
fn naive_recovery_disagrees() {
    let mut world = World::of_verifiers(THREE, 2, 1);
    world.verifier_restarts = 1;
    world.rules = Rules { crash_vectors: false, ..Rules::ALL };
    world.search(MOST).assert_disagreement("memory loss, naive recovery, 2 views x 1 batch, 1 restart");
}

#[test]
fn crash_vectors_agree() {
    let mut world = World::of_verifiers(THREE, 1, 1);
    world.verifier_restarts = 1;
    world.search(MOST).assert_none("memory loss, crash vectors, 1 view x 1 batch, 1 restart");
}

#[test]
fn an_executor_with_two_incarnations_abstains() {
    let mut world = World::of_all(THREE, 1, 1);
    (world.executor_restarts, world.divergences) = (1, 1);
    world.search(MOST).assert_none("two incarnations of an executor, 1 view x 1 batch, 1 divergence");
}

#[test]
fn an_executor_that_does_not_abstain_votes_twice() {
    let mut world = World::of_all(THREE, 2, 1);
    (world.executor_restarts, world.divergences) = (1, 2);
    world.rules = Rules { abstention: false, ..Rules::ALL };
    world
        .search(MOST)
        .assert_disagreement("two incarnations of an executor that does not abstain, 2 views x 1 batch");
}

#[test]
#[ignore = "a full size: see the file's head"]
fn full_crash_vectors_agree() {
    let mut world = World::of_verifiers(THREE, 2, 1);
    world.verifier_restarts = 1;
    world.search(MOST).assert_none("memory loss, crash vectors, 2 views x 1 batch, 1 restart");
}

#[test]
#[ignore = "a full size: see the file's head"]
fn full_two_incarnations() {
    let mut world = World::of_all(THREE, 2, 1);
    (world.executor_restarts, world.divergences) = (1, 1);
    world.search(MOST).assert_none("two incarnations of an executor, 2 views x 1 batch, 1 divergence");
}
