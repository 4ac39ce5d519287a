//! The effects of faults: how long repairs took by the damaged replica's own records, and the replies to clients around
//! them.

use crosscheck::admin::EvidenceRecord;
use serde::{Deserialize, Serialize};

use super::definition::SweepFaults;
use super::faults::Placed;
use super::generator::{STEP_NS, Timeline, TimelineStep};

/// Steps before the verdict and after it that belong to a repair.
const BEFORE: usize = 10;
const AFTER: usize = 40;
/// Above this rate the windows around repairs would overlap.
const HIGHEST_RATE: f64 = 5.0;
/// The most times that a result keeps; of more, evenly distributed ones.
const TIMES_KEPT: usize = 1000;

/// The effects of the faults of one measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RepairFigures {
    /// Faults that were due while it was measured.
    pub due: u64,
    /// Faults that were in place.
    pub placed: u64,
    /// The first reason why a fault was not placed.
    pub why_not: Option<String>,
    /// Objects that were repaired.
    pub repaired: u64,
    /// Microseconds from verdict to installed objects; only of the newest repairs if there were thousands.
    pub times_us: Times,
    /// The longest that any client waited around each repair, in microseconds.
    pub waits_us: Times,
    /// The same in windows of the same length before the faults: the waits that the machine causes.
    pub quiet_waits_us: Times,
    /// Replies around the verdicts.
    pub around: Option<Around>,
}

/// Times in microseconds, in order; most files have only the points of their distribution that a report shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Times {
    /// Each of them.
    All(Vec<u64>),
    /// The points that a report shows of them.
    Points(Points),
}

/// Points of a distribution of times, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Points {
    /// How many times; with none, the points are zeros.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Half are at most this.
    pub p50: u64,
    /// 90 of 100.
    pub p90: u64,
    /// 99 of 100.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

/// One of the points.
pub type Point = fn(&Points) -> u64;

impl Default for Times {
    fn default() -> Self {
        Times::All(Vec::new())
    }
}

impl Times {
    /// The points that a report shows of them.
    pub fn points(&self) -> Points {
        match self {
            Times::All(times) => Points::of(times),
            Times::Points(points) => *points,
        }
    }

    /// Each of them; none where only points are known.
    pub fn all(&self) -> &[u64] {
        match self {
            Times::All(times) => times,
            Times::Points(_) => &[],
        }
    }
}

impl RepairFigures {
    /// Discards single times and what was around them.
    pub fn shorten(&mut self) {
        self.around = None;
        for times in [&mut self.times_us, &mut self.waits_us, &mut self.quiet_waits_us] {
            *times = Times::Points(times.points());
        }
    }
}

impl Points {
    /// The points of sorted times.
    pub fn of(sorted: &[u64]) -> Self {
        let Some(last) = sorted.len().checked_sub(1) else { return Points::default() };
        let at = |share: f64| sorted[(share * last as f64).round() as usize];
        Points {
            count: sorted.len() as u64,
            mean: sorted.iter().sum::<u64>() as f64 / sorted.len() as f64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: at(1.0),
        }
    }

    /// A point, if there is a time.
    pub fn at(&self, point: Point) -> Option<f64> {
        (self.count > 0).then(|| point(self) as f64)
    }
}

/// The repairs of all repetitions of one cell together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pooled {
    /// From verdict to installed objects.
    pub times_us: Points,
    /// The longest that any client waited around a repair.
    pub waits_us: Points,
    /// The same before the faults.
    pub quiet_waits_us: Points,
    /// Replies around the verdicts: the mean over all, and the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub around: Option<Around>,
}

impl Pooled {
    /// Of the repetitions that succeeded, each with all its times.
    pub fn of(each: &[&RepairFigures]) -> Self {
        let pool = |times: fn(&RepairFigures) -> &Times| {
            let mut all: Vec<u64> = each.iter().flat_map(|one| times(one).all().iter().copied()).collect();
            all.sort_unstable();
            Points::of(&all)
        };
        Pooled {
            times_us: pool(|one| &one.times_us),
            waits_us: pool(|one| &one.waits_us),
            quiet_waits_us: pool(|one| &one.quiet_waits_us),
            around: Around::pooled(&each.iter().filter_map(|one| one.around.as_ref()).collect::<Vec<_>>()),
        }
    }
}

/// Replies step by step around a verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Around {
    /// Length of a step, in microseconds.
    pub step_us: u64,
    /// The step that contains the verdict.
    pub verdict: usize,
    /// Replies of each step, on average over the repairs.
    pub mean: Vec<f64>,
    /// Replies of each step around the first repair.
    pub example: Vec<u32>,
    /// Microseconds from the verdict to the installed objects of that repair.
    pub example_took_us: u64,
    /// Repairs over which the average was computed.
    pub repairs: usize,
}

impl Around {
    /// The union of several: the mean over all repairs, and the first one's example.
    fn pooled(each: &[&Around]) -> Option<Around> {
        let first = *each.first()?;
        let repairs: usize = each.iter().map(|one| one.repairs).sum();
        let sum_of = |step: usize| each.iter().map(|one| one.mean[step] * one.repairs as f64).sum::<f64>();
        let mean = (0..first.mean.len()).map(|step| sum_of(step) / repairs.max(1) as f64).collect();
        Some(Around { mean, repairs, ..first.clone() })
    }
}

/// One repair, by the records of the damaged replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Repair {
    verdict_wall_us: u64,
    took_us: u64,
}

/// Combines records and counts. `records` are those of the damaged `replica`, from the beginning of the measured time.
pub fn of(
    faults: SweepFaults,
    placed: Placed,
    repaired: u64,
    records: &[EvidenceRecord],
    replica: u8,
    timeline: Option<&Timeline>,
) -> RepairFigures {
    let repairs: Vec<Repair> = records.iter().filter_map(|record| repair_of(record, replica)).collect();
    let mut found = RepairFigures {
        due: placed.due,
        placed: placed.placed,
        why_not: placed.why_not,
        repaired,
        times_us: Times::All(some_of(repairs.iter().map(|repair| repair.took_us).collect())),
        ..RepairFigures::default()
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

/// Sorted times; evenly distributed ones where there are too many to keep.
fn some_of(mut times: Vec<u64>) -> Vec<u64> {
    times.sort_unstable();
    let count = times.len();
    if count <= TIMES_KEPT {
        return times;
    }
    // From the shortest to the longest, both included.
    (0..TIMES_KEPT).map(|number| times[number * (count - 1) / (TIMES_KEPT - 1)]).collect()
}

fn look_around(found: &mut RepairFigures, repairs: &[Repair], timeline: &Timeline) {
    let length = BEFORE + AFTER;
    let mut sums = vec![0u64; length];
    let (mut waits, mut quiet_waits) = (Vec::new(), Vec::new());
    let mut example = None;
    let mut count = 0;
    for repair in repairs {
        let Some(verdict) = timeline.step_at(repair.verdict_wall_us) else { continue };
        let Some(begin) = verdict.checked_sub(BEFORE) else { continue };
        let Some(steps) = timeline.steps.get(begin..begin + length) else { continue };
        count += 1;
        waits.push(longest(steps));
        if let Some(quiet) = begin.checked_sub(length).and_then(|quiet| timeline.steps.get(quiet..begin)) {
            quiet_waits.push(longest(quiet));
        }
        for (sum, step) in sums.iter_mut().zip(steps) {
            *sum += u64::from(step.replies);
        }
        example.get_or_insert_with(|| (steps.iter().map(|step| step.replies).collect(), repair.took_us));
    }
    waits.sort_unstable();
    quiet_waits.sort_unstable();
    found.waits_us = Times::All(waits);
    found.quiet_waits_us = Times::All(quiet_waits);
    found.around = example.map(|(example, example_took_us)| Around {
        step_us: STEP_NS / 1000,
        verdict: BEFORE,
        mean: sums.iter().map(|sum| *sum as f64 / f64::from(count)).collect(),
        example,
        example_took_us,
        repairs: count as usize,
    });
}

fn longest(steps: &[TimelineStep]) -> u64 {
    u64::from(steps.iter().map(|step| step.longest_us).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::SweepVictim;
    use crosscheck::admin::Corruption;

    fn faults(per_second: f64) -> SweepFaults {
        SweepFaults { per_second, fault: Corruption::Flip, victim: SweepVictim::Follower }
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
            kind: None,
        }
    }

    /// One reply in each of 200 steps, after a wait of 100 us, except a gap of five steps from `gap` on, and a long
    /// wait after it.
    fn timeline(gap: usize) -> Timeline {
        let usual = TimelineStep { replies: 1, longest_us: 100 };
        let mut steps = vec![usual; 200];
        steps[gap..gap + 5].fill(TimelineStep::default());
        steps[gap + 5] = TimelineStep { replies: 6, longest_us: 10_500 };
        Timeline { began_wall_us: 1_000_000, steps }
    }

    #[test]
    fn a_gap_after_the_verdict_is_distinguished_from_the_quiet_before() {
        // The verdict is in step 100; the objects are installed 5 ms later.
        let records = [
            record("entry-check", 2, 1_201_000, None),
            record("repair", 2, 1_206_000, Some(5_000)),
            record("repair", 3, 1_206_000, Some(9)),
        ];
        let placed = Placed { due: 1, placed: 1, why_not: None };
        let found = of(faults(4.0), placed, 1, &records, 2, Some(&timeline(100)));
        assert_eq!((found.times_us.all(), found.waits_us.all()), (&[5_000][..], &[10_500][..]));
        assert_eq!(found.quiet_waits_us.all(), [100]);
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
        let found = of(faults(4.0), placed.clone(), 2, &records, 2, Some(&timeline(100)));
        assert_eq!((found.times_us.all().len(), found.waits_us.all().len(), found.around), (2, 0, None));
        let records = [record("repair", 2, 1_206_000, Some(5_000))];
        let found = of(faults(100.0), placed, 2, &records, 2, Some(&timeline(100)));
        assert_eq!((found.times_us.all(), found.around), (&[5_000][..], None));
    }

    #[test]
    fn points_are_those_of_all_repetitions_together() {
        let around = |first: u32, repairs: usize| {
            let mean = vec![f64::from(first), 1.0];
            Some(Around {
                step_us: 2_000,
                verdict: 1,
                mean,
                example: vec![first, 1],
                example_took_us: 3,
                repairs,
            })
        };
        let one = RepairFigures {
            times_us: Times::All(vec![1, 5]),
            around: around(4, 1),
            ..RepairFigures::default()
        };
        let two = RepairFigures {
            times_us: Times::All(vec![2, 3, 9]),
            around: around(8, 3),
            ..RepairFigures::default()
        };
        let pooled = Pooled::of(&[&one, &two]);
        assert_eq!(pooled.times_us, Points { count: 5, mean: 4.0, p50: 3, p90: 9, p99: 9, max: 9 });
        assert_eq!((pooled.waits_us, pooled.waits_us.at(|points| points.p50)), (Points::default(), None));
        let around = pooled.around.expect("both have one");
        assert_eq!((around.mean, around.example, around.repairs), (vec![7.0, 1.0], vec![4, 1], 4));
    }

    #[test]
    fn of_many_times_the_extremes_are_kept() {
        let kept = some_of((0..5_000).rev().collect());
        assert_eq!((kept.len(), kept[0], kept[TIMES_KEPT - 1]), (TIMES_KEPT, 0, 4_999));
        assert!(kept.is_sorted());
    }
}
