//! `backup`: the state of a running group at one position, in a file; and whether such a file is as it was written.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crosscheck::backup::{self, Backup, BackupError, TakeProgress, Taking};
use serde_json::json;

use crate::cluster::ClusterTarget;
use crate::evidence::date_and_time;
use crate::outcome::{CommandOutcome, CommandVerdict, misuse, say, say_json};
use crate::program::{self, text};
use crate::view::{bytes, grouped};

/// A backup is given up if nothing comes for so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two lines about its progress.
const PROGRESS: Duration = Duration::from_secs(2);

/// The beginning of `backup --help`.
pub const ABOUT: &str = "Writes the state of a running group into a file: that after one position of the log, while \
    requests go on. Everything that was acknowledged before the command is in it. Each piece is taken from one replica \
    on the digest that f+1 replicas give for it, so that a replica whose memory is wrong puts nothing into the file.";

/// Options of `backup`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_long_help = text("Examples:
  {program} backup --to state.backup                    of a cluster that `up` started
  {program} backup --to state.backup --admin /run/{program}/admin.sock --admin ./r2.sock
                                                         of replicas that `serve` started: f+1 or more of them
  {program} backup verify state.backup                  is every byte as it was written?
  {program} up --restore state.backup                   a group that begins with it

The file holds what clients have stored, and is for its owner alone. A group that begins with it (`up --restore`,
`serve --restore`) has the service, the mode and the kinds of objects of the one that it was taken of.

Exit code: 0 when the backup is there, or intact; 1 when it could not be taken, or is not intact; 2 when the file is
there already."))]
pub struct Args {
    /// Another task than to take a backup.
    #[command(subcommand)]
    pub action: Option<Action>,
    /// The file that is written; one that is there is not replaced
    #[arg(long, value_name = "FILE", required = true)]
    pub to: Option<PathBuf>,
    /// Replace a file that is there, once the new one is whole
    #[arg(long)]
    pub force: bool,
    /// The cluster.
    #[command(flatten)]
    pub target: ClusterTarget,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What can be done with a backup that is there.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Action {
    /// Check every byte of a backup, and say what it holds
    #[command(after_long_help = text("Example:
  {program} backup verify state.backup

Each flipped bit is found, and each missing or further byte.

Exit code: 0 when the file is as it was written, else 1."))]
    Verify {
        /// The backup
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Takes a backup, or checks one.
pub fn run(args: &Args) -> CommandOutcome {
    match (&args.action, &args.to) {
        (Some(Action::Verify { file, json }), _) => {
            let backup = backup::verify(file)?;
            report(file, &backup, "intact", *json)
        }
        (None, Some(to)) => take(args, to),
        (None, None) => Err(misuse("--to FILE is missing")),
    }
}

fn take(args: &Args, to: &Path) -> CommandOutcome {
    let sources: Vec<_> = args.target.replicas()?.into_iter().map(|replica| replica.admin).collect();
    let mut reported = Instant::now();
    let mut progress = |TakeProgress { bytes: there, total }: TakeProgress| {
        if reported.elapsed() >= PROGRESS {
            reported = Instant::now();
            let of = total.map_or_else(String::new, |total| format!(" of {}", bytes(total)));
            eprintln!("{}: {}{of} so far", program::name(), bytes(there));
        }
    };
    let taking = Taking { to, replaces: args.force, patience: PATIENCE };
    match backup::take(&sources, &taking, &mut progress) {
        Ok(backup) => report(to, &backup, "written", args.json),
        Err(error @ BackupError::Exists { .. }) => Err(misuse(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

fn report(file: &Path, backup: &Backup, is: &str, as_json: bool) -> CommandOutcome {
    let Backup { header, end, .. } = backup;
    let group = &header.group;
    let setting = |wanted: &str| {
        let found = group.settings.iter().find(|(name, _)| name == wanted);
        found.map_or("not known", |(_, value)| value.as_str())
    };
    let (service, mode) = (setting(crosscheck::SERVICE), setting("mode"));
    if as_json {
        say_json(&json!({
            "file": file, "is": is, "sha256": backup.sha256(), "service": service, "mode": mode, "group": group.cluster,
            "release": group.release, "replicas": group.replicas, "agreed_by": header.agreed_by,
            "taken_us": header.made_us, "position": end.index, "batch": end.batch, "ordered_time_us": end.time_us,
            "pieces": end.pieces, "bytes": end.bytes,
        }))?;
    } else {
        say(&format!(
            "{}: {is}, backup {}: the state of {service} in mode {mode}, group {}, after entry {} of the log, ordered \
                at {}; {} in {} piece{}, each vouched for by {} of {} replicas",
            file.display(),
            backup.name(),
            group.cluster,
            grouped(end.index),
            date_and_time(end.time_us),
            bytes(end.bytes),
            end.pieces,
            if end.pieces == 1 { "" } else { "s" },
            header.agreed_by,
            group.replicas
        ))?;
    }
    Ok(CommandVerdict::Holds)
}
