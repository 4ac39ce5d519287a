//! `crosscheck-lab bench model`: figures for more cores than the machine has, simulated from what was measured.

mod cores;
mod findings;
mod inputs;
mod pages;
mod sample;
mod simulate;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use node::outcome::{CommandOutcome, CommandVerdict, error_text, misuse, say, say_json};

use super::executor::{self, ExecutorRun};
use super::results::{self, BenchRun};
use cores::CoresModel;
use findings::EveModel;
use report::results::{ResultFile, files};
use simulate::ModelPart;

/// What `bench model eve --help` begins with.
pub const ABOUT_EVE: &str = "Simulates one executor of a replica that executes first and compares afterwards (Eve, \
OSDI 2012) with 1 to 16 workers on as many cores. Nothing is measured: times are drawn from a results file of `bench \
executor`, and the log is planned by the shipped mixer. Everything it prints is labelled as a model.

What it draws from:
  1 worker           how long a request takes, the step to the next one, folding, and planning
  4 waiting workers  barriers: how long a parallel batch takes to open, and each further worker to begin

What judges it, each within 10 %: 1 and 2 burning workers and 16 waiting ones, with 10, 1 and 0.1 ms of work, and 16
waiting ones on logs with conflicts. Those run in the model on as many cores as the measured machine has.

An older file has means only. Then each request takes the mean time, and barriers and steps take none.

Not in the model: rollbacks, the leader's work, the network's bandwidth, and cores that share caches or memory.";

/// What `bench model cores --help` begins with.
pub const ABOUT_CORES: &str = "Computes what a group would serve whose replicas have 1 to 16 cores each, from the \
processor time that each kind of thread took per request. Nothing is measured: times come from results of `bench run \
two-workers`. Two measurements judge it, each within 10 %: that of its own file, and one with a single worker.";

/// Options of `bench model`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What to simulate
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum ModelCommand {
    /// One executor of Eve's mode with up to 16 cores
    #[command(long_about = ABOUT_EVE)]
    Eve(EveArgs),
    /// A group whose replicas have 1 to 16 cores each
    #[command(long_about = ABOUT_CORES)]
    Cores(CoresArgs),
}

/// Options of `bench model eve`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "Examples:
  crosscheck-lab bench executor fig4 fig7            measures what the model needs, in a few minutes
  crosscheck-lab bench model eve                     the newest results that have it
  crosscheck-lab bench model eve lab/bench/results/raw/executor-20261126-133924.json --json
  crosscheck-lab bench model eve --without barrier   what the barrier between parallel batches is worth: the validation
                                                 fails where requests conflict

Exit code: 0 when the model is within 10 % of every measured side that judges it, 1 when it is not, 2 when the file
lacks what the model needs.")]
struct EveArgs {
    /// Results of `bench executor` [default: the newest with times of single requests, or else the newest]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Folders of results, with commas between them
    #[arg(long, value_name = "DIRS", value_delimiter = ',', default_values = [results::FOLDER, results::RAW])]
    results: Vec<PathBuf>,
    /// Leave a part of the model out; may be repeated
    #[arg(long, value_name = "PART")]
    without: Vec<ModelPart>,
    /// What all draws follow from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Options of `bench model cores`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "Examples:
  crosscheck-lab bench run two-workers --only RDGX               times of threads with two workers
  crosscheck-lab bench run two-workers --only RDGX --workers 1   the measurement that judges the model
  crosscheck-lab bench model cores TWO.json ONE.json

Exit code: 0 when the model is within 10 % of every measurement, 1 when it is not, 2 when a file lacks the times of \
threads.")]
struct CoresArgs {
    /// Results of `bench run` with two or more workers
    #[arg(value_name = "SEVERAL")]
    several: PathBuf,
    /// Results of the same with one worker
    #[arg(value_name = "ONE")]
    one: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Hands over to the subcommand.
pub fn run(args: &Args) -> CommandOutcome {
    match &args.command {
        ModelCommand::Eve(args) => eve(args),
        ModelCommand::Cores(args) => cores(args),
    }
}

fn cores(args: &CoresArgs) -> CommandOutcome {
    let read = |path| read_result(path, results::KIND, BenchRun::of);
    let model = CoresModel::of(&read(&args.several)?, &read(&args.one)?).map_err(misuse)?;
    if args.json {
        say_json(&model)?;
    } else {
        say(model.page().plain().trim_end())?;
    }
    Ok(CommandVerdict::of(model.holds()))
}

fn eve(args: &EveArgs) -> CommandOutcome {
    let path = match &args.file {
        Some(file) => file.clone(),
        None => newest(&args.results)?,
    };
    let run = read(&path)?;
    let model = EveModel::of(&run, &args.without, args.seed)?;
    if args.json {
        say_json(&model)?;
    } else {
        let mut page = ::report::Page::new("");
        page.extend(pages::blocks(&model));
        say(page.plain().trim_end())?;
        say(&format!("from: {}", path.display()))?;
    }
    Ok(CommandVerdict::of(model.holds()))
}

fn read_result<R>(path: &Path, kind: &str, of: fn(ResultFile) -> anyhow::Result<R>) -> anyhow::Result<R> {
    let wrong = |error| misuse(format!("{}: {}", path.display(), error_text(&error)));
    ResultFile::of_kind(path, kind).and_then(of).map_err(wrong)
}

fn read(path: &Path) -> anyhow::Result<ExecutorRun> {
    read_result(path, executor::KIND, ExecutorRun::of_file)
}

/// The newest result of `bench executor` that has times of single requests, or else the newest.
fn newest(folders: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let mut files = files(folders)?;
    files.retain(|name, _| name.starts_with("executor-"));
    let paths = || files.values().rev();
    let best = paths().find(|path| read(path).is_ok_and(|run| inputs::has_distributions(&run)));
    best.or_else(|| paths().next()).cloned().ok_or_else(|| {
        misuse("there is no result to read; measure one: `crosscheck-lab bench executor fig4 fig7`")
    })
}
