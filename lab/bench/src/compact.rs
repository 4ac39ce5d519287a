//! The summary of a run: a row of figures for each measurement, without the times of single repairs and the counts of
//! single steps.
//!
//! A summary is read back as a [`BenchRun`], so that the report makes the same tables from both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cost::Cost;
use super::definition::{Definition, Side};
use super::executor::ExecutorRun;
use super::failures::FailureFigures;
use super::measure::{Commit, Cpu, Machine};
use super::results::{
    self, BenchRun, Errors, Figures, Latency, Measurement, PooledCell, ProcessFigures, Skipped,
};
use node::outcome::{CommandOutcome, CommandVerdict, say};
use report::json_rows;

/// Incremented when old files can no longer be read.
const FORMAT: u32 = 1;
/// Longer summaries are compressed.
const LONGEST_PLAIN: usize = 8 * 1024;

/// Options of `bench summary`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Results of `bench run`, `bench cost` and `bench executor`
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Folder for the summaries; long ones are compressed, and their names end in .json.gz
    #[arg(long, value_name = "DIR", default_value = results::FOLDER)]
    out: PathBuf,
}

/// Writes the summary of each file.
pub fn run(args: &Args) -> CommandOutcome {
    for file in &args.files {
        let text = if let Some(cost) = Cost::read(file)? {
            json_rows::layout(&cost, 2)?
        } else if let Some(run) = ExecutorRun::read(file)? {
            json_rows::layout(&run, 2)?
        } else {
            // Each row of figures has a line of its own.
            json_rows::layout(&BenchSummary::of(BenchRun::read(file)?), 2)?
        };
        say(&write(&args.out, &json_rows::stem(file), &text)?.display().to_string())?;
    }
    Ok(CommandVerdict::Holds)
}

fn write(folder: &Path, stem: &str, text: &[u8]) -> anyhow::Result<PathBuf> {
    let ending = if text.len() > LONGEST_PLAIN { json_rows::COMPRESSED } else { "" };
    let path = folder.join(format!("{stem}.json{ending}"));
    json_rows::write(&path, text)?;
    Ok(path)
}

/// The run in a summary; none when the text is not a summary.
pub fn parse(text: &[u8]) -> Option<anyhow::Result<BenchRun>> {
    #[derive(Deserialize)]
    struct Head {
        summary_format: u32,
    }
    let head: Head = serde_json::from_slice(text).ok()?;
    Some(if head.summary_format == FORMAT {
        serde_json::from_slice::<BenchSummary>(text)
            .map_err(anyhow::Error::from)
            .and_then(BenchSummary::into_run)
    } else {
        Err(anyhow::anyhow!("format {}, not {FORMAT}", head.summary_format))
    })
}

/// A summary in its file's format; fields without a comment are those of [`BenchRun`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BenchSummary {
    summary_format: u32,
    started_s: u64,
    machine: Machine,
    commit: Commit,
    optimised: bool,
    definition: Definition,
    changed: Vec<String>,
    versions: BTreeMap<Side, String>,
    skipped: Vec<Skipped>,
    /// Names of the processes of a row, for each combination that occurs.
    processes: Vec<Vec<String>>,
    /// The values of a row after repetition, workload, clients and side; the last one has the processes. A column that
    /// is not listed is zero, or was not measured, in every row.
    columns: Vec<String>,
    /// A row for each measurement; one that failed ends after the side.
    rows: Vec<Vec<Value>>,
    /// Remarks on single measurements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notes: Vec<MeasurementNote>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pooled: Vec<PooledCell>,
}

/// A remark on a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MeasurementNote {
    /// The row, from 0.
    row: usize,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
    /// The first reason why a fault was not placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
    /// The first errors that clients reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    words: Vec<String>,
    /// What clients saw of a replica's failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<FailureFigures>,
}

/// Columns before the figures.
const KEYS: usize = 4;

impl BenchSummary {
    fn of(run: BenchRun) -> Self {
        let pooled = pooled_cells(&run);
        let blank = blank(&run.definition);
        let figures = || run.measurements.iter().filter_map(|one| one.figures.as_ref());
        // A column that equals that of a blank row everywhere is left out.
        let is_told = |column: &&Column| figures().any(|one| (column.get)(one) != (column.get)(&blank));
        let columns: Vec<&Column> = COLUMNS.iter().filter(is_told).collect();
        let names: BTreeSet<Vec<String>> = figures().map(names_of).collect();
        let processes: Vec<Vec<String>> = names.into_iter().collect();
        let row = |one: &Measurement| {
            let mut row = vec![
                Value::from(one.repetition),
                Value::from(one.workload.as_str()),
                Value::from(one.clients),
                Value::from(one.side.to_string()),
            ];
            if let Some(figures) = &one.figures {
                row.extend(columns.iter().map(|column| number((column.get)(figures), column.digits)));
                row.push(process_figures(figures, &processes));
            }
            row
        };
        BenchSummary {
            summary_format: FORMAT,
            rows: run.measurements.iter().map(row).collect(),
            notes: run
                .measurements
                .iter()
                .enumerate()
                .filter_map(|(row, one)| MeasurementNote::of(row, one))
                .collect(),
            columns: columns.iter().map(|column| column.name.to_owned()).collect(),
            processes,
            pooled,
            started_s: run.started_s,
            machine: run.machine,
            commit: run.commit,
            optimised: run.optimised,
            definition: run.definition,
            changed: run.changed,
            versions: run.versions,
            skipped: run.skipped,
        }
    }

    fn into_run(self) -> anyhow::Result<BenchRun> {
        let find = |name: &String| {
            let column = COLUMNS.iter().find(|column| column.name == *name);
            column.with_context(|| format!("there is no figure called {name}"))
        };
        let columns: Vec<&Column> = self.columns.iter().map(find).collect::<anyhow::Result<_>>()?;
        let measurement = |(number, row): (usize, &Vec<Value>)| {
            let note = self.notes.iter().find(|note| note.row == number);
            measurement(row, &columns, &self.processes, note, &self.definition)
                .with_context(|| format!("row {number}"))
        };
        let measurements = self.rows.iter().enumerate().map(measurement).collect::<anyhow::Result<_>>()?;
        Ok(BenchRun {
            format: results::FORMAT,
            started_s: self.started_s,
            machine: self.machine,
            commit: self.commit,
            optimised: self.optimised,
            changed: self.changed,
            versions: self.versions,
            skipped: self.skipped,
            measurements,
            pooled: self.pooled,
            definition: self.definition,
        })
    }
}

impl MeasurementNote {
    fn of(row: usize, one: &Measurement) -> Option<Self> {
        let figures = one.figures.as_ref();
        let note = MeasurementNote {
            row,
            failed: one.failed.clone(),
            why_not: figures.and_then(|one| one.repairs.as_ref()?.why_not.clone()),
            words: figures.map(|one| one.errors.words.clone()).unwrap_or_default(),
            failure: figures.and_then(|one| one.failure.clone()),
        };
        (note != MeasurementNote { row, ..MeasurementNote::default() }).then_some(note)
    }
}

fn pooled_cells(run: &BenchRun) -> Vec<PooledCell> {
    let mut cells: Vec<PooledCell> = Vec::new();
    for one in &run.measurements {
        let is_it = |cell: &PooledCell| {
            cell.workload == one.workload && cell.clients == one.clients && cell.side == one.side
        };
        let has_repairs = one.figures.as_ref().is_some_and(|figures| figures.repairs.is_some());
        if has_repairs && !cells.iter().any(is_it) {
            let (workload, clients, side) = (one.workload.clone(), one.clients, one.side.clone());
            let repairs = run.pooled(&workload, clients, &side);
            cells.push(PooledCell { workload, clients, side, repairs });
        }
    }
    cells
}

fn measurement(
    row: &[Value],
    columns: &[&Column],
    processes: &[Vec<String>],
    note: Option<&MeasurementNote>,
    definition: &Definition,
) -> anyhow::Result<Measurement> {
    let [repetition, workload, clients, side, figures @ ..] = row else { bail!("fewer than {KEYS} values") };
    let count = |value: &Value| value.as_u64().context("a count is none");
    let text = |value: &Value| value.as_str().context("a name is none").map(str::to_owned);
    let mut found = None;
    if let [values @ .., of_processes] = figures {
        ensure!(values.len() == columns.len(), "{} figures for {} columns", values.len(), columns.len());
        let mut figures = blank(definition);
        for (column, value) in columns.iter().zip(values) {
            if !value.is_null() {
                (column.set)(
                    &mut figures,
                    value.as_f64().with_context(|| format!("{} is no number", column.name))?,
                );
            }
        }
        figures.throughput = figures.requests as f64 / figures.seconds;
        if let Some(repairs) = &mut figures.repairs {
            repairs.repaired_per_second = repairs.repaired as f64 / figures.seconds;
            repairs.why_not = note.and_then(|note| note.why_not.clone());
        }
        figures.errors.words = note.map(|note| note.words.clone()).unwrap_or_default();
        figures.failure = note.and_then(|note| note.failure.clone());
        figures.processes = processes_of(of_processes, processes)?;
        found = Some(figures);
    }
    Ok(Measurement {
        repetition: count(repetition)? as usize,
        workload: text(workload)?,
        clients: count(clients)? as usize,
        side: text(side)?.parse().map_err(anyhow::Error::msg)?,
        figures: found,
        failed: note.and_then(|note| note.failed.clone()),
    })
}

fn names_of(figures: &Figures) -> Vec<String> {
    figures.processes.iter().map(|process| process.name.clone()).collect()
}

/// The number of the combination of names, then user and system time and peak memory of each process.
fn process_figures(figures: &Figures, names: &[Vec<String>]) -> Value {
    let combination = names.iter().position(|one| *one == names_of(figures)).unwrap_or_default();
    let mut values = vec![Value::from(combination)];
    for ProcessFigures { cpu, peak_memory, name: _ } in &figures.processes {
        values.push(number(Some(cpu.user_s), 3));
        values.push(number(Some(cpu.system_s), 3));
        values.push(Value::from(*peak_memory));
    }
    Value::from(values)
}

fn processes_of(values: &Value, names: &[Vec<String>]) -> anyhow::Result<Vec<ProcessFigures>> {
    let values = values.as_array().map(Vec::as_slice).unwrap_or_default();
    let [combination, values @ ..] = values else { bail!("the processes are missing") };
    let names = combination.as_u64().and_then(|number| names.get(number as usize));
    let names = names.context("there is no such combination of processes")?;
    ensure!(values.len() == 3 * names.len(), "{} figures of {} processes", values.len(), names.len());
    let process = |(name, values): (&String, &[Value])| {
        let seconds = |value: &Value| value.as_f64().context("processor time is no number");
        let cpu = Cpu { user_s: seconds(&values[0])?, system_s: seconds(&values[1])? };
        Ok(ProcessFigures { name: name.clone(), cpu, peak_memory: values[2].as_u64() })
    };
    names.iter().zip(values.chunks(3)).map(process).collect()
}

/// A number without insignificant digits, as an integer where it is one.
fn number(value: Option<f64>, digits: i32) -> Value {
    let Some(value) = value else { return Value::Null };
    let scale = 10f64.powi(digits);
    let rounded = (value * scale).round() / scale;
    if rounded.fract() == 0.0 && rounded.abs() < 9e15 {
        Value::from(rounded as i64)
    } else {
        Value::from(rounded)
    }
}

/// A measurement with zeros only.
fn blank(definition: &Definition) -> Figures {
    Figures {
        seconds: definition.seconds,
        requests: 0,
        throughput: 0.0,
        latency: Latency { mean_us: 0.0, p50_us: 0.0, p90_us: 0.0, p99_us: 0.0, p999_us: 0.0, max_us: 0.0 },
        miss_ratio: None,
        errors: Errors::default(),
        processes: Vec::new(),
        generator_cpu_share: 0.0,
        wire: None,
        client_bytes: 0,
        start_seconds: None,
        memaslap: None,
        cycles: None,
        sent: None,
        repairs: None,
        failure: None,
    }
}

/// A figure of a row.
struct Column {
    name: &'static str,
    /// Digits after the point.
    digits: i32,
    /// None where it was not measured.
    get: fn(&Figures) -> Option<f64>,
    set: fn(&mut Figures, f64),
}

/// A column of a field.
macro_rules! column {
    ($name:literal, $digits:literal, $($field:ident).+) => {
        Column {
            name: $name,
            digits: $digits,
            get: |one| Some(one.$($field).+),
            set: |one, value| one.$($field).+ = value,
        }
    };
    ($name:literal, count, $($field:ident).+) => {
        Column {
            name: $name,
            digits: 0,
            get: |one| Some(one.$($field).+ as f64),
            set: |one, value| one.$($field).+ = value as u64,
        }
    };
    ($name:literal, count, $optional:ident: $($field:ident).+) => {
        Column {
            name: $name,
            digits: 0,
            get: |one| Some(one.$optional.as_ref()?.$($field).+ as f64),
            set: |one, value| one.$optional.get_or_insert_default().$($field).+ = value as u64,
        }
    };
    ($name:literal, points, $times:ident.$point:ident as $kind:ty) => {
        Column {
            name: $name,
            digits: 3,
            get: |one| Some(one.repairs.as_ref()?.$times.points().$point as f64),
            set: |one, value| {
                one.repairs.get_or_insert_default().$times.change(|points| points.$point = value as $kind);
            },
        }
    };
}

/// Every figure of a row, in order.
const COLUMNS: [Column; 52] = [
    column!("seconds", 9, seconds),
    column!("requests", count, requests),
    column!("mean_us", 3, latency.mean_us),
    column!("p50_us", 3, latency.p50_us),
    column!("p90_us", 3, latency.p90_us),
    column!("p99_us", 3, latency.p99_us),
    column!("p999_us", 3, latency.p999_us),
    column!("max_us", 3, latency.max_us),
    Column {
        name: "miss_ratio",
        digits: 5,
        get: |one| one.miss_ratio,
        set: |one, value| one.miss_ratio = Some(value),
    },
    column!("refused", count, errors.refused),
    column!("wrong", count, errors.wrong),
    column!("lost", count, errors.lost),
    column!("broken", count, errors.broken),
    column!("unanswered", count, errors.unanswered),
    column!("generator_cpu_share", 6, generator_cpu_share),
    column!("client_bytes", count, client_bytes),
    column!("wire_bytes", count, wire: bytes),
    column!("wire_packets", count, wire: packets),
    column!("order_messages", count, sent: order.messages),
    column!("order_bytes", count, sent: order.bytes),
    column!("check_messages", count, sent: check.messages),
    column!("check_bytes", count, sent: check.bytes),
    column!("repair_messages", count, sent: repair.messages),
    column!("repair_bytes", count, sent: repair.bytes),
    column!("other_messages", count, sent: other.messages),
    column!("other_bytes", count, sent: other.bytes),
    Column {
        name: "memaslap_throughput",
        digits: 3,
        get: |one| Some(one.memaslap.as_ref()?.throughput),
        set: |one, value| one.memaslap.get_or_insert_default().throughput = value,
    },
    column!("memaslap_misses", count, memaslap: misses),
    column!("dispatching_cycles", count, cycles: dispatching),
    column!("handling_cycles", count, cycles: handling),
    column!("sending_cycles", count, cycles: sending),
    column!("faults_due", count, repairs: due),
    column!("faults_placed", count, repairs: placed),
    column!("repaired", count, repairs: repaired),
    column!("repair_times", points, times_us.count as u64),
    column!("repair_mean_us", points, times_us.mean as f64),
    column!("repair_p50_us", points, times_us.p50 as u64),
    column!("repair_p90_us", points, times_us.p90 as u64),
    column!("repair_p99_us", points, times_us.p99 as u64),
    column!("repair_max_us", points, times_us.max as u64),
    column!("waits", points, waits_us.count as u64),
    column!("wait_mean_us", points, waits_us.mean as f64),
    column!("wait_p50_us", points, waits_us.p50 as u64),
    column!("wait_p90_us", points, waits_us.p90 as u64),
    column!("wait_p99_us", points, waits_us.p99 as u64),
    column!("wait_max_us", points, waits_us.max as u64),
    column!("quiet_waits", points, quiet_waits_us.count as u64),
    column!("quiet_wait_mean_us", points, quiet_waits_us.mean as f64),
    column!("quiet_wait_p50_us", points, quiet_waits_us.p50 as u64),
    column!("quiet_wait_p90_us", points, quiet_waits_us.p90 as u64),
    column!("quiet_wait_p99_us", points, quiet_waits_us.p99 as u64),
    column!("quiet_wait_max_us", points, quiet_waits_us.max as u64),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::parse as definition;
    use crate::measure::EventLoopCycles;
    use crate::repairs::{Around, RepairFigures, Times};
    use crate::report;
    use crate::results::Independent;
    use crosscheck::admin::{Sent, Traffic};

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
            throughput: requests as f64 / seconds,
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
            wire: Some(crate::measure::Wire { bytes: number * 1_000, packets: number }),
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
                repaired_per_second: number as f64 / seconds,
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
        let definition = run.definition.clone();
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
    fn a_summary_gives_the_report_of_the_result_that_it_was_made_of() {
        for run in definitions().map(run) {
            let text = json_rows::layout(&BenchSummary::of(run.clone()), 2).expect("JSON");
            let read = parse(&text).expect("a summary").expect("a run");
            let [of_read, of_run] = [&read, &run].map(|run| report::texts(std::slice::from_ref(run)));
            for (read, before) in of_read.iter().zip(&of_run) {
                let lines = read.lines().zip(before.lines());
                assert_eq!(lines.filter(|(read, before)| read != before).collect::<Vec<_>>(), []);
                assert_eq!(read.lines().count(), before.lines().count());
            }
            let again = json_rows::layout(&BenchSummary::of(read.clone()), 2).expect("JSON");
            assert_eq!(again, text, "a summary of a summary");
            for (read, before) in read.measurements.iter().zip(&run.measurements) {
                assert_eq!(read, &without_times(before));
            }
        }
    }

    /// The part of a measurement that its summary keeps.
    fn without_times(before: &Measurement) -> Measurement {
        let mut one = before.clone();
        if let Some(figures) = &mut one.figures {
            figures.start_seconds = None;
            if let Some(repairs) = &mut figures.repairs {
                repairs.around = None;
                for times in [&mut repairs.times_us, &mut repairs.waits_us, &mut repairs.quiet_waits_us] {
                    times.change(|points| points.mean = (points.mean * 1e3).round() / 1e3);
                }
            }
        }
        one
    }

    #[test]
    fn what_is_no_summary_is_left_to_others_and_a_damaged_one_is_refused() {
        assert!(parse(b"{\"format\":1}").is_none());
        let [definition, _] = definitions();
        let good = BenchSummary::of(run(definition));
        let read =
            |summary: &BenchSummary| parse(&serde_json::to_vec(summary).expect("JSON")).expect("a summary");
        assert!(read(&good).is_ok());
        let mut bad = good.clone();
        bad.columns[0] = "secnods".into();
        let error = read(&bad).unwrap_err();
        assert!(error.to_string().contains("secnods"), "{error:#}");
        let mut bad = good.clone();
        bad.rows[3].pop();
        let error = read(&bad).unwrap_err();
        assert!(error.to_string().contains("row 3"), "{error:#}");
        let bad = BenchSummary { summary_format: FORMAT + 1, ..good };
        assert!(read(&bad).is_err());
    }

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        assert_eq!(number(Some(585_501_114.0), 0).to_string(), "585501114");
        assert_eq!(number(Some(0.439_999_999_999_999_95), 3).to_string(), "0.44");
        assert_eq!(number(None, 3).to_string(), "null");
        let columns: BTreeSet<&str> = COLUMNS.iter().map(|column| column.name).collect();
        assert_eq!(columns.len(), COLUMNS.len(), "each has its own name");
    }

    #[test]
    fn long_summaries_are_compressed() {
        let dir = tempfile::tempdir().expect("a folder");
        let name = |text: &[u8]| write(dir.path(), "x-1", text).expect("a file");
        assert!(name(b"short").ends_with("x-1.json"));
        assert!(name(&[b' '; LONGEST_PLAIN + 1]).ends_with("x-1.json.gz"));
    }
}
