//! A failing run made smaller: fewer episodes of faults, and fewer commands, as long as the same promise breaks.

use crate::run::{Options, RunSummary, simulate};
use crate::workload::Workload;

/// The smallest options found within `tries` runs under which the same promise breaks, and the result of that run.
pub fn shrink<W: Workload>(
    workload: &W,
    seed: u64,
    options: &Options,
    failed: &RunSummary,
    tries: u32,
) -> (Options, RunSummary) {
    let mut best = (options.clone(), failed.clone());
    let Some(promise) = failed.violation.as_ref().map(|violation| violation.promise) else { return best };
    let mut left = tries;
    let mut attempt = |best: &mut (Options, RunSummary), options: Options| {
        if left == 0 || options == best.0 {
            return false;
        }
        left -= 1;
        let summary = simulate(workload, seed, &options);
        let same = summary.violation.as_ref().is_some_and(|violation| violation.promise == promise);
        if same {
            *best = (options, summary);
        }
        same
    };
    // Episodes after the last one that began are never reached.
    for number in (0..options.episodes).rev() {
        let mut without = best.0.without.clone();
        without.insert(number);
        let smaller = Options { without, ..best.0.clone() };
        attempt(&mut best, smaller);
    }
    while best.0.clients > 1 {
        let smaller = Options { clients: best.0.clients / 2, ..best.0.clone() };
        if !attempt(&mut best, smaller) {
            break;
        }
    }
    while best.0.requests > 10 {
        let smaller = Options { requests: best.0.requests / 2, ..best.0.clone() };
        if !attempt(&mut best, smaller) {
            break;
        }
    }
    best
}
