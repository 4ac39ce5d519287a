//! What a report shows of a setting that was swept, and of repairs: throughput over the setting, replies
//! around a verdict, times.

use ::report::Block;
use ::report::columns::Columns;
use ::report::plot::{Across, Mark, Plot, PlotSeries, Point, Scale};

use crate::cells::{BenchCell, Stretch, kept, pooled, spread, throughput_ratio};
use crate::definition::{Axis, Measure, Ratio, Side, Sweep, Workload};
use crate::repairs::{self, Around, RepairFigures};
use crate::results::{BenchRun, Figures};
use ::report::stats::Spread;
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
    let mut cells = BenchCell::measured(run, group);
    cells.retain(|cell| cell.figures().any(|one| one.repairs.is_some()));
    let sum = |cell: &BenchCell<'_>, count: fn(&RepairFigures) -> u64| {
        grouped(cell.figures().filter_map(|one| one.repairs.as_ref()).map(count).sum())
    };
    let time = |value: f64| grouped(value as u64);
    let of = |cell: &BenchCell<'_>, stretch: Stretch, point: repairs::Point| {
        pooled(cell.run, &cell.workload.name, cell.clients, cell.side, stretch, point)
    };
    let table = Columns::<BenchCell<'_>>::default()
        .text("Faults", |cell| format!("{}, {}", cell.side, cell.workload.name))
        .text("Clients", |cell| cell.clients.to_string())
        .text("Due", move |cell| sum(cell, |one| one.due))
        .text("Placed", move |cell| sum(cell, |one| one.placed))
        .text("Objects repaired", move |cell| sum(cell, |one| one.repaired))
        .spread(
            "Repaired/s",
            |value: f64| format!("{value:.1}"),
            |cell| cell.of(Figures::repaired_per_second),
        )
        .text("Times known", move |cell| sum(cell, |one| one.times_us.points().count))
        .median("p50 µs", time, move |cell| of(cell, Stretch::Repair, |points| points.p50))
        .median("p90 µs", time, move |cell| of(cell, Stretch::Repair, |points| points.p90))
        .median("p99 µs", time, move |cell| of(cell, Stretch::Repair, |points| points.p99))
        .median("Max µs", time, move |cell| of(cell, Stretch::Repair, |points| points.max))
        .median("Longest wait around one: p50 µs", time, move |cell| {
            of(cell, Stretch::Wait, |points| points.p50)
        })
        .median("Longest wait: max µs", time, move |cell| of(cell, Stretch::Wait, |points| points.max))
        .median("As long without a fault: p50 µs", time, move |cell| {
            of(cell, Stretch::QuietWait, |points| points.p50)
        })
        .median("Without: max µs", time, move |cell| of(cell, Stretch::QuietWait, |points| points.max))
        .text("Wrong replies", |cell| grouped(cell.figures().map(|one| one.errors.wrong).sum()))
        .table_of_some("Repairs, of all repetitions together", &cells);
    table.map(Block::Table)
}
