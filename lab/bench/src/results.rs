//! The results of a run: every repetition of every side, with the machine, the commit and the definition.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crosscheck::admin::Sent;
use report::results::{Origin, ResultFile, write};
use serde::{Deserialize, Serialize};

use super::definition::{Definition, Side};
use super::failures::FailureFigures;
use super::generator::MeasuredCounts;
use super::measure::{Cpu, EventLoopCycles, Wire};
use super::repairs::{Pooled, RepairFigures};

/// Where the repository keeps results, relative to the workspace.
pub const FOLDER: &str = "lab/bench/results";
/// Where results and reports go by default; git ignores this folder.
pub const RAW: &str = "lab/bench/results/raw";
/// The kind of these results.
pub const KIND: &str = "benchmark";

/// One run of one definition.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchRun {
    /// What made it.
    pub origin: Origin,
    /// What was to be measured.
    pub settings: BenchSettings,
    /// All measurements, in their order.
    pub measurements: Vec<Measurement>,
    /// The repairs of each cell, all repetitions together; empty as long as the measurements have the single times.
    pub pooled: Vec<PooledCell>,
}

/// What was to be measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchSettings {
    /// The definition, with the changes of the command line.
    pub definition: Definition,
    /// The changes of the command line; the definition's hash identifies the figures only if this is empty.
    pub changed: Vec<String>,
    /// The version that each side reports.
    pub versions: BTreeMap<Side, String>,
    /// Sides that were not measured, and why.
    pub skipped: Vec<Skipped>,
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
    /// Seconds from starting the side until it was ready; older results do not have them.
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
    /// Processor time of its threads, by kind; older results do not have it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub threads: BTreeMap<String, Cpu>,
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
        BenchRun {
            origin: Origin::now(KIND),
            settings: BenchSettings { definition, changed, versions, skipped: Vec::new() },
            measurements: Vec::new(),
            pooled: Vec::new(),
        }
    }

    /// The file of this run: the definition's name and the time it began.
    pub fn path(&self, folder: &Path) -> PathBuf {
        self.origin.path(folder, &self.settings.definition.name)
    }

    /// Writes the file again.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let path = self.path(folder);
        write(&path, &self.origin, &self.settings, &self.pooled, &self.measurements)?;
        Ok(path)
    }

    /// The run in a file.
    ///
    /// # Errors
    /// It is of another form.
    pub fn of(file: ResultFile) -> anyhow::Result<Self> {
        let (origin, settings, pooled, measurements) = file.parts()?;
        Ok(BenchRun { origin, settings, measurements, pooled })
    }

    /// Without the times of single repairs and the replies around them, of which it keeps the distribution and the
    /// mean of each cell.
    #[must_use]
    pub fn without_single_times(mut self) -> Self {
        self.pooled = self.pooled_cells();
        for repairs in self.measurements.iter_mut().filter_map(|one| one.figures.as_mut()?.repairs.as_mut()) {
            repairs.shorten();
        }
        self
    }

    fn pooled_cells(&self) -> Vec<PooledCell> {
        let mut cells: Vec<PooledCell> = Vec::new();
        for one in &self.measurements {
            let has_repairs = one.figures.as_ref().is_some_and(|figures| figures.repairs.is_some());
            if has_repairs && !cells.iter().any(|cell| cell.is_of(&one.workload, one.clients, &one.side)) {
                let (workload, clients, side) = (one.workload.clone(), one.clients, one.side.clone());
                let repairs = self.pooled(&workload, clients, &side);
                cells.push(PooledCell { workload, clients, side, repairs });
            }
        }
        cells
    }

    /// Whether its figures are those of the unchanged definition, measured with an optimised program.
    pub fn is_as_defined(&self) -> bool {
        self.origin.optimised && self.settings.changed.is_empty() && self.is_whole()
    }

    /// Whether everything was measured, so that no operator ended it early.
    pub fn is_whole(&self) -> bool {
        let definition = &self.settings.definition;
        let skipped = |workload: &str, side: &Side| {
            let about = |one: &&Skipped| one.workload.as_ref().is_none_or(|name| name == workload);
            self.settings.skipped.iter().filter(about).any(|one| one.side == *side)
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
        if let Some(cell) = self.pooled.iter().find(|cell| cell.is_of(workload, clients, side)) {
            return cell.repairs.clone();
        }
        let repairs = self.figures(workload, clients, side).filter_map(|(_, one)| one.repairs.as_ref());
        Pooled::of(&repairs.collect::<Vec<_>>())
    }
}

impl PooledCell {
    fn is_of(&self, workload: &str, clients: usize, side: &Side) -> bool {
        self.workload == workload && self.clients == clients && self.side == *side
    }
}

impl Figures {
    /// Requests answered per second.
    pub fn throughput(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// Objects that were repaired per second, where faults were placed.
    pub fn repaired_per_second(&self) -> Option<f64> {
        Some(self.repairs.as_ref()?.repaired as f64 / self.seconds)
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::parse as definition;
    use crate::repairs::{Around, Times};
    use crate::report;
    use crosscheck::admin::Traffic;

    const HEAD: &str = "title = 't'\nabout = 'a'\nclients = [1, 10]\nseconds = 1.5\nrepetitions = 5\n";
    const WORKLOAD: &str =
        "[[workload]]\nname = 'SET'\nkey_bytes = 10\nvalue_bytes = 1\nmix = { set = 1 }\nkeys = 5\n";

    /// Two sides with their ratio, and a side that repairs.
    fn definitions() -> [Definition; 2] {
        let ratio = "ratios = [['RDGX', 'RD00']]\n";
        let pair = format!("{HEAD}modes = ['RD00', 'RDGX']\n{ratio}{WORKLOAD}");
        let figure = "[[figure]]\nworkload = 'SET: 4 faults/s'\nclients = 10\nof = 'RDGX'\nmeasure = 'repair_p99_us'\n";
        let more = format!("faults_per_second = [0, 4]\n{figure}paper = [1, 2]\nsays = 'VII'\n");
        let repairs = format!("{HEAD}modes = ['RDGX']\n{WORKLOAD}{more}");
        [pair, repairs].map(|text| definition("x", "x.toml", &text).expect("right"))
    }

    /// Figures with every part, and no two of them equal.
    fn figures(number: u64) -> Figures {
        let at = |digit: u64| (number * 97 + digit * 31) as f64 + 0.125;
        let traffic = |digit| Traffic { messages: number * 5 + digit, bytes: number * 900 + digit };
        let process = |name: &str, digit| ProcessFigures {
            name: name.to_owned(),
            // Ticks of 10 ms.
            cpu: Cpu { user_s: at(digit).trunc() / 100.0, system_s: at(digit + 1).trunc() / 100.0 },
            peak_memory: Some((number + digit) << 20),
            threads: BTreeMap::from([("order".to_owned(), Cpu { user_s: 1.25, system_s: at(digit) })]),
        };
        let (leader, requests, seconds) = (number % 3, 1_000 + number * 13, 1.5 + number as f64 / 64.0);
        let times = |base: u64| Times::All((0..number * 3).map(|step| base + step * step).collect());
        let around = |example: u32| Around {
            step_us: 2_000,
            verdict: 1,
            mean: vec![at(3), 2.5],
            example: vec![example, 4],
            example_took_us: 293,
            repairs: number as usize,
        };
        Figures {
            seconds,
            requests,
            latency: Latency {
                mean_us: at(1),
                p50_us: at(2),
                p90_us: at(3),
                p99_us: at(4),
                p999_us: at(5),
                max_us: at(6),
            },
            miss_ratio: number.is_multiple_of(2).then_some(0.25),
            errors: Errors {
                wrong: number % 2,
                words: vec!["no".into(); number as usize % 2],
                ..Errors::default()
            },
            processes: (0..3)
                .map(|part| process(if part == leader { "r (leader)" } else { "r (follower)" }, part))
                .collect(),
            generator_cpu_share: 0.5,
            wire: Some(Wire { bytes: number * 1_000, packets: number }),
            client_bytes: number * 777,
            start_seconds: Some(0.4),
            memaslap: (number == 3).then_some(Independent { throughput: at(7), misses: 2 }),
            cycles: Some(EventLoopCycles { dispatching: 5, handling: 7, sending: 9 }),
            sent: Some(Sent { order: traffic(1), check: traffic(2), repair: traffic(3), other: traffic(4) }),
            repairs: Some(RepairFigures {
                due: number,
                placed: number,
                why_not: (number == 2).then(|| "gone".to_owned()),
                repaired: number,
                times_us: times(100),
                waits_us: times(500),
                quiet_waits_us: times(50),
                around: (number > 1).then(|| around(number as u32)),
            }),
            failure: (number == 4).then(|| FailureFigures {
                failed_ms: at(8),
                together_ms: Some(at(9)),
                step_ms: 100,
                replies: vec![3, 0, number as u32],
                ..FailureFigures::default()
            }),
        }
    }

    /// Measurements of every cell; one of them failed.
    fn run(definition: Definition) -> BenchRun {
        let mut run = BenchRun::begin(definition, Vec::new(), BTreeMap::new());
        let definition = run.settings.definition.clone();
        let of_side = |side: &Side| {
            definition.clients.iter().map(|clients| (side.clone(), *clients)).collect::<Vec<_>>()
        };
        let pairs: Vec<(Side, usize)> = definition.sides.iter().flat_map(of_side).collect();
        for repetition in 1..=definition.repetitions {
            for (workload, (side, clients)) in
                definition.workloads.iter().flat_map(|one| pairs.iter().map(move |pair| (one, pair)))
            {
                let number = run.measurements.len() as u64;
                let failed = (number == 7).then(|| "it did not start".to_owned());
                let mut figures = figures(number);
                let is_damaged = workload.faults.is_some_and(|faults| faults.per_second > 0.0);
                figures.repairs = figures.repairs.filter(|_| is_damaged);
                run.measurements.push(Measurement {
                    repetition,
                    workload: workload.name.clone(),
                    clients: *clients,
                    side: side.clone(),
                    figures: failed.is_none().then_some(figures),
                    failed,
                });
            }
        }
        run
    }

    #[test]
    fn a_file_gives_the_report_of_the_run_that_it_was_written_of() {
        let dir = tempfile::tempdir().expect("a folder");
        for run in definitions().map(run) {
            let read = |run: &BenchRun| {
                let path = run.write(dir.path()).expect("a file");
                BenchRun::of(ResultFile::of_kind(&path, KIND).expect("a result")).expect("a run")
            };
            assert_eq!(read(&run), run);
            let shortened = run.clone().without_single_times();
            assert_eq!(shortened.clone().without_single_times(), shortened);
            let texts = |run: &BenchRun| report::texts(std::slice::from_ref(run));
            assert_eq!(texts(&read(&shortened)), texts(&run));
        }
    }
}
