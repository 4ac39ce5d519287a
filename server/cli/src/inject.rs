//! `crosscheck inject`: the faults that replicas place in themselves, and the tracer, an injector that needs no help of
//! the server.

use node::outcome::CommandOutcome;
use node::program::text;

use crate::native::{self, Native};

/// The beginning of `inject --help`.
pub fn about() -> String {
    format!("{} {NATIVE}", text(node::inject::ABOUT))
}

const NATIVE: &str = "The commands below (golden to report) are another injector: they flip bits in single \
    instructions of any server, by a tracer, and the server needs no help for it.";

/// Options of `inject`.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    /// Faults in single machine instructions, from outside the process.
    #[command(subcommand)]
    pub native: Option<Native>,
    /// Faults that a replica places in itself.
    #[command(flatten)]
    pub own: node::inject::Args,
}

/// Places the faults.
pub fn run(args: &Args) -> CommandOutcome {
    match &args.native {
        Some(native) => native::run(native),
        None => node::inject::run(&args.own),
    }
}
