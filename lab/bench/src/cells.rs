//! The cells of a run, each a side under a workload with a number of clients, and what their repetitions come to.

use super::definition::{Ratio, Side, Workload};
use super::repairs::{Point, RepairFigures};
use super::results::{BenchRun, Figures};
use report::stats::Spread;

/// Whether everything was measured without errors.
pub fn is_clean(run: &BenchRun) -> bool {
    run.measurements.iter().all(|one| one.figures.as_ref().is_some_and(|figures| figures.error_count() == 0))
}

/// One side under one workload with one number of clients.
#[derive(Clone, Copy, Debug)]
pub struct BenchCell<'r> {
    /// The run.
    pub run: &'r BenchRun,
    /// The workload.
    pub workload: &'r Workload,
    /// Connections.
    pub clients: usize,
    /// The side.
    pub side: &'r Side,
}

impl<'r> BenchCell<'r> {
    /// The cells of some workloads that were measured, sides turning fastest.
    pub fn measured(run: &'r BenchRun, workloads: &[&'r Workload]) -> Vec<BenchCell<'r>> {
        let definition = &run.settings.definition;
        let mut cells = Vec::new();
        for &workload in workloads {
            for &clients in &definition.clients {
                cells.extend(definition.sides.iter().map(|side| BenchCell { run, workload, clients, side }));
            }
        }
        cells.retain(|cell| cell.figures().next().is_some());
        cells
    }

    /// The repetitions that succeeded.
    pub fn figures(&self) -> impl Iterator<Item = &'r Figures> {
        self.run.figures(&self.workload.name, self.clients, self.side).map(|(_, figures)| figures)
    }

    /// The spread of one figure over the repetitions.
    pub fn of(&self, figure: impl Fn(&Figures) -> Option<f64>) -> Option<Spread> {
        spread(self.run, &self.workload.name, self.clients, self.side, figure)
    }

    /// The side, and the value of a sweep's setting behind it.
    pub fn name(&self) -> String {
        format!("{}{}", self.side, self.workload.swept_value())
    }
}

/// The spread of one figure over the repetitions of a cell.
pub fn spread(
    run: &BenchRun,
    workload: &str,
    clients: usize,
    side: &Side,
    figure: impl Fn(&Figures) -> Option<f64>,
) -> Option<Spread> {
    let values: Vec<f64> =
        run.figures(workload, clients, side).filter_map(|(_, figures)| figure(figures)).collect();
    Spread::of(&values)
}

/// One side's figure divided by the other's (or less the other's), repetition by repetition.
pub fn paired(
    run: &BenchRun,
    workload: &str,
    clients: usize,
    pair: &Ratio,
    figure: impl Fn(&Figures) -> f64,
    combine: impl Fn(f64, f64) -> f64,
) -> Option<Spread> {
    let below: Vec<(usize, f64)> = run
        .figures(workload, clients, &pair.to)
        .map(|(repetition, figures)| (repetition, figure(figures)))
        .collect();
    let of = run.figures(workload, clients, &pair.of);
    let values: Vec<f64> = of
        .filter_map(|(repetition, figures)| {
            let (_, other) = below.iter().find(|(number, _)| *number == repetition)?;
            Some(combine(figure(figures), *other))
        })
        .collect();
    Spread::of(&values)
}

/// Throughput of one side divided by the other's.
pub fn throughput_ratio(run: &BenchRun, workload: &str, clients: usize, pair: &Ratio) -> Option<Spread> {
    paired(run, workload, clients, pair, |figures| figures.throughput(), |of, to| of / to)
}

/// Throughput of a side divided by its own under the first workload of the same sweep, repetition by repetition.
pub fn kept(run: &BenchRun, workload: &str, clients: usize, side: &Side) -> Option<Spread> {
    let workloads = &run.settings.definition.workloads;
    let family = workloads.iter().find(|one| one.name == workload)?.sweep.as_ref()?.family.as_str();
    let same = |one: &&Workload| one.sweep.as_ref().is_some_and(|sweep| sweep.family == family);
    let base = &workloads.iter().find(same)?.name;
    let below: Vec<(usize, f64)> = run
        .figures(base, clients, side)
        .map(|(repetition, figures)| (repetition, figures.throughput()))
        .collect();
    let values: Vec<f64> = run
        .figures(workload, clients, side)
        .filter_map(|(repetition, figures)| {
            let (_, base) = below.iter().find(|(number, _)| *number == repetition)?;
            Some(figures.throughput() / base)
        })
        .collect();
    Spread::of(&values)
}

/// The kinds of times of a repair.
#[derive(Clone, Copy, Debug)]
pub enum Stretch {
    /// From verdict to installed objects.
    Repair,
    /// The longest wait of a client around it.
    Wait,
    /// The same before the faults.
    QuietWait,
}

/// A point of the times of all repetitions' repairs together. Its interval is that of the repetitions, each taken
/// alone.
pub fn pooled(
    run: &BenchRun,
    workload: &str,
    clients: usize,
    side: &Side,
    stretch: Stretch,
    point: Point,
) -> Option<Spread> {
    let of_one = |one: &RepairFigures| match stretch {
        Stretch::Repair => one.times_us.points(),
        Stretch::Wait => one.waits_us.points(),
        Stretch::QuietWait => one.quiet_waits_us.points(),
    };
    let each = spread(run, workload, clients, side, |one| of_one(one.repairs.as_ref()?).at(point))?;
    let all = run.pooled(workload, clients, side);
    let all = match stretch {
        Stretch::Repair => all.times_us,
        Stretch::Wait => all.waits_us,
        Stretch::QuietWait => all.quiet_waits_us,
    };
    Some(Spread { median: all.at(point)?, ..each })
}
