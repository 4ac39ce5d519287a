//! `serve`: one replica in this process, configured by a file.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crosscheck::{Address, ClientTls, Settings, message};

use crate::config::{ExaminedFor, Findings, NodeConfig, Unresolved, example};
use crate::descriptors;
use crate::outcome::{BrokenMachine, CommandOutcome, CommandVerdict, misuse, say};
use crate::program::{self, text};
use crate::signals::{Ending, Hangups};
use crate::{Application, ServiceOptions};

/// How long a replica may take to stop after its supervisor ended.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two checks for a SIGHUP.
const SIGNAL_PAUSE: Duration = Duration::from_millis(100);
/// Pause between two attempts to resolve a host name.
const RESOLVE_PAUSE: Duration = Duration::from_secs(1);
/// The answer to SIGHUP where there is no certificate: it makes other servers read their configuration again.
const ON_HANGUP: &str = "SIGHUP is ignored: the configuration is read at the start only. To apply a change, stop this \
    replica and start it again, one replica of the group at a time";

/// The beginning of `serve --help`.
pub const ABOUT: &str = "Runs one replica of a cluster in this process, until SIGTERM or Ctrl-C. Every \
    machine of the cluster runs one, with the same file but for `this_replica`. All problems of the file are \
    reported at once, each with its line and a remedy, before anything starts.";

/// Options of `serve`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = text("Examples:
  {program} serve --example-config > {program}.toml    a complete file, every field explained
  {program} key new --out group.key                     the secret that its group_key names, once per group
  {program} serve --config {program}.toml              run it
  {program} serve --config {program}.toml --check      check the file, and exit
  {program} status --admin /run/{program}/admin.sock   its state
  {program} group begin --admin /run/{program}/admin.sock
                                                         once, at replica 1: the group begins
  {program} serve --config {program}.toml --restore FILE
                                                         the same with a backup, at every replica

A plain release build carries no fault injector; one with --features inject corrupts itself at an operator's command"))]
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
    /// Replica 1, once: if no replica has data of a group, begin an empty one as soon as all replicas answer (as the
    /// command `group begin` does later). Not for the unit file of a service: if all replicas lost their data, an empty
    /// group would replace them without a warning
    #[arg(long)]
    pub begin_group: bool,
    /// Begin the group with the state of this backup, not empty: every replica of the group needs the same file, and
    /// replica 1 the word of an operator (`group begin`). A replica with data on its disk, or that joins a group that
    /// runs, does not use it. Take the option away once the group has begun
    #[arg(long, value_name = "FILE")]
    pub restore: Option<PathBuf>,
    /// Stop when standard input closes: ensures for `up` that no replica outlives it
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

/// Runs the replica.
///
/// # Errors
/// A problem that the operator has to correct, or the reason why the replica could not continue.
pub fn run<A: Application>(args: &Args) -> CommandOutcome {
    if args.example_config {
        say(example::<A::Options>().trim_end())?;
        return Ok(CommandVerdict::Holds);
    }
    let path = args.config.as_deref().ok_or_else(|| misuse("--config FILE is missing"))?;
    let signals = Signals::catch()?;
    if args.until_stdin_closes && !args.check {
        let ending = signals.ending.clone();
        std::thread::Builder::new().name("tether".into()).spawn(move || until_stdin_closes(&ending))?;
    }
    let purpose = if args.check { ExaminedFor::Check } else { ExaminedFor::Start };
    let load = || -> anyhow::Result<_> {
        let mut config = NodeConfig::<A::Options>::load(path)?;
        let found = Findings::of(path, &config, purpose);
        found.verdict()?;
        // The address that was found is used until this process ends.
        let own = &mut config.replicas[usize::from(config.this_replica - 1)];
        *own = found.own.map_or_else(|| own.clone(), Address::Fixed);
        Ok((config, found))
    };
    let loaded = if args.check { Some(load()?) } else { signals.retry(load)? };
    let Some((mut config, found)) = loaded else { return Ok(CommandVerdict::Holds) };
    found.warnings().for_each(|warning| message(format_args!("{warning}")));
    let settings = config.settings();
    let for_clients = if settings.is_solo() { 0 } else { settings.client_threads() };
    if let Some(lowered) = descriptors::fit(&mut config.max_connections, for_clients)? {
        message(format_args!("{lowered}"));
    }
    if args.check {
        if let Some(path) = &args.restore {
            crosscheck::backup::verify(path).map_err(|why| misuse(why.to_string()))?;
        }
        say(&format!(
            "{}: replica {} of {}, mode {}",
            path.display(),
            config.this_replica,
            config.replicas.len(),
            config.mode
        ))?;
        return Ok(CommandVerdict::Holds);
    }
    warn_of_names(path, &config);
    run_replica::<A>(&config, (args.begin_group, restored(args)?), signals)
}

/// The backup that the group begins with. A supervisor of a local cluster passes it to every process: one that is
/// started after the group has begun does not need the file, which may be gone.
fn restored(args: &Args) -> anyhow::Result<Option<PathBuf>> {
    let Some(path) = &args.restore else { return Ok(None) };
    match path.metadata() {
        Ok(_) => Ok(Some(path.clone())),
        Err(error) if args.until_stdin_closes => {
            let path = path.display();
            message(format_args!(
                "the backup {path} cannot be read ({error}): this replica can only join its group"
            ));
            Ok(None)
        }
        Err(error) => Err(misuse(format!(
            "--restore {}: {error}. If the group has begun, leave the option out",
            path.display()
        ))),
    }
}

/// Warns of names of other replicas that do not resolve. Nobody waits for that: a name server may take seconds, and
/// start later than this replica.
fn warn_of_names<O: ServiceOptions>(path: &Path, config: &NodeConfig<O>) {
    if config.replicas.iter().all(|address| matches!(address, Address::Fixed(_))) {
        return;
    }
    let (path, config) = (path.to_owned(), config.clone());
    // Without the thread the warning is lost, and nothing else.
    let _ = std::thread::Builder::new().name("names".into()).spawn(move || {
        Findings::of_names(&path, &config).warnings().for_each(|warning| message(format_args!("{warning}")));
    });
}

/// Signals of a process manager to this process.
struct Signals {
    ending: Ending,
    hangups: Hangups,
    /// The certificate that SIGHUP makes this process read again.
    tls: Option<Arc<ClientTls>>,
}

impl Signals {
    fn catch() -> std::io::Result<Self> {
        Ok(Signals { ending: Ending::catch_of_service()?, hangups: Hangups::catch()?, tls: None })
    }

    /// Sleeps for `pause`, or less if the end is requested; returns whether it was.
    fn sleep(&self, pause: Duration) -> bool {
        let ends = self.ending.sleep(pause);
        if self.hangups.take() {
            message(format_args!("{}", on_hangup(self.tls.as_deref())));
        }
        ends
    }

    /// Repeats an attempt until every host name in it resolves: a name server often starts later than its clients. None
    /// if the operator requested the end before.
    fn retry<T>(&self, mut attempt: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<Option<T>> {
        let mut reported = String::new();
        loop {
            match attempt() {
                Ok(value) => return Ok(Some(value)),
                Err(error) if error.is::<Unresolved>() => {
                    let why = error.to_string();
                    if reported != why {
                        message(format_args!("{why}. It is tried again every second"));
                        reported = why;
                    }
                }
                Err(error) => return Err(error),
            }
            if self.sleep(RESOLVE_PAUSE) {
                return Ok(None);
            }
        }
    }
}

/// Does what SIGHUP asks for, and says what that was.
fn on_hangup(tls: Option<&ClientTls>) -> String {
    let Some(tls) = tls else { return ON_HANGUP.to_owned() };
    match tls.reload() {
        Ok(()) => format!(
            "SIGHUP: {} and {} were read again, for later connections; those that are open go on. Everything else of \
             the configuration is read at the start only",
            tls.certificate().display(),
            tls.key().display()
        ),
        Err(problem) => {
            format!("SIGHUP: the certificate from before stays, because {problem}. Then send SIGHUP again")
        }
    }
}

/// Waits until stdin closes, then requests the end of this process. That is no signal: the process may have one
/// already, from a supervisor that signals every process of a service, and a second one would end it at once.
fn until_stdin_closes(ending: &Ending) {
    let mut nothing = [0; 64];
    while std::io::stdin().read(&mut nothing).is_ok_and(|read| read > 0) {}
    ending.ask();
    std::thread::sleep(STOP_PATIENCE);
    message(format_args!(
        "this replica still runs {} s after its supervisor ended; it exits now",
        STOP_PATIENCE.as_secs()
    ));
    std::process::exit(1);
}

/// The exit code distinguishes errors that an operator has to correct from errors that a restart may resolve.
fn failure(error: crosscheck::ServeError) -> anyhow::Error {
    if error.is_operators() { misuse(error.to_string()) } else { error.into() }
}

/// Runs the replica of a checked configuration, until an operator stops it or it has to be replaced. With `begins`,
/// replica 1 begins its group if no replica has data of one.
///
/// # Errors
/// A problem that the operator has to correct, or the reason why the replica could not continue.
pub fn replica<A: Application>(config: &NodeConfig<A::Options>, begins: bool) -> CommandOutcome {
    run_replica::<A>(config, (begins, None), Signals::catch()?)
}

fn run_replica<A: Application>(
    config: &NodeConfig<A::Options>,
    (begins, restore): (bool, Option<PathBuf>),
    signals: Signals,
) -> CommandOutcome {
    #[cfg(feature = "lab")]
    config.left_out.apply();
    let signals = Signals { tls: config.access.tls.clone(), ..signals };
    let (service, make_protocol) = A::build(&config.service).map_err(misuse)?;
    let started = move |stopper: crosscheck::Stopper| {
        // Without the thread only the supervisor receives a signal, and ends the process later.
        let _ = std::thread::Builder::new().name("signals".into()).spawn(move || {
            while !signals.sleep(SIGNAL_PAUSE) {}
            stopper.stop();
        });
    };
    let settings = Settings { begins, restore, ..config.settings() };
    match crosscheck::serve(settings, service, make_protocol, started) {
        Ok(crosscheck::Stop::Asked) => Ok(CommandVerdict::Holds),
        Ok(crosscheck::Stop::Replace(why)) => {
            let next = if config.replicas.len() > 1 {
                "its peers fill it"
            } else {
                "it has no peers, and begins empty"
            };
            message(format_args!(
                "replica {} has to be replaced: {why}. Start it again: {next}",
                config.this_replica
            ));
            Ok(CommandVerdict::Fails)
        }
        Ok(crosscheck::Stop::Broken(why)) => Err(anyhow::Error::new(BrokenMachine(format!(
            "replica {} has ended, and must not be started again on this machine: {why}. The group goes on without it. \
             `{} evidence` at the other replicas shows what was wrong. Replace the memory and the processor of this \
             machine, or move the replica to another one; then start it again: its peers fill it",
            config.this_replica,
            program::name()
        )))),
        Err(error) => Err(failure(error)),
    }
}

#[cfg(test)]
mod tests {
    use crosscheck::{ServeError, snapshot::SnapshotError};

    use super::*;
    use crate::outcome::Misuse;

    /// The text that `serve` prints when it ends with this error, and whether the operator has to correct it.
    fn reported(error: ServeError) -> (String, bool) {
        let error = failure(error);
        (format!("{error:#}"), error.is::<Misuse>())
    }

    #[test]
    fn a_hangup_reads_the_certificate_again_and_keeps_the_old_one_if_that_fails() {
        assert!(on_hangup(None).contains("SIGHUP is ignored"));
        let folder = tempfile::tempdir().expect("a directory");
        let (certificate, key) = crate::config::made_certificate(folder.path());
        let tls = ClientTls::load(&certificate, &key).expect("a certificate");
        assert!(on_hangup(Some(&tls)).contains("cert.pem and"), "{}", on_hangup(Some(&tls)));
        std::fs::write(&certificate, "none").expect("written");
        let reported = on_hangup(Some(&tls));
        assert!(
            reported.contains("from before stays") && reported.contains("cert.pem holds no certificate"),
            "{reported}"
        );
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
            let (text, _) = reported(error);
            assert_eq!(text.matches("the reason").count(), 1, "{text}");
        }
    }
}
