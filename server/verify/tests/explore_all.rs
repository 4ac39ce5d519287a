//! Verifiers and executors together are explored exhaustively: all of them the real machines.
//!
//! The full sizes: `cargo test -p verify --test all -- explore_all --ignored --nocapture --test-threads 1`

use verify::Layout;

use crate::support::world::World;

const THREE: Layout = Layout::Crash { failures: 1 };
const MOST: usize = 80_000_000;

#[test]
fn three_replicas_agree() {
    let mut world = World::of_all(THREE, 1, 1);
    world.together = false;
    world.search(MOST).assert_none("all machines, one message at a time, 1 view x 1 batch");
    World::of_all(THREE, 2, 1).search(MOST).assert_none("all machines, 2 views x 1 batch");
    World::of_all(THREE, 1, 2).search(MOST).assert_none("all machines, 1 view x 2 batches");
}

#[test]
fn three_replicas_of_which_one_diverges_agree() {
    let mut world = World::of_all(THREE, 2, 1);
    world.divergences = 1;
    world.search(MOST).assert_none("all machines, 2 views x 1 batch, 1 divergence");
}

#[test]
fn five_replicas_agree() {
    let five = Layout::Crash { failures: 2 };
    World::of_verifiers(five, 2, 1).search(MOST).assert_none("u = 2, 2 views x 1 batch");
}

#[test]
fn extra_protection_agrees() {
    let mut world = World::of_all(THREE, 1, 2);
    world.extra_after = Some(1);
    world.search(MOST).assert_none("extra protection, 1 view x 2 batches");
}

#[test]
fn pair_with_witness_agrees() {
    World::of_all(Layout::PairWithWitness, 1, 1)
        .search(MOST)
        .assert_none("pair with witness, 1 view x 1 batch");
    World::of_verifiers(Layout::PairWithWitness, 3, 1)
        .search(MOST)
        .assert_none("pair with witness, verifiers, 3 views x 1 batch");
}

#[test]
#[ignore = "a full size: see the file's head"]
fn full_two_views_of_two_batches() {
    World::of_all(THREE, 2, 2).search(MOST).assert_none("all machines, 2 views x 2 batches");
}

#[test]
#[ignore = "a full size: see the file's head"]
fn full_three_views() {
    World::of_all(THREE, 3, 1).search(MOST).assert_none("all machines, 3 views x 1 batch");
}

#[test]
#[ignore = "a full size: see the file's head"]
fn full_catch_up() {
    let mut world = World::of_verifiers(THREE, 2, 2);
    world.catch_up = true;
    world.search(MOST).assert_none("verifiers that catch up, 2 views x 2 batches");
}

#[test]
#[ignore = "a full size: see the file's head"]
fn full_five_replicas() {
    let five = Layout::Crash { failures: 2 };
    World::of_verifiers(five, 2, 2).search(MOST).assert_none("u = 2, 2 views x 2 batches");
    World::of_verifiers(five, 3, 1).search(MOST).assert_none("u = 2, 3 views x 1 batch");
}

#[test]
#[ignore = "a full size: see the file's head"]
fn full_extra_protection() {
    let mut world = World::of_all(THREE, 1, 2);
    (world.extra_after, world.divergences) = (Some(1), 1);
    world.search(MOST).assert_none("extra protection, 1 view x 2 batches, 1 divergence");
}

#[test]
#[ignore = "a full size: see the file's head"]
fn full_pair_with_witness() {
    World::of_verifiers(Layout::PairWithWitness, 3, 2)
        .search(MOST)
        .assert_none("pair with witness, verifiers, 3 views x 2 batches");
    World::of_verifiers(Layout::PairWithWitness, 4, 1)
        .search(MOST)
        .assert_none("pair with witness, verifiers, 4 views x 1 batch");
}
