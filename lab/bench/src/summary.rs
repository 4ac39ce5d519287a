//! A run in a few lines for the terminal: medians per cell, ratios with their spread, and errors.

use super::definition::{Ratio, Side, Workload};
use super::repairs::{Point, RepairFigures};
use super::results::{BenchRun, Figures};
use super::stats::Spread;
use node::view::{grouped, micros};

/// Whether everything was measured without errors.
pub fn is_clean(run: &BenchRun) -> bool {
    run.measurements.iter().all(|one| one.figures.as_ref().is_some_and(|figures| figures.error_count() == 0))
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

/// The lines.
pub fn lines(run: &BenchRun) -> Vec<String> {
    let definition = &run.settings.definition;
    let mut lines = vec![format!("{}: {}", definition.name, definition.title)];
    for workload in &definition.workloads {
        for &clients in &definition.clients {
            for side in &definition.sides {
                lines.extend(cell(run, &workload.name, clients, side));
            }
            for pair in &definition.ratios {
                let Some(ratio) = throughput_ratio(run, &workload.name, clients, pair) else { continue };
                lines.push(format!(
                    "{:<8} {clients:>4}  {} / {} = {:.3}  ({:.3}..{:.3} over {})",
                    workload.name, pair.of, pair.to, ratio.median, ratio.min, ratio.max, ratio.count
                ));
            }
        }
    }
    let failed: Vec<_> = run.measurements.iter().filter_map(|one| one.failed.as_ref()).collect();
    if let Some(first) = failed.first() {
        lines.push(format!("{} measurements failed; the first: {first}", failed.len()));
    }
    lines
}

fn cell(run: &BenchRun, workload: &str, clients: usize, side: &Side) -> Option<String> {
    let spread = |figure: fn(&Figures) -> f64| spread(run, workload, clients, side, |one| Some(figure(one)));
    let throughput = spread(|figures| figures.throughput())?;
    let p50 = spread(|figures| figures.latency.p50_us)?;
    let p99 = spread(|figures| figures.latency.p99_us)?;
    let cpu = spread(|figures| {
        let cpu = figures.cpu_per_million();
        cpu.user_s + cpu.system_s
    })?;
    Some(format!(
        "{workload:<8} {clients:>4}  {side:<9} {:>9}/s ({}..{})  p50 {}  p99 {}  CPU {:.1} s per million",
        grouped(throughput.median.round() as u64),
        grouped(throughput.min.round() as u64),
        grouped(throughput.max.round() as u64),
        micros(p50.median as u64),
        micros(p99.median as u64),
        cpu.median
    ))
}
