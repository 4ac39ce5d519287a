//! The command line: every command, with the help that explains it.

use clap::{Parser, Subcommand};
use node::program::{program, text};
use node::{AFTER_HELP, AFTER_LONG_HELP, RunCommand, SetupCommand};

use crate::service::MemcachedOptions;

/// Everything on the command line.
#[derive(Debug, Parser)]
#[command(
    name = program().name,
    version,
    about = program().about,
    long_about = LONG_ABOUT,
    after_help = text(AFTER_HELP),
    after_long_help = text(AFTER_LONG_HELP),
    max_term_width = 110
)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// One file per command.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Commands of every program that run a group, and query it.
    #[command(flatten)]
    Run(RunCommand<MemcachedOptions>),
    /// Corrupt one replica of a running cluster on purpose
    #[command(long_about = crate::inject::about())]
    Inject(crate::inject::Args),
    /// Demonstrate load, faults, detection and repair on a cluster of its own
    #[command(long_about = crate::demo::ABOUT)]
    Demo(crate::demo::Args),
    /// Put a load on a cluster, measure it, and check every byte of every reply
    #[command(long_about = crate::load::ABOUT)]
    Load(crate::load::Args),
    /// Measure modes and other programs side by side, and report the figures
    #[command(long_about = crate::bench::ABOUT)]
    Bench(crate::bench::Args),
    /// Run whole simulated clusters from seeds, with faults, and check every promise after every step
    #[cfg(feature = "inject")]
    #[command(long_about = crate::sim::ABOUT)]
    Sim(crate::sim::Args),
    /// Bring failures to a real cluster on hosts of its own, and check the replies that its clients received
    #[cfg(all(feature = "inject", target_os = "linux"))]
    #[command(long_about = crate::trial::ABOUT)]
    Trial(crate::trial::Args),
    /// Build other people's C programs with error isolation: each handler runs twice, and nothing leaves that differs
    #[cfg(feature = "inject")]
    #[command(long_about = crate::harden::ABOUT)]
    Harden(crate::harden::Args),
    /// Not in this build: hardened C programs. Build with --features inject
    #[cfg(not(feature = "inject"))]
    Harden(Absent),
    /// Not in this build: simulated clusters. Build with --features inject
    #[cfg(not(feature = "inject"))]
    Sim(Absent),
    /// Not in this build: a real cluster under trouble. Build with --features inject, on Linux
    #[cfg(not(all(feature = "inject", target_os = "linux")))]
    Trial(Absent),
    /// Commands of every program that prepare a group, and explain the modes.
    #[command(flatten)]
    Setup(SetupCommand),
}

/// The arguments of a command that this build lacks.
#[cfg(not(all(feature = "inject", target_os = "linux")))]
#[derive(Debug, clap::Args)]
pub struct Absent {
    /// Any arguments that the command would accept.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _ignored: Vec<String>,
}

const LONG_ABOUT: &str = "\
CrossCheck runs a memcached-compatible server on several replicas that execute the same requests in the same order and
compare what each request touched before its reply leaves. A bit that flips in one replica's memory reaches no client:
the others outvote it, name the wrong object, and repair it while everything else goes on.

Any memcached client works, on any replica. Start here:

  crosscheck up                            three replicas on ports 11211, 11212, 11213
  printf 'set k 0 0 5\\r\\nhello\\r\\nget k\\r\\nquit\\r\\n' | nc 127.0.0.1 11212
  crosscheck inject flip --replica 2 --object item:k
  crosscheck evidence                      what was wrong, where, and how it ended
  crosscheck digest                        are all replicas bit-identical again?
  crosscheck demo                          all of this on a cluster of its own, step by step";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_teaches() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name} has no summary");
            if name != "modes" {
                let long = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
                assert!(long.contains("crosscheck "), "`{name} --help` has no example");
            }
        }
    }
}
