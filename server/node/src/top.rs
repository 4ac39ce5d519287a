//! `top`: the status of every replica, full screen and refreshing.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use crosscheck::admin::client::Link;
use crosscheck::admin::{AdminCommand, EvidenceList};

use crate::cluster::{ClusterTarget, Observer, ReplicaHandle, once};
use crate::evidence::reported;
use crate::outcome::{CommandOutcome, CommandVerdict, say};
use crate::program::text;
use crate::signals::Ending;
use crate::view::{FullScreen, Paint, Tone, ViewLine, block, live_block};

/// Between two drawings.
const REDRAW: Duration = Duration::from_millis(500);
/// Evidence records shown.
const RECORDS: usize = 12;
/// A replica that does not hand over its evidence in this time is skipped.
const PATIENCE: Duration = Duration::from_millis(300);

/// The error when stdout is a terminal, but no terminal gives keys.
const NO_SCREEN: &str = "the terminal cannot be set up for a full screen; `top | cat` prints one picture";

/// What `top --help` begins with.
pub const ABOUT: &str = "Shows every replica and the latest evidence, full screen, until q or Ctrl-C. Into a \
    pipe it prints one picture and ends.";

/// Options of `top`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = text("Examples:
  {program} top
  {program} top --port 12000

`{program} status --help` explains the columns."))]
pub struct Args {
    /// Which cluster.
    #[command(flatten)]
    pub target: ClusterTarget,
}

/// Shows the cluster until it is asked to stop.
pub fn run(args: &Args) -> CommandOutcome {
    let replicas = args.target.replicas()?;
    let paint = Paint::for_stdout();
    if !std::io::stdout().is_terminal() {
        for line in block(&once(&replicas)) {
            say(&paint.printed(&line))?;
        }
        return Ok(CommandVerdict::Holds);
    }
    let ending = Ending::catch()?;
    let observer = Observer::start(&replicas)?;
    let mut links: Vec<Link> = replicas.iter().map(|replica| Link::new(replica.admin.clone())).collect();
    let mut screen = FullScreen::enter(paint).context(NO_SCREEN)?;
    while !ending.asked() {
        let mut lines = live_block(&observer.rows());
        lines.push(ViewLine::default());
        lines.extend(evidence(&replicas, &mut links));
        screen.draw(&lines)?;
        if screen.leaves(REDRAW) {
            break;
        }
    }
    Ok(CommandVerdict::Holds)
}

/// The latest records of the first replica that tells.
fn evidence(replicas: &[ReplicaHandle], links: &mut [Link]) -> Vec<ViewLine> {
    for (replica, link) in replicas.iter().zip(links) {
        let Ok(list) = link.ask::<EvidenceList>(&AdminCommand::Evidence { after: 0 }, PATIENCE) else {
            continue;
        };
        let heading = format!("evidence, as replica {} saw it", replica.number);
        let mut lines = vec![Tone::Strong.line(heading)];
        lines.extend(list.records.iter().rev().take(RECORDS).map(reported));
        return lines;
    }
    Vec::new()
}
