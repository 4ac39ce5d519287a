//! What faults did: how long repairs took by the damaged replica's own records, and what clients saw around them.

use crosscheck::admin::EvidenceRecord;
use serde::{Deserialize, Serialize};

use super::definition::Faults;
use super::faults::Placed;
use super::generator::{STEP_NS, Step, Timeline};

/// Steps before the verdict and after it that belong to a repair.
const BEFORE: usize = 10;
const AFTER: usize = 40;
/// Above this rate the stretches around repairs would run into each other.
const HIGHEST_RATE: f64 = 5.0;
/// Times that a result keeps; of more, evenly chosen ones.
const TIMES_KEPT: usize = 1000;

/// What the faults of one measurement did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Repairs {
    /// Faults that were due while it was measured.
    pub due: u64,
    /// Faults that were in place.
    pub placed: u64,
    /// The first reason why one was not.
    pub why_not: Option<String>,
    /// Objects that were repaired.
    pub repaired: u64,
    /// The same, per second.
    pub repaired_per_second: f64,
    /// Microseconds from verdict to installed objects, in order; of the newest repairs, where there were thousands.
    pub times_us: Vec<u64>,
    /// The longest that any client waited around each repair, in microseconds, in order.
    pub waits_us: Vec<u64>,
    /// The same in stretches as long before the faults: what the machine does by itself.
    pub quiet_waits_us: Vec<u64>,
    /// Replies around the verdicts.
    pub around: Option<Around>,
}

/// Replies step by step around a verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Around {
    /// Length of a step, in microseconds.
    pub step_us: u64,
    /// The step in which the verdict fell.
    pub verdict: usize,
    /// Replies of each step, on average over the repairs.
    pub mean: Vec<f64>,
    /// Replies of each step around the first repair.
    pub example: Vec<u32>,
    /// Microseconds from the verdict to the installed objects of that repair.
    pub example_took_us: u64,
    /// Repairs that the average is over.
    pub repairs: usize,
}

/// One repair, by the records of the damaged replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Repair {
    verdict_wall_us: u64,
    took_us: u64,
}

/// Puts together what is known. `records` are those of the damaged `replica`, from the beginning of the measured time.
pub fn of(
    faults: Faults,
    placed: Placed,
    repaired: u64,
    seconds: f64,
    records: &[EvidenceRecord],
    replica: u8,
    timeline: Option<&Timeline>,
) -> Repairs {
    let repairs: Vec<Repair> = records.iter().filter_map(|record| repair_of(record, replica)).collect();
    let mut found = Repairs {
        due: placed.due,
        placed: placed.placed,
        why_not: placed.why_not,
        repaired,
        repaired_per_second: repaired as f64 / seconds,
        times_us: some_of(repairs.iter().map(|repair| repair.took_us).collect()),
        ..Repairs::default()
    };
    if let Some(timeline) = timeline
        && (0.0..=HIGHEST_RATE).contains(&faults.per_second)
    {
        look_around(&mut found, &repairs, timeline);
    }
    found
}

fn repair_of(record: &EvidenceRecord, replica: u8) -> Option<Repair> {
    let took_us = record.took_us.filter(|_| record.stage == "repair" && record.replica == Some(replica))?;
    Some(Repair { verdict_wall_us: record.time_us.saturating_sub(took_us), took_us })
}

/// In order; evenly chosen ones where there are too many to keep.
fn some_of(mut times: Vec<u64>) -> Vec<u64> {
    times.sort_unstable();
    let count = times.len();
    if count <= TIMES_KEPT {
        return times;
    }
    // From the shortest to the longest, both included.
    (0..TIMES_KEPT).map(|number| times[number * (count - 1) / (TIMES_KEPT - 1)]).collect()
}

fn look_around(found: &mut Repairs, repairs: &[Repair], timeline: &Timeline) {
    let length = BEFORE + AFTER;
    let mut sums = vec![0u64; length];
    let mut example = None;
    let mut count = 0;
    for repair in repairs {
        let Some(verdict) = timeline.step_at(repair.verdict_wall_us) else { continue };
        let Some(begin) = verdict.checked_sub(BEFORE) else { continue };
        let Some(steps) = timeline.steps.get(begin..begin + length) else { continue };
        count += 1;
        found.waits_us.push(longest(steps));
        if let Some(quiet) = begin.checked_sub(length).and_then(|quiet| timeline.steps.get(quiet..begin)) {
            found.quiet_waits_us.push(longest(quiet));
        }
        for (sum, step) in sums.iter_mut().zip(steps) {
            *sum += u64::from(step.replies);
        }
        example.get_or_insert_with(|| (steps.iter().map(|step| step.replies).collect(), repair.took_us));
    }
    found.waits_us.sort_unstable();
    found.quiet_waits_us.sort_unstable();
    found.around = example.map(|(example, example_took_us)| Around {
        step_us: STEP_NS / 1000,
        verdict: BEFORE,
        mean: sums.iter().map(|sum| *sum as f64 / f64::from(count)).collect(),
        example,
        example_took_us,
        repairs: count as usize,
    });
}

fn longest(steps: &[Step]) -> u64 {
    u64::from(steps.iter().map(|step| step.longest_us).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::definition::{Fault, Victim};

    fn faults(per_second: f64) -> Faults {
        Faults { per_second, fault: Fault::Flip, victim: Victim::Follower }
    }

    fn record(stage: &str, replica: u8, time_us: u64, took_us: Option<u64>) -> EvidenceRecord {
        EvidenceRecord {
            number: 1,
            time_us,
            replica: Some(replica),
            request: None,
            objects: Vec::new(),
            class: "hardware-like".into(),
            stage: stage.into(),
            outcome: "repaired".into(),
            core: None,
            took_us,
        }
    }

    /// One reply in each of 200 steps, waited for 100 us, but for a gap of five steps from `gap` on, and a long wait after it.
    fn timeline(gap: usize) -> Timeline {
        let usual = Step { replies: 1, longest_us: 100 };
        let mut steps = vec![usual; 200];
        steps[gap..gap + 5].fill(Step::default());
        steps[gap + 5] = Step { replies: 6, longest_us: 10_500 };
        Timeline { began_wall_us: 1_000_000, steps }
    }

    #[test]
    fn a_gap_after_the_verdict_is_seen_and_told_from_the_quiet_before() {
        // The verdict falls into step 100; the objects are installed 5 ms later.
        let records = [
            record("entry-check", 2, 1_201_000, None),
            record("repair", 2, 1_206_000, Some(5_000)),
            record("repair", 3, 1_206_000, Some(9)),
        ];
        let placed = Placed { due: 1, placed: 1, why_not: None };
        let found = of(faults(4.0), placed, 1, 0.4, &records, 2, Some(&timeline(100)));
        assert_eq!((found.times_us, found.waits_us), (vec![5_000], vec![10_500]));
        assert_eq!(found.quiet_waits_us, [100]);
        assert_eq!(found.repaired_per_second, 2.5);
        let around = found.around.expect("a verdict within the measured time");
        assert_eq!(
            (around.verdict, around.step_us, around.repairs, around.example_took_us),
            (10, 2000, 1, 5_000)
        );
        assert_eq!(around.example[8..17], [1, 1, 0, 0, 0, 0, 0, 6, 1]);
        assert_eq!(around.mean[15], 6.0);
    }

    #[test]
    fn repairs_at_the_edges_count_for_times_only_and_high_rates_have_no_surroundings() {
        let records =
            [record("repair", 2, 1_003_000, Some(1_000)), record("repair", 2, 1_399_000, Some(2_000))];
        let placed = Placed { due: 2, placed: 2, why_not: None };
        let found = of(faults(4.0), placed.clone(), 2, 0.4, &records, 2, Some(&timeline(100)));
        assert_eq!((found.times_us.len(), found.waits_us.len(), found.around), (2, 0, None));
        let records = [record("repair", 2, 1_206_000, Some(5_000))];
        let found = of(faults(100.0), placed, 2, 0.4, &records, 2, Some(&timeline(100)));
        assert_eq!((found.times_us, found.around), (vec![5_000], None));
    }

    #[test]
    fn of_many_times_the_extremes_are_kept() {
        let kept = some_of((0..5_000).rev().collect());
        assert_eq!((kept.len(), kept[0], kept[TIMES_KEPT - 1]), (TIMES_KEPT, 0, 4_999));
        assert!(kept.is_sorted());
    }
}
