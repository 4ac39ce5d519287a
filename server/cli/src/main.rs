//! The `crosscheck` command: parses the command line, runs the module of the command, turns the outcome into an exit
//! code.

mod args;
mod bench;
mod demo;
#[cfg(feature = "inject")]
mod harden;
mod inject;
mod json_rows;
mod load;
mod native;
mod service;
#[cfg(feature = "inject")]
mod sim;
#[cfg(all(feature = "inject", target_os = "linux"))]
mod trial;

use std::process::ExitCode;

use args::{Cli, CliCommand};
use clap::Parser;
use node::outcome::{self, CommandOutcome};
use node::program;
use service::Memcached;

/// Requests are allocated on one thread and freed on another, which this allocator does without a lock.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    program::enter::<Memcached>();
    outcome::report(run(Cli::parse().command))
}

fn run(command: CliCommand) -> CommandOutcome {
    match command {
        CliCommand::Run(command) => command.run::<Memcached>(),
        CliCommand::Inject(args) => inject::run(&args),
        CliCommand::Demo(args) => demo::run(&args),
        CliCommand::Load(args) => load::run(&args),
        CliCommand::Bench(args) => bench::run(&args),
        #[cfg(feature = "inject")]
        CliCommand::Sim(args) => sim::run_command(&args),
        #[cfg(all(feature = "inject", target_os = "linux"))]
        CliCommand::Trial(args) => trial::run(&args),
        #[cfg(feature = "inject")]
        CliCommand::Harden(args) => harden::run(&args),
        #[cfg(not(feature = "inject"))]
        CliCommand::Harden(_) => absent("harden"),
        #[cfg(not(feature = "inject"))]
        CliCommand::Sim(_) => absent("sim"),
        #[cfg(not(all(feature = "inject", target_os = "linux")))]
        CliCommand::Trial(_) => absent("trial"),
        CliCommand::Setup(command) => command.run(),
    }
}

/// A command that this build lacks.
#[cfg(not(all(feature = "inject", target_os = "linux")))]
fn absent(command: &str) -> outcome::CommandOutcome {
    let with = cli::WITH_INJECTOR;
    Err(outcome::misuse(format!(
        "this build carries no fault injector and no tools, which {command} needs; {with}, on Linux"
    )))
}
