//! `status`: every replica once, and whether all of them serve.

use serde_json::json;

use crate::cluster::{ClusterTarget, ReplicaRow, once};
use crate::outcome::{CommandOutcome, CommandVerdict, say, say_json};
use crate::program::text;
use crate::view::{Paint, block, row_json, tolerates};

/// What `status --help` begins with.
pub const ABOUT: &str = "Asks every replica how it is doing and prints one row for each.";

/// Options of `status`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = text("Columns:
  executed, validated   last log index whose requests ran here; on which f other replicas agree
  mismatches            requests on which replicas disagreed, as this replica saw it
  repairs               objects this replica had repaired
  checks                objects this replica itself found corrupted before it used them
  frames                frames from peers dropped because their checksum failed
  held                  replies kept back now, because no f+1 replicas agree on them

`tolerates N` says how many further replicas may be killed or paused now, the rest serving on by itself, without any
data lost. A replica that does not count is `joining`, `catching up` or `waiting`; while it joins, further lines say how
far the state is that it receives. Before you stop a replica, wait until the group tolerates one:
  until {program} status --tolerates 1; do sleep 1; done

Examples:
  {program} status
  {program} status --json | jq '.replicas[].status.leader'
  {program} status --admin /run/{program}/admin.sock
  {program} status --admin 127.0.0.1:11311 --admin-token admin.token

Exit code: 0 when every replica serves, or the group tolerates as many failures as --tolerates says; 1 otherwise."))]
pub struct Args {
    /// Which cluster.
    #[command(flatten)]
    pub target: ClusterTarget,
    /// Succeed if that many further replicas may fail now, whether all serve or not
    #[arg(long, value_name = "N")]
    pub tolerates: Option<u8>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints the status of every replica.
pub fn run(args: &Args) -> CommandOutcome {
    let rows = once(&args.target.replicas()?);
    let tolerated = tolerates(&rows).map(|(failures, _)| failures);
    if args.json {
        let rows: Vec<_> = rows.iter().map(row_json).collect();
        say_json(&json!({ "replicas": rows, "tolerates": tolerated }))?;
    } else {
        let paint = Paint::for_stdout();
        for line in block(&rows) {
            say(&paint.printed(&line))?;
        }
    }
    let is_well = match args.tolerates {
        Some(wanted) => tolerated.is_some_and(|tolerated| tolerated >= wanted),
        None => rows.iter().all(ReplicaRow::is_ready),
    };
    Ok(CommandVerdict::of(is_well))
}
