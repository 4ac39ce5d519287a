//! The `crosscheck-lab` command: what measures, simulates and injects faults. Servers that it starts are itself, so
//! that they have what an experiment needs.

mod args;
#[cfg(feature = "inject")]
mod inject;
mod load;
#[cfg(feature = "inject")]
mod sim;

use std::process::ExitCode;

use args::{Lab, LabCommand};
use clap::Parser;
use cli::service::{Memcached, lab};
use node::outcome::{self, CommandOutcome};
use node::{NodeCommand, RunCommand, program};

/// The allocator of the servers that ship: what is measured is allocated as theirs is.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let behaviors = lab::behaviors();
    program::enter_as::<Memcached>(behaviors.clone().unwrap_or_default());
    let command = Lab::parse().command;
    outcome::report(behaviors.map_err(outcome::misuse).and_then(|_| run(command)))
}

fn run(command: LabCommand) -> CommandOutcome {
    match command {
        LabCommand::Bench(args) => bench::run(&args),
        LabCommand::Load(args) => load::run(&args),
        #[cfg(feature = "inject")]
        LabCommand::Sim(args) => sim::run_command(&args),
        #[cfg(all(feature = "inject", target_os = "linux"))]
        LabCommand::Trial(args) => trial::command::run(&args),
        #[cfg(feature = "inject")]
        LabCommand::Inject(command) => inject::run(&command),
        LabCommand::Serve(args) => cli::run(NodeCommand::Run(RunCommand::Serve(args))),
        LabCommand::Up(args) => cli::run(NodeCommand::Run(RunCommand::Up(args))),
    }
}
