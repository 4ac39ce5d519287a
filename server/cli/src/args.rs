//! The command line: every command, with the help that explains it.

use clap::{Parser, Subcommand};
use node::program::{program, text};
use node::{AFTER_HELP, AFTER_LONG_HELP, NodeCommand};

use cli::service::MemcachedOptions;

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

/// One module per command; those of every program that runs a group are in `node`.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Commands that prepare a group, run it, and query it.
    #[command(flatten)]
    Node(Box<NodeCommand<MemcachedOptions>>),
    /// Demonstrate load, faults, detection and repair on a cluster of its own
    #[cfg(feature = "inject")]
    #[command(long_about = crate::demo::ABOUT)]
    Demo(crate::demo::Args),
    /// Build other people's C programs with error isolation: each handler runs twice, and nothing leaves that differs
    #[cfg(feature = "inject")]
    #[command(long_about = crate::harden::ABOUT)]
    Harden(crate::harden::Args),
    /// Not in this build
    #[cfg(not(feature = "inject"))]
    #[command(hide = true)]
    Demo(Absent),
    /// Not in this build
    #[cfg(not(feature = "inject"))]
    #[command(hide = true)]
    Harden(Absent),
}

/// The arguments of a command that this build lacks, which says so.
#[cfg(not(feature = "inject"))]
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
  exec 3<>/dev/tcp/127.0.0.1/11212; printf 'set k 0 0 5\\r\\nhello\\r\\nget k\\r\\nquit\\r\\n' >&3; cat <&3
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
