//! Two processes without a third verifier are explored exhaustively: takeovers, ends, proofs and returns.
//!
//! The full sizes: `cargo test -p verify --test all -- explore_pair --ignored --nocapture --test-threads 1`

use verify::{Rules, Slot};

use crate::support::pair::Pair;
use crate::support::search::{Outcome, search};

const MOST: usize = 80_000_000;

fn explore(views: u64, batches: u64, ends: u8, divergences: u8) -> Outcome {
    let mut pair = Pair::new(views, batches);
    (pair.ends, pair.divergences) = (ends, divergences);
    search(&mut pair, MOST)
}

#[test]
fn takeovers_agree() {
    explore(3, 2, 0, 0).assert_none("pair, a takeover, 2 batches");
    explore(3, 2, 0, 1).assert_none("pair, a takeover, 2 batches, 1 divergence");
}

#[test]
fn takeover_from_the_last_stable_batch_disagrees() {
    let mut pair = Pair::new(3, 1);
    pair.rules = Rules { keep_sent: false, ..Rules::ALL };
    search(&mut pair, MOST).assert_disagreement("pair, takeover from the last stable batch");
}

#[test]
fn going_alone_on_a_late_proof_disagrees() {
    let mut pair = Pair::new(3, 1);
    pair.ends = 1;
    pair.rules = Rules { proof_in_time: false, ..Rules::ALL };
    search(&mut pair, MOST).assert_disagreement("pair, alone on a late proof");
}

#[test]
fn a_primary_of_a_former_incarnations_view_disagrees() {
    let mut pair = Pair::new(3, 1);
    pair.ends = 1;
    pair.rules = Rules { own_views: false, ..Rules::ALL };
    search(&mut pair, MOST).assert_disagreement("pair, primary of a former incarnation's view");
}

#[test]
fn ends_and_returns_agree() {
    ends(0, 3).assert_none("pair, the primary ends and returns, 1 batch");
    ends(1, 3).assert_none("pair, the backup ends and returns, 1 batch");
}

#[test]
#[ignore = "a full size: see the file's head"]
fn full_ends_and_returns() {
    ends(0, 6).assert_none("pair, two takeovers, the primary ends and returns, 1 batch");
    ends(1, 6).assert_none("pair, two takeovers, the backup ends and returns, 1 batch");
}

fn ends(ending: Slot, views: u64) -> Outcome {
    let mut pair = Pair::new(views, 1);
    (pair.ends, pair.ending) = (1, ending);
    search(&mut pair, MOST)
}

#[test]
#[ignore = "a full size: see the file's head"]
fn full_two_takeovers() {
    explore(6, 2, 0, 1).assert_none("pair, two takeovers, 2 batches, 1 divergence");
}
