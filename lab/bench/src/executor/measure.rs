//! Measures one side: runs its log for a while, and checks what it left against a run of one request at a time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::ensure;
use memcached::Memcached;
use serde::{Deserialize, Serialize};
use verify::{StateToken, Version};

use super::judge::{CountedBatches, ExecutorDrive, ExecutorSetup, TimedRollback, with_executors};
use super::log::{CYCLE, LogShape, RequestLog};
use super::mixing::{ErringMixer, MixerErrors};
use super::replica::{RequestWork, SpentTime};
use super::times::StageTimes;

/// Batches whose bytes are counted: the last ones that were measured. Every other one has as many.
const COUNTED: usize = 64;

/// How long each side is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutorSpan {
    /// Seconds at least.
    pub seconds: f64,
    /// Batches at least.
    pub batches: u64,
    /// Rollbacks, where each is timed.
    pub rollbacks: u32,
}

impl ExecutorSpan {
    /// How long a side is measured at least.
    pub fn length(self) -> Duration {
        Duration::try_from_secs_f64(self.seconds).unwrap_or_default()
    }
}

/// What is measured of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measuring {
    /// How many requests it executes.
    Throughput,
    /// How long batches take to be rolled back and run again.
    Rollbacks,
    /// How many requests two executors execute, and how many bytes a pair would send for them.
    Traffic,
    /// How many requests a process executes whose pages are shipped to a backup, and how many bytes that takes.
    Shipped,
}

/// What a side is: a log, and how it is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExecutorCase {
    /// The log.
    pub shape: LogShape,
    /// How it is run.
    pub setup: ExecutorSetup,
    /// What is measured.
    pub measuring: Measuring,
}

/// The figures of one measurement of a side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorFigures {
    /// Seconds measured.
    pub seconds: f64,
    /// Requests that were executed, and agreed on by both executors where there are two.
    pub requests: u64,
    /// Batches.
    pub batches: u64,
    /// Parallel batches that they were divided into.
    pub parallel_batches: u64,
    /// Batches about which two executors differed.
    pub rollbacks: u64,
    /// Batches whose requests were started in such orders that executors have to differ.
    pub foreseen: u64,
    /// Processor seconds of the whole process.
    pub processor_s: f64,
    /// Keys and plan of a batch, in microseconds.
    pub mixing_us: f64,
    /// Handlers of a batch with checks, seals, keeping and digests, in microseconds, all workers together.
    pub handling_us: f64,
    /// Folding a batch: changes of the tree, its root, and the token, in microseconds.
    pub folding_us: f64,
    /// Times of single requests and of the steps between them, where no requests conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<StageTimes>,
    /// Times of rollbacks, where those were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed: Option<RollbackTimes>,
    /// Bytes to and from the backup for these requests, where they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_bytes: Option<u64>,
    /// What was shipped, where pages were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shipped: Option<ShippedPages>,
}

/// Pages that were shipped to a backup, epoch by epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShippedPages {
    /// Epochs.
    pub epochs: u32,
    /// Pages with contents in all of them.
    pub pages: u64,
    /// From one acknowledgement to the next, in microseconds; median.
    pub epoch_p50_us: f64,
    /// How long the primary was stopped in an epoch, in microseconds; median.
    pub stopped_p50_us: f64,
    /// Pages, without those of zeros, that the backup's copy was compared with at the end.
    pub compared_pages: u64,
}

/// Times of many rollbacks of one batch each, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RollbackTimes {
    /// Rollbacks.
    pub count: u32,
    /// Work of the boundary that takes the batch back, median.
    pub taken_back_p50_us: f64,
    /// 99 of 100.
    pub taken_back_p99_us: f64,
    /// Running the batch again, one request at a time, until its token is known; median.
    pub again_p50_us: f64,
    /// 99 of 100.
    pub again_p99_us: f64,
}

/// What a measurement ended with.
#[derive(Clone, Debug)]
pub struct MeasuredSide {
    /// Its figures.
    pub figures: ExecutorFigures,
    /// The last batch.
    pub last: u64,
    /// The token after it.
    pub token: StateToken,
}

impl ExecutorCase {
    /// Whether its results are those of a run of one request at a time: no conflict is overlooked, and what requests
    /// changed is kept, so that the token covers it.
    pub fn is_comparable(&self) -> bool {
        self.setup.errors.overlooks == 0.0 && self.setup.keeps
    }

    /// Whether the same run of one request at a time has the results of both.
    pub fn has_results_of(&self, other: &ExecutorCase) -> bool {
        let errors = |case: &ExecutorCase| case.setup.errors;
        self.shape == other.shape && errors(self) == errors(other)
    }

    /// Measures it once. The state of each executor is checked at the end.
    ///
    /// # Errors
    /// An executor failed, or its state is wrong.
    pub fn measure(&self, span: ExecutorSpan, seed: u64) -> anyhow::Result<MeasuredSide> {
        if self.measuring == Measuring::Shipped {
            return shipped(self, span, seed);
        }
        let mut services = self.services()?;
        let log = RequestLog::new(self.shape, &services[0], seed)?;
        with_executors(self.setup, &log, &mut services, seed, |drive| {
            drive.run_until(|number, _| number >= log.filling())?;
            if self.measuring == Measuring::Rollbacks {
                return self.rollbacks(drive, span);
            }
            let mut newest = VecDeque::new();
            let mut measured = self.throughput(drive, span, &mut newest)?;
            if self.measuring == Measuring::Traffic {
                let each = drive.traffic_of(&newest)? / newest.len().max(1) as f64;
                let batches = measured.figures.batches as f64;
                measured.figures.backup_bytes = Some((each * batches).round() as u64);
            }
            Ok(measured)
        })
    }

    /// The tokens after each batch, up to `last`, of a run of one request at a time, with one worker and without work.
    ///
    /// # Errors
    /// As [`ExecutorCase::measure`].
    pub fn sequential_tokens(&self, last: u64, seed: u64) -> anyhow::Result<Vec<StateToken>> {
        let setup = ExecutorSetup {
            executors: 1,
            workers: 1,
            work: RequestWork::default(),
            any_order: false,
            sequential: true,
            keeps: true,
            errors: MixerErrors { overlooks: 0.0, ..self.setup.errors },
        };
        let mut services = ExecutorCase { setup, ..*self }.services()?;
        let log = RequestLog::new(self.shape, &services[0], seed)?;
        with_executors(setup, &log, &mut services, seed, |drive| {
            let mut tokens = Vec::new();
            drive.run_until(|number, token| {
                tokens.push(token);
                number >= last
            })?;
            Ok(tokens)
        })
    }

    /// Lengths of the parallel batches of each batch that a measurement with this seed runs, again and again.
    ///
    /// # Errors
    /// The service does not decode its own requests.
    pub fn parallel_batches(&self, seed: u64) -> anyhow::Result<Vec<Vec<u32>>> {
        let service = Memcached::new(self.shape.service())?;
        let log = RequestLog::new(self.shape, &service, seed)?;
        let mut mixer = ErringMixer::of_log(self.setup.errors, seed);
        let lengths = |number: u64| {
            let plan = mixer.plan(&log.entry(log.filling() + number, &service));
            let of_one = plan.iter().map(|parallel| parallel.len() as u32);
            of_one.collect()
        };
        Ok((1..=CYCLE).map(lengths).collect())
    }

    fn services(&self) -> anyhow::Result<Vec<Memcached>> {
        let config = self.shape.service();
        Ok((0..self.setup.executors).map(|_| Memcached::new(config)).collect::<Result<_, _>>()?)
    }

    fn throughput(
        &self,
        drive: &mut ExecutorDrive<'_, '_>,
        span: ExecutorSpan,
        newest: &mut VecDeque<Version>,
    ) -> anyhow::Result<MeasuredSide> {
        drive.take_counted();
        drive.take_traced();
        let clock = MeasuringClock::start(drive);
        let (mut left, mut last, mut stopped) = (span.batches, (0, StateToken(0)), None);
        drive.run_until(|number, token| {
            left = left.saturating_sub(1);
            last = (number, token);
            newest.push_back(Version { number, token });
            if newest.len() > COUNTED {
                newest.pop_front();
            }
            let is_enough = left == 0 && clock.begun.elapsed() >= span.length();
            if is_enough {
                stopped = Some((clock.begun.elapsed(), processor_time()));
            }
            is_enough
        })?;
        let (elapsed, processor) = stopped.unwrap_or_default();
        let mut figures = clock.figures(drive, self.shape.batch, elapsed, processor);
        if self.shape.conflicts == 0.0 && self.setup.errors == MixerErrors::NONE {
            figures.times = Some(StageTimes::of(&drive.take_traced(), self.setup.workers));
        }
        Ok(MeasuredSide { figures, last: last.0, token: last.1 })
    }

    fn rollbacks(
        &self,
        drive: &mut ExecutorDrive<'_, '_>,
        span: ExecutorSpan,
    ) -> anyhow::Result<MeasuredSide> {
        ensure!(self.setup.executors == 1, "rollbacks are timed with one executor");
        drive.take_counted();
        let clock = MeasuringClock::start(drive);
        let count = span.rollbacks.max(1);
        let timed: Vec<TimedRollback> =
            (0..count).map(|_| drive.run_and_roll_back()).collect::<anyhow::Result<_>>()?;
        let (elapsed, processor) = (clock.begun.elapsed(), processor_time());
        let mut figures = clock.figures(drive, self.shape.batch, elapsed, processor);
        let [taken_back_p50_us, taken_back_p99_us] = points(timed.iter().map(|one| one.taken_back));
        let [again_p50_us, again_p99_us] = points(timed.iter().map(|one| one.again));
        let times = RollbackTimes { count, taken_back_p50_us, taken_back_p99_us, again_p50_us, again_p99_us };
        figures.timed = Some(times);
        let (last, token) = drive.verified();
        Ok(MeasuredSide { figures, last, token })
    }
}

/// What was there when measuring began.
struct MeasuringClock {
    begun: Instant,
    processor: Duration,
    spent: [SpentTime; 2],
}

impl MeasuringClock {
    fn start(drive: &ExecutorDrive<'_, '_>) -> MeasuringClock {
        MeasuringClock { spent: drive.spent(), processor: processor_time(), begun: Instant::now() }
    }

    fn figures(
        &self,
        drive: &mut ExecutorDrive<'_, '_>,
        batch: usize,
        elapsed: Duration,
        processor: Duration,
    ) -> ExecutorFigures {
        let counted = drive.take_counted();
        let CountedBatches { batches, parallel_batches, rollbacks, foreseen, .. } = counted;
        let mixed = SpentTime { time: counted.mixing, count: counted.plans };
        let [handled, folded] = drive.spent();
        ExecutorFigures {
            seconds: rounded(elapsed.as_secs_f64(), 1e6),
            requests: batches * batch as u64,
            batches,
            parallel_batches,
            rollbacks,
            foreseen,
            processor_s: rounded(processor.saturating_sub(self.processor).as_secs_f64(), 1e6),
            mixing_us: rounded(mixed.each_us_since(SpentTime::default()), 1e3),
            handling_us: rounded(handled.each_us_since(self.spent[0]) * batch as f64, 1e3),
            folding_us: rounded(folded.each_us_since(self.spent[1]), 1e3),
            ..ExecutorFigures::default()
        }
    }
}

impl ExecutorFigures {
    /// Requests per second.
    pub fn throughput(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// Bytes to and from the backup per request, where they were counted.
    pub fn bytes_per_request(&self) -> Option<f64> {
        Some(self.backup_bytes? as f64 / self.requests.max(1) as f64)
    }
}

/// Without digits that mean nothing, so that files stay short.
pub fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

/// Median and 99th percentile, in microseconds; by rank, without interpolation.
pub fn points(times: impl Iterator<Item = Duration>) -> [f64; 2] {
    let mut sorted: Vec<Duration> = times.collect();
    sorted.sort_unstable();
    [50, 99].map(|percent| {
        let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
        sorted.get(rank).map_or(0.0, |time| rounded(time.as_secs_f64() * 1e6, 1e3))
    })
}

/// Measures a side whose pages are shipped.
#[cfg(target_os = "linux")]
fn shipped(case: &ExecutorCase, span: ExecutorSpan, seed: u64) -> anyhow::Result<MeasuredSide> {
    super::shipper::measure(case, span, seed)
}

/// Not here.
#[cfg(not(target_os = "linux"))]
fn shipped(_: &ExecutorCase, _: ExecutorSpan, _: u64) -> anyhow::Result<MeasuredSide> {
    anyhow::bail!("pages are shipped on Linux only")
}

/// Processor time of this process so far.
pub fn processor_time() -> Duration {
    let crosscheck::ProcessorTime { user, system } = crosscheck::processor_time();
    user + system
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_ranks() {
        let times = |count: u64| (1..=count).rev().map(Duration::from_micros);
        assert_eq!(points(times(100)), [50.0, 99.0]);
        assert_eq!(points(times(1)), [1.0, 1.0]);
        assert_eq!(points(times(3)), [2.0, 3.0]);
        assert_eq!(points(times(0)), [0.0, 0.0]);
    }
}
