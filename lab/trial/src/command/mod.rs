//! `crosscheck-lab trial`: a real cluster on hosts of its own under real failures, with a checker for the replies that
//! its clients received; and the soak, in which nothing is wrong and no replica may report anything.

mod recovery;
mod run;

use node::outcome::CommandOutcome;

use crate::soak;

/// Where results go by default, relative to the workspace; git ignores this folder.
pub(crate) const FOLDER: &str = "lab/bench/results/raw/trial";

/// The beginning of `trial --help`.
pub const ABOUT: &str = "Runs real replicas on hosts of their own (network namespaces joined by a switch in \
    this process), brings one trouble after another to one of them while its state is corrupted, and lets a \
    linearizability checker judge the replies that concurrent clients received. Between two troubles everything must \
    heal and become bit-identical. Needs Linux and root (or the right to make namespaces); without, all \
    hosts are this one, and troubles of the network are left out.";

/// Options of `trial`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "Examples:
  crosscheck-lab trial list                                        the plans that come with the program
  crosscheck-lab trial run everything --seconds 1800 --seed 1      half an hour of every trouble
  crosscheck-lab trial run network disk --out /tmp/trial           two plans, one after the other
  crosscheck-lab trial run my-plan.toml --replicas 5 --clients 20
  crosscheck-lab trial run control                                 a system that is wrong: does the checker notice?
  crosscheck-lab trial run hostile                                 clients, clocks and strangers that mean harm
  crosscheck-lab trial run recovery                                does every kind of group always come back?
  crosscheck-lab trial soak --requests 100000000                   nothing is wrong: is anything reported?

lab/trial/README.md says what this shows, and what it does not.")]
pub struct Args {
    /// The command.
    #[command(subcommand)]
    pub command: TrialCommand,
}

/// The commands.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum TrialCommand {
    /// Run plans
    #[command(after_long_help = "Examples:
  crosscheck-lab trial run                                         the plan `everything`
  crosscheck-lab trial run corruption --seconds 60 --seed 7
  crosscheck-lab trial run hostile                                 every attack, in about five minutes
  crosscheck-lab trial run hostile --only long-replies,clock       two of them
  crosscheck-lab trial run recovery --quick                        every kind of group, three pairs of strikes each
  crosscheck-lab trial run recovery --only pair,witness --pairs 20 two kinds of groups, 20 pairs each

Writes result.json, result.md, timeline.jsonl and the replicas' logs into a folder per plan below --out.
The repository keeps the result.md of a run, in lab/bench/results/trial.

`hostile` is not a plan of troubles. Each of its attacks (`trial list` names them) starts small clusters of its
own on loopback, attacks them as a hostile tester would, and reports the actions, the observations, and the
required properties: no replica ends, no acknowledged value is lost, memory stays below its limits, and no
other client waits for half a second. The other options do not apply to it.

`recovery` strikes one replica (kill -9 and a start after 0.1 s, a pause, a cut network, a slow disk), and another one
as soon as the leader's row of `status` says that the group tolerates one more failure: 100 such pairs in each kind of
group (`trial list` names them). It prints how often it waited for that and how long, and the longest gap without
replies for clients of replicas that were not struck. A group is hung when, 60 s after the last trouble has ended, it
does not tolerate all that it should, or a client gets no reply; or when for 10 s no client of a replica that is not
struck gets one. Its statuses and the last lines of its replicas' output are printed, and the command fails. Of the
other options only --seed, --only, --loopback and --out apply to it.

Exit code: 0 when everything held, 1 when something did not, 2 when there is no such plan.")]
    Run(run::Args),
    /// List the plans that come with the program
    List,
    /// Check every reply in every mode while replicas restart and nothing is wrong: any alarm is a false one
    #[command(after_long_help = "Examples:
  crosscheck-lab trial soak                                        six million requests, all modes in turn
  crosscheck-lab trial soak --requests 100000000                   the long one
  crosscheck-lab trial soak --modes RDGX --requests 1000000 --away-every 5

Replicas are killed, stopped and paused in turn, the leader every second time. A single node (0000, 00G0, 00GT) is
left alone: its memory would be lost, and no data left to check. Replicas of R000 may differ, so that none
could take the state of the others: they are only paused.

Exit code: 0 when no reply was wrong and no replica reported anything, 1 otherwise.")]
    Soak(soak::Args),
}

/// Runs the command.
pub fn run(args: &Args) -> CommandOutcome {
    match &args.command {
        TrialCommand::Run(args) => run::run(args),
        TrialCommand::List => run::list(),
        TrialCommand::Soak(args) => soak::run(args),
    }
}
