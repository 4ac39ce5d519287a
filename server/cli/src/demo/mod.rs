//! `crosscheck demo`: a cluster under load, corrupted in all possible ways, and reported line by line.

mod play;
mod scenes;
mod stage;
mod tale;

use anyhow::Context;

use node::digest;
use node::outcome::{CommandOutcome, CommandVerdict, misuse};
use node::signals::Ending;
use node::view::{Tone, ViewLine, grouped, micros};
use play::{Ended, play};
use scenes::SCENES;
use stage::Stage;
use tale::Tale;

/// What `demo --help` begins with.
pub const ABOUT: &str = "Starts a cluster of its own on free ports and puts a load on it that compares every byte of \
every reply with a model. Then it corrupts one replica after the other: a value, a key, a slot of the table, an object \
in use, a digest, a reply, a message. Each time it tells what it does, reads through every replica, and shows who was \
found wrong, what was repaired and how long other requests waited. In the end it compares the state of all replicas \
bit for bit.";

/// Options of `demo`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "Examples:
  crosscheck demo                  at a reader's pace
  crosscheck demo --speed 0        without pauses (also into a pipe)
  crosscheck demo --replicas 5     five replicas survive two faulty ones
  crosscheck demo --json           one JSON value per scene

Exit code: 0 when every fault was noticed, named and dealt with, no client saw a wrong byte, and the replicas are equal
in the end; 1 otherwise.")]
pub struct Args {
    /// How many replicas: 3, 5 or 7
    #[arg(long, short = 'n', value_name = "N", default_value_t = 3)]
    pub replicas: u8,
    /// Pace on a terminal: 2 = twice as fast, 0 = no pauses
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub speed: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Tells the story.
pub fn run(args: &Args) -> CommandOutcome {
    if args.replicas < 3 {
        return Err(misuse("the story needs at least 3 replicas: 2 that outvote 1"));
    }
    let ending = Ending::catch()?;
    let tale = Tale::new(args.json, args.speed, ending.clone());
    tale.heading(&format!("A cluster of {} replicas, each a process of its own", args.replicas))?;
    let mut stage = Stage::set(args.replicas, &ending).context("starting the demonstration's cluster")?;
    for replica in &stage.replicas {
        let clients = replica.clients.map(|address| address.to_string()).unwrap_or_default();
        tale.step(
            &format!("replica {}", replica.number),
            Tone::Good,
            format!("serves memcached clients on {clients}"),
        )?;
    }
    tale.step(
        "load",
        Tone::Plain,
        "runs on all of them; every byte of every reply is compared with a model",
    )?;
    let mut endings = Vec::new();
    for (number, scene) in SCENES.iter().enumerate() {
        if tale.is_over() {
            break;
        }
        // Another victim each time: nothing depends on who leads.
        let victim = u8::try_from((number + 1) % usize::from(args.replicas))? + 1;
        let ended = play(scene, victim, &mut stage, &tale)?;
        tale.value("scene", &ended)?;
        endings.push(ended);
    }
    finish(&endings, stage, &tale)
}

fn finish(endings: &[Ended], stage: Stage, tale: &Tale) -> CommandOutcome {
    tale.heading("In the end")?;
    let (seen, keeper) = stage.quiet();
    let answers = digest::collect(&keeper.replicas);
    let equal = digest::compare(&answers);
    for (replica, answer) in &answers {
        let reported = answer.as_ref().map_or_else(ToString::to_string, |digest| digest.digest.clone());
        tale.step(&format!("replica {}", replica.number), Tone::Plain, format!("state digest {reported}"))?;
    }
    let reported = equal.as_ref().map_or_else(String::as_str, |()| "all replicas are bit-identical");
    tale.step("digests", if equal.is_ok() { Tone::Good } else { Tone::Bad }, reported)?;
    let seen_tone = if seen.wrong == 0 { Tone::Good } else { Tone::Bad };
    let reported = format!("{} replies compared byte by byte, {} wrong", grouped(seen.answered), seen.wrong);
    tale.step("clients", seen_tone, reported)?;
    for words in &seen.words {
        tale.step("", Tone::Bad, words)?;
    }
    summary(endings, tale)?;
    let killed = keeper.stop();
    let holds = endings.len() == SCENES.len()
        && endings.iter().all(|ended| ended.holds)
        && equal.is_ok()
        && seen.wrong == 0
        && killed.is_empty();
    let why = equal.err();
    tale.value("end", &serde_json::json!({"holds": holds, "digests": why, "seen": seen, "killed": killed}))?;
    let reported = if holds { "Every promise held." } else { "A PROMISE DID NOT HOLD." };
    tale.line(ViewLine::default())?;
    tale.line((if holds { Tone::Good } else { Tone::Bad }).line(reported))?;
    Ok(CommandVerdict::of(holds))
}

fn summary(endings: &[Ended], tale: &Tale) -> anyhow::Result<()> {
    tale.line(ViewLine::default())?;
    let row = |cells: [&str; 6]| {
        let [fault, replica, noticed, class, repair, wait] = cells;
        format!("  {fault:<27} {replica:>7}  {noticed:<24} {class:<14} {repair:>11} {wait:>12}")
    };
    let heads = row(["fault", "replica", "noticed by", "class", "repaired in", "longest wait"]);
    tale.line(Tone::Quiet.line(heads))?;
    for ended in endings {
        let repair = ended.repair_us.map_or_else(|| "-".to_owned(), micros);
        let wait = micros(ended.longest_wait_us);
        let replica = ended.replica.to_string();
        let cells = row([ended.fault, &replica, &ended.noticed_by, &ended.class, &repair, &wait]);
        tale.line((if ended.holds { Tone::Good } else { Tone::Bad }).line(cells))?;
        if let Some(problem) = &ended.problem {
            tale.line(Tone::Bad.line(format!("    {problem}")))?;
        }
    }
    Ok(())
}
