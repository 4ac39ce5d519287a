//! memcached as a service of a group, for the command (`main.rs`) and for the programs of the laboratory; and the
//! features of this build.

pub mod service;

use node::NodeCommand;
use node::outcome::CommandOutcome;
use service::{Memcached, MemcachedOptions};

/// Runs a command of every program that runs a group. The replica of memcached is compiled here, once for all programs.
///
/// # Errors
/// Those of [`node::run`].
pub fn run(command: NodeCommand<MemcachedOptions>) -> CommandOutcome {
    node::run::<Memcached>(command)
}

/// Whether this build has the fault injector, and with it the commands that need it.
pub const HAS_INJECTOR: bool = cfg!(feature = "inject");

pub use crosscheck::WITH_INJECTOR;

// Cargo builds one `crosscheck` crate for all crates of a build. Together with `sim`, which needs the injector, this
// program would contain it too, and its `serve` would corrupt itself on request.
const _: () = assert!(
    crosscheck::HAS_INJECTOR == HAS_INJECTOR,
    "this command would carry a fault injector that it was not asked to have: build it alone (`cargo build \
     --release`), or the workspace with `--features inject`"
);
