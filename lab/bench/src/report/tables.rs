//! The tables of a report: paper and targets, every side, ratios, what requests cost, and the independent generator.

use ::report::beside::ComparedFigure;
use ::report::columns::Columns;
use ::report::{Block, Table};

use crate::cells::{BenchCell, Stretch, kept, paired, pooled, spread, throughput_ratio};
use crate::cost::{Cost, Kind};
use crate::definition::{Figure, Measure, Ratio, Side, Workload};
use crate::failures::FailureFigures;
use crate::measure::EventLoopCycles;
use crate::repairs::Point;
use crate::results::{BenchRun, Figures, Latency};
use ::report::results::stamp;
use ::report::stats::Spread;
use node::view::grouped;

/// Every figure of all runs, in short.
pub fn at_a_glance(runs: &[BenchRun]) -> Option<Block> {
    let row = |run: &BenchRun, figure: &Figure| {
        let mut row = figure_row(run, figure);
        row.truncate(7);
        row.insert(0, run.settings.definition.name.clone());
        row
    };
    let rows: Vec<Vec<String>> = runs
        .iter()
        .flat_map(|run| run.settings.definition.figures.iter().map(move |figure| row(run, figure)))
        .collect();
    (!rows.is_empty()).then(|| {
        Block::Table(
            Table::new(
                "At a glance: the papers' figures, ours, and the targets",
                ["Benchmark", "What", "Clients", "Paper", "Ours", "Interval", "Target", "Met"],
            )
            .rows(rows),
        )
    })
}

/// What belongs to which source.
pub fn runs(runs: &[BenchRun]) -> Block {
    let row = |run: &BenchRun| {
        vec![
            run.settings.definition.name.clone(),
            stamp(run.origin.started_s),
            run.origin.commit.id.clone() + if run.origin.commit.changed { " and changes" } else { "" },
            run.settings.definition.hash.chars().take(12).collect(),
            run.settings.definition.repetitions.to_string(),
            if run.is_as_defined() { "yes" } else { "no" }.to_owned(),
        ]
    };
    Block::Table(
        Table::new(
            "Runs in this report",
            ["Benchmark", "Begun (UTC)", "Commit", "Definition", "Repetitions", "Whole, as defined"],
        )
        .rows(runs.iter().map(row)),
    )
}

/// Instructions, allocations and memory.
pub fn cost(cost: &Cost) -> Vec<Block> {
    let requests = cost.processes().into_iter().map(|(one, figures)| {
        let allocations: Vec<f64> = figures.iter().filter_map(|one| one.allocations).collect();
        let of = |kind| figures.iter().find(|one| one.kind == kind);
        let cell = |kind| of(kind).map_or(String::new(), |one| grouped(one.instructions.round() as u64));
        vec![
            one.side.to_string(),
            one.role.name().to_owned(),
            one.load.name().to_owned(),
            cell(Kind::Get),
            cell(Kind::HotGet),
            cell(Kind::Set),
            allocations.iter().map(|count| format!("{count:.2}")).collect::<Vec<_>>().join(", "),
        ]
    });
    let objects = cost.objects.iter().map(|one| {
        let beyond = one.resident - one.payload as f64;
        vec![
            one.side.to_string(),
            one.payload.to_string(),
            format!("{:.0}", one.resident),
            format!("{beyond:.0}"),
            format!("{:.1} %", beyond / one.payload as f64 * 100.0),
            grouped(u64::from(one.objects)),
        ]
    });
    vec![
        Block::Table(
            Table::new(
                "Instructions per request, in each program: callgrind, less those of the idle program",
                [
                    "Side",
                    "Process",
                    "Load",
                    "Get, noted",
                    "Get, hot",
                    "Set",
                    "Allocations (get, set, hot get)",
                ],
            )
            .rows(requests),
        ),
        Block::Table(
            Table::new(
                "Per object: resident memory, difference of two fillings",
                ["Side", "Key and value, B", "Resident B", "Beyond key and value, B", "Share", "Objects"],
            )
            .rows(objects),
        ),
    ]
}

/// The paper's figures, ours, and the targets.
pub fn figures(run: &BenchRun) -> Option<Block> {
    let rows: Vec<Vec<String>> =
        run.settings.definition.figures.iter().map(|figure| figure_row(run, figure)).collect();
    (!rows.is_empty()).then(|| {
        Block::Table(
            Table::new(
                "The paper's figures, ours, and the targets",
                ["What", "Clients", "Paper", "Ours", "Interval", "Target", "Met", "Paper's place"],
            )
            .rows(rows),
        )
    })
}

/// The same as plots, one for each kind of figure.
pub fn beside(run: &BenchRun) -> Vec<Block> {
    let block = |measure: Measure| {
        let about = run.settings.definition.figures.iter().filter(|figure| figure.measure == measure);
        let row = |figure: &Figure| ComparedFigure {
            name: in_short(figure),
            paper: figure.paper,
            ours: found(run, figure).map(|found| (found.median, found.low, found.high)),
            target: figure.target,
        };
        let rows: Vec<ComparedFigure> = about.map(row).collect();
        let title = format!("{}: the paper's figures beside ours", measure.title());
        (!rows.is_empty()).then(|| Block::Beside { title, unit: measure.unit().into(), rows })
    };
    Measure::ALL.into_iter().filter_map(block).collect()
}

/// Our figure to compare with the paper's.
fn found(run: &BenchRun, figure: &Figure) -> Option<Spread> {
    let (workload, clients, of) = (&figure.workload, figure.clients, &figure.of);
    let pair = || Some(Ratio { of: of.clone(), to: figure.to.clone()? });
    let of_times = |stretch: Stretch, point: Point| pooled(run, workload, clients, of, stretch, point);
    let of_cycles = |part: fn(&EventLoopCycles) -> u64| {
        // What is not counted is not a number, and has no spread.
        let cycles = |one: &Figures| one.cycles.map_or(f64::NAN, |cycles| part(&cycles) as f64);
        let per_request = |one: &Figures| cycles(one) / one.requests as f64;
        paired(run, workload, clients, &pair()?, per_request, |of, to| of / to)
    };
    let of_failures = |part: fn(&FailureFigures) -> Option<f64>| {
        spread(run, workload, clients, of, |one| part(one.failure.as_ref()?))
    };
    match figure.measure {
        Measure::ThroughputRatio => throughput_ratio(run, workload, clients, &pair()?),
        Measure::CpuRatio => {
            let per_request = |one: &Figures| {
                let cpu = one.cpu_per_million();
                cpu.user_s + cpu.system_s
            };
            paired(run, workload, clients, &pair()?, per_request, |of, to| of / to)
        }
        Measure::DispatchingRatio => of_cycles(|cycles| cycles.dispatching),
        Measure::HandlingRatio => of_cycles(|cycles| cycles.handling),
        Measure::SendingRatio => of_cycles(|cycles| cycles.sending),
        Measure::CyclesRatio => of_cycles(|cycles| cycles.all()),
        Measure::ThroughputKept => kept(run, workload, clients, of),
        Measure::P50AddedUs => {
            let p50 = |one: &Figures| one.latency.p50_us;
            paired(run, workload, clients, &pair()?, p50, |of, to| of - to)
        }
        Measure::RepairP50Us => of_times(Stretch::Repair, |points| points.p50),
        Measure::RepairP99Us => of_times(Stretch::Repair, |points| points.p99),
        Measure::RepairMeanUs => spread(run, workload, clients, of, |one| {
            let times = one.repairs.as_ref()?.times_us.points();
            (times.count > 0).then_some(times.mean)
        }),
        Measure::WaitP50Us => of_times(Stretch::Wait, |points| points.p50),
        Measure::WaitMaxUs => of_times(Stretch::Wait, |points| points.max),
        Measure::FailureGapMs => of_failures(|failure| Some(failure.gap_failed_ms)),
        Measure::RejoinGapMs => of_failures(|failure| Some(failure.gap_rejoin_ms)),
        Measure::RejoinMs => of_failures(FailureFigures::rejoin_ms),
        Measure::CheckBytes => spread(run, workload, clients, of, |one| {
            Some(one.sent?.check.bytes as f64 / one.requests.max(1) as f64)
        }),
    }
}

/// The subject of a figure, below a title with the measure.
fn in_short(figure: &Figure) -> String {
    let to = figure.to.as_ref().map_or(String::new(), |to| match figure.measure {
        Measure::P50AddedUs => format!(" − {to}"),
        _ => format!(" / {to}"),
    });
    format!("{}: {}{to}, {} clients", figure.workload, figure.of, figure.clients)
}

fn what(figure: &Figure) -> String {
    let Figure { workload, of, measure, .. } = figure;
    let to = figure.to.as_ref().map_or(String::new(), Side::to_string);
    match measure {
        Measure::ThroughputRatio => format!("{workload}: throughput {of} / {to}"),
        Measure::CpuRatio => format!("{workload}: processor time {of} / {to}"),
        measure if measure.is_of_cycles() => {
            let what = measure.title().trim_start_matches("Ratios of ");
            format!("{workload}: {what} {of} / {to}")
        }
        Measure::P50AddedUs => format!("{workload}: median latency {of} − {to}"),
        other => format!("{workload}: {}, {of}", other.title().to_lowercase()),
    }
}

fn figure_row(run: &BenchRun, figure: &Figure) -> Vec<String> {
    let found = found(run, figure);
    let more = figure.measure.wants_more();
    let (digits, unit) = match figure.measure.unit() {
        "ratio" => (3, ""),
        "B" => (1, " B"),
        "ms" => (0, " ms"),
        _ => (0, " µs"),
    };
    let number = |value: f64| format!("{value:.digits$}{unit}");
    let met = figure
        .target
        .zip(found)
        .map(|(target, found)| if more { found.median >= target } else { found.median <= target });
    let sign = if more { "≥ " } else { "≤ " };
    vec![
        what(figure),
        figure.clients.to_string(),
        figure.paper.map_or(String::new(), |(low, high)| {
            if low == high { number(low) } else { format!("{}..{}", number(low), number(high)) }
        }),
        found.map_or("not measured".into(), |found| number(found.median)),
        found.map_or(String::new(), |found| found.interval(number)),
        figure.target.map_or(String::new(), |target| format!("{sign}{}", number(target))),
        met.map_or("", |met| if met { "yes" } else { "no" }).to_owned(),
        figure.says.clone(),
    ]
}

/// Throughput and latency of every side.
pub fn sides(run: &BenchRun, group: &[&Workload]) -> Block {
    let latency = |cell: &BenchCell<'_>, of: fn(&Latency) -> f64| cell.of(|one| Some(of(&one.latency)));
    let table = Columns::<BenchCell<'_>>::default()
        .text("Side", BenchCell::name)
        .text("Clients", |cell| cell.clients.to_string())
        .spread("Requests/s", whole, |cell| cell.of(|one| Some(one.throughput())))
        .median("Mean µs", whole, |cell| latency(cell, |one| one.mean_us))
        .median("p50 µs", whole, |cell| latency(cell, |one| one.p50_us))
        .median("p99 µs", whole, |cell| latency(cell, |one| one.p99_us))
        .median("p99.9 µs", whole, |cell| latency(cell, |one| one.p999_us))
        .median("Max µs", whole, |cell| latency(cell, |one| one.max_us))
        .median("Misses", |share| format!("{:.1} %", share * 100.0), |cell| cell.of(|one| one.miss_ratio))
        .text("Errors, worst", |cell| {
            cell.of(|one| Some(one.error_count() as f64)).map_or(String::new(), |errors| whole(errors.max))
        })
        .table(format!("{}: throughput and latency", name_of(group)), &BenchCell::measured(run, group));
    Block::Table(table)
}

/// Ratios of throughput with their spread.
pub fn ratios(run: &BenchRun, group: &[&Workload]) -> Option<Block> {
    let mut found = Vec::new();
    for pair in &run.settings.definition.ratios {
        for workload in group {
            for &clients in &run.settings.definition.clients {
                let ratio = throughput_ratio(run, &workload.name, clients, pair);
                let name = || format!("{} / {}{}", pair.of, pair.to, workload.swept_value());
                found.extend(ratio.map(|ratio| (name(), clients, ratio)));
            }
        }
    }
    let number = |value: f64| format!("{value:.3}");
    let table = Columns::<(String, usize, Spread)>::default()
        .text("Ratio", |(name, ..)| name.clone())
        .text("Clients", |(_, clients, _)| clients.to_string())
        .spread("Median", number, |(.., ratio)| Some(*ratio))
        .text("Coverage", |(.., ratio)| format!("{:.1} %", ratio.coverage * 100.0))
        .text("Lowest..highest", move |(.., ratio)| format!("{}..{}", number(ratio.min), number(ratio.max)))
        .text("Repetitions", |(.., ratio)| ratio.count.to_string())
        .table_of_some(format!("{}: ratios of throughput, within each repetition", name_of(group)), &found);
    table.map(Block::Table)
}

/// Processor time, wire and memory.
pub fn costs(run: &BenchRun, group: &[&Workload]) -> Option<Block> {
    let one_digit = |value: f64| format!("{value:.1}");
    let per_request = |cell: &BenchCell<'_>, count: fn(&Figures) -> Option<u64>| {
        cell.of(|one| Some(count(one)? as f64 / one.requests.max(1) as f64))
    };
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let table = Columns::<BenchCell<'_>>::default()
        .text("Side", BenchCell::name)
        .text("Clients", |cell| cell.clients.to_string())
        .median("User s/M", one_digit, |cell| cell.of(|one| Some(one.cpu_per_million().user_s)))
        .median("System s/M", one_digit, |cell| cell.of(|one| Some(one.cpu_per_million().system_s)))
        .text("User+system s/M by process", by_process)
        .median("Client B/request", whole, |cell| per_request(cell, |one| Some(one.client_bytes)))
        .median("Loopback B/request", whole, |cell| per_request(cell, |one| Some(one.wire?.bytes)))
        .median(
            "Loopback packets/request",
            |value| format!("{value:.2}"),
            |cell| per_request(cell, |one| Some(one.wire?.packets)),
        )
        .median("Order B/request, all replicas", whole, |cell| {
            per_request(cell, |one| Some(one.sent?.order.bytes))
        })
        .median("CHECK B/request, all replicas", one_digit, |cell| {
            per_request(cell, |one| Some(one.sent?.check.bytes))
        })
        .median(
            "CHECK messages/request",
            |value| format!("{value:.3}"),
            |cell| per_request(cell, |one| Some(one.sent?.check.messages)),
        )
        .median("Peak MiB, largest process", whole, |cell| cell.of(|one| one.peak_memory().map(mebibytes)))
        .median("Generator % of a core", whole, |cell| cell.of(|one| Some(one.generator_cpu_share * 100.0)))
        .table_of_some(format!("{}: what requests cost", name_of(group)), &BenchCell::measured(run, group));
    table.map(Block::Table)
}

/// User and system seconds per million requests of each process, by the median of the repetitions.
fn by_process(cell: &BenchCell<'_>) -> String {
    let names: Vec<&str> = cell
        .figures()
        .next()
        .map(|figures| figures.processes.iter().map(|process| process.name.as_str()).collect())
        .unwrap_or_default();
    if names.len() < 2 {
        return String::new();
    }
    // Another replica may lead in another repetition: processes are distinguished by their part, not by their number.
    let mut parts: Vec<&str> = names.into_iter().map(part_of).collect();
    parts.sort_unstable();
    parts.dedup();
    let reported = parts.iter().filter_map(|part| {
        let of = |pick: fn(&crate::measure::Cpu) -> f64| {
            cell.of(|one| {
                let same = one.processes.iter().filter(|process| part_of(&process.name) == *part);
                let each: Vec<f64> = same.map(|process| pick(&process.cpu)).collect();
                Some(each.iter().sum::<f64>() / each.len().max(1) as f64 / one.requests.max(1) as f64 * 1e6)
            })
        };
        Some(format!("{part} {:.1}+{:.1}", of(|cpu| cpu.user_s)?.median, of(|cpu| cpu.system_s)?.median))
    });
    reported.collect::<Vec<_>>().join(", ")
}

/// `replica 2 (leader)` and `m1 (leader)` are the leader; `primary` and `replica 1` are what they are called.
fn part_of(name: &str) -> &str {
    match name.split_once('(') {
        Some((_, part)) => part.trim_end_matches(')'),
        None => name.split(' ').next().unwrap_or(name),
    }
}

/// Our generator against memaslap.
pub fn independent(run: &BenchRun, group: &[&Workload]) -> Option<Block> {
    let other = |one: &Figures| Some(one.memaslap.as_ref()?.throughput);
    let mut cells = BenchCell::measured(run, group);
    cells.retain(|cell| cell.of(other).is_some());
    let table = Columns::<BenchCell<'_>>::default()
        .text("Side", BenchCell::name)
        .text("Clients", |cell| cell.clients.to_string())
        .median("Our generator /s", whole, |cell| cell.of(|one| Some(one.throughput())))
        .median("memaslap /s", whole, move |cell| cell.of(other))
        .spread(
            "Ours / memaslap",
            |value: f64| format!("{value:.3}"),
            move |cell| cell.of(|one| Some(one.throughput() / other(one)?)),
        )
        .table_of_some(
            format!("{}: the same servers driven by memaslap, just after", name_of(group)),
            &cells,
        );
    table.map(Block::Table)
}

/// What all workloads of a group are called: one alone by its name, those of a sweep by their family's.
pub fn name_of(group: &[&Workload]) -> String {
    group
        .first()
        .map_or(String::new(), |one| one.sweep.as_ref().map_or(&one.name, |sweep| &sweep.family).clone())
}

/// A number without digits after the point.
pub fn whole(value: f64) -> String {
    grouped(value.max(0.0).round() as u64)
}
