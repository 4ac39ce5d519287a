//! The cost of one request from decoded command to sealed objects, with protection and without: no order, vote
//! or socket.

mod requests;
#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use memcached::Config;
use requests::{get, set};
use support::Replica;

/// Items in the cache.
const ITEMS: usize = 20_000;
/// Bytes of a value, as in the paper.
const VALUE: usize = 400;

fn measure(criterion: &mut Criterion, name: &str, request: impl Fn(usize) -> Vec<u8>) {
    let requests: Vec<Vec<u8>> = (0..ITEMS).map(&request).collect();
    let mut group = criterion.benchmark_group(name);
    for (mode, protect) in [("unprotected", false), ("protected", true)] {
        let mut replica = Replica::new(Config::default());
        (0..ITEMS).for_each(|number| drop(replica.run(&set(number, VALUE))));
        replica.protect = protect;
        let mut next = 0;
        group.bench_function(mode, |bencher| {
            bencher.iter_batched(
                || {
                    // Far apart, so that caches behave as in a server.
                    next = (next + 7_919) % ITEMS;
                    next
                },
                |number| black_box(replica.run(&requests[number])),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn handlers(criterion: &mut Criterion) {
    measure(criterion, "get", get);
    measure(criterion, "set", |number| set(number, VALUE));
}

criterion_group!(benches, handlers);
criterion_main!(benches);
