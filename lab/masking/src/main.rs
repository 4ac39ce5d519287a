//! Fig. 9 of the Eve paper with a real bug: replicas that execute first and compare afterwards mask a database's race.
//!
//! The database is `turso` 0.4.4. Its issue 5421: with `PRAGMA journal_mode = 'experimental_mvcc'`, increments in
//! `BEGIN CONCURRENT` transactions of several connections commit, and some of them vanish. Here 64 counters are in such
//! a database at every replica, several threads increment them, and each counter is copied into an object that the
//! replicas compare (`service`, `region`). `R0GV` sees where databases differ, takes the batch back, and runs it again
//! one request at a time.
//!
//! ```text
//! masking bug                        the database alone: how much does it lose?
//! masking series --out summary.md    30 runs of each configuration, and the table of docs/performance.md
//! masking up --mode R0GV             a group to look at; `ADD 5` and `GET 5` on its ports
//! ```
//!
//! A workspace of its own: the database takes minutes to compile, and nothing else of the repository needs it.
//!
//! ```console
//! $ cd lab/masking && cargo run --release -- series --out ../bench/results/masking.md
//! ```

mod alone;
mod engine;
mod load;
mod options;
mod protocol;
mod region;
mod series;
mod service;
mod trial;
mod witnessed;

use std::process::ExitCode;

use clap::Parser;
use node::NodeCommand;
use node::outcome::{self, CommandOutcome};
use node::program::{self, program};
use options::{Masking, MaskingOptions};

/// Everything on the command line.
#[derive(Debug, Parser)]
#[command(
    name = program().name,
    version = program().version,
    about = program().about,
    long_about = "Counters in a database that loses updates (turso 0.4.4, its issue 5421), as a service of a group: \
how often does the bug show at one server, and how often do replicas in R0GV mask it? Fig. 9 of the Eve paper \
(OSDI 2012).

  masking bug                        the database alone, without the framework
  masking series --out summary.md    runs of every configuration, and a table
  masking up --mode R0GV             a group to look at; `ADD 5` and `GET 5`, a line each, on its ports",
    max_term_width = 110
)]
struct MaskingCli {
    /// The command.
    #[command(subcommand)]
    command: MaskingCommand,
}

/// The commands of the experiment, and those of every program that runs a group.
#[derive(Debug, clap::Subcommand)]
enum MaskingCommand {
    /// Show the bug in the database alone, without the framework
    Bug(alone::Args),
    /// Run every configuration several times, and print a table
    Series(series::Args),
    /// Commands of every program that runs a group.
    #[command(flatten)]
    Node(NodeCommand<MaskingOptions>),
}

fn main() -> ExitCode {
    program::enter::<Masking>();
    outcome::report(run(MaskingCli::parse().command))
}

fn run(command: MaskingCommand) -> CommandOutcome {
    match command {
        MaskingCommand::Bug(args) => alone::run(&args),
        MaskingCommand::Series(args) => series::run(&args),
        MaskingCommand::Node(command) => node::run::<Masking>(command),
    }
}
