//! View changes are explored exhaustively, with the real verifiers and whatever executors may do.
//!
//! The full sizes: `cargo test -p verify --test all -- explore --ignored --nocapture --test-threads 1`

use verify::{Layout, Rules};

use crate::support::world::World;

const THREE: Layout = Layout::Crash { failures: 1 };
const MOST: usize = 120_000_000;

#[test]
fn rules_1_and_2_agree() {
    World::of_verifiers(THREE, 3, 2).search(MOST).assert_none("rules 1 and 2, 3 views x 2 batches");
}

#[test]
fn number_first_disagrees() {
    let mut world = World::of_verifiers(THREE, 3, 2);
    world.rules = Rules { view_first: false, ..Rules::ALL };
    world.search(MOST).assert_disagreement("number first, 3 views x 2 batches");
}

#[test]
fn one_recorded_is_not_enough() {
    let mut world = World::of_verifiers(THREE, 2, 1);
    world.rules = Rules { quorum: false, ..Rules::ALL };
    world.search(MOST).assert_disagreement("act on one RECORDED, 2 views x 1 batch");
}

#[test]
fn one_announcement_of_a_view_is_not_enough() {
    let mut world = World::of_verifiers(THREE, 3, 2);
    world.rules = Rules { quorum_at_start: false, ..Rules::ALL };
    world.search(MOST).assert_disagreement("act on one announcement of a view, 3 views x 2 batches");
}

#[test]
#[ignore = "a full size: see the file's head"]
fn full_rules_1_and_2_agree() {
    World::of_verifiers(THREE, 4, 2).search(MOST).assert_none("rules 1 and 2, 4 views x 2 batches");
    World::of_verifiers(THREE, 3, 4).search(MOST).assert_none("rules 1 and 2, 3 views x 4 batches");
}
