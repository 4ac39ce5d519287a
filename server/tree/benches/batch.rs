//! What a batch costs: its changes and the root behind them, and taking it back.
#![allow(missing_docs)]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use object::{Change, ObjectId};
use std::hint::black_box;
use std::time::Duration;
use tree::{Tree, TreeShape};

/// Changed objects of a batch of 100 requests that set a value in memcached: the item, and the shard's own objects.
const CHANGES: usize = 400;

fn changes(batch: u64) -> Vec<Change> {
    let mut random = wire::SplitMix64::new(batch);
    (0..CHANGES)
        .map(|_| Change {
            region_id: random.below(1_024) as u32,
            id: ObjectId::new(random.below(1 << 20), 0),
            old: random.next_u64() | 1,
            new: random.next_u64() | 1,
        })
        .collect()
}

fn batch(criterion: &mut Criterion) {
    let mut tree = Tree::new(TreeShape::even(1_024, 65_536));
    tree.root();
    let mut batches = 0;
    criterion.bench_function("400 changes and the root", |bencher| {
        bencher.iter_batched(
            || {
                batches += 1;
                changes(batches)
            },
            |changes| {
                changes.iter().for_each(|change| tree.apply(*change));
                black_box(tree.root())
            },
            BatchSize::SmallInput,
        );
    });
    let mut tree = Tree::new(TreeShape::even(1_024, 65_536));
    criterion.bench_function("400 changes, the root, taken back, the root", |bencher| {
        bencher.iter_batched(
            || changes(7),
            |changes| {
                changes.iter().for_each(|change| tree.apply(*change));
                black_box(tree.root());
                changes.iter().rev().for_each(|change| tree.apply(change.inverse()));
                black_box(tree.root())
            },
            BatchSize::SmallInput,
        );
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_millis(500));
    targets = batch
}
criterion_main!(benches);
