//! Verifiers and executors together are explored exhaustively: all of them the real machines.
//!
//! The full sizes: `cargo test -p verify --test all -- explore_all --ignored --nocapture --test-threads 1`

use verify::Layout;

use crate::support::world::World;

const THREE: Layout = Layout::Crash { failures: 1 };
const MOST: usize = 120_000_000;

#[test]
fn one_view_agrees() {
    World::of_all(THREE, 1, 1).search(MOST).assert_none("all machines, 1 view x 1 batch");
}
