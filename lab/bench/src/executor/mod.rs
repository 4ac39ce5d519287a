//! `crosscheck-lab bench executor`: one executor of Eve's mode alone, without network, and what it is
//! compared with (OSDI 2012, Figs. 4 to 7, 10 and 11).

mod figures;
mod judge;
mod log;
mod measure;
mod mixing;
mod pages;
mod replica;
mod results;
#[cfg(target_os = "linux")]
mod shipper;
#[cfg(test)]
mod tests;
mod times;
mod traffic;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use node::outcome::{CommandOutcome, CommandVerdict, say, say_json};
use node::signals::Ending;
use node::view::{ProgressLine, grouped};
use wire::derive;

use super::OutputArgs;
use measure::MeasuredSide;

pub use figures::{ExecutorFigure, ExecutorSide, FigureScale};
pub use judge::AHEAD;
pub use measure::{ExecutorCase, ExecutorFigures, ExecutorSpan};
pub use pages::blocks;
pub use replica::RequestWork;
pub use results::{ExecutorMeasurement, ExecutorRun, KIND};
#[cfg(target_os = "linux")]
pub use shipper::serve_primary;
pub use times::{StageTimes, TIME_POINTS};

/// What `bench executor --help` begins with.
pub const ABOUT: &str = "Measures one executor of a replica that executes first and compares afterwards (Eve, OSDI \
2012): batches are divided into parallel batches, executed by several workers, folded into a token, and taken back \
where two executors differ. There is no network and no agreement. The service is memcached; each item has a lock of \
its own.

What is measured:
  fig4      speed-up by work per request: 10, 1 and 0.1 ms
  fig5      the same by length of a value: 10 B, 1 KB, 10 KB
  fig6      conflicts that the mixer overlooks: two executors run the same batches, and both take a batch back and
            run it one request at a time where their tokens differ
  fig7      conflicts that the mixer imagines
  fig10     throughput: unreplicated, with a page shipper (a backup that gets changed pages, like Remus), and of the
            executors of a pair
  fig11     bytes to the backup per request, by the pages of a value: shipped pages, and the pair's messages
  rollback  taking back a batch of 100 requests, and running it again
  fold      keys and plan, handlers with and without keeping, tree and token of a batch

A request that waits sleeps while it holds its locks. Many waiting workers are real threads on few cores: they show how
far parallel batches, locks, and folding let requests run beside each other, and say nothing about a service that
computes. A request that burns uses processor time, so two burning workers need two cores.

The page shipper's primary is a process of its own. Every 25 ms it is stopped, the pages that it has written are copied
and sent to a backup over loopback, at 1 Gb/s at most, and its replies leave when the backup has them. That is kinder
than Remus, which ships a whole virtual machine. At the end the backup's copy is compared with all of the primary's
memory. It takes root, /dev/userfaultfd, and Linux 6.7 or later. Elsewhere fig10 and fig11 are left out, and the result
says so.

Every side is checked: the root of the tree is computed again from the service's objects, and the last token, which
covers state and replies, is that of a run of one request at a time. Where conflicts are overlooked there is no such
run; there the second run of a batch that was taken back must end with equal tokens at both executors.";

/// Options of `bench executor`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "Examples:
  crosscheck-lab bench executor                      everything: a quarter of an hour
  crosscheck-lab bench executor --quick              all figures with less work, in seconds: no figures to quote
  crosscheck-lab bench executor fig10 fig11          the page shipper
  crosscheck-lab bench executor fig6 --in-order      without orders of start of its own for each executor
  crosscheck-lab bench executor rollback fold        the costs")]
pub struct Args {
    /// What to measure [default: everything]
    #[arg(value_name = "FIGURE", hide_possible_values = true)]
    figures: Vec<ExecutorFigure>,
    /// Rounds: each measures every side of a figure once
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repetitions: u16,
    /// Seconds that a side is measured in each round; it ends with a batch
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Requests of a batch
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,
    /// Two executors start the requests of a parallel batch in the order of its plan. Otherwise each has an order of
    /// its own: a worker that is free takes any of the next requests, as many as there are workers
    #[arg(long)]
    in_order: bool,
    /// For a try: one round, a tenth of the work, and a tenth of the time
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: OutputArgs,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.0..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("write a number from 0 to 3600".into()) }
}

/// Measures, and writes the result after each side.
pub fn run(args: &Args) -> CommandOutcome {
    super::refuse_unoptimised(args.output.unoptimised)?;
    let ending = Ending::catch()?;
    let figures = if args.figures.is_empty() { ExecutorFigure::value_variants() } else { &args.figures };
    let mut run = args.begin();
    let rounds = run.settings.repetitions;
    let sides: usize = figures.iter().map(|figure| figure.plan(run.settings.scale).sides.len()).sum();
    let line = ProgressLine::of(Some((rounds * sides) as u64));
    for &figure in figures {
        if let Some(why) = figure.unavailable() {
            line.aside(|| say(&format!("{} is left out: {why}", figure.name())))?;
            run.settings.left_out.push((figure, why));
            continue;
        }
        for round in 1..=rounds {
            let reported = measure_round(&mut run, figure, round, &ending, &mut |one, of| {
                line.step();
                let throughput = grouped(one.figures.throughput().round() as u64);
                line.tell(&format!("{:<8} {round}/{of} {:<34} {throughput:>9}/s", figure.name(), one.side));
                if args.output.json { line.aside(|| say_json(one)) } else { Ok(()) }
            });
            run.write(&args.output.out)?;
            reported.with_context(|| format!("{}, round {round}", figure.name()))?;
        }
    }
    drop(line);
    let path = run.write(&args.output.out)?;
    if !args.output.json {
        let mut page = ::report::Page::new("");
        page.extend(blocks(&run));
        say(page.plain().trim_end())?;
        say(&format!("results: {}", path.display()))?;
    }
    Ok(CommandVerdict::of(!ending.asked()))
}

impl Args {
    fn begin(&self) -> ExecutorRun {
        let scale = FigureScale {
            batch: usize::from(self.batch),
            less_work: if self.quick { 10 } else { 1 },
            any_order: !self.in_order,
        };
        let span = if self.quick {
            ExecutorSpan { seconds: self.seconds / 20.0, batches: 2, rollbacks: 100 }
        } else {
            ExecutorSpan { seconds: self.seconds, batches: 1, rollbacks: 1_000 }
        };
        let repetitions = if self.quick { 1 } else { usize::from(self.repetitions) };
        ExecutorRun::begin(repetitions, span, scale)
    }
}

/// Measures each side of a figure once, and then compares what they left with runs of one request at a time.
///
/// # Errors
/// An executor failed, or a result is wrong.
fn measure_round(
    run: &mut ExecutorRun,
    figure: ExecutorFigure,
    round: usize,
    ending: &Ending,
    on_measurement: &mut dyn FnMut(&ExecutorMeasurement, usize) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let plan = figure.plan(run.settings.scale);
    let seed = derive(round as u64, figure as u64);
    let mut left = Vec::new();
    for side in &plan.sides {
        if ending.asked() {
            break;
        }
        let measured = side.case.measure(run.settings.span, seed).with_context(|| side.name.clone())?;
        let figures = measured.figures.clone();
        let one = ExecutorMeasurement { figure, side: side.name.clone(), repetition: round, figures };
        on_measurement(&one, run.settings.repetitions)?;
        run.measurements.push(one);
        left.push((side, measured));
    }
    compare_with_sequential(&left, seed)
}

/// Compares the last token of each side with that of a run of one request at a time, where no conflict was overlooked.
///
/// # Errors
/// They differ: a state or a reply is wrong.
fn compare_with_sequential(sides: &[(&ExecutorSide, MeasuredSide)], seed: u64) -> anyhow::Result<()> {
    let mut waiting: Vec<_> = sides.iter().filter(|(side, _)| side.case.is_comparable()).collect();
    while let Some(first) = waiting.last().map(|(side, _)| side.case) {
        let (same, others): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(side, _)| side.case.has_results_of(&first));
        let last = same.iter().map(|(_, measured)| measured.last).max().unwrap_or_default();
        let tokens = first.sequential_tokens(last, seed)?;
        for (side, measured) in same {
            let expected = (measured.last as usize).checked_sub(1).and_then(|at| tokens.get(at));
            ensure!(
                expected == Some(&measured.token),
                "{}: after batch {} the token is {:032x}, and {} when requests run one at a time",
                side.name,
                measured.last,
                measured.token.0,
                expected.map_or("none".to_owned(), |token| format!("{:032x}", token.0))
            );
        }
        waiting = others;
    }
    Ok(())
}
