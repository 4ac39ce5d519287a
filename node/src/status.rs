//! `status`: every replica once, and whether all of them serve.

use serde_json::json;

use crate::cluster::{ClusterTarget, ReplicaRow, once};
use crate::outcome::{CommandOutcome, CommandVerdict, say, say_json};
use crate::program::text;
use crate::view::{Paint, block, row_json};

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

Examples:
  {program} status
  {program} status --json | jq '.replicas[].status.leader'
  {program} status --admin /run/{program}/admin.sock
  {program} status --admin 127.0.0.1:11311 --admin-token admin.token

Exit code: 0 when every replica serves, 1 otherwise."))]
pub struct Args {
    /// Which cluster.
    #[command(flatten)]
    pub target: ClusterTarget,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints the status of every replica.
pub fn run(args: &Args) -> CommandOutcome {
    let rows = once(&args.target.replicas()?);
    if args.json {
        let rows: Vec<_> = rows.iter().map(row_json).collect();
        say_json(&json!({ "replicas": rows }))?;
    } else {
        let paint = Paint::for_stdout();
        for line in block(&rows) {
            say(&paint.printed(&line))?;
        }
    }
    Ok(CommandVerdict::of(rows.iter().all(ReplicaRow::is_ready)))
}
