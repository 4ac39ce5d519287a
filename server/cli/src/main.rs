//! The `crosscheck` command: parses the command line, runs the module of the command, turns the outcome into an exit
//! code.

mod args;
#[cfg(feature = "inject")]
mod demo;
#[cfg(feature = "inject")]
mod harden;

use std::process::ExitCode;

use args::{Cli, CliCommand};
use clap::Parser;
use cli::service::Memcached;
use node::outcome::{self, CommandOutcome};
use node::program;

/// Requests are allocated on one thread and freed on another, which this allocator does without a lock.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    program::enter::<Memcached>();
    outcome::report(run(Cli::parse().command))
}

fn run(command: CliCommand) -> CommandOutcome {
    match command {
        CliCommand::Node(command) => cli::run(*command),
        #[cfg(feature = "inject")]
        CliCommand::Demo(args) => demo::run(&args),
        #[cfg(feature = "inject")]
        CliCommand::Harden(args) => harden::run(&args),
        #[cfg(not(feature = "inject"))]
        CliCommand::Demo(_) => absent("demo"),
        #[cfg(not(feature = "inject"))]
        CliCommand::Harden(_) => absent("harden"),
    }
}

/// A command that this build lacks.
#[cfg(not(feature = "inject"))]
fn absent(command: &str) -> CommandOutcome {
    let with = cli::WITH_INJECTOR;
    Err(outcome::misuse(format!(
        "this build carries no fault injector and no tools, which {command} needs; {with}"
    )))
}
