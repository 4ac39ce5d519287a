//! The tables of a report: paper and targets, every side, ratios, what requests cost, and the independent generator.

use ::report::beside::ComparedFigure;
use ::report::{Block, Table};

use crate::cost::{Cost, Kind};
use crate::definition::{Figure, Measure, Ratio, Side, Workload};
use crate::failures::FailureFigures;
use crate::measure::EventLoopCycles;
use crate::repairs::Point;
use crate::results::{BenchRun, Figures};
use crate::stats::Spread;
use crate::summary::{Stretch, kept, paired, pooled, spread, throughput_ratio};
use ::report::results::stamp;
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
        found.map_or(String::new(), |found| interval(found, number)),
        figure.target.map_or(String::new(), |target| format!("{sign}{}", number(target))),
        met.map_or("", |met| if met { "yes" } else { "no" }).to_owned(),
        figure.says.clone(),
    ]
}

/// Throughput and latency of every side.
pub fn sides(run: &BenchRun, group: &[&Workload]) -> Block {
    let rows = cells(run, group, |workload, clients, side| {
        let of =
            |figure: fn(&Figures) -> f64| spread(run, &workload.name, clients, side, |one| Some(figure(one)));
        let throughput = of(|one| one.throughput())?;
        let whole = |value: f64| grouped(value.max(0.0).round() as u64);
        let misses = spread(run, &workload.name, clients, side, |one| one.miss_ratio);
        Some(vec![
            format!("{side}{}", value_of(workload)),
            clients.to_string(),
            whole(throughput.median),
            interval(throughput, whole),
            middle(of(|one| one.latency.mean_us), whole),
            middle(of(|one| one.latency.p50_us), whole),
            middle(of(|one| one.latency.p99_us), whole),
            middle(of(|one| one.latency.p999_us), whole),
            middle(of(|one| one.latency.max_us), whole),
            middle(misses, |share| format!("{:.1} %", share * 100.0)),
            of(|one| one.error_count() as f64).map_or(String::new(), |errors| whole(errors.max)),
        ])
    });
    Block::Table(
        Table::new(
            format!("{}: throughput and latency", name_of(group)),
            [
                "Side",
                "Clients",
                "Requests/s",
                "Interval",
                "Mean µs",
                "p50 µs",
                "p99 µs",
                "p99.9 µs",
                "Max µs",
                "Misses",
                "Errors, worst",
            ],
        )
        .rows(rows),
    )
}

/// Ratios of throughput with their spread.
pub fn ratios(run: &BenchRun, group: &[&Workload]) -> Option<Block> {
    let mut rows = Vec::new();
    for pair in &run.settings.definition.ratios {
        for (workload, &clients) in
            group.iter().flat_map(|one| run.settings.definition.clients.iter().map(move |of| (one, of)))
        {
            let Some(found) = throughput_ratio(run, &workload.name, clients, pair) else { continue };
            let number = |value: f64| format!("{value:.3}");
            rows.push(vec![
                format!("{} / {}{}", pair.of, pair.to, value_of(workload)),
                clients.to_string(),
                number(found.median),
                interval(found, number),
                format!("{:.1} %", found.coverage * 100.0),
                format!("{}..{}", number(found.min), number(found.max)),
                found.count.to_string(),
            ]);
        }
    }
    (!rows.is_empty()).then(|| {
        Block::Table(
            Table::new(
                format!("{}: ratios of throughput, within each repetition", name_of(group)),
                ["Ratio", "Clients", "Median", "Interval", "Coverage", "Lowest..highest", "Repetitions"],
            )
            .rows(rows),
        )
    })
}

/// Processor time, wire and memory.
pub fn costs(run: &BenchRun, group: &[&Workload]) -> Option<Block> {
    let rows = cells(run, group, |workload, clients, side| {
        let of =
            |figure: &dyn Fn(&Figures) -> Option<f64>| spread(run, &workload.name, clients, side, figure);
        let one_digit = |value: f64| format!("{value:.1}");
        let whole = |value: f64| grouped(value.max(0.0).round() as u64);
        let per_request = |one: &Figures, count: u64| count as f64 / one.requests.max(1) as f64;
        Some(vec![
            format!("{side}{}", value_of(workload)),
            clients.to_string(),
            middle(Some(of(&|one| Some(one.cpu_per_million().user_s))?), one_digit),
            middle(of(&|one| Some(one.cpu_per_million().system_s)), one_digit),
            by_process(run, workload, clients, side),
            middle(of(&|one| Some(per_request(one, one.client_bytes))), whole),
            middle(of(&|one| Some(per_request(one, one.wire?.bytes))), whole),
            middle(of(&|one| Some(per_request(one, one.wire?.packets))), |value| format!("{value:.2}")),
            middle(of(&|one| Some(per_request(one, one.sent?.order.bytes))), whole),
            middle(of(&|one| Some(per_request(one, one.sent?.check.bytes))), one_digit),
            middle(of(&|one| Some(per_request(one, one.sent?.check.messages))), |value| {
                format!("{value:.3}")
            }),
            middle(of(&|one| Some(one.peak_memory()? as f64 / f64::from(1 << 20))), whole),
            middle(of(&|one| Some(one.generator_cpu_share * 100.0)), whole),
        ])
    });
    (!rows.is_empty()).then(|| {
        Block::Table(
            Table::new(
                format!("{}: what requests cost", name_of(group)),
                [
                    "Side",
                    "Clients",
                    "User s/M",
                    "System s/M",
                    "User+system s/M by process",
                    "Client B/request",
                    "Loopback B/request",
                    "Loopback packets/request",
                    "Order B/request, all replicas",
                    "CHECK B/request, all replicas",
                    "CHECK messages/request",
                    "Peak MiB, largest process",
                    "Generator % of a core",
                ],
            )
            .rows(rows),
        )
    })
}

/// User and system seconds per million requests of each process, by the median of the repetitions.
fn by_process(run: &BenchRun, workload: &Workload, clients: usize, side: &Side) -> String {
    let names: Vec<String> = run
        .figures(&workload.name, clients, side)
        .next()
        .map(|(_, figures)| figures.processes.iter().map(|process| process.name.clone()).collect())
        .unwrap_or_default();
    if names.len() < 2 {
        return String::new();
    }
    // Another replica may lead in another repetition: processes are distinguished by their part, not by their number.
    let mut parts: Vec<&str> = names.iter().map(|name| part_of(name)).collect();
    parts.sort_unstable();
    parts.dedup();
    let told = parts.iter().filter_map(|part| {
        let of = |pick: fn(&crate::measure::Cpu) -> f64| {
            spread(run, &workload.name, clients, side, |one| {
                let same = one.processes.iter().filter(|process| part_of(&process.name) == *part);
                let each: Vec<f64> = same.map(|process| pick(&process.cpu)).collect();
                Some(each.iter().sum::<f64>() / each.len().max(1) as f64 / one.requests.max(1) as f64 * 1e6)
            })
        };
        Some(format!("{part} {:.1}+{:.1}", of(|cpu| cpu.user_s)?.median, of(|cpu| cpu.system_s)?.median))
    });
    told.collect::<Vec<_>>().join(", ")
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
    let rows = cells(run, group, |workload, clients, side| {
        let other =
            spread(run, &workload.name, clients, side, |one| Some(one.memaslap.as_ref()?.throughput))?;
        let own = spread(run, &workload.name, clients, side, |one| Some(one.throughput()))?;
        let ratio = spread(run, &workload.name, clients, side, |one| {
            Some(one.throughput() / one.memaslap.as_ref()?.throughput)
        })?;
        let whole = |value: f64| grouped(value.max(0.0).round() as u64);
        let number = |value: f64| format!("{value:.3}");
        Some(vec![
            format!("{side}{}", value_of(workload)),
            clients.to_string(),
            whole(own.median),
            whole(other.median),
            number(ratio.median),
            interval(ratio, number),
        ])
    });
    (!rows.is_empty()).then(|| {
        Block::Table(
            Table::new(
                format!("{}: the same servers driven by memaslap, just after", name_of(group)),
                ["Side", "Clients", "Our generator /s", "memaslap /s", "Ours / memaslap", "Interval"],
            )
            .rows(rows),
        )
    })
}

/// One row per workload, number of clients and side, where there is something to tell.
fn cells(
    run: &BenchRun,
    group: &[&Workload],
    row: impl Fn(&Workload, usize, &Side) -> Option<Vec<String>>,
) -> Vec<Vec<String>> {
    let definition = &run.settings.definition;
    let mut rows = Vec::new();
    for workload in group {
        for &clients in &definition.clients {
            rows.extend(definition.sides.iter().filter_map(|side| row(workload, clients, side)));
        }
    }
    rows
}

/// What all workloads of a group are called: one alone by its name, those of a sweep by their family's.
pub fn name_of(group: &[&Workload]) -> String {
    group
        .first()
        .map_or(String::new(), |one| one.sweep.as_ref().map_or(&one.name, |sweep| &sweep.family).clone())
}

/// The value of a sweep's setting, to stand behind a side.
fn value_of(workload: &Workload) -> String {
    workload.sweep.as_ref().map_or(String::new(), |sweep| format!(", {}", sweep.label))
}

/// The ends of an interval.
pub fn interval(spread: Spread, number: impl Fn(f64) -> String) -> String {
    if spread.count == 1 {
        "one only".to_owned()
    } else {
        format!("{}..{}", number(spread.low), number(spread.high))
    }
}

/// The median, where there is one.
pub fn middle(spread: Option<Spread>, number: impl Fn(f64) -> String) -> String {
    spread.map_or(String::new(), |spread| number(spread.median))
}
