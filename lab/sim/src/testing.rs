//! The assertions of every service's test under simulation, so that each test needs one line.

use std::ops::RangeInclusive;

use crate::{Faults, Options, Workload, simulate};

/// Commands of a short run.
const REQUESTS: u64 = 200;

/// A short run with these kinds of faults.
///
/// # Panics
/// If [`Faults::parse`] does not know one of them.
pub fn short(faults: &str) -> Options {
    let faults = Faults::parse(faults).unwrap_or_else(|error| panic!("{faults}: {error}"));
    Options { requests: REQUESTS, episodes: 2, faults, ..Options::default() }
}

/// Asserts that bits flipped in objects of `workload` are noticed, and that every promise is kept, with each seed.
///
/// # Panics
/// If a promise is broken, a run with flips has no evidence, or fewer bits than seeds were flipped in all.
pub fn flips_are_repaired<W: Workload>(workload: &W, seeds: RangeInclusive<u64>) {
    let (mut flipped, mut runs) = (0, 0);
    for seed in seeds {
        let summary = simulate(workload, seed, &short("flip,in-request"));
        assert_eq!(summary.violation, None, "seed {seed}");
        assert!(summary.answered >= REQUESTS, "seed {seed}: {} replies", summary.answered);
        let flips: u64 = summary.faults.values().map(|count| count.injected).sum();
        assert!(flips == 0 || summary.evidence.values().sum::<u64>() > 0, "seed {seed}: no evidence");
        flipped += flips;
        runs += 1;
    }
    assert!(flipped >= runs, "{flipped} bits flipped in {runs} runs");
}

/// Asserts that every promise is kept with all kinds of faults, logs in memory and on disk, and one to three workers.
///
/// # Panics
/// If a promise is broken.
pub fn all_faults_keep_every_promise<W: Workload>(workload: &W, seeds: RangeInclusive<u64>) {
    for seed in seeds {
        let options = Options { disk: seed % 2 == 0, workers: 1 + seed as usize % 3, ..short("all") };
        let summary = simulate(workload, seed, &options);
        assert_eq!(summary.violation, None, "seed {seed}");
    }
}
