//! A replica fails under load and comes back: when that happened, and what clients of the others saw of it (OSDI 2012,
//! Fig. 8).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use node::cluster::{ReplicaHandle, ReplicaRow, once};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::definition::{FailureKind, ReplicaFailure};
use super::generator::{STEP_NS, Timeline, TimelineStep};

/// Pause between two looks at the replicas, once the failed one should come back.
const LOOK: Duration = Duration::from_millis(20);
/// Steps of the timeline in a step of the results: 100 ms.
const STEPS: usize = 50;
/// So long after the failure, in milliseconds, the throughput of the others counts.
const SETTLED_MS: f64 = 500.0;
/// Milliseconds of a step of the timeline.
const STEP_MS: f64 = STEP_NS as f64 / 1e6;

/// What clients saw of a failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureFigures {
    /// When the signal was sent, in milliseconds of the measured time.
    pub failed_ms: f64,
    /// When the process was started again, or went on.
    pub back_ms: f64,
    /// When all replicas served and executed in one view again; none if that was not seen.
    pub together_ms: Option<f64>,
    /// The longest time without any reply before.
    pub gap_before_ms: f64,
    /// The same from the failure until the replica came back.
    pub gap_failed_ms: f64,
    /// The same from then on.
    pub gap_rejoin_ms: f64,
    /// Requests per second before the failure.
    pub before: f64,
    /// Requests per second of the others, from half a second after the failure until the replica came back.
    pub alone: f64,
    /// Requests per second from the moment when all executed together again.
    pub after: f64,
    /// Length of a step, in milliseconds.
    pub step_ms: u64,
    /// Replies of each step.
    pub replies: Vec<u32>,
}

impl FailureFigures {
    /// From the failure's end until all replicas executed together again, in milliseconds.
    pub fn rejoin_ms(&self) -> Option<f64> {
        Some(self.together_ms? - self.back_ms)
    }
}

/// When things happened, in microseconds since 1970.
#[derive(Clone, Copy, Debug, Default)]
pub struct FailureTimes {
    failed_us: Option<u64>,
    back_us: Option<u64>,
    together_us: Option<u64>,
}

/// A thread that lets a replica fail.
#[derive(Debug)]
pub struct FailureInjector {
    over: Arc<AtomicBool>,
    thread: JoinHandle<FailureTimes>,
}

impl FailureInjector {
    /// Begins now: the measured time begins with the caller's next step. `pid` is the process of the replica that is
    /// to fail, one of `replicas`; what kept it running starts a killed one again, at the failure's end.
    ///
    /// # Errors
    /// There are no more threads.
    pub fn start(
        failure: ReplicaFailure,
        pid: Pid,
        replicas: Vec<ReplicaHandle>,
    ) -> std::io::Result<FailureInjector> {
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let thread = thread::Builder::new().name("injector".into()).spawn(move || {
            let begin = Instant::now();
            let mut times = FailureTimes::default();
            if !sleep_until(begin + Duration::from_secs_f64(failure.at), &stop) {
                return times;
            }
            let signal = match failure.kind {
                FailureKind::Kill => Signal::KILL,
                FailureKind::Pause => Signal::STOP,
            };
            times.failed_us = kill_process(pid, signal).is_ok().then(wall_us);
            let goes_on = sleep_until(begin + Duration::from_secs_f64(failure.back), &stop);
            if failure.kind == FailureKind::Pause {
                // Also when the measurement was given up: a stopped process cannot be ended cleanly.
                let _ = kill_process(pid, Signal::CONT);
            }
            if goes_on {
                times.back_us = Some(wall_us());
                times.together_us = wait_until_together(&replicas, &stop);
            }
            times
        })?;
        Ok(FailureInjector { over, thread })
    }

    /// Ends it, and returns what it did.
    pub fn finish(self) -> FailureTimes {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Whether the time came before `over` was set.
fn sleep_until(until: Instant, over: &AtomicBool) -> bool {
    while !over.load(Ordering::Relaxed) {
        let now = Instant::now();
        if now >= until {
            return true;
        }
        thread::sleep((until - now).min(LOOK));
    }
    false
}

fn wait_until_together(replicas: &[ReplicaHandle], over: &AtomicBool) -> Option<u64> {
    while !over.load(Ordering::Relaxed) {
        let rows = once(replicas);
        if are_together(&rows) {
            return Some(wall_us());
        }
        thread::sleep(LOOK);
    }
    None
}

/// Whether all serve and, where batches are verified afterwards, each knows all that execute.
fn are_together(rows: &[ReplicaRow]) -> bool {
    let executes = |row: &ReplicaRow| {
        let status = row.serving()?;
        let view = status.verification.as_ref();
        Some(view.is_none_or(|view| rows.iter().all(|one| view.executors.contains(&one.replica.number))))
    };
    rows.iter().all(|row| executes(row) == Some(true))
}

fn wall_us() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// Combines the times with the replies of a measured time of so many seconds; none if no replica failed.
pub fn of(times: FailureTimes, timeline: &Timeline, seconds: f64) -> Option<FailureFigures> {
    let ms = |wall_us: u64| wall_us.saturating_sub(timeline.began_wall_us) as f64 / 1e3;
    let (failed_ms, back_ms) = (ms(times.failed_us?), ms(times.back_us?));
    let together_ms = times.together_us.map(ms);
    let mut steps = timeline.steps.clone();
    // Steps behind the last reply.
    steps.resize(((seconds * 1e3 / STEP_MS) as usize).max(steps.len()), TimelineStep::default());
    let end_ms = steps.len() as f64 * STEP_MS;
    let throughput = |from_ms: f64, to_ms: f64| {
        let within = part(&steps, from_ms, to_ms);
        let replies: u64 = within.iter().map(|step| u64::from(step.replies)).sum();
        replies as f64 * 1e3 / (within.len() as f64 * STEP_MS).max(STEP_MS)
    };
    Some(FailureFigures {
        failed_ms,
        back_ms,
        together_ms,
        gap_before_ms: longest_gap_ms(part(&steps, 0.0, failed_ms)),
        gap_failed_ms: longest_gap_ms(part(&steps, failed_ms, back_ms)),
        gap_rejoin_ms: longest_gap_ms(part(&steps, back_ms, end_ms)),
        before: throughput(0.0, failed_ms),
        alone: throughput((failed_ms + SETTLED_MS).min(back_ms), back_ms),
        after: throughput(together_ms.unwrap_or(back_ms), end_ms),
        step_ms: (STEPS as f64 * STEP_MS) as u64,
        replies: steps.chunks(STEPS).map(|steps| steps.iter().map(|step| step.replies).sum()).collect(),
    })
}

/// The steps between two times; times outside are cut off.
fn part(steps: &[TimelineStep], from_ms: f64, to_ms: f64) -> &[TimelineStep] {
    let place = |ms: f64| ((ms / STEP_MS) as usize).min(steps.len());
    let (from, to) = (place(from_ms), place(to_ms));
    &steps[from.min(to)..to]
}

/// The longest row of steps without a reply, in milliseconds.
fn longest_gap_ms(steps: &[TimelineStep]) -> f64 {
    let gaps = steps.split(|step| step.replies > 0).map(<[TimelineStep]>::len);
    gaps.max().unwrap_or(0) as f64 * STEP_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten replies in each step of 2 ms, except in some.
    fn timeline(silent: &[std::ops::Range<usize>]) -> Timeline {
        let replies = |step: usize| if silent.iter().any(|one| one.contains(&step)) { 0 } else { 10 };
        let step = |step| TimelineStep { replies: replies(step), longest_us: 0 };
        Timeline { began_wall_us: 1_000_000, steps: (0..2_000).map(step).collect() }
    }

    fn times(failed_ms: u64, back_ms: u64, together_ms: Option<u64>) -> FailureTimes {
        let at = |ms: u64| 1_000_000 + ms * 1_000;
        FailureTimes {
            failed_us: Some(at(failed_ms)),
            back_us: Some(at(back_ms)),
            together_us: together_ms.map(at),
        }
    }

    #[test]
    fn gaps_are_those_of_the_failure_and_of_the_return() {
        let found = timeline(&[100..102, 505..535, 1_002..1_010]);
        let found = of(times(1_000, 2_000, Some(2_500)), &found, 4.0).expect("it failed");
        assert_eq!(found.gap_before_ms, 4.0);
        assert_eq!(found.gap_failed_ms, 60.0);
        assert_eq!(found.gap_rejoin_ms, 16.0);
        assert_eq!(found.rejoin_ms(), Some(500.0));
        assert_eq!((found.alone, found.after), (5_000.0, 5_000.0));
        assert_eq!((found.step_ms, found.replies.len()), (100, 40));
        assert_eq!(found.replies[10], 200, "30 of 50 steps are silent");
    }

    #[test]
    fn silence_until_the_end_is_a_gap() {
        let mut timeline = timeline(&[]);
        timeline.steps.truncate(600);
        let found = of(times(1_000, 2_000, None), &timeline, 4.0).expect("it failed");
        assert_eq!((found.gap_failed_ms, found.gap_rejoin_ms), (800.0, 2_000.0));
        assert_eq!((found.after, found.rejoin_ms()), (0.0, None));
        assert_eq!(found.replies.len(), 40);
    }

    #[test]
    fn without_a_failure_there_is_nothing_to_report() {
        assert_eq!(of(FailureTimes::default(), &timeline(&[]), 4.0), None);
    }

    #[test]
    fn a_process_is_stopped_and_goes_on_even_if_the_measurement_is_given_up() {
        let failure = ReplicaFailure {
            kind: FailureKind::Pause,
            replica: crate::definition::FailingReplica::Backup,
            at: 0.0,
            back: 3600.0,
        };
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
        let pid = Pid::from_child(&child);
        let injector = FailureInjector::start(failure, pid, Vec::new()).expect("a thread");
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
            stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
        };
        while state() != Some('T') {
            thread::sleep(Duration::from_millis(1));
        }
        let times = injector.finish();
        assert!(times.failed_us.is_some() && times.back_us.is_none());
        while state() == Some('T') {
            thread::sleep(Duration::from_millis(1));
        }
        child.kill().expect("it is ended");
        child.wait().expect("it ended");
    }
}
