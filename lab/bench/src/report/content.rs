//! The content of a report about each run, in its order: first the doubts, then paper and targets, then all figures.

use ::report::plot::{Across, Mark, Plot, PlotSeries, Point, Scale};
use ::report::{Block, Page};
use crosscheck::admin::Corruption;

use super::{failures, sweeps, tables};
use crate::campaign::BUSY_GENERATOR;
use crate::cells::{spread, throughput_ratio};
use crate::cost::Cost;
use crate::definition::{Measure, Ratio, Side, SideStorage, SweepVictim, Workload};
use crate::executor::{self, ExecutorRun};
use crate::results::{BenchRun, Figures};
use ::report::results::{date, stamp};
use ::report::stats::Spread;

/// Runnable tasks above which a machine was busy with something else.
const BUSY_MACHINE: f64 = 0.5;
/// Fewest repetitions from which a ratio may be quoted.
const FEWEST: usize = 5;

/// What every figure is.
const ABOUT: &str = "Every figure is the median of the repetitions; behind it stands the interval in which the true \
    median lies, between two order statistics, with at least 95 % confidence from six repetitions on and 94 % with \
    five (fewer: the tables say from lowest to highest, which is less sure). Ratios are taken between measurements of \
    the same repetition, which lie seconds apart. Replicas, peers and the load generator share one machine: an \
    absolute figure means little, a ratio means much.";

/// The whole report.
pub fn of(runs: &[BenchRun], costs: &[Cost], executors: &[ExecutorRun]) -> Page {
    let mut page = Page::new("CrossCheck: benchmark report");
    page.text(ABOUT).push(Block::Contents);
    page.extend(tables::at_a_glance(runs));
    page.push(tables::runs(runs));
    page.extend(runs.iter().flat_map(one));
    page.extend(costs.iter().flat_map(what_it_costs));
    page.extend(executors.iter().flat_map(executor::blocks));
    page
}

/// What does not depend on how busy the machine is.
fn what_it_costs(cost: &Cost) -> Vec<Block> {
    let mut blocks = vec![
        Block::Heading(2, "Instructions, allocations and memory (cost)".into()),
        Block::Text(format!(
            "GET and SET of keys of {} B and values of 400 B. The first read of an item is noted in it; a hot one \
                is not. A set replaces a value by one of the same length. Instructions are those of the program; \
                what the kernel does for it is not in them. Memory is what a process grows by while more objects \
                are stored.",
            cost.settings.definition.workloads.first().map_or(0, |workload| workload.key_bytes)
        )),
    ];
    if !cost.origin.optimised {
        let what = "The binary was built without optimisation: no figure here means anything.";
        blocks.push(Block::Warning(what.into()));
    }
    blocks.extend(cost.settings.failed.iter().map(|why| Block::Warning(format!("Not measured: {why}"))));
    let changed = if cost.origin.commit.changed { " and changes" } else { "" };
    blocks.push(Block::List(vec![format!(
        "Source: commit {}{changed}, {}",
        cost.origin.commit.id,
        stamp(cost.origin.started_s)
    )]));
    blocks.extend(tables::cost(cost));
    blocks
}

fn one(run: &BenchRun) -> Vec<Block> {
    let definition = &run.settings.definition;
    let mut blocks = vec![
        Block::Heading(2, format!("{} ({})", definition.title, definition.name)),
        Block::Text(definition.about.clone()),
    ];
    blocks.extend(doubts(run).into_iter().map(Block::Warning));
    blocks.push(Block::List(circumstances(run)));
    blocks.extend(tables::beside(run));
    blocks.extend(tables::figures(run));
    for group in groups(&definition.workloads) {
        let found = |workload: &&Workload| {
            run.measurements.iter().any(|one| one.workload == workload.name && one.figures.is_some())
        };
        if !group.iter().any(found) {
            continue;
        }
        blocks.push(Block::Heading(3, format!("{}: {}", definition.name, tables::name_of(&group))));
        blocks.push(Block::Text(in_words(group[0])));
        let mut plots = match &group[..] {
            [alone] if alone.faults.is_none() => over_connections(run, alone),
            _ => sweeps::plots(run, &group),
        };
        plots.extend(sweeps::around(run, &group));
        plots.extend(failures::plots(run, &group));
        blocks.push(Block::Plots(plots));
        blocks.extend(sweeps::repairs(run, &group));
        blocks.extend(failures::table(run, &group));
        blocks.push(tables::sides(run, &group));
        blocks.extend(tables::ratios(run, &group));
        blocks.extend(tables::costs(run, &group));
        blocks.extend(tables::independent(run, &group));
    }
    let semantics: Vec<String> =
        definition.sides.iter().filter_map(Side::semantics).map(str::to_owned).collect();
    if !semantics.is_empty() {
        blocks.push(Block::Text("Differences in what the others promise:".into()));
        blocks.push(Block::List(semantics));
    }
    blocks
}

/// Workloads that differ in one setting only belong together.
fn groups(workloads: &[Workload]) -> Vec<Vec<&Workload>> {
    let family = |one: &Workload| one.sweep.as_ref().map(|sweep| sweep.family.clone());
    let mut groups: Vec<Vec<&Workload>> = Vec::new();
    for workload in workloads {
        match groups.last_mut() {
            Some(last) if family(workload).is_some() && family(last[0]) == family(workload) => {
                last.push(workload);
            }
            _ => groups.push(vec![workload]),
        }
    }
    groups
}

/// Reasons to doubt the figures of a run.
pub fn doubts(run: &BenchRun) -> Vec<String> {
    let mut doubts = Vec::new();
    if !run.origin.optimised {
        doubts.push("The binary was built without optimisation: no figure here means anything.".to_owned());
    }
    if !run.settings.changed.is_empty() {
        doubts.push(format!("The command line changed the definition: {}.", run.settings.changed.join("; ")));
    }
    if run.settings.definition.repetitions < FEWEST {
        doubts.push(format!("Fewer than {FEWEST} repetitions: a first look, not figures to quote."));
    }
    if run.origin.machine.load_before > BUSY_MACHINE {
        let load = run.origin.machine.load_before;
        doubts.push(format!("The machine was busy with something else before the run (load {load:.1})."));
    }
    if run.origin.commit.changed {
        doubts.push(format!("The source differed from commit {}.", run.origin.commit.id));
    }
    let failed: Vec<_> =
        run.measurements.iter().filter_map(|one| Some((one, one.failed.as_ref()?))).collect();
    if let Some((one, why)) = failed.first() {
        let count = failed.len();
        doubts.push(format!("{count} measurements failed; the first, of {}: {why}", one.side));
    }
    doubts.extend(per_side(run, "requests that failed or were answered wrongly", |figures| {
        (figures.error_count() > 0).then(|| figures.error_count())
    }));
    doubts.extend(per_side(
        run,
        "measurements in which the generator itself may have been the limit",
        |figures| (figures.generator_cpu_share > BUSY_GENERATOR).then_some(1),
    ));
    for one in &run.settings.skipped {
        let of = one.workload.as_ref().map(|name| format!(" under {name}")).unwrap_or_default();
        doubts.push(format!("{} was not measured{of}: {}.", one.side, one.why));
    }
    doubts
}

fn per_side(run: &BenchRun, what: &str, count: impl Fn(&Figures) -> Option<u64>) -> Option<String> {
    let of = |side: &Side| -> u64 {
        let figures = run.measurements.iter().filter(|one| one.side == *side);
        figures.filter_map(|one| count(one.figures.as_ref()?)).sum()
    };
    let reported: Vec<String> = run
        .settings
        .definition
        .sides
        .iter()
        .map(|side| (side, of(side)))
        .filter(|(_, count)| *count > 0)
        .map(|(side, count)| format!("{side} {count}"))
        .collect();
    (!reported.is_empty()).then(|| format!("There were {what}: {}.", reported.join(", ")))
}

fn circumstances(run: &BenchRun) -> Vec<String> {
    let definition = &run.settings.definition;
    let loops = match definition.rate {
        Some(rate) => format!("open loop, {rate} requests per second, latency from the intended time"),
        None => format!("closed loop, {} on their way per connection", definition.pipeline),
    };
    let durability = match definition.durability {
        SideStorage::Memory => "in memory",
        SideStorage::Disk => "synced to disk",
    };
    let checked =
        if definition.verify { "compared byte by byte with a model" } else { "checked for their form" };
    let versions: Vec<String> = run
        .settings
        .versions
        .values()
        .cloned()
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    let mut list = vec![
        format!(
            "Machine: {} cores, {}, {} MiB of memory, Linux {}",
            run.origin.machine.cores,
            run.origin.machine.model,
            run.origin.machine.memory_mb,
            run.origin.machine.kernel
        ),
        format!(
            "Source: commit {}, {}; definition {}",
            run.origin.commit.id,
            date(run.origin.started_s),
            definition.hash
        ),
        format!(
            "Load: {loops}; {} repetitions of {} s after {} s of warming up; replies {checked}",
            definition.repetitions, definition.seconds, definition.warmup_seconds
        ),
        format!(
            "Servers: {} replicas, {} workers each, {} MiB for items, acknowledged writes {durability}; \
                started anew for every measurement; {}",
            definition.replicas,
            definition.workers,
            definition.memory_mb,
            versions.join(", ")
        ),
    ];
    list.extend(definition.source.as_ref().map(|source| format!("Workload from: {source}")));
    list
}

fn in_words(workload: &Workload) -> String {
    use crate::definition::Amount;
    let amount = |amount: &Amount, unit: &str| match amount {
        Amount::Fixed(number) => format!("{number}{unit}"),
        Amount::Between { from, to } => format!("{from} to {to}{unit}"),
        Amount::Weighted(pairs) => {
            let total: f64 = pairs.iter().map(|pair| pair.1).sum();
            let reported = pairs
                .iter()
                .map(|(number, share)| format!("{number}{unit} ({:.0} %)", share / total * 100.0));
            reported.collect::<Vec<_>>().join(", ")
        }
    };
    let total: f64 = workload.mix.values().sum();
    let mix: Vec<String> = workload
        .mix
        .iter()
        .filter(|(_, share)| **share > 0.0)
        .map(|(op, share)| format!("{:.1} % {}", share / total * 100.0, op.name()))
        .collect();
    let popularity = if workload.zipf == 0.0 {
        "equally popular".to_owned()
    } else {
        format!("popularity by Zipf's law with exponent {}", workload.zipf)
    };
    let lifetime = match &workload.ttl_seconds {
        Amount::Fixed(0) => "no lifetime".to_owned(),
        other => format!("lifetimes {}", amount(other, " s")),
    };
    let work = match workload.work_us {
        0 => String::new(),
        us => format!("; {us} µs of additional processor time per request"),
    };
    let faults = workload.faults.map_or(String::new(), |faults| {
        let what = match faults.fault {
            Corruption::InRequest => "bits of items in use",
            _ => "bits of items at rest",
        };
        let victim = match faults.victim {
            SweepVictim::Follower => "a follower",
            SweepVictim::Leader => "the leader",
        };
        format!("; faults in {what} of {victim}")
    });
    let failure = workload.failure.map_or(String::new(), |failure| format!("; {}", failure.in_words()));
    format!(
        "{}; keys of {} B, values of {}; {} keys, {popularity}, {} % of them stored before; \
         {lifetime}{work}{faults}{failure}.",
        mix.join(", "),
        workload.key_bytes,
        amount(&workload.value_bytes, " B"),
        workload.keys,
        workload.prefill_percent
    )
}

fn over_connections(run: &BenchRun, workload: &Workload) -> Vec<Plot> {
    let mut plots = vec![
        over_clients(run, workload, "Throughput", "requests per second", Scale::FromZero, |one| {
            one.throughput()
        }),
        over_clients(run, workload, "Median latency", "µs", Scale::Log, |one| one.latency.p50_us),
        over_clients(run, workload, "99th percentile of latency", "µs", Scale::Log, |one| {
            one.latency.p99_us
        }),
    ];
    plots.extend(ratio_plot(run, workload));
    plots.push(over_clients(
        run,
        workload,
        "Processor time of all servers",
        "s per million requests",
        Scale::Log,
        |one| {
            let cpu = one.cpu_per_million();
            cpu.user_s + cpu.system_s
        },
    ));
    plots.retain(|plot| !plot.series.is_empty());
    plots
}

fn over_clients(
    run: &BenchRun,
    workload: &Workload,
    title: &str,
    unit: &str,
    scale: Scale,
    figure: fn(&Figures) -> f64,
) -> Plot {
    let series = run.settings.definition.sides.iter().enumerate().filter_map(|(number, side)| {
        let point = |&clients: &usize| {
            Some(point(clients, spread(run, &workload.name, clients, side, |one| Some(figure(one)))?))
        };
        let points: Vec<Point> = run.settings.definition.clients.iter().filter_map(point).collect();
        (!points.is_empty()).then(|| PlotSeries { name: side.to_string(), look: number, points })
    });
    Plot {
        title: format!("{title}, {}", workload.name),
        unit: unit.to_owned(),
        scale,
        across: Across::Connections,
        series: series.collect(),
        marks: Vec::new(),
        moments: Vec::new(),
    }
}

/// Our ratios over clients, with the paper's figures and our targets next to them.
fn ratio_plot(run: &BenchRun, workload: &Workload) -> Option<Plot> {
    let definition = &run.settings.definition;
    let ratio = |pair: &Ratio| -> Vec<Point> {
        let point =
            |&clients: &usize| Some(point(clients, throughput_ratio(run, &workload.name, clients, pair)?));
        definition.clients.iter().filter_map(point).collect()
    };
    let mut series = Vec::new();
    let mut marks = Vec::new();
    for (number, pair) in definition.ratios.iter().enumerate() {
        let points = ratio(pair);
        // A peer that is many times faster or slower would flatten everything else; the table has it.
        if points.is_empty() || points.iter().any(|point| !(0.2..=2.0).contains(&point.y)) {
            continue;
        }
        series.push(PlotSeries { name: format!("{} / {}", pair.of, pair.to), look: number, points });
        let about = definition.figures.iter().filter(|figure| {
            figure.workload == workload.name
                && figure.measure == Measure::ThroughputRatio
                && figure.of == pair.of
                && figure.to.as_ref() == Some(&pair.to)
        });
        for figure in about {
            marks.push(Mark {
                look: number,
                x: figure.clients as f64,
                paper: figure.paper,
                target: figure.target,
            });
        }
    }
    let title = format!("Ratios of throughput, {}", workload.name);
    (!series.is_empty()).then(|| Plot {
        title,
        unit: "ratio".into(),
        scale: Scale::Ratio,
        across: Across::Connections,
        series,
        marks,
        moments: Vec::new(),
    })
}

fn point(clients: usize, spread: Spread) -> Point {
    Point { x: clients as f64, y: spread.median, low: spread.low, high: spread.high }
}
