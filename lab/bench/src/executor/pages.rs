//! The results as blocks of a page, for the terminal and for the report.

use ::report::columns::Columns;
use ::report::{Block, Table};
use node::view::grouped;

use super::figures::{ExecutorFigure, ExecutorSide, FigurePlan, SideRatio};
use super::measure::{ExecutorFigures, RollbackTimes, ShippedPages};
use super::results::ExecutorRun;
use report::results::date;
use report::stats::Spread;

/// What every reader needs to interpret the figures.
const ABOUT: &str = "One executor alone, without network and agreement, on a generated log of SET requests of the \
    memcached service. Waiting requests sleep with their locks held, so that more workers than cores show what \
    the executor can do beside each other; they use no processor time, and nothing about them is a claim about a \
    service that computes. Burning requests use processor time. Figures are medians of all rounds, ranges go from \
    the lowest to the highest round; ratios are taken within a round.";

/// The whole run.
pub fn blocks(run: &ExecutorRun) -> Vec<Block> {
    let changed = if run.origin.commit.changed { " and changes" } else { "" };
    let mut blocks = vec![
        Block::Heading(2, "Parallel batches in one executor (executor)".into()),
        Block::Text(ABOUT.into()),
    ];
    if !run.origin.optimised {
        let what = "The binary was built without optimisation: no figure here means anything.";
        blocks.push(Block::Warning(what.into()));
    }
    if run.settings.scale.less_work > 1 {
        let what = format!(
            "A quick run: requests had {} times less work than the names say.",
            run.settings.scale.less_work
        );
        blocks.push(Block::Warning(what));
    }
    let machine = &run.origin.machine;
    let order = if run.settings.scale.any_order { "an order of its own" } else { "the order of the plan" };
    blocks.push(Block::List(vec![
        format!("Machine: {} cores, {}, Linux {}", machine.cores, machine.model, machine.kernel),
        format!("Source: commit {}{changed}, {}", run.origin.commit.id, date(run.origin.started_s)),
        format!(
            "Rounds: {}, of at least {} s for each side; batches of {} requests; two executors each start the \
             requests of a parallel batch in {order}",
            run.settings.repetitions, run.settings.span.seconds, run.settings.scale.batch
        ),
    ]));
    for (figure, why) in &run.settings.left_out {
        blocks.push(Block::Warning(format!("{} was left out: {why}", figure.name())));
    }
    for figure in run.has() {
        blocks.push(Block::Heading(3, format!("executor: {}", figure.name())));
        blocks.push(Block::Text(figure.about().into()));
        blocks.extend(tables(run, figure).into_iter().map(Block::Table));
    }
    blocks
}

fn tables(run: &ExecutorRun, figure: ExecutorFigure) -> Vec<Table> {
    let plan = figure.plan(run.settings.scale);
    match figure {
        ExecutorFigure::Rollback => vec![rollbacks(run, figure, &plan)],
        ExecutorFigure::Fold => vec![parts(run, figure, &plan), ratios(run, figure, &plan)],
        ExecutorFigure::Fig4 | ExecutorFigure::Fig5 => {
            vec![throughputs(run, figure, &plan), ratios(run, figure, &plan)]
        }
        ExecutorFigure::Fig10 => {
            vec![throughputs(run, figure, &plan), shipments(run, figure, &plan), ratios(run, figure, &plan)]
        }
        ExecutorFigure::Fig11 => {
            vec![traffic(run, figure, &plan), shipments(run, figure, &plan), ratios(run, figure, &plan)]
        }
        ExecutorFigure::Fig6 | ExecutorFigure::Fig7 => {
            vec![throughputs(run, figure, &plan), divisions(run, figure, &plan), ratios(run, figure, &plan)]
        }
    }
}

/// The sides of a figure that were measured.
fn measured<'p>(run: &ExecutorRun, figure: ExecutorFigure, plan: &'p FigurePlan) -> Vec<&'p ExecutorSide> {
    plan.sides.iter().filter(|side| run.of(figure, &side.name).next().is_some()).collect()
}

fn throughputs(run: &ExecutorRun, figure: ExecutorFigure, plan: &FigurePlan) -> Table {
    let per_request = |one: &ExecutorFigures| Some(one.processor_s * 1e6 / one.requests.max(1) as f64);
    Columns::<&ExecutorSide>::default()
        .text("Side", |side| side.name.clone())
        .range("Requests/s", whole, |side| run.spread(figure, &side.name, |one| Some(one.throughput())))
        .median("Processor time per request, us", one_digit, |side| {
            run.spread(figure, &side.name, per_request)
        })
        .table(format!("{}: throughput", figure.name()), &measured(run, figure, plan))
}

fn ratios(run: &ExecutorRun, figure: ExecutorFigure, plan: &FigurePlan) -> Table {
    let found =
        plan.ratios.iter().filter_map(|ratio| Some((ratio, run.ratio(figure, &ratio.of, &ratio.to)?)));
    let what = if figure.compares_bytes() { "bytes per request" } else { "throughput" };
    Columns::<(&SideRatio, Spread)>::default()
        .text("Side", |(ratio, _)| ratio.of.clone())
        .text("Divided by", |(ratio, _)| ratio.to.clone())
        .range("Ours", |value: f64| format!("{value:.2}"), |(_, found)| Some(*found))
        .text("Paper", |(ratio, _)| ratio.paper.to_owned())
        .table(format!("{}: ratios of {what}", figure.name()), &found.collect::<Vec<_>>())
}

/// What the backup gets for a request.
fn traffic(run: &ExecutorRun, figure: ExecutorFigure, plan: &FigurePlan) -> Table {
    let bytes = |side: &&ExecutorSide| run.spread(figure, &side.name, ExecutorFigures::bytes_per_request);
    let mut sides = measured(run, figure, plan);
    sides.retain(|side| bytes(side).is_some());
    Columns::<&ExecutorSide>::default()
        .text("Side", |side| side.name.clone())
        .range("Bytes per request", whole, bytes)
        .median("Requests/s", whole, |side| run.spread(figure, &side.name, |one| Some(one.throughput())))
        .table(format!("{}: bytes to and from the backup", figure.name()), &sides)
}

/// The epochs of page shippers.
fn shipments(run: &ExecutorRun, figure: ExecutorFigure, plan: &FigurePlan) -> Table {
    let of = |side: &ExecutorSide, value: fn(&ExecutorFigures, &ShippedPages) -> f64| {
        run.spread(figure, &side.name, |one| Some(value(one, one.shipped.as_ref()?)))
    };
    let mut sides = measured(run, figure, plan);
    sides.retain(|side| of(side, |_, shipped| shipped.epoch_p50_us).is_some());
    Columns::<&ExecutorSide>::default()
        .text("Side", |side| side.name.clone())
        .range("Pages per request", one_digit, move |side| {
            of(side, |one, shipped| shipped.pages as f64 / one.requests.max(1) as f64)
        })
        .median("Epoch, ms", one_digit, move |side| of(side, |_, shipped| shipped.epoch_p50_us / 1e3))
        .median("Primary stopped in it, ms", one_digit, move |side| {
            of(side, |_, shipped| shipped.stopped_p50_us / 1e3)
        })
        .median("MB/s to the backup", one_digit, move |side| {
            of(side, |one, _| one.backup_bytes.unwrap_or_default() as f64 / one.seconds / 1e6)
        })
        .median("Pages compared at the end", whole, move |side| {
            of(side, |_, shipped| shipped.compared_pages as f64)
        })
        .table(format!("{}: shipped pages", figure.name()), &sides)
}

/// How batches were divided, and how often they were rolled back; all rounds together.
fn divisions(run: &ExecutorRun, figure: ExecutorFigure, plan: &FigurePlan) -> Table {
    let sum = |side: &ExecutorSide, value: fn(&ExecutorFigures) -> u64| -> u64 {
        run.of(figure, &side.name).map(|(_, figures)| value(figures)).sum()
    };
    let each = |all: u64, of: u64| if of > 0 { one_digit(all as f64 / of as f64) } else { "-".to_owned() };
    let mut sides = measured(run, figure, plan);
    sides.retain(|side| sum(side, |one| one.batches) > 0);
    Columns::<&ExecutorSide>::default()
        .text("Side", |side| side.name.clone())
        .text("Parallel batches per batch", move |side| {
            each(sum(side, |one| one.parallel_batches), sum(side, |one| one.batches))
        })
        .text("Batches", move |side| grouped(sum(side, |one| one.batches)))
        .text("Rollbacks", move |side| grouped(sum(side, |one| one.rollbacks)))
        .text("Foreseen", move |side| grouped(sum(side, |one| one.foreseen)))
        .text("Parallel batches per rollback", move |side| {
            each(sum(side, |one| one.parallel_batches), sum(side, |one| one.rollbacks))
        })
        .table(format!("{}: parallel batches and rollbacks", figure.name()), &sides)
}

fn rollbacks(run: &ExecutorRun, figure: ExecutorFigure, plan: &FigurePlan) -> Table {
    let mut rows: Vec<(&str, &str, [Spread; 2])> = Vec::new();
    for side in &plan.sides {
        let point = |value: fn(&RollbackTimes) -> f64| {
            run.spread(figure, &side.name, |one| one.timed.as_ref().map(value))
        };
        let mut add = |what, points: [Option<Spread>; 2]| {
            if let [Some(median), Some(most)] = points {
                rows.push((&side.name, what, [median, most]));
            }
        };
        add("taken back", [point(|one| one.taken_back_p50_us), point(|one| one.taken_back_p99_us)]);
        add("run again", [point(|one| one.again_p50_us), point(|one| one.again_p99_us)]);
    }
    let number = |value: f64| format!("{value:.0}");
    let count = run.settings.span.rollbacks;
    Columns::<(&str, &str, [Spread; 2])>::default()
        .text("Side", |(side, ..)| (*side).to_owned())
        .text("What, in us", |(_, what, _)| (*what).to_owned())
        .range("Median", number, |(.., points)| Some(points[0]))
        .range("99 of 100", number, |(.., points)| Some(points[1]))
        .table(format!("{}: {count} rollbacks of a batch in each round", figure.name()), &rows)
}

/// A part of the time of a batch, in microseconds.
type TimeOfBatch = fn(&ExecutorFigures) -> f64;

fn parts(run: &ExecutorRun, figure: ExecutorFigure, plan: &FigurePlan) -> Table {
    const PARTS: [(&str, TimeOfBatch); 3] = [
        ("keys and plan", |one| one.mixing_us),
        ("handlers", |one| one.handling_us),
        ("tree, root and token", |one| one.folding_us),
    ];
    let rows = measured(run, figure, plan)
        .into_iter()
        .flat_map(|side| PARTS.map(|(what, value)| (side, what, value)));
    Columns::<(&ExecutorSide, &str, TimeOfBatch)>::default()
        .text("Side", |(side, ..)| side.name.clone())
        .text("What", |(_, what, _)| (*what).to_owned())
        .range("us per batch", one_digit, |(side, _, value)| {
            run.spread(figure, &side.name, |one| Some(value(one)))
        })
        .table(
            format!("{}: time per batch of {} requests", figure.name(), run.settings.scale.batch),
            &rows.collect::<Vec<_>>(),
        )
}

fn whole(value: f64) -> String {
    grouped(value.round() as u64)
}

fn one_digit(value: f64) -> String {
    format!("{value:.1}")
}
