//! `top`: the status of every replica, full screen and refreshing.

use std::io::IsTerminal;
use std::time::Duration;

use crosscheck::admin::client::Link;
use crosscheck::admin::{Command, EvidenceList};

use crate::cluster::{Observer, Replica, Target, once};
use crate::evidence::told;
use crate::outcome::{Outcome, Verdict, say};
use crate::program::text;
use crate::signals::Ending;
use crate::view::{FullScreen, Keys, Line, Paint, Tone, block};

/// Between two drawings.
const REDRAW: Duration = Duration::from_millis(500);
/// Evidence records shown.
const RECORDS: usize = 12;
/// A replica that does not hand over its evidence in this time is skipped.
const PATIENCE: Duration = Duration::from_millis(300);

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
    pub target: Target,
}

/// Shows the cluster until it is asked to stop.
pub fn run(args: &Args) -> Outcome {
    let replicas = args.target.replicas()?;
    let paint = Paint::for_stdout();
    if !std::io::stdout().is_terminal() {
        for line in block(&once(&replicas)) {
            say(&paint.line(&line, usize::MAX))?;
        }
        return Ok(Verdict::Holds);
    }
    let ending = Ending::catch()?;
    let observer = Observer::start(&replicas)?;
    let mut links: Vec<Link> = replicas.iter().map(|replica| Link::new(replica.admin.clone())).collect();
    let keys = Keys::listen()?;
    let mut screen = FullScreen::enter(paint)?;
    while !ending.asked() {
        let mut lines = block(&observer.rows());
        lines.push(Line::default());
        lines.extend(evidence(&replicas, &mut links));
        lines.push(Line::of(Tone::Quiet, "q leaves"));
        screen.draw(&lines)?;
        if matches!(keys.next(REDRAW), Some(b'q' | b'Q')) {
            break;
        }
    }
    Ok(Verdict::Holds)
}

/// The latest records of the first replica that tells.
fn evidence(replicas: &[Replica], links: &mut [Link]) -> Vec<Line> {
    for (replica, link) in replicas.iter().zip(links) {
        let Ok(list) = link.ask::<EvidenceList>(&Command::Evidence { after: 0 }, PATIENCE) else { continue };
        let heading = format!("evidence, as replica {} saw it", replica.number);
        let mut lines = vec![Line::of(Tone::Strong, heading)];
        lines.extend(list.records.iter().rev().take(RECORDS).map(told));
        return lines;
    }
    Vec::new()
}
