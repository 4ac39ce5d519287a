//! The results as blocks of a page, for the terminal and for the report.

use ::report::{Block, Table};
use node::view::grouped;

use super::figures::{ExecutorFigure, FigurePlan};
use super::measure::{ExecutorFigures, RollbackTimes, ShippedPages};
use super::results::ExecutorRun;
use crate::stats::Spread;
use report::results::date;

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

fn throughputs(run: &ExecutorRun, figure: ExecutorFigure, plan: &FigurePlan) -> Table {
    let whole = |value: f64| grouped(value.round() as u64);
    let head = ["Side", "Requests/s", "Range", "Processor time per request, us"];
    let rows = plan.sides.iter().filter_map(|side| {
        let throughput = run.spread(figure, &side.name, |one| Some(one.throughput()))?;
        let per_request = |one: &ExecutorFigures| Some(one.processor_s * 1e6 / one.requests.max(1) as f64);
        let processor = run.spread(figure, &side.name, per_request)?;
        Some(vec![
            side.name.clone(),
            whole(throughput.median),
            range(throughput, whole),
            format!("{:.1}", processor.median),
        ])
    });
    Table::new(format!("{}: throughput", figure.name()), head).rows(rows)
}

fn ratios(run: &ExecutorRun, figure: ExecutorFigure, plan: &FigurePlan) -> Table {
    let number = |value: f64| format!("{value:.2}");
    let rows = plan.ratios.iter().filter_map(|ratio| {
        let found = run.ratio(figure, &ratio.of, &ratio.to)?;
        let (of, to) = (ratio.of.clone(), ratio.to.clone());
        Some(vec![of, to, number(found.median), range(found, number), ratio.paper.to_owned()])
    });
    let head = ["Side", "Divided by", "Ours", "Range", "Paper"];
    let what = if figure.compares_bytes() { "bytes per request" } else { "throughput" };
    Table::new(format!("{}: ratios of {what}", figure.name()), head).rows(rows)
}

/// What the backup gets for a request.
fn traffic(run: &ExecutorRun, figure: ExecutorFigure, plan: &FigurePlan) -> Table {
    let whole = |value: f64| grouped(value.round() as u64);
    let head = ["Side", "Bytes per request", "Range", "Requests/s"];
    let rows = plan.sides.iter().filter_map(|side| {
        let bytes = run.spread(figure, &side.name, ExecutorFigures::bytes_per_request)?;
        let throughput = run.spread(figure, &side.name, |one| Some(one.throughput()))?;
        Some(vec![side.name.clone(), whole(bytes.median), range(bytes, whole), whole(throughput.median)])
    });
    Table::new(format!("{}: bytes to and from the backup", figure.name()), head).rows(rows)
}

/// The epochs of page shippers.
fn shipments(run: &ExecutorRun, figure: ExecutorFigure, plan: &FigurePlan) -> Table {
    let head = [
        "Side",
        "Pages per request",
        "Range",
        "Epoch, ms",
        "Primary stopped in it, ms",
        "MB/s to the backup",
        "Pages compared at the end",
    ];
    let rows = plan.sides.iter().filter_map(|side| {
        let of = |value: &dyn Fn(&ExecutorFigures, &ShippedPages) -> f64| {
            run.spread(figure, &side.name, |one| Some(value(one, one.shipped.as_ref()?)))
        };
        let each = of(&|one, shipped| shipped.pages as f64 / one.requests.max(1) as f64)?;
        let epoch = of(&|_, shipped| shipped.epoch_p50_us / 1e3)?;
        let stopped = of(&|_, shipped| shipped.stopped_p50_us / 1e3)?;
        let rate = of(&|one, _| one.backup_bytes.unwrap_or_default() as f64 / one.seconds / 1e6)?;
        let compared = of(&|_, shipped| shipped.compared_pages as f64)?;
        Some(vec![
            side.name.clone(),
            format!("{:.1}", each.median),
            range(each, |value| format!("{value:.1}")),
            format!("{:.1}", epoch.median),
            format!("{:.1}", stopped.median),
            format!("{:.1}", rate.median),
            grouped(compared.median.round() as u64),
        ])
    });
    Table::new(format!("{}: shipped pages", figure.name()), head).rows(rows)
}

/// How batches were divided, and how often they were taken back; all rounds together.
fn divisions(run: &ExecutorRun, figure: ExecutorFigure, plan: &FigurePlan) -> Table {
    let head = [
        "Side",
        "Parallel batches per batch",
        "Batches",
        "Rollbacks",
        "Foreseen",
        "Parallel batches per rollback",
    ];
    let rows = plan.sides.iter().filter_map(|side| {
        let sum = |value: fn(&ExecutorFigures) -> u64| -> u64 {
            run.of(figure, &side.name).map(|(_, figures)| value(figures)).sum()
        };
        let (batches, parallel) = (sum(|one| one.batches), sum(|one| one.parallel_batches));
        let rollbacks = sum(|one| one.rollbacks);
        let each = |all: u64, of: u64| format!("{:.1}", all as f64 / of as f64);
        (batches > 0).then(|| {
            vec![
                side.name.clone(),
                each(parallel, batches),
                grouped(batches),
                grouped(rollbacks),
                grouped(sum(|one| one.foreseen)),
                if rollbacks > 0 { each(parallel, rollbacks) } else { "-".to_owned() },
            ]
        })
    });
    Table::new(format!("{}: parallel batches and rollbacks", figure.name()), head).rows(rows)
}

fn rollbacks(run: &ExecutorRun, figure: ExecutorFigure, plan: &FigurePlan) -> Table {
    let head = ["Side", "What, in us", "Median", "Range", "99 of 100", "Range"];
    let number = |value: f64| format!("{value:.0}");
    let rows = plan.sides.iter().flat_map(|side| {
        let point = |value: fn(&RollbackTimes) -> f64| {
            run.spread(figure, &side.name, |one| one.timed.as_ref().map(value))
        };
        let row = |what: &str, median: Option<Spread>, most: Option<Spread>| {
            let (median, most) = (median?, most?);
            let told =
                [number(median.median), range(median, number), number(most.median), range(most, number)];
            let names = [side.name.clone(), what.to_owned()];
            Some(names.into_iter().chain(told).collect::<Vec<String>>())
        };
        let taken_back =
            row("taken back", point(|one| one.taken_back_p50_us), point(|one| one.taken_back_p99_us));
        let again = row("run again", point(|one| one.again_p50_us), point(|one| one.again_p99_us));
        taken_back.into_iter().chain(again).collect::<Vec<_>>()
    });
    let count = run.settings.span.rollbacks;
    Table::new(format!("{}: {count} rollbacks of a batch in each round", figure.name()), head).rows(rows)
}

fn parts(run: &ExecutorRun, figure: ExecutorFigure, plan: &FigurePlan) -> Table {
    let number = |value: f64| format!("{value:.1}");
    let rows = plan.sides.iter().flat_map(|side| {
        let part = |what: &str, value: fn(&ExecutorFigures) -> f64| {
            let found = run.spread(figure, &side.name, |one| Some(value(one)))?;
            let (median, range) = (number(found.median), range(found, number));
            Some(vec![side.name.clone(), what.to_owned(), median, range])
        };
        [
            part("keys and plan", |one| one.mixing_us),
            part("handlers", |one| one.handling_us),
            part("tree, root and token", |one| one.folding_us),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
    });
    let head = ["Side", "What", "us per batch", "Range"];
    Table::new(format!("{}: time per batch of {} requests", figure.name(), run.settings.scale.batch), head)
        .rows(rows)
}

/// From the lowest to the highest round.
fn range(spread: Spread, number: impl Fn(f64) -> String) -> String {
    if spread.count == 1 {
        "one only".to_owned()
    } else {
        format!("{}..{}", number(spread.min), number(spread.max))
    }
}
