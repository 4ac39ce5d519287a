//! Random programs under every scheduler against the oracle: equal in everything (docs/determinism.md, section 13).
//!
//! In CI bounded; the long run: `CROSSCHECK_FUZZ_PROGRAMS=100000 cargo test -p schedule --release --test all fuzz`.

use crate::support::{End, Summary, oracle, random_log, run};
use schedule::{Config, LockRules, SplitMix64};

/// Programs of the bounded run.
const PROGRAMS: u64 = 60_000;
const PROGRAMS_PER_LOG: u64 = 140;

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn every_scheduler_reproduces_the_oracle() {
    let wanted = from_environment("CROSSCHECK_FUZZ_PROGRAMS", PROGRAMS);
    let first = from_environment("CROSSCHECK_FUZZ_SEED", 1);
    let (mut ran, mut seed, mut missed, mut alone, mut panicked) = (0, first, 0, 0, 0);
    let mut predicted = Forecasts::default();
    while ran < wanted {
        let mut rng = SplitMix64::new(seed);
        let locks = [3, 6, 16, 64][rng.below(4) as usize];
        let lag = [1, 8, 16, 64][rng.below(4) as usize];
        let log = random_log(&mut rng, PROGRAMS_PER_LOG, locks);
        let expected = oracle::run(&log, locks, lag);
        let mut randoms = None;
        for (mode, workers) in [
            (LockRules::Sequential, 1),
            (LockRules::Turns, 1),
            (LockRules::Turns, 2),
            (LockRules::Turns, 3),
            (LockRules::Turns, 4),
        ] {
            let spins = rng.below(3) as u32 * 50;
            let config = Config { mode, workers, lag, locks, spins };
            let ran = run(&log, config, rng.next_u64());
            compare(&expected, &ran.summary, seed, config);
            let first = randoms.get_or_insert_with(|| ran.randoms.clone());
            assert_eq!(*first, ran.randoms, "random numbers differ: seed {seed}, {config:?}");
        }
        let records = expected.records.values();
        ran += expected.records.len() as u64;
        missed += records.clone().filter(|record| matches!(record.end, End::Missed(_))).count();
        alone += records.clone().filter(|record| record.alone).count();
        panicked += records.filter(|record| record.end == End::Panicked).count();
        predicted.count(&expected, &oracle::run_learning_after(NEVER, &log, locks, lag));
        seed += 1;
    }
    println!(
        "{ran} programs in {} logs, each on 5 replicas: {missed} missed their forecast ({:.1} %), {alone} ran alone, \
         {panicked} panicked",
        seed - first,
        100.0 * missed as f64 / ran as f64
    );
    println!("{predicted:?}");
    assert!(missed > 0 && alone > 0 && panicked > 0, "the fuzz does not reach what it is for");
    assert!(predicted.missed > 0, "no forecast by kind was wrong");
    assert!(10 * predicted.missed < 9 * predicted.missed_without, "the forecasts by kind are of no use");
}

/// Later than any log ends.
const NEVER: u64 = 1 << 40;

/// First attempts of requests of a kind, how many of them missed, and how many had done so if nothing were learned.
#[derive(Debug, Default)]
struct Forecasts {
    by_kind: u64,
    missed: u64,
    missed_without: u64,
}

impl Forecasts {
    fn count(&mut self, learned: &Summary, not_learned: &Summary) {
        let first = |summary: &Summary, counts: fn(&End) -> bool| {
            let first = summary.records.values().filter(|record| record.predicted && record.attempt == 0);
            first.filter(|record| counts(&record.end)).count() as u64
        };
        self.by_kind += first(learned, |_| true);
        self.missed += first(learned, |end| matches!(end, End::Missed(_)));
        self.missed_without += first(not_learned, |end| matches!(end, End::Missed(_)));
    }
}

fn compare(expected: &Summary, found: &Summary, seed: u64, config: Config) {
    for (position, record) in &expected.records {
        assert_eq!(Some(record), found.records.get(position), "position {position}, seed {seed}, {config:?}");
    }
    assert_eq!(expected.values, found.values, "values: seed {seed}, {config:?}");
    assert_eq!(expected.histories, found.histories, "writing acquisitions: seed {seed}, {config:?}");
    assert_eq!(expected.reads, found.reads, "reading acquisitions: seed {seed}, {config:?}");
    assert_eq!(expected.positions, found.positions, "positions: seed {seed}, {config:?}");
    assert_eq!(expected.records.len(), found.records.len(), "records: seed {seed}, {config:?}");
}

#[test]
fn negative_control_ordinary_locks_diverge() {
    let (mut diverged, logs) = (0, 12);
    for seed in 0..logs {
        let mut rng = SplitMix64::new(1_000 + seed);
        let log = random_log(&mut rng, PROGRAMS_PER_LOG, 6);
        let config = Config { mode: LockRules::Locks, ..Config::new(4, 6) };
        let runs: Vec<Vec<u64>> = (0..4).map(|_| run(&log, config, rng.next_u64()).summary.values).collect();
        diverged += u64::from(runs.iter().any(|values| *values != runs[0]));
    }
    println!("{diverged} of {logs} logs differ between replicas with ordinary locks");
    assert!(diverged >= logs / 2, "only {diverged} of {logs}: the fuzz would not notice a wrong order");
}

/// A scheduler that used a lesson too early would be detected: forecasts, retries and positions differ.
#[test]
fn negative_control_lessons_before_their_time_diverge() {
    let (mut diverged, logs, lag) = (0, 40, 16);
    for seed in 0..logs {
        let log = random_log(&mut SplitMix64::new(2_000 + seed), PROGRAMS_PER_LOG, 16);
        let early = oracle::run_learning_after(lag - 1, &log, 16, lag);
        diverged += u64::from(oracle::run(&log, 16, lag) != early);
    }
    println!("{diverged} of {logs} logs differ if lessons count one position too early");
    assert!(diverged >= logs / 4, "only {diverged} of {logs}: the fuzz would not notice");
}
