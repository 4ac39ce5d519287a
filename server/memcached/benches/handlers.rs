//! The cost of one request from decoded command to sealed objects, with protection and without: no order, vote
//! or socket.

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use memcached::Config;
use memcached::command::{Command, Key, StoreMode, encode};
use support::Replica;

/// Items in the cache; with the paper's keys of 100 bytes and values of 400.
const ITEMS: usize = 20_000;

fn key(number: usize) -> Key {
    Key::new(format!("{number:0>100}").as_bytes()).expect("a valid key")
}

fn set(number: usize) -> Vec<u8> {
    encode(&Command::Store {
        mode: StoreMode::Set,
        key: key(number),
        flags: 0,
        expiry: 0,
        unique: 0,
        value: vec![b'v'; 400].into(),
        quiet: false,
    })
}

fn get(number: usize) -> Vec<u8> {
    encode(&Command::Get { keys: [key(number)].into(), with_unique: false, touch: None })
}

fn measure(criterion: &mut Criterion, name: &str, request: impl Fn(usize) -> Vec<u8>) {
    let requests: Vec<Vec<u8>> = (0..ITEMS).map(&request).collect();
    let mut group = criterion.benchmark_group(name);
    for (mode, protect) in [("unprotected", false), ("protected", true)] {
        let mut replica = Replica::new(Config::default());
        (0..ITEMS).for_each(|number| drop(replica.run(&set(number))));
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
    measure(criterion, "set", set);
}

criterion_group!(benches, handlers);
criterion_main!(benches);
