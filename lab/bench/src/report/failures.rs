//! What a report shows of a replica that fails and comes back: replies over time, and the times without any.

use ::report::Block;
use ::report::columns::Columns;
use ::report::plot::{Across, Plot, PlotSeries, Point, Scale};

use super::tables::whole;
use crate::cells::BenchCell;
use crate::definition::{Side, Workload};
use crate::failures::FailureFigures;
use crate::results::BenchRun;
use ::report::stats::Spread;

/// Throughput over time, the median of the repetitions; one plot for each side and number of clients.
pub fn plots(run: &BenchRun, group: &[&Workload]) -> Vec<Plot> {
    let mut plots = Vec::new();
    for workload in group.iter().filter(|workload| workload.failure.is_some()) {
        for &clients in &run.settings.definition.clients {
            plots.extend(
                run.settings.definition.sides.iter().filter_map(|side| plot(run, workload, clients, side)),
            );
        }
    }
    plots
}

fn plot(run: &BenchRun, workload: &Workload, clients: usize, side: &Side) -> Option<Plot> {
    let each: Vec<&FailureFigures> =
        run.figures(&workload.name, clients, side).filter_map(|(_, one)| one.failure.as_ref()).collect();
    let step_s = each.first()?.step_ms as f64 / 1e3;
    let steps = each.iter().map(|one| one.replies.len()).min()?;
    let point = |step: usize| {
        let values: Vec<f64> = each.iter().map(|one| f64::from(one.replies[step]) / step_s).collect();
        let Spread { median, min, max, .. } = Spread::of(&values)?;
        Some(Point { x: step as f64 * step_s, y: median, low: min, high: max })
    };
    let moment = |name: &str, at: fn(&FailureFigures) -> Option<f64>| {
        let values: Vec<f64> = each.iter().filter_map(|one| at(one)).collect();
        Spread::of(&values).map(|found| (found.median / 1e3, name.to_owned()))
    };
    let moments = [
        moment("fails", |one| Some(one.failed_ms)),
        moment("returns", |one| Some(one.back_ms)),
        moment("together", |one| one.together_ms),
    ];
    Some(Plot {
        title: format!("Throughput every {} ms: {}, {side}", step_s * 1e3, workload.name),
        unit: "requests per second".into(),
        scale: Scale::FromZero,
        across: Across::Even("seconds".into()),
        series: vec![PlotSeries {
            name: format!("median of {} repetitions, lowest, highest", each.len()),
            look: 0,
            points: (0..steps).filter_map(point).collect(),
        }],
        marks: Vec::new(),
        moments: moments.into_iter().flatten().collect(),
    })
}

/// Throughput before, meanwhile and afterwards, and the longest times without a reply.
pub fn table(run: &BenchRun, group: &[&Workload]) -> Option<Block> {
    let of = |cell: &BenchCell<'_>, part: fn(&FailureFigures) -> Option<f64>| {
        cell.of(|one| part(one.failure.as_ref()?))
    };
    let mut cells = BenchCell::measured(run, group);
    cells.retain(|cell| of(cell, |one| Some(one.failed_ms)).is_some());
    let time = |value: f64| format!("{value:.0}");
    let caption =
        "A failure and a return, medians of the repetitions; times without a reply in steps of 2 ms";
    let table = Columns::<BenchCell<'_>>::default()
        .text("Failure", |cell| format!("{}, {}", cell.side, cell.workload.name))
        .text("Clients", |cell| cell.clients.to_string())
        .median("Requests/s before", whole, move |cell| of(cell, |one| Some(one.before)))
        .median("Alone", whole, move |cell| of(cell, |one| Some(one.alone)))
        .median("Together again", whole, move |cell| of(cell, |one| Some(one.after)))
        .median("Longest time without a reply: before, ms", time, move |cell| {
            of(cell, |one| Some(one.gap_before_ms))
        })
        .spread("After the failure, ms", time, move |cell| of(cell, |one| Some(one.gap_failed_ms)))
        .spread("After the return, ms", time, move |cell| of(cell, |one| Some(one.gap_rejoin_ms)))
        .spread("Return until together, ms", time, move |cell| of(cell, FailureFigures::rejoin_ms))
        .table_of_some(caption, &cells);
    table.map(Block::Table)
}
