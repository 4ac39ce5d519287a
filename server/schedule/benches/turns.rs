//! The cost of a turn: nanoseconds per request and per lock, by scheduler and number of workers, with empty handlers.
//!
//! Target (docs/determinism.md, section 11): some 20 ns per request and 8 ns per lock on one thread.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use schedule::{BatchRow, Config, DetMutex, Entry, Footprint, LockRules, Outcome, SplitMix64, Worker};

const LOCKS: u32 = 1_024;
const BATCH: usize = 64;
/// Requests of a log; a multiple of the batch.
const REQUESTS: u64 = 64 * 256;

/// Locks to take, in the order of the footprint.
struct Request {
    locks: [u32; 8],
    len: usize,
}

impl Request {
    fn locks(&self) -> &[u32] {
        &self.locks[..self.len]
    }
}

fn log(requests: u64, locks: usize) -> Vec<Arc<Entry<Request>>> {
    let mut rng = SplitMix64::new(1);
    let request = |rng: &mut SplitMix64| {
        let mut request = Request { locks: [0; 8], len: locks };
        request.locks[..locks].fill_with(|| rng.below(u64::from(LOCKS)) as u32);
        BatchRow { footprint: request.locks().iter().copied().collect(), request, stream: None }
    };
    (0..requests.div_ceil(BATCH as u64))
        .map(|index| {
            let rows = (0..BATCH).map(|_| request(&mut rng)).collect();
            Arc::new(Entry { index: index + 1, time_us: index, seed: index, drain: false, rows })
        })
        .collect()
}

fn work(mut worker: Worker<Request>, locks: &[DetMutex<u64>]) {
    while let Some(turn) = worker.next_blocking() {
        let cx = turn.cx();
        let mut sum = 0;
        for &lock in turn.request().locks() {
            if let Ok(mut value) = cx.lock(&locks[lock as usize]) {
                *value += 1;
                sum += *value;
            }
        }
        black_box(sum);
        turn.finish(Outcome::Done);
    }
}

/// Time for a log that is there from the beginning: dispatch and turns, not the agreement layer.
fn run(mode: LockRules, workers: usize, log: &[Arc<Entry<Request>>]) -> Duration {
    let locks: Vec<DetMutex<u64>> = (0..LOCKS).map(|id| DetMutex::bare(id, 0)).collect();
    let config = Config { mode, ..Config::new(workers, LOCKS) };
    let (schedule, workers) = schedule::open(config, |request: &Request, footprint: &mut Footprint| {
        request.locks().iter().for_each(|&lock| footprint.write(lock));
    });
    log.iter().for_each(|entry| schedule.append(Arc::clone(entry)));
    schedule.close();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let mut workers = workers.into_iter();
        let mine = workers.next();
        workers.for_each(|worker| {
            let locks = &locks;
            scope.spawn(move || work(worker, locks));
        });
        mine.into_iter().for_each(|worker| work(worker, &locks));
    });
    begin.elapsed()
}

fn turns(c: &mut Criterion) {
    let mut group = c.benchmark_group("turns");
    group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    group.throughput(Throughput::Elements(1));
    for (name, mode, workers) in [
        ("sequential", LockRules::Sequential, 1),
        ("turns-1", LockRules::Turns, 1),
        ("turns-2", LockRules::Turns, 2),
        ("locks-1", LockRules::Locks, 1),
        ("locks-2", LockRules::Locks, 2),
    ] {
        for locks in [1, 2, 8] {
            group.bench_function(BenchmarkId::new(name, locks), |bencher| {
                let log = log(REQUESTS, locks);
                // A log of fixed length, scaled: a schedule is opened once per sample, not once per request.
                bencher.iter_custom(|asked| run(mode, workers, &log).mul_f64(asked as f64 / REQUESTS as f64));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, turns);
criterion_main!(benches);
