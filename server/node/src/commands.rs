//! The command line of a program that has the commands of this crate and no others.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::outcome::{self, CommandOutcome};
use crate::program::{self, program, text};
use crate::{Application, ServiceOptions};
use crate::{backup, digest, evidence, group, inject, key, modes, serve, status, top, up};

/// Everything on the command line.
#[derive(Debug, Parser)]
#[command(
    name = program().name,
    version = program().version,
    about = program().about,
    long_about = text(LONG_ABOUT),
    after_help = text(AFTER_HELP),
    after_long_help = text(AFTER_LONG_HELP),
    max_term_width = 110
)]
struct Cli<O: ServiceOptions> {
    /// The command.
    #[command(subcommand)]
    command: NodeCommand<O>,
}

/// One module per command. A program with commands of its own flattens [`RunCommand`] and [`SetupCommand`] into them.
#[derive(Debug, Subcommand)]
pub enum NodeCommand<O: ServiceOptions> {
    /// Commands that run a group, and query it.
    #[command(flatten)]
    Run(RunCommand<O>),
    /// Corrupt one replica of a running cluster on purpose
    #[command(long_about = text(inject::ABOUT), hide = !cfg!(feature = "inject"))]
    Inject(inject::Args),
    /// Commands that prepare a group, and explain the modes.
    #[command(flatten)]
    Setup(SetupCommand),
}

/// Commands that run a group, and query it.
#[derive(Debug, Subcommand)]
pub enum RunCommand<O: ServiceOptions> {
    /// Start a local cluster and keep it running
    #[command(long_about = text(up::ABOUT))]
    Up(up::Args<O>),
    /// Run one replica on this machine, configured by a file
    #[command(long_about = text(serve::ABOUT))]
    Serve(serve::Args),
    /// Show every replica of a running cluster once
    #[command(long_about = text(status::ABOUT))]
    Status(status::Args),
    /// Watch a running cluster, full screen
    #[command(long_about = text(top::ABOUT))]
    Top(top::Args),
    /// Compare the state of all replicas, bit for bit
    #[command(long_about = text(digest::ABOUT))]
    Digest(digest::Args),
    /// Take a backup of a running group, or check one
    #[command(long_about = text(backup::ABOUT))]
    Backup(backup::Args),
    /// List the disagreements that the replicas detected, and how they ended
    #[command(long_about = text(evidence::ABOUT))]
    Evidence(evidence::Args),
}

/// Commands that prepare a group, and explain the modes.
#[derive(Debug, Subcommand)]
pub enum SetupCommand {
    /// Make the key by which the replicas of a group authenticate each other
    #[command(long_about = text(key::ABOUT))]
    Key(key::Args),
    /// Decide for replicas that cannot, or list and change the settings of a group
    #[command(long_about = text(group::ABOUT))]
    Group(group::Args),
    /// Explain the modes and their letters
    Modes,
}

/// The beginning of a program's `--help`; a template of [`text`].
pub const LONG_ABOUT: &str = "\
{program} runs on several replicas that execute the same requests in the same order and compare what each request
touched before its reply leaves. A bit that flips in one replica's memory reaches no client: the others outvote it,
name the wrong object, and repair it while everything else goes on.

Clients connect to any replica. Start here:

  {program} up                            three replicas on ports {port} to {third_port}
  {program} inject flip --replica 2 --object {object}
  {program} evidence                      what was wrong, where, and how it ended
  {program} digest                        are all replicas bit-identical again?";

/// The end of a program's `-h`; a template of [`text`].
pub const AFTER_HELP: &str =
    "`{program} --help` and `{program} COMMAND --help` say more; `{program} modes` explains the modes.";

/// The end of a program's `--help`; a template of [`text`].
pub const AFTER_LONG_HELP: &str = "\
Finding a cluster:
  `up` records its cluster under its first client port in ${XDG_RUNTIME_DIR:-/tmp}/{program}-UID/PORT.json; status,
  top, digest, backup, evidence and inject find it there by --port. Without --port they take the only cluster that
  runs. A replica started with `serve` is found by --admin PATH, its admin socket, given once per replica. Only the user
  that the replicas run as, and root, can ask them.

Exit codes:
  0  done, and what was asked for holds
  1  the answer is no (digests differ, a replica is down, a promise did not hold), or the work failed
  2  the command line or the configuration is wrong

Output:
  Results go to stdout, errors to stderr. --json prints one JSON value per line. Colour is used on a terminal only, and
  not when NO_COLOR is set.";

/// The whole program: reads the command line, runs the command, and returns its exit code.
pub fn main<A: Application>() -> ExitCode {
    program::enter::<A>();
    outcome::report(run::<A>(Cli::<A::Options>::parse().command))
}

/// Runs one command.
///
/// # Errors
/// The reason why the command failed, for [`outcome::report`] to print.
pub fn run<A: Application>(command: NodeCommand<A::Options>) -> CommandOutcome {
    match command {
        NodeCommand::Run(command) => command.run::<A>(),
        NodeCommand::Inject(args) => inject::run(&args),
        NodeCommand::Setup(command) => command.run(),
    }
}

impl<O: ServiceOptions> RunCommand<O> {
    /// Runs the command.
    ///
    /// # Errors
    /// Those of [`run`].
    pub fn run<A: Application<Options = O>>(self) -> CommandOutcome {
        match self {
            RunCommand::Up(args) => up::run(&args),
            RunCommand::Serve(args) => serve::run::<A>(&args),
            RunCommand::Status(args) => status::run(&args),
            RunCommand::Top(args) => top::run(&args),
            RunCommand::Digest(args) => digest::run(&args),
            RunCommand::Backup(args) => backup::run(&args),
            RunCommand::Evidence(args) => evidence::run(&args),
        }
    }
}

impl SetupCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// Those of [`run`].
    pub fn run(self) -> CommandOutcome {
        match self {
            SetupCommand::Key(args) => key::run(&args),
            SetupCommand::Group(args) => group::run(&args),
            SetupCommand::Modes => modes::run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::<()>::command().debug_assert();
    }

    #[test]
    fn every_command_teaches_and_no_placeholder_is_left() {
        let mut cli = Cli::<()>::command();
        for command in cli.get_subcommands_mut() {
            let name = command.get_name().to_owned();
            assert!(command.get_about().is_some(), "{name} has no summary");
            let help = command.render_long_help().to_string();
            for part in ["{program}", "{port}", "{object", "{third"] {
                assert!(!help.contains(part), "{name}: {part} is left");
            }
            let long = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(name == "modes" || long.contains("crosscheck "), "`{name} --help` has no example");
        }
    }
}
