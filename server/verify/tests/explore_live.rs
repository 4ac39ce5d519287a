//! One of two executors comes back and lags, the group counts two copies again, and one process ends: is there always a
//! way on?
//! With a witness there are too many states for it: transcripts_pair.rs has its cases.

use verify::{Layout, Rules};

use crate::support::live::{Live, Liveness};

const MOST: usize = 3_000_000;

fn explore(layout: Layout, views: u64, batches: u64, rules: Rules) -> Liveness {
    let mut live = Live::new(layout, views, batches);
    live.rules = rules;
    live.explore(MOST)
}

#[test]
fn a_pair_that_counts_two_copies_goes_on_after_either_ends() {
    let found = explore(Layout::Pair, 6, 4, Rules::ALL);
    found.print("pair, one joins, 4 batches, either ends");
    assert!(found.stuck.is_none() && found.states.1 > 500, "{:?}", found.states);
}

#[test]
fn a_pair_that_counts_one_who_lags_as_a_copy_stops() {
    let found = explore(Layout::Pair, 6, 3, Rules { level: false, ..Rules::ALL });
    found.print("pair, one that lags is a copy");
    assert!(found.stuck.is_some());
}
