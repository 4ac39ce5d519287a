//! The cost of a vote without errors: one replica of three, its own results and two CHECKs per batch.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use object::{ObjectId, Pair};
use vote::{Command, Config, Event, Message, Pairs, RequestInfo, RequestResult, Voter, digest};

fn results(count: u64) -> Vec<RequestResult> {
    let pair = |n, at| Pair { region_id: at as u32, id: ObjectId::new(n, at), sum: n * 31 + at as u64 };
    let one = |n| {
        let pairs: Pairs = (0..3).map(|at| pair(n, at)).collect();
        RequestResult::new(
            RequestInfo {
                position: n,
                time_us: n,
                checksum: n as u32,
                mine: n % 3 == 0,
                of_client: true,
                kind: 1,
            },
            pairs,
            Bytes::from_static(b"STORED\r\n"),
        )
    };
    (0..count).map(one).collect()
}

fn batch(c: &mut Criterion) {
    let mut group = c.benchmark_group("batch");
    for count in [1, 16, 128] {
        group.throughput(Throughput::Elements(count));
        group.bench_function(format!("{count} requests"), |b| {
            let mut voter = Voter::new(Config::new(3, 0, 8, 0));
            let (mut number, mut now_us, mut commands) = (0, 0, Vec::new());
            b.iter_batched(
                || results(count),
                |requests| {
                    now_us += 50;
                    commands.clear();
                    voter.handle(Event::Executed { batch: number, requests }, now_us, &mut commands);
                    voter.flush(now_us, &mut commands);
                    let digests = commands.iter().find_map(|command| match command {
                        Command::Send { message: Message::Check { digests, .. }, .. } => {
                            Some(digests.clone())
                        }
                        _ => None,
                    });
                    let digests = digests.expect("its CHECK");
                    for from in [1, 2] {
                        let message = Message::Check { first: number, digests: digests.clone() };
                        voter.handle(Event::Message { from, message }, now_us, &mut commands);
                    }
                    number += 1;
                    commands.len()
                },
                BatchSize::SmallInput,
            );
            assert_eq!(voter.counters().mismatched_batches, 0);
        });
    }
    group.finish();
}

fn request_digest(c: &mut Criterion) {
    let mut group = c.benchmark_group("request digest");
    for count in [1u16, 4, 24, 100] {
        let pairs: Vec<Pair> =
            (0..count).map(|at| Pair { region_id: 1, id: ObjectId::new(7, at), sum: 99 }).collect();
        group.bench_function(format!("{count} pairs"), |b| {
            b.iter(|| {
                digest::request(
                    black_box(&pairs),
                    &digest::Answer {
                        position: 1,
                        time_us: 1,
                        request_checksum: 1,
                        bytes: 8,
                        digest: 12345,
                        started: 0,
                    },
                )
            });
        });
    }
    group.finish();
}

criterion_group!(benches, batch, request_digest);
criterion_main!(benches);
