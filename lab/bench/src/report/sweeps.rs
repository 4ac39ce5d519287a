//! What a report shows of a setting that was swept, and of repairs: throughput over the setting, replies
//! around a verdict, times.

use ::report::plot::{Across, Mark, Plot, PlotSeries, Point, Scale};
use ::report::{Block, Table};

use super::tables::{interval, middle};
use crate::definition::{Axis, Measure, Ratio, Side, Sweep, Workload};
use crate::repairs::{self, Around, RepairFigures};
use crate::results::BenchRun;
use crate::stats::Spread;
use crate::summary::{Stretch, kept, pooled, spread, throughput_ratio};
use node::view::grouped;

/// Plots over the setting that the workloads of `group` differ in, for each number of clients.
pub fn plots(run: &BenchRun, group: &[&Workload]) -> Vec<Plot> {
    let Some(axis) = group.first().and_then(|one| one.sweep.as_ref()).map(|sweep| sweep.axis) else {
        return Vec::new();
    };
    let several = run.settings.definition.clients.len() > 1;
    let mut plots = Vec::new();
    for &clients in &run.settings.definition.clients {
        let of = if several { format!(", {clients} connections") } else { String::new() };
        let throughput =
            |name: &str, side: &Side| spread(run, name, clients, side, |one| Some(one.throughput()));
        plots.push(by_side(run, group, axis, format!("Throughput{of}"), throughput));
        let share = Plot {
            unit: "share of the throughput without".into(),
            scale: Scale::Ratio,
            marks: marks_of(run, group, clients, Measure::ThroughputKept, None),
            ..by_side(run, group, axis, format!("Throughput kept{of}"), |name, side| {
                kept(run, name, clients, side)
            })
        };
        // That more work leaves less throughput needs no plot.
        plots.extend((axis != Axis::WorkUs).then_some(share));
        for (look, pair) in run.settings.definition.ratios.iter().enumerate() {
            let ratio = |one: &Workload| throughput_ratio(run, &one.name, clients, pair);
            let points = points(group, axis, ratio);
            plots.push(Plot {
                title: format!("Ratio of throughput{of}"),
                unit: "ratio".into(),
                scale: Scale::Ratio,
                across: across(axis, group),
                series: vec![PlotSeries { name: format!("{} / {}", pair.of, pair.to), look, points }],
                marks: marks_of(run, group, clients, Measure::ThroughputRatio, Some((look, pair))),
                moments: Vec::new(),
            });
        }
    }
    plots.retain(|plot| plot.series.iter().any(|series| !series.points.is_empty()));
    plots
}

fn by_side(
    run: &BenchRun,
    group: &[&Workload],
    axis: Axis,
    title: String,
    figure: impl Fn(&str, &Side) -> Option<Spread>,
) -> Plot {
    let series = run.settings.definition.sides.iter().enumerate().map(|(look, side)| PlotSeries {
        name: side.to_string(),
        look,
        points: points(group, axis, |one| figure(&one.name, side)),
    });
    Plot {
        title,
        unit: "requests per second".into(),
        scale: Scale::FromZero,
        across: across(axis, group),
        series: series.filter(|series| !series.points.is_empty()).collect(),
        marks: Vec::new(),
        moments: Vec::new(),
    }
}

/// Execution times are divided evenly; rates of faults lie orders of magnitude apart, and stand in a row.
fn across(axis: Axis, group: &[&Workload]) -> Across {
    let label = axis.label().to_owned();
    match axis {
        Axis::WorkUs => Across::Even(label),
        Axis::FaultsPerSecond | Axis::Classes => {
            let name = |sweep: &Sweep| match axis {
                Axis::Classes => sweep.label.clone(),
                _ => sweep.x.to_string(),
            };
            Across::Listed(label, group.iter().filter_map(|one| Some(name(one.sweep.as_ref()?))).collect())
        }
    }
}

/// Where a workload of the group stands on the axis.
fn place(axis: Axis, number: usize, one: &Workload) -> f64 {
    match (axis, &one.sweep) {
        (Axis::WorkUs, Some(sweep)) => sweep.x,
        _ => number as f64,
    }
}

fn points(group: &[&Workload], axis: Axis, figure: impl Fn(&Workload) -> Option<Spread>) -> Vec<Point> {
    let point = |(number, one): (usize, &&Workload)| {
        let Spread { median, low, high, .. } = figure(one)?;
        Some(Point { x: place(axis, number, one), y: median, low, high })
    };
    group.iter().enumerate().filter_map(point).collect()
}

/// The paper's figures and the targets that belong into a plot.
fn marks_of(
    run: &BenchRun,
    group: &[&Workload],
    clients: usize,
    measure: Measure,
    pair: Option<(usize, &Ratio)>,
) -> Vec<Mark> {
    let mark = |figure: &crate::definition::Figure| {
        let (number, one) = group.iter().enumerate().find(|(_, one)| one.name == figure.workload)?;
        let look = match pair {
            Some((look, pair)) => {
                (figure.of == pair.of && figure.to.as_ref() == Some(&pair.to)).then_some(look)?
            }
            None => run.settings.definition.sides.iter().position(|side| *side == figure.of)?,
        };
        let x = place(one.sweep.as_ref()?.axis, number, one);
        (figure.measure == measure && figure.clients == clients).then_some(Mark {
            look,
            x,
            paper: figure.paper,
            target: figure.target,
        })
    };
    run.settings.definition.figures.iter().filter_map(mark).collect()
}

/// Replies around the verdict: on average, and around one repair.
pub fn around(run: &BenchRun, group: &[&Workload]) -> Vec<Plot> {
    let mut plots = Vec::new();
    for workload in group {
        for &clients in &run.settings.definition.clients {
            for side in &run.settings.definition.sides {
                let pooled = run.pooled(&workload.name, clients, side);
                let name = format!("{}, {side}", workload.name);
                plots.extend(pooled.around.map(|around| around_one(&name, &around)));
            }
        }
    }
    plots
}

fn around_one(name: &str, around: &Around) -> Plot {
    let repairs = around.repairs;
    let x = |step: usize| (step as f64 - around.verdict as f64) * around.step_us as f64 / 1000.0;
    let line = |replies: Vec<f64>| -> Vec<Point> {
        let each = replies.into_iter().enumerate();
        each.map(|(step, y)| Point { x: x(step), y, low: y, high: y }).collect()
    };
    let example = around.example.iter().map(|replies| f64::from(*replies)).collect();
    Plot {
        title: format!("Replies every {} ms around a verdict: {name}", around.step_us / 1000),
        unit: "replies".into(),
        scale: Scale::FromZero,
        across: Across::Even("milliseconds from the verdict".into()),
        series: vec![
            PlotSeries { name: "the first repair".into(), look: 4, points: line(example) },
            PlotSeries {
                name: format!("mean of {repairs} repairs"),
                look: 0,
                points: line(around.mean.clone()),
            },
        ],
        marks: Vec::new(),
        moments: vec![
            (0.0, "verdict".into()),
            (around.example_took_us as f64 / 1000.0, "installed (the first)".into()),
        ],
    }
}

/// Times and counts of repairs.
pub fn repairs(run: &BenchRun, group: &[&Workload]) -> Option<Block> {
    let mut rows = Vec::new();
    for workload in group {
        for &clients in &run.settings.definition.clients {
            rows.extend(
                run.settings.definition.sides.iter().filter_map(|side| row(run, workload, clients, side)),
            );
        }
    }
    (!rows.is_empty()).then(|| {
        Block::Table(
            Table::new(
                "Repairs, of all repetitions together",
                [
                    "Faults",
                    "Clients",
                    "Due",
                    "Placed",
                    "Objects repaired",
                    "Repaired/s",
                    "Interval",
                    "Times known",
                    "p50 µs",
                    "p90 µs",
                    "p99 µs",
                    "Max µs",
                    "Longest wait around one: p50 µs",
                    "Longest wait: max µs",
                    "As long without a fault: p50 µs",
                    "Without: max µs",
                    "Wrong replies",
                ],
            )
            .rows(rows),
        )
    })
}

fn row(run: &BenchRun, workload: &Workload, clients: usize, side: &Side) -> Option<Vec<String>> {
    let each = || run.figures(&workload.name, clients, side).filter_map(|(_, one)| one.repairs.as_ref());
    each().next()?;
    let sum = |count: fn(&RepairFigures) -> u64| grouped(each().map(count).sum());
    let rate = spread(run, &workload.name, clients, side, |one| one.repaired_per_second());
    let time = |stretch: Stretch, point: repairs::Point| {
        let found = pooled(run, &workload.name, clients, side, stretch, point);
        found.map_or(String::new(), |found| grouped(found.median as u64))
    };
    let wrong: u64 = run.figures(&workload.name, clients, side).map(|(_, one)| one.errors.wrong).sum();
    let one_digit = |value: f64| format!("{value:.1}");
    Some(vec![
        format!("{side}, {}", workload.name),
        clients.to_string(),
        sum(|one| one.due),
        sum(|one| one.placed),
        sum(|one| one.repaired),
        middle(rate, one_digit),
        rate.map_or(String::new(), |rate| interval(rate, one_digit)),
        sum(|one| one.times_us.points().count),
        time(Stretch::Repair, |points| points.p50),
        time(Stretch::Repair, |points| points.p90),
        time(Stretch::Repair, |points| points.p99),
        time(Stretch::Repair, |points| points.max),
        time(Stretch::Wait, |points| points.p50),
        time(Stretch::Wait, |points| points.max),
        time(Stretch::QuietWait, |points| points.p50),
        time(Stretch::QuietWait, |points| points.max),
        grouped(wrong),
    ])
}
