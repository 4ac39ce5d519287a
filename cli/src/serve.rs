//! `crosscheck serve`: one replica in this process, as its configuration file says.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crosscheck::Settings;
use rustix::process::{Signal, getpid, kill_process};

use crate::config::{EXAMPLE, NodeConfig};
use crate::descriptors;
use crate::outcome::{Outcome, Verdict, misuse, say};
use crate::signals::Ending;

/// How long a replica may take to stop after its supervisor went away.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// What `serve --help` begins with.
pub const ABOUT: &str = "Runs one replica of a cluster in this process, until SIGTERM or Ctrl-C. Every \
    machine of the cluster runs one, with the same file but for `this_replica`. Everything wrong in the file \
    is told at once, with line and remedy, before anything starts.";

/// Options of `serve`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "Examples:
  crosscheck serve --example-config > crosscheck.toml    a complete file, every field explained
  crosscheck key new --out group.key                     the secret that its group_key names, once per group
  crosscheck serve --config crosscheck.toml              run it
  crosscheck serve --config crosscheck.toml --check      only say whether the file is right
  crosscheck status --admin /run/crosscheck/admin.sock   how it is doing
  crosscheck group begin --admin /run/crosscheck/admin.sock
                                                         once, at replica 1: the group begins

A plain release build carries no fault injector; one with --features inject corrupts itself on an operator's word")]
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
    /// same as `crosscheck group begin`, later). Not for the unit file of a service: what all replicas have
    /// lost would be gone in silence
    #[arg(long)]
    pub begin_group: bool,
    /// Stop when standard input closes: how `up` makes sure that no replica outlives it
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

/// Runs the replica.
pub fn run(args: &Args) -> Outcome {
    if args.example_config {
        say(EXAMPLE.trim_end())?;
        return Ok(Verdict::Holds);
    }
    let path = args.config.as_deref().ok_or_else(|| misuse("--config FILE is missing"))?;
    let mut config = NodeConfig::load(path)?;
    if let Some(lowered) = descriptors::fit(&mut config)? {
        eprintln!("crosscheck: {lowered}");
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
    replica(&config, args.begin_group)
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
fn leave_out(config: &NodeConfig) -> anyhow::Result<()> {
    use crosscheck::object::exempt;
    if let Some(names) = &config.guarded_classes {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        memcached::protect_only(&names);
        eprintln!("crosscheck: only these classes are protected: {names:?}");
    }
    if !config.before_images {
        exempt::without_before_images();
        eprintln!("crosscheck: no before-images are kept");
    }
    if !config.hold_replies {
        eprintln!("crosscheck: replies leave before they are compared");
    }
    Ok(())
}

#[cfg(not(feature = "inject"))]
fn leave_out(config: &NodeConfig) -> anyhow::Result<()> {
    if config.guarded_classes.is_some() || !config.before_images || !config.hold_replies {
        return Err(misuse(
            "guarded_classes, before_images and replies are for benchmarks, and this build has all protections; \
                remove them, or build with --features inject",
        ));
    }
    Ok(())
}

/// What an operator has to see to is told from what may be over when the replica is started again, by the exit code.
fn failure(error: crosscheck::ServeError) -> anyhow::Error {
    if error.is_operators() { misuse(error.to_string()) } else { error.into() }
}

/// The one place that knows how the service and the pipeline are put together.
fn replica(config: &NodeConfig, begins: bool) -> Outcome {
    leave_out(config)?;
    let options = config.service();
    let service = memcached::Memcached::new(options).map_err(|error| misuse(error.to_string()))?;
    let stats = service.stats().clone();
    let make_protocol: crosscheck::MakeProtocol<memcached::Connection> =
        Arc::new(move |clients| memcached::Connection::new(options, stats.clone(), clients.clone()));
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
                "crosscheck: replica {} has to be replaced: {why}. Start it again: its peers fill it",
                config.this_replica
            );
            Ok(Verdict::Fails)
        }
        Err(error) => Err(failure(error)),
    }
}

#[cfg(test)]
mod tests {
    use crosscheck::{Durability, ServeError, snapshot::SnapshotError};

    use super::*;
    use crate::outcome::Misuse;

    /// What `serve` prints when it ends with this error, and whether it is the operator's to mend.
    fn told(error: ServeError) -> (String, bool) {
        let error = failure(error);
        (format!("{error:#}"), error.is::<Misuse>())
    }

    #[test]
    fn a_data_directory_that_cannot_be_used_is_said_once_and_no_restart_helps() {
        let root = tempfile::tempdir().expect("a directory");
        let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let admin = crosscheck::admin::Endpoint::Unix(root.path().join("admin.sock"));
        let mut config = NodeConfig::new(1, vec![nowhere; 3], nowhere, admin);
        config.durability = Durability::Disk(root.path().to_owned());
        for name in ["identity", "state.cut", "log/00000007.log"] {
            std::fs::create_dir_all(root.path().join("log")).expect("a directory");
            std::fs::write(root.path().join(name), "mine").expect("a file");
            let error = replica(&config, false).expect_err("it does not start");
            let text = format!("{error:#}");
            assert!(error.is::<Misuse>(), "{text}");
            assert_eq!(text.matches(&format!("{name} is not a file of this program")).count(), 1, "{text}");
            assert_eq!(text.matches("move that file away and start again").count(), 1, "{text}");
            std::fs::remove_file(root.path().join(name)).expect("it is still there");
        }
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
