//! The command line of the laboratory: every command, with the help that explains it.

use clap::{Parser, Subcommand};
use cli::service::MemcachedOptions;

/// Everything on the command line.
#[derive(Debug, Parser)]
#[command(
    name = "crosscheck-lab",
    version,
    about = "What measures CrossCheck, simulates it and injects faults",
    long_about = LONG_ABOUT,
    after_help = "`crosscheck-lab COMMAND --help` says more.",
    max_term_width = 110
)]
pub struct Lab {
    /// The command.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// One module or crate per command.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Measure modes and other programs side by side, and report the figures
    #[command(long_about = bench::ABOUT)]
    Bench(bench::Args),
    /// Put a load on a cluster, measure it, and check every byte of every reply
    #[command(long_about = crate::load::ABOUT)]
    Load(crate::load::Args),
    /// Run whole simulated clusters from seeds, with faults, and check every promise after every step
    #[cfg(feature = "inject")]
    #[command(long_about = crate::sim::ABOUT)]
    Sim(crate::sim::Args),
    /// Bring failures to a real cluster on hosts of its own, and check the replies that its clients received
    #[cfg(all(feature = "inject", target_os = "linux"))]
    #[command(long_about = trial::command::ABOUT)]
    Trial(trial::command::Args),
    /// Inject faults in single machine instructions of any server, in campaigns, and report what came of them
    #[cfg(feature = "inject")]
    #[command(subcommand, long_about = crate::inject::ABOUT)]
    Inject(crate::inject::Native),
    /// Run one replica of an experiment
    #[command(hide = true)]
    Serve(node::serve::Args),
    /// Start a cluster of an experiment
    #[command(hide = true)]
    Up(node::up::Args<MemcachedOptions>),
}

const LONG_ABOUT: &str = "\
The laboratory of CrossCheck: benchmarks, simulated clusters, real clusters under failures, and fault injection. It
finds running clusters as `crosscheck` does. Servers that it starts for an experiment are this program.

  crosscheck-lab bench run --quick        all modes side by side, in five minutes
  crosscheck-lab sim                      100 simulated clusters under faults, every promise checked
  crosscheck-lab trial run                a real cluster under partitions, kills and full disks (root)
  crosscheck-lab inject campaign --target lab/tracer/targets/single-00G0.toml

A build with `--no-default-features` has `bench` and `load` only: its servers carry no fault injector, as those that
ship.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Lab::command().debug_assert();
    }

    #[test]
    fn every_command_teaches() {
        for command in Lab::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name} has no summary");
            let pages = command.get_subcommands().chain([command]);
            let teaches = pages.filter_map(|page| page.get_after_long_help().map(ToString::to_string));
            assert!(
                teaches.into_iter().any(|help| help.contains("crosscheck-lab ")),
                "`{name} --help` has no example"
            );
        }
    }
}
