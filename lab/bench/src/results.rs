//! The results of a run: every repetition of every side, with the machine, the commit and the definition.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use crosscheck::admin::Sent;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::compact;
use super::definition::{Definition, Side};
use super::failures::FailureFigures;
use super::generator::MeasuredCounts;
use super::measure::{Commit, Cpu, EventLoopCycles, Machine, Wire};
use super::repairs::{Pooled, RepairFigures};
use report::json_rows;

/// Where summaries of results are, relative to the workspace.
pub const FOLDER: &str = "lab/bench/results";
/// Where results and reports go by default; git ignores this folder.
pub const RAW: &str = "lab/bench/results/raw";
/// Incremented when old files can no longer be read.
pub const FORMAT: u32 = 1;

/// One run of one definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchRun {
    /// Format of this file.
    pub format: u32,
    /// When it began, in seconds since 1970.
    pub started_s: u64,
    /// The machine.
    pub machine: Machine,
    /// The commit that was measured.
    pub commit: Commit,
    /// Whether the binary was built with optimisation.
    pub optimised: bool,
    /// The definition, with the changes of the command line.
    pub definition: Definition,
    /// The changes of the command line; the definition's hash identifies the figures only if this is empty.
    pub changed: Vec<String>,
    /// The version that each side reports.
    pub versions: BTreeMap<Side, String>,
    /// Sides that were not measured, and why.
    pub skipped: Vec<Skipped>,
    /// All measurements, in their order.
    pub measurements: Vec<Measurement>,
    /// Of a summary: the repairs of each cell, all repetitions together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pooled: Vec<PooledCell>,
}

/// The repairs of one side under one workload with one number of clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PooledCell {
    /// The workload's name.
    pub workload: String,
    /// Connections.
    pub clients: usize,
    /// The side.
    pub side: Side,
    /// The repairs of all repetitions.
    #[serde(flatten)]
    pub repairs: Pooled,
}

/// A side that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The side.
    pub side: Side,
    /// For one workload only.
    pub workload: Option<String>,
    /// The reason.
    pub why: String,
}

/// One side under one workload with one number of clients, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// From 1.
    pub repetition: usize,
    /// The workload's name.
    pub workload: String,
    /// Connections.
    pub clients: usize,
    /// The side.
    pub side: Side,
    /// The figures; none when it failed.
    pub figures: Option<Figures>,
    /// Why it failed.
    pub failed: Option<String>,
}

/// The figures of one measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Seconds measured.
    pub seconds: f64,
    /// Requests answered in that time.
    pub requests: u64,
    /// Requests answered per second.
    pub throughput: f64,
    /// Latencies.
    pub latency: Latency,
    /// Reads that found nothing, of all reads; none without reads.
    pub miss_ratio: Option<f64>,
    /// Errors.
    pub errors: Errors,
    /// Processor time per process.
    pub processes: Vec<ProcessFigures>,
    /// Processor time of the generator's thread, as a share of one core.
    pub generator_cpu_share: f64,
    /// The whole traffic of the loopback device in that time.
    pub wire: Option<Wire>,
    /// Payload of requests and replies between the generator and the servers.
    pub client_bytes: u64,
    /// Seconds from starting the side until it was ready; a summary does not have them.
    pub start_seconds: Option<f64>,
    /// memaslap's figures on the same servers just after, where requested.
    pub memaslap: Option<Independent>,
    /// Cycles in the parts of the event loop, of programs built to count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<EventLoopCycles>,
    /// The messages between replicas, all of them together; ours only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Sent>,
    /// The effects of faults, where some were placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repairs: Option<RepairFigures>,
    /// What clients saw of a replica's failure, where one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureFigures>,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Half are at most this.
    pub p50_us: f64,
    /// 90 of 100.
    pub p90_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1000.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Things that should not happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// Requests that a server refused.
    pub refused: u64,
    /// Replies that no correct server gives; values are compared only if the definition sets `verify`.
    pub wrong: u64,
    /// Values without a lifetime that were missing; only detected with `verify`.
    pub lost: u64,
    /// Broken connections.
    pub broken: u64,
    /// Requests that never got a reply.
    pub unanswered: u64,
    /// The first error messages.
    pub words: Vec<String>,
}

/// One process of a side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessFigures {
    /// Its name.
    pub name: String,
    /// Processor time during the measurement.
    pub cpu: Cpu,
    /// Peak of its resident memory since its start, in bytes.
    pub peak_memory: Option<u64>,
}

/// The figures of an independent generator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Independent {
    /// Requests per second.
    pub throughput: f64,
    /// Reads that found nothing.
    pub misses: u64,
}

impl BenchRun {
    /// An empty run of `definition`, beginning now.
    pub fn begin(definition: Definition, changed: Vec<String>, versions: BTreeMap<Side, String>) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        BenchRun {
            format: FORMAT,
            started_s: now.map_or(0, |since| since.as_secs()),
            machine: Machine::this(),
            commit: Commit::here(),
            optimised: !cfg!(debug_assertions),
            definition,
            changed,
            versions,
            skipped: Vec::new(),
            measurements: Vec::new(),
            pooled: Vec::new(),
        }
    }

    /// The file of this run: the definition's name and the time it began.
    pub fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}-{}.json", self.definition.name, stamp(self.started_s)))
    }

    /// Writes the file again.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let path = self.path(folder);
        let draft = path.with_extension("new");
        // Written under another name and renamed, so that a run that is killed leaves a complete file.
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        fs::write(&draft, text)
            .and_then(|()| fs::rename(&draft, &path))
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// Reads a result, or the summary of one.
    ///
    /// # Errors
    /// It cannot be read, or is neither of them.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = json_rows::read(path)?;
        if let Some(run) = compact::parse(&text) {
            return run.with_context(|| format!("summary {}", path.display()));
        }
        let run: BenchRun = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not a result of `crosscheck-lab bench run`", path.display()))?;
        anyhow::ensure!(run.format == FORMAT, "{} has format {}, not {FORMAT}", path.display(), run.format);
        Ok(run)
    }

    /// Whether its figures are those of the unchanged definition, measured with an optimised program.
    pub fn is_as_defined(&self) -> bool {
        self.optimised && self.changed.is_empty() && self.is_whole()
    }

    /// Whether everything was measured, so that no operator ended it early.
    pub fn is_whole(&self) -> bool {
        let definition = &self.definition;
        let skipped = |workload: &str, side: &Side| {
            let about = |one: &&Skipped| one.workload.as_ref().is_none_or(|name| name == workload);
            self.skipped.iter().filter(about).any(|one| one.side == *side)
        };
        let pairs = definition
            .workloads
            .iter()
            .flat_map(|one| definition.sides.iter().filter(|side| !skipped(&one.name, side)));
        self.measurements.len() == pairs.count() * definition.clients.len() * definition.repetitions
    }

    /// The repetitions of one cell that succeeded, with their numbers.
    pub fn figures<'r>(
        &'r self,
        workload: &'r str,
        clients: usize,
        side: &'r Side,
    ) -> impl Iterator<Item = (usize, &'r Figures)> {
        self.measurements
            .iter()
            .filter(move |one| one.workload == workload && one.clients == clients && one.side == *side)
            .filter_map(|one| Some((one.repetition, one.figures.as_ref()?)))
    }
}

impl BenchRun {
    /// The repairs of all repetitions of one cell together.
    pub fn pooled(&self, workload: &str, clients: usize, side: &Side) -> Pooled {
        let is_it =
            |one: &&PooledCell| one.workload == workload && one.clients == clients && one.side == *side;
        if let Some(cell) = self.pooled.iter().find(is_it) {
            return cell.repairs.clone();
        }
        let repairs = self.figures(workload, clients, side).filter_map(|(_, one)| one.repairs.as_ref());
        Pooled::of(&repairs.collect::<Vec<_>>())
    }
}

impl Figures {
    /// Processor seconds of all processes per million requests, in the programs and in the kernel.
    pub fn cpu_per_million(&self) -> Cpu {
        let millions = (self.requests as f64 / 1e6).max(f64::MIN_POSITIVE);
        let sum =
            |part: fn(&Cpu) -> f64| self.processes.iter().map(|process| part(&process.cpu)).sum::<f64>();
        Cpu { user_s: sum(|cpu| cpu.user_s) / millions, system_s: sum(|cpu| cpu.system_s) / millions }
    }

    /// The peak memory of the largest process, in bytes.
    pub fn peak_memory(&self) -> Option<u64> {
        self.processes.iter().filter_map(|process| process.peak_memory).max()
    }

    /// The sum of all errors.
    pub fn error_count(&self) -> u64 {
        let Errors { refused, wrong, lost: _, broken, unanswered, words: _ } = &self.errors;
        refused + wrong + broken + unanswered
    }
}

impl Latency {
    /// From the counts of the generator.
    pub fn of(seen: &MeasuredCounts) -> Self {
        let at = |share: f64| seen.latencies.value_at_quantile(share) as f64 / 1000.0;
        Latency {
            mean_us: seen.latencies.mean() / 1000.0,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: seen.latencies.max() as f64 / 1000.0,
        }
    }
}

/// Seconds since 1970 as `YYYYMMDD-HHMMSS`, in UTC.
pub fn stamp(seconds: u64) -> String {
    instant(seconds).strftime("%Y%m%d-%H%M%S").to_string()
}

/// The day of a time, in UTC, as `YYYY-MM-DD`.
pub fn date(seconds: u64) -> String {
    instant(seconds).strftime("%Y-%m-%d").to_string()
}

/// Seconds since 1970 as an instant; if out of the calendar's range, its last instant.
fn instant(seconds: u64) -> Timestamp {
    i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok())
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_782_399), "20000228-235959");
        assert_eq!(stamp(951_782_400), "20000229-000000");
        assert_eq!(date(4_107_542_400), "2100-03-01");
        assert_eq!(date(u64::MAX), "9999-12-30");
    }
}
