//! `crosscheck trial`: a real cluster on hosts of its own under real trouble, with a checker for what its
//! clients saw; and the soak, in which nothing is wrong and nothing may be reported.

mod hostile;
mod run;
mod soak;

use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::{Commit, Machine};
use node::outcome::CommandOutcome;

/// Where results go by default, seen from the workspace; git ignores what is there.
const FOLDER: &str = "bench/results/raw/trial";

/// What `trial --help` begins with.
pub const ABOUT: &str = "Runs real replicas on hosts of their own (network namespaces joined by a switch in \
    this process), lets one trouble after the other strike one of them while its state is corrupted, and \
    lets a linearizability checker judge what concurrent clients saw. Between two troubles everything must \
    heal and become bit-identical. Needs Linux and root (or the right to make namespaces); without, all \
    hosts are this one, and troubles of the network are left out.";

/// Options of `trial`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "Examples:
  crosscheck trial list                                        the plans that come with the program
  crosscheck trial run everything --seconds 1800 --seed 1      half an hour of every trouble
  crosscheck trial run network disk --out /tmp/trial           two plans, one after the other
  crosscheck trial run my-plan.toml --replicas 5 --clients 20
  crosscheck trial run control                                 a system that is wrong: does the checker notice?
  crosscheck trial run hostile                                 clients, clocks and strangers that mean harm
  crosscheck trial soak --requests 100000000                   nothing is wrong: is anything reported?

docs/trial.md says what this shows, and what it does not.")]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: TrialCommand,
}

/// The commands.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum TrialCommand {
    /// Run plans
    #[command(after_long_help = "Examples:
  crosscheck trial run                                         the plan `everything`
  crosscheck trial run corruption --seconds 60 --seed 7
  crosscheck trial run hostile                                 every attack, in about five minutes
  crosscheck trial run hostile --only long-replies,clock       two of them

Writes result.json, result.md, timeline.jsonl and the replicas' logs into a folder per plan below --out.
What the repository keeps of a run is its result.md, in bench/results/trial.

`hostile` is no plan of troubles. Each of its attacks (`trial list` names them) starts small clusters of its
own on loopback, tries on them what a hostile tester would, and says what was done, what was seen, and what
has to hold: no replica ends, no acknowledged value is lost, memory stays below its limits, and nobody
else's client waits for half a second. The other options are not for it.

Exit code: 0 when everything held, 1 when something did not, 2 for a plan that is none.")]
    Run(run::Args),
    /// List the plans that come with the program
    List,
    /// Check every reply in every mode while replicas restart and nothing is wrong: any alarm is a false one
    #[command(after_long_help = "Examples:
  crosscheck trial soak                                        six million requests, all modes in turn
  crosscheck trial soak --requests 100000000                   the long one
  crosscheck trial soak --modes RDGX --requests 1000000 --away-every 5

Replicas are killed, stopped and paused in turn, the leader every second time. A single node (0000, 00G0) is
left alone: its memory would be gone, and nothing left to check. Replicas of R000 may differ, so that none
could be filled by the others: they are only paused.

Exit code: 0 when no reply was wrong and no replica reported anything, 1 otherwise.")]
    Soak(soak::Args),
}

/// Does it.
pub fn run(args: &Args) -> CommandOutcome {
    match &args.command {
        TrialCommand::Run(args) => run::run(args),
        TrialCommand::List => run::list(),
        TrialCommand::Soak(args) => soak::run(args),
    }
}

/// What every result says of the run that made it; it began at `since`, of the Unix epoch.
fn context(since: Duration) -> Value {
    json!({
        "started_s": since.as_secs(),
        "commit": Commit::here(),
        "machine": Machine::this(),
        "optimised": !cfg!(debug_assertions),
        "command": std::env::args().skip(1).collect::<Vec<_>>().join(" "),
    })
}
