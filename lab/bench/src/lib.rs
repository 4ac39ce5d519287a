//! `crosscheck-lab bench`: measures definitions side by side and writes reports that an outsider can check.

mod campaign;
mod cells;
mod cost;
mod definition;
mod executor;
mod failures;
mod faults;
mod generator;
mod measure;
mod memaslap;
mod model;
mod overrides;
mod profile;
mod progress;
mod repairs;
mod report;
mod results;
mod servers;
mod wire;

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;

use campaign::BenchCampaign;
use node::outcome::{CommandOutcome, CommandVerdict, error_text, misuse, say, say_json};
use node::signals::Ending;
use overrides::Overrides;
use progress::BenchProgress;

/// The allocator of the servers: the page shipper's tests make this program a primary, whose memory is shipped.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

// What the soak of `crosscheck-lab trial` uses: the same load, the same checking of replies.
pub use {
    self::wire::Dialect,
    definition::{Amount, Op, Workload},
    generator::{Generator, Pattern, Setup},
    measure::peak_memory_of,
};

/// What `bench --help` begins with.
pub const ABOUT: &str = "\
    Measures what is written in definition files (lab/bench/definitions/*.toml): our modes and the programs people \
    would otherwise use, each as processes of their own, in turn and again and again, so that ratios are taken \
    between measurements that lie seconds apart. Results are JSON files with every repetition; reports are made from \
    them. The README beside the definitions documents every field and what is measured how.";

/// Options of `bench`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "Examples:
  crosscheck-lab bench list                          what can be measured
  crosscheck-lab bench run --quick                   modes, repairs and execution times, in 5 minutes, with the report
  crosscheck-lab bench run --all                     everything, with costs, profiles and the report: two hours
  crosscheck-lab bench run paper-fig9-10             the paper's Figs. 9 and 10, half an hour
  crosscheck-lab bench run quick --only RDGX,RD00 --clients 100 --seconds 2
  crosscheck-lab bench cost                          instructions, allocations and memory
  crosscheck-lab bench profile                       flame graphs
  crosscheck-lab bench executor --quick              parallel batches in one executor: Eve's figures
  crosscheck-lab bench model eve                     the same with up to 16 cores, simulated
  crosscheck-lab bench report                        Markdown and HTML of the newest results

Measure with a release build on a machine that does nothing else. Exit code: 0 when everything was measured without
errors, 1 when something failed or a reply was wrong, 2 when a definition is wrong.")]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum BenchCommand {
    /// Measure one definition or several
    Run(RunArgs),
    /// Count instructions and allocations per request, and memory per object
    Cost(cost::Args),
    /// Sample where the processor time goes: per stage, and as flame graphs
    Profile(profile::Args),
    /// Measure one executor of parallel batches alone: the figures of Eve, and what a rollback costs
    #[command(long_about = executor::ABOUT)]
    Executor(executor::Args),
    /// Simulate more cores than the machine has, from what was measured
    Model(model::Args),
    /// The primary of a page shipper, which `bench executor` starts
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    ExecutorPrimary,
    /// Show what can be measured
    List(ListArgs),
    /// Write Markdown and HTML from results
    Report(report::Args),
}

/// Options of `bench run`.
#[derive(Clone, Debug, clap::Args)]
struct RunArgs {
    /// Definitions: names from the folder, or paths that end in .toml
    #[arg(required_unless_present_any = ["all", "quick"], value_name = "NAME")]
    names: Vec<String>,
    /// Everything there is, in order, then `bench cost`, `bench profile` and the report: two hours
    #[arg(long, conflicts_with_all = ["names", "quick"])]
    all: bool,
    /// The five-minute version: definitions that begin with `quick`, then the report
    #[arg(long, conflicts_with = "names")]
    quick: bool,
    /// Folder of the definitions
    #[arg(long, value_name = "DIR", default_value = definition::FOLDER)]
    definitions: PathBuf,
    /// Where sides store what they must; decides the disk of `durability = "disk"` [default: the temporary directory]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// Keep the time of every repair in the result, instead of their distribution
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Options of every command that measures.
#[derive(Clone, Debug, clap::Args)]
struct OutputArgs {
    /// Folder for what it writes
    #[arg(long, value_name = "DIR", default_value = results::RAW)]
    out: PathBuf,
    /// Measure although this binary was built without optimisation
    #[arg(long)]
    unoptimised: bool,
    /// Print JSON, each measurement as it ends
    #[arg(long)]
    json: bool,
}

/// Options of `bench list`.
#[derive(Clone, Debug, clap::Args)]
struct ListArgs {
    /// Folder of the definitions
    #[arg(long, value_name = "DIR", default_value = definition::FOLDER)]
    definitions: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Hands over to the subcommand.
pub fn run(args: &Args) -> CommandOutcome {
    match &args.command {
        BenchCommand::Run(args) => measure(args),
        BenchCommand::Cost(args) => cost::run(args),
        BenchCommand::Profile(args) => profile::run(args),
        BenchCommand::Executor(args) => executor::run(args),
        BenchCommand::Model(args) => model::run(args),
        #[cfg(target_os = "linux")]
        BenchCommand::ExecutorPrimary => executor::serve_primary().map(|()| CommandVerdict::Holds),
        BenchCommand::List(args) => list(args),
        BenchCommand::Report(args) => report::run(args),
    }
}

/// A build without optimisation measures only if the operator wants to try the harness.
fn refuse_unoptimised(permitted: bool) -> anyhow::Result<()> {
    if cfg!(debug_assertions) && !permitted {
        return Err(misuse(
            "this binary was built without optimisation, and its figures mean nothing; build with `cargo build \
             --release -p crosscheck-lab`, or add --unoptimised to try the harness",
        ));
    }
    Ok(())
}

fn measure(args: &RunArgs) -> CommandOutcome {
    refuse_unoptimised(args.output.unoptimised)?;
    // All are read first: a mistake in the last one should not show after an hour.
    let read = |name: &String| args.overrides.apply(definition::read(&args.definitions, name)?);
    let names = chosen(args)?;
    let definitions: Vec<_> = names.iter().map(read).collect::<anyhow::Result<_>>()?;
    let places_faults = |one: &definition::Definition| {
        one.workloads.iter().any(|workload| workload.faults.is_some_and(|faults| faults.per_second > 0.0))
    };
    if !cli::HAS_INJECTOR
        && let Some((one, _)) = definitions.iter().find(|(one, _)| places_faults(one))
    {
        let with = cli::WITH_INJECTOR;
        return Err(misuse(format!(
            "{} places faults, and this build carries no fault injector; {with}",
            one.name
        )));
    }
    let ending = Ending::catch()?;
    let data = args.data.clone().unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&data).with_context(|| format!("making {}", data.display()))?;
    let mut clean = true;
    let estimates: Vec<f64> = definitions.iter().map(|(one, _)| progress::estimate(one)).collect();
    for (number, (definition, changed)) in definitions.into_iter().enumerate() {
        let later = estimates[number + 1..].iter().sum::<f64>();
        let mut progress = BenchProgress::new(args.output.json, (number + 1, estimates.len()), later);
        let campaign = BenchCampaign::new(definition, changed, &args.output.out, &data, &ending);
        let (path, run) = campaign.keeping_times(args.full).run(&mut progress)?;
        drop(progress);
        if !args.output.json {
            say(report::short(&run).plain().trim_end())?;
            say(&format!("results: {}", path.display()))?;
        }
        clean &= cells::is_clean(&run);
    }
    if args.all {
        let output = OutputArgs { json: false, ..args.output.clone() };
        clean &= cost::run(&cost::Args::of_everything(output.clone()))? == CommandVerdict::Holds;
        profile::run(&profile::Args::of_everything(output))?;
    }
    if args.all || args.quick {
        report::run(&report::Args::of_folder(&args.output.out))?;
    }
    Ok(CommandVerdict::of(clean))
}

/// What is to be measured, in order: the papers' figures before the peers, and real workloads last, so that a
/// run that is ended early has what matters most. The short versions are parts of the long ones.
fn chosen(args: &RunArgs) -> anyhow::Result<Vec<String>> {
    if !args.all && !args.quick {
        return Ok(args.names.clone());
    }
    const PARTS: [&str; 5] = ["paper", "peers", "latency", "verify", "twitter"];
    let part = |name: &String| PARTS.iter().position(|part| name.starts_with(part)).unwrap_or(PARTS.len());
    let mut names = names(&args.definitions)?;
    names.retain(|name| name.starts_with("quick") == args.quick);
    names.sort_by_key(part);
    Ok(names)
}

fn list(args: &ListArgs) -> CommandOutcome {
    let names = names(&args.definitions)?;
    let mut verdict = CommandVerdict::Holds;
    let width = names.iter().map(String::len).max().unwrap_or(0);
    for name in names {
        match definition::read(&args.definitions, &name) {
            Ok(definition) if args.json => say_json(&json!({ "name": name, "definition": definition }))?,
            Ok(definition) => say(&format!("{name:<width$}  {}", definition.title))?,
            // One that is wrong must not hide the others.
            Err(error) => {
                verdict = CommandVerdict::Fails;
                say(&format!("{name:<width$}  WRONG: {}", error_text(&error)))?;
            }
        }
    }
    Ok(verdict)
}

fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    definition::names(folder).map_err(|error| {
        misuse(format!(
            "{}: {error}; run this in the workspace, or name the folder with --definitions",
            folder.display()
        ))
    })
}
