//! `serve`: one replica in this process, as its configuration file says.

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use crosscheck::Settings;
use rustix::process::{Signal, getpid, kill_process};

use crate::config::{NodeConfig, example};
use crate::descriptors;
use crate::outcome::{Outcome, Verdict, misuse, say};
use crate::program::{self, text};
use crate::signals::Ending;
use crate::{Application, Options};

/// How long a replica may take to stop after its supervisor went away.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// What `serve --help` begins with.
pub const ABOUT: &str = "Runs one replica of a cluster in this process, until SIGTERM or Ctrl-C. Every \
    machine of the cluster runs one, with the same file but for `this_replica`. Everything wrong in the file \
    is told at once, with line and remedy, before anything starts.";

/// Options of `serve`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = text("Examples:
  {program} serve --example-config > {program}.toml    a complete file, every field explained
  {program} key new --out group.key                     the secret that its group_key names, once per group
  {program} serve --config {program}.toml              run it
  {program} serve --config {program}.toml --check      only say whether the file is right
  {program} status --admin /run/{program}/admin.sock   how it is doing
  {program} group begin --admin /run/{program}/admin.sock
                                                         once, at replica 1: the group begins

A production build carries no fault injector: cargo build --release --no-default-features"))]
pub struct Args {
    /// The replica's configuration, TOML
    #[arg(long, short, value_name = "FILE", required_unless_present = "example_config")]
    pub config: Option<PathBuf>,
    /// Print a complete configuration with a comment for every field, and exit
    #[arg(long, conflicts_with = "config")]
    pub example_config: bool,
    /// Read and check the configuration, and exit
    #[arg(long)]
    pub check: bool,
    /// Replica 1, once: if no replica has data of a group, begin an empty one as soon as all are there (the
    /// same as the command `group begin`, later). Not for the unit file of a service: what all replicas have
    /// lost would be gone in silence
    #[arg(long)]
    pub begin_group: bool,
    /// Stop when standard input closes: how `up` makes sure that no replica outlives it
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

/// Runs the replica.
///
/// # Errors
/// What the operator has to mend, or why the replica could not go on.
pub fn run<A: Application>(args: &Args) -> Outcome {
    if args.example_config {
        say(example::<A::Options>().trim_end())?;
        return Ok(Verdict::Holds);
    }
    let path = args.config.as_deref().ok_or_else(|| misuse("--config FILE is missing"))?;
    let mut config = NodeConfig::<A::Options>::load(path)?;
    if let Some(lowered) = descriptors::fit(&mut config.max_connections)? {
        eprintln!("{}: {lowered}", program::name());
    }
    if args.check {
        say(&format!(
            "{}: replica {} of {}, mode {}",
            path.display(),
            config.this_replica,
            config.replicas.len(),
            config.mode
        ))?;
        return Ok(Verdict::Holds);
    }
    if args.until_stdin_closes {
        std::thread::Builder::new().name("tether".into()).spawn(until_stdin_closes)?;
    }
    replica::<A>(&config, args.begin_group)
}

/// Waits for the end of stdin, then stops this process the way an operator would.
fn until_stdin_closes() {
    let mut nothing = [0; 64];
    while std::io::stdin().read(&mut nothing).is_ok_and(|read| read > 0) {}
    let _ = kill_process(getpid(), Signal::TERM);
    std::thread::sleep(STOP_PATIENCE);
    eprintln!("did not stop within {} s of its supervisor's end", STOP_PATIENCE.as_secs());
    std::process::exit(1);
}

/// Leaves out what a benchmark wants to know the price of.
#[cfg(feature = "inject")]
fn leave_out<O: Options>(config: &NodeConfig<O>) -> anyhow::Result<()> {
    if !config.before_images {
        crosscheck::object::exempt::without_before_images();
        eprintln!("{}: no before-images are kept", program::name());
    }
    if !config.hold_replies {
        eprintln!("{}: replies leave before they are compared", program::name());
    }
    Ok(())
}

#[cfg(not(feature = "inject"))]
fn leave_out<O: Options>(config: &NodeConfig<O>) -> anyhow::Result<()> {
    if !config.before_images || !config.hold_replies {
        return Err(misuse(
            "before_images and replies are for benchmarks, and this build is not; remove them, or build with \
                --features inject",
        ));
    }
    Ok(())
}

/// What an operator has to see to is told from what may be over when the replica is started again, by the exit code.
fn failure(error: crosscheck::ServeError) -> anyhow::Error {
    if error.is_operators() { misuse(error.to_string()) } else { error.into() }
}

/// Runs the replica of a checked configuration, until it is told to stop or has to be replaced. It `begins` its group
/// if that is replica 1 and no replica has data of one.
///
/// # Errors
/// What the operator has to mend, or why the replica could not go on.
pub fn replica<A: Application>(config: &NodeConfig<A::Options>, begins: bool) -> Outcome {
    leave_out(config)?;
    let (service, make_protocol) = A::build(&config.service).map_err(misuse)?;
    let ending = Ending::catch()?;
    let started = move |stopper: crosscheck::Stopper| {
        // Without the thread a signal is only seen by the supervisor, which ends the process later.
        let _ = std::thread::Builder::new().name("signals".into()).spawn(move || {
            while !ending.sleep(Duration::from_secs(3600)) {}
            stopper.stop();
        });
    };
    match crosscheck::serve(Settings { begins, ..config.settings() }, service, make_protocol, started) {
        Ok(crosscheck::Stop::Asked) => Ok(Verdict::Holds),
        Ok(crosscheck::Stop::Replace(why)) => {
            eprintln!(
                "{}: replica {} has to be replaced: {why}. Start it again: its peers fill it",
                program::name(),
                config.this_replica
            );
            Ok(Verdict::Fails)
        }
        Err(error) => Err(failure(error)),
    }
}

#[cfg(test)]
mod tests {
    use crosscheck::{ServeError, snapshot::SnapshotError};

    use super::*;
    use crate::outcome::Misuse;

    /// What `serve` prints when it ends with this error, and whether it is the operator's to mend.
    fn told(error: ServeError) -> (String, bool) {
        let error = failure(error);
        (format!("{error:#}"), error.is::<Misuse>())
    }

    #[test]
    fn every_reason_is_said_once() {
        let io = || std::io::Error::other("the reason");
        let path = || PathBuf::from("data/state.cut");
        let errors = [
            ServeError::Io(io()),
            ServeError::Snapshot(SnapshotError::Io { path: path(), error: io() }),
            ServeError::Snapshot(SnapshotError::Corrupt { path: path(), why: "the reason".into() }),
        ];
        for error in errors {
            let (text, _) = told(error);
            assert_eq!(text.matches("the reason").count(), 1, "{text}");
        }
    }
}
