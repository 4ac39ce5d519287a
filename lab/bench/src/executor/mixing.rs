//! The mixer of the benchmark: the shipped one, or one that is wrong about some pairs of requests on purpose.
//!
//! OSDI 2012, section 7.2: of each pair of requests that conflict, the mixer overlooks a share (false negatives); of
//! each pair that do not, it imagines a conflict (false positives). Here the shipped mixer plans from keys that say
//! just that: a key of its own for each pair that counts as a conflict.

use std::collections::BTreeMap;

use crosscheck::schedule::{Entry, Footprint, Keys, Mixed, Mixer, ParallelBatches};
use serde::{Deserialize, Serialize};
use wire::{SplitMix64, derive, unit};

/// How often a mixer is wrong, per pair of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MixerErrors {
    /// Share of the conflicts that it overlooks.
    pub overlooks: f64,
    /// Share of the other pairs that it takes for conflicts.
    pub imagines: f64,
}

impl MixerErrors {
    /// Never wrong.
    pub const NONE: MixerErrors = MixerErrors { overlooks: 0.0, imagines: 0.0 };
}

/// A mixer that is wrong as often as it should be.
pub struct ErringMixer {
    mixer: Mixer,
    errors: MixerErrors,
    seed: u64,
    keys: Vec<Keys>,
}

impl ErringMixer {
    /// Which pairs it is wrong about follows from the seed.
    pub fn new(errors: MixerErrors, seed: u64) -> ErringMixer {
        ErringMixer { mixer: Mixer::new(), errors, seed, keys: Vec::new() }
    }

    /// The one of the measurement that has this seed.
    pub fn of_log(errors: MixerErrors, seed: u64) -> ErringMixer {
        ErringMixer::new(errors, derive(seed, 2))
    }

    /// The plan of a batch, the same for the same seed and batch.
    pub fn plan<R>(&mut self, entry: &Entry<R>) -> ParallelBatches {
        self.keys.resize_with(entry.rows.len(), Keys::new);
        self.keys.iter_mut().for_each(Keys::clear);
        if self.errors == MixerErrors::NONE {
            for (keys, work) in self.keys.iter_mut().zip(&entry.rows) {
                keys.of_footprint(&work.footprint);
            }
        } else {
            self.keys_of_pairs(entry);
        }
        let batch: Vec<Mixed<'_>> = self.keys.iter().map(|keys| Mixed { keys, stream: None }).collect();
        self.mixer.mix(&batch)
    }

    fn keys_of_pairs<R>(&mut self, entry: &Entry<R>) {
        let of_batch = derive(self.seed, entry.index);
        for (later, work) in entry.rows.iter().enumerate() {
            for (earlier, other) in entry.rows[..later].iter().enumerate() {
                let pair = (earlier as u64) << 32 | later as u64;
                let chance = unit(derive(of_batch, pair));
                let seen = if conflict(&work.footprint, &other.footprint) {
                    chance >= self.errors.overlooks
                } else {
                    chance < self.errors.imagines
                };
                if seen {
                    self.keys[earlier].write(pair);
                    self.keys[later].write(pair);
                }
            }
        }
    }
}

/// Whether one request writes what the other touches.
fn conflict(one: &Footprint, other: &Footprint) -> bool {
    let mut with_other =
        one.iter().map(|(lock, shared)| other.allows(lock, false) || !shared && other.allows(lock, true));
    one.is_all() || other.is_all() || with_other.any(|is| is)
}

/// The plan with another order inside of each parallel batch: a worker that is free takes any of the next `workers`
/// requests.
///
/// Threads of two replicas start in different orders. Those of two executors in one process hardly do, since the
/// operating system wakes them one after the other: an overlooked conflict would show too rarely.
pub fn started_in_any_order(
    plan: &ParallelBatches,
    workers: usize,
    random: &mut SplitMix64,
) -> ParallelBatches {
    let mut order = Vec::with_capacity(plan.order.len());
    for parallel in plan.iter() {
        let mut waiting = parallel.to_vec();
        while !waiting.is_empty() {
            let next = random.below(waiting.len().min(workers) as u64) as usize;
            order.push(waiting.remove(next));
        }
    }
    ParallelBatches { order, ends: plan.ends.clone() }
}

/// Whether two orders leave different items: requests overwrite them, so the last one on each counts.
pub fn is_visible<R>(entry: &Entry<R>, one: &ParallelBatches, other: &ParallelBatches) -> bool {
    let last = |plan: &ParallelBatches| -> BTreeMap<u32, u32> {
        let of_request = |number: &u32| {
            let work = entry.rows.get(*number as usize)?;
            Some((work.footprint.first()?, *number))
        };
        plan.order.iter().filter_map(of_request).collect()
    };
    last(one) != last(other)
}

#[cfg(test)]
mod tests {
    use crosscheck::schedule::BatchRow;

    use super::*;

    fn entry(index: u64, items: u64) -> Entry<()> {
        let mut random = SplitMix64::new(index);
        let work =
            |_| BatchRow { request: (), footprint: Footprint::one(random.below(items) as u32), stream: None };
        Entry { index, time_us: 0, seed: 0, drain: false, rows: (0..100).map(work).collect() }
    }

    /// Pairs of one parallel batch that conflict.
    fn overlooked(entry: &Entry<()>, plan: &ParallelBatches) -> usize {
        let of = |number: u32| &entry.rows[number as usize].footprint;
        let pairs = |parallel: &[u32]| -> usize {
            let with_earlier = |(at, one): (usize, &u32)| {
                parallel[..at].iter().filter(|other| conflict(of(*one), of(**other))).count()
            };
            parallel.iter().enumerate().map(with_earlier).sum()
        };
        plan.iter().map(pairs).sum()
    }

    #[test]
    fn keys_of_pairs_give_the_plan_of_the_locks() {
        for index in 1..50 {
            let entry = entry(index, 1 + index * 5);
            let expected = ErringMixer::new(MixerErrors::NONE, 0).plan(&entry);
            // So rare that it never happens, and yet another way to the plan.
            let never = MixerErrors { overlooks: 1e-300, imagines: 0.0 };
            assert_eq!(ErringMixer::new(never, index).plan(&entry), expected);
        }
    }

    #[test]
    fn it_is_wrong_as_often_as_it_should_be() {
        let all = |errors: MixerErrors| -> (usize, usize) {
            let plans = (1..100).map(|index| {
                let entry = entry(index, 100);
                let plan = ErringMixer::new(errors, 3).plan(&entry);
                assert_eq!(plan, ErringMixer::new(errors, 3).plan(&entry), "it follows from the seed");
                (overlooked(&entry, &plan), plan.ends.len())
            });
            plans.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
        };
        let (none, accurate) = all(MixerErrors::NONE);
        assert_eq!(none, 0);
        let (few, _) = all(MixerErrors { overlooks: 0.01, imagines: 0.0 });
        let (many, fewer_batches) = all(MixerErrors { overlooks: 0.3, imagines: 0.0 });
        assert!(few > 0 && many > 10 * few, "{few} and {many} conflicts inside of parallel batches");
        assert!(fewer_batches < accurate);
        let (no_conflict, more_batches) = all(MixerErrors { overlooks: 0.0, imagines: 0.05 });
        assert_eq!(no_conflict, 0);
        assert!(
            more_batches > accurate + accurate / 4,
            "{more_batches} instead of {accurate} parallel batches"
        );
        assert_eq!(all(MixerErrors { overlooks: 1.0, imagines: 0.0 }).1, 99, "it sees no conflict at all");
    }

    #[test]
    fn another_order_stays_inside_of_parallel_batches() {
        let entry = entry(9, 30);
        let plan = ErringMixer::new(MixerErrors { overlooks: 0.5, imagines: 0.0 }, 1).plan(&entry);
        let mut random = SplitMix64::new(5);
        let mut visible = 0;
        for _ in 0..50 {
            let other = started_in_any_order(&plan, 16, &mut random);
            assert_eq!(other.ends, plan.ends);
            assert_ne!(other.order, plan.order);
            for (one, same) in plan.iter().zip(other.iter()) {
                let (mut one, mut same) = (one.to_vec(), same.to_vec());
                one.sort_unstable();
                same.sort_unstable();
                assert_eq!(one, same);
            }
            visible += u32::from(is_visible(&entry, &plan, &other));
        }
        assert!(visible > 10, "{visible} of 50 orders can be seen");
        assert_eq!(started_in_any_order(&plan, 1, &mut random), plan);
        let accurate = ErringMixer::new(MixerErrors::NONE, 1).plan(&entry);
        let other = started_in_any_order(&accurate, 16, &mut random);
        assert!(!is_visible(&entry, &accurate, &other), "nothing was overlooked");
    }
}
