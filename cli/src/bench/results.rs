//! What a run leaves behind: every repetition of every side, with the machine, the commit and the definition
//! it belongs to.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use crosscheck::admin::Sent;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::compact;
use super::definition::{Definition, Side};
use super::generator::MeasuredCounts;
use super::measure::{Commit, Cpu, Machine, Wire};
use super::repairs::{Pooled, RepairFigures};
use crate::json_rows;

/// Where summaries of results are, seen from the workspace.
pub const FOLDER: &str = "bench/results";
/// Where results and reports go by default; git ignores what is there.
pub const RAW: &str = "bench/results/raw";
/// Grows when old files can no longer be read.
pub const FORMAT: u32 = 1;

/// One run of one definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchRun {
    /// Form of this file.
    pub format: u32,
    /// When it began, in seconds since 1970.
    pub started_s: u64,
    /// Where it ran.
    pub machine: Machine,
    /// What was measured.
    pub commit: Commit,
    /// Whether the binary was built with optimisation.
    pub optimised: bool,
    /// What was asked for, with what the command line changed.
    pub definition: Definition,
    /// What the command line changed; a definition's hash stands for its figures only where this is empty.
    pub changed: Vec<String>,
    /// What each side calls its version.
    pub versions: BTreeMap<Side, String>,
    /// What was not measured, and why.
    pub skipped: Vec<Skipped>,
    /// Everything that was measured, in its order.
    pub measurements: Vec<Measurement>,
    /// Of a summary: what the repairs of each cell came to, all repetitions together.
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
    /// Which side.
    pub side: Side,
    /// What all repetitions came to.
    #[serde(flatten)]
    pub repairs: Pooled,
}

/// A side that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Which.
    pub side: Side,
    /// For one workload only.
    pub workload: Option<String>,
    /// Why.
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
    /// Which side.
    pub side: Side,
    /// What was found; none when it failed.
    pub figures: Option<Figures>,
    /// Why it failed.
    pub failed: Option<String>,
}

/// What one measurement found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Seconds measured.
    pub seconds: f64,
    /// Requests answered meanwhile.
    pub requests: u64,
    /// Requests answered per second.
    pub throughput: f64,
    /// Latencies.
    pub latency: Latency,
    /// Reads that found nothing, of all reads; none without reads.
    pub miss_ratio: Option<f64>,
    /// What went wrong.
    pub errors: Errors,
    /// Processor time per process.
    pub processes: Vec<ProcessFigures>,
    /// Processor time of the generator's thread, as a share of one core.
    pub generator_cpu_share: f64,
    /// Everything on the loopback device meanwhile.
    pub wire: Option<Wire>,
    /// Payload of requests and replies between the generator and the servers.
    pub client_bytes: u64,
    /// Seconds from starting the side to its being ready; a summary does not have them.
    pub start_seconds: Option<f64>,
    /// What memaslap found on the same servers just after, where it was asked.
    pub memaslap: Option<Independent>,
    /// What replicas sent to each other, all of them together; ours only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Sent>,
    /// What faults did, where some were placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repairs: Option<RepairFigures>,
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
    /// Requests that a server said it could not do.
    pub refused: u64,
    /// Replies that no correct server gives; values are compared only where the definition says `verify`.
    pub wrong: u64,
    /// Values without a lifetime that had gone; only seen with `verify`.
    pub lost: u64,
    /// Broken connections.
    pub broken: u64,
    /// Requests that never got a reply.
    pub unanswered: u64,
    /// The first complaints.
    pub words: Vec<String>,
}

/// One process of a side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessFigures {
    /// What it is.
    pub name: String,
    /// Processor time while it was measured.
    pub cpu: Cpu,
    /// Most memory it has had resident since its start, in bytes.
    pub peak_memory: Option<u64>,
}

/// What an independent generator found.
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

    /// Writes the file anew.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let path = self.path(folder);
        let draft = path.with_extension("new");
        // Written aside and renamed, so that a run that is killed leaves a whole file.
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
    /// It cannot be read, or is neither.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = json_rows::read(path)?;
        if let Some(run) = compact::parse(&text) {
            return run.with_context(|| format!("summary {}", path.display()));
        }
        let run: BenchRun = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not a result of `crosscheck bench run`", path.display()))?;
        anyhow::ensure!(run.format == FORMAT, "{} has format {}, not {FORMAT}", path.display(), run.format);
        Ok(run)
    }

    /// Whether its figures are those that the definition asks for, of an optimised program.
    pub fn is_as_defined(&self) -> bool {
        self.optimised && self.changed.is_empty() && self.is_whole()
    }

    /// Whether everything was measured that was to be, so that nobody ended it early.
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

    /// Repetitions of one cell that worked, with their number.
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
    /// What the repairs of all repetitions of one cell came to.
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

    /// The largest process, in bytes.
    pub fn peak_memory(&self) -> Option<u64> {
        self.processes.iter().filter_map(|process| process.peak_memory).max()
    }

    /// Everything that should not have happened.
    pub fn error_count(&self) -> u64 {
        let Errors { refused, wrong, lost: _, broken, unanswered, words: _ } = &self.errors;
        refused + wrong + broken + unanswered
    }
}

impl Latency {
    /// What the generator saw.
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

/// Seconds since 1970 as an instant; those that no calendar has are its last one.
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
