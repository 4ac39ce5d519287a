//! `crosscheck demo`: a cluster under load, corrupted in every way there is, told line by line.

mod scenes;
mod stage;
mod tale;

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use crosscheck::admin::EvidenceRecord;

use crate::digest;
use crate::evidence::told;
use crate::inject::place;
use crate::outcome::{Outcome, Verdict, misuse};
use crate::signals::Ending;
use crate::view::{Line, Tone, grouped, micros, millis};
use scenes::{Object, Proof, SCENES, Scene};
use stage::Stage;
use tale::Tale;

/// How long a fault may take to be noticed and dealt with.
const PATIENCE: Duration = Duration::from_secs(10);
/// A request that waits longer than this counts as a stop.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Decides which bit is hit: the story is the same every time.
const SEED: u64 = 5;

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
    /// How many replicas: 3, 5, 7 or 9
    #[arg(long, short = 'n', value_name = "N", default_value_t = 3)]
    pub replicas: u8,
    /// Pace on a terminal: 2 = twice as fast, 0 = no pauses
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub speed: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How one scene ended.
#[derive(Clone, Debug, serde::Serialize)]
struct Ended {
    fault: &'static str,
    replica: u8,
    holds: bool,
    noticed_by: String,
    class: String,
    repair_us: Option<u64>,
    longest_wait_us: u64,
    replies_checked: u64,
    wrong_replies: u64,
    problem: Option<String>,
}

/// Tells the story.
pub fn run(args: &Args) -> Outcome {
    if !cfg!(feature = "inject") {
        return Err(misuse("this binary carries no fault injector; build it with its default features"));
    }
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

/// Plays one scene.
fn play(scene: &Scene, victim: u8, stage: &mut Stage, tale: &Tale) -> anyhow::Result<Ended> {
    tale.heading(&format!("{} of replica {victim}", capitalised(scene.title)))?;
    tale.explain(scene.tale)?;
    stage.news();
    let dropped = stage.dropped_frames();
    let repairs = stage.status(victim).map_or(0, |status| status.repairs);
    let before = stage.load.tally.seen();
    stage.load.tally.take_longest();
    let target = stage.replicas[usize::from(victim - 1)];
    let injected = place(target, &scene.fault(SEED))?;
    let done = if injected.done { Tone::Notable } else { Tone::Bad };
    tale.step("injected", done, &injected.what)?;

    let hits = scene.member.is_none_or(|(_, member)| injected.what.contains(member));
    let mut problem = (!injected.done || !hits).then(|| format!("not the wanted fault: {}", injected.what));
    let object = scene.object.unwrap_or(Object::LongValue);
    if scene.stores {
        stage.store(victim, object)?;
        tale.step(&format!("client {victim}"), Tone::Good, "stores the value anew")?;
    }
    for replica in stage.replicas.clone() {
        match stage.read(replica.number, object) {
            Ok(took) => {
                let seen = format!("reads every byte right, in {}", millis(took));
                tale.step(&format!("client {}", replica.number), Tone::Good, seen)?;
            }
            Err(why) => {
                tale.step(&format!("client {}", replica.number), Tone::Bad, why.to_string())?;
                problem.get_or_insert(why.to_string());
            }
        }
    }
    let found = investigate(scene, victim, dropped, repairs, stage)?;
    for record in &found.records {
        tale.line(Line::of(Tone::Plain, "  evidence   ").followed_by(told(&brief(record))))?;
    }
    if !found.proven {
        let missing = format!("within {} s nobody reported what was expected", PATIENCE.as_secs());
        tale.step("evidence", Tone::Bad, &missing)?;
        problem.get_or_insert(missing);
    }
    for event in stage.events() {
        tale.explain(&format!("(processes: {event:?})"))?;
    }
    let after = stage.load.tally.seen();
    let longest = stage.load.tally.take_longest();
    let (replies, wrong) = (after.answered - before.answered, after.wrong - before.wrong);
    let calm = wrong == 0 && longest < LONGEST_WAIT && replies > 0;
    let seen = format!(
        "{} other replies compared meanwhile, {wrong} wrong, the longest wait was {}",
        grouped(replies),
        millis(longest)
    );
    tale.step("load", if calm { Tone::Good } else { Tone::Bad }, &seen)?;
    if !calm {
        problem.get_or_insert(seen);
    }
    Ok(Ended {
        fault: scene.title,
        replica: victim,
        holds: problem.is_none(),
        noticed_by: found.noticed_by(scene.proof),
        class: found.records.first().map(|record| record.class.clone()).unwrap_or_default(),
        repair_us: found.repair_us,
        longest_wait_us: u64::try_from(longest.as_micros())?,
        replies_checked: replies,
        wrong_replies: wrong,
        problem,
    })
}

/// What was found out about a fault.
#[derive(Default)]
struct Found {
    /// Records that name the victim, one per kind of notice.
    records: Vec<EvidenceRecord>,
    repair_us: Option<u64>,
    proven: bool,
}

impl Found {
    fn noticed_by(&self, proof: Proof) -> String {
        let stages: BTreeSet<&str> = self
            .records
            .iter()
            .map(|record| record.stage.as_str())
            .filter(|stage| *stage != "repair")
            .collect();
        match proof {
            Proof::FrameDropped if stages.is_empty() && self.proven => "frame checksum".to_owned(),
            _ => stages.into_iter().collect::<Vec<_>>().join(", "),
        }
    }
}

/// Waits for the proof. The load goes on meanwhile, and the object is read again: an armed fault strikes at the next
/// occasion.
fn investigate(
    scene: &Scene,
    victim: u8,
    dropped: u64,
    repairs: u64,
    stage: &mut Stage,
) -> anyhow::Result<Found> {
    let mut found = Found::default();
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        for (_, record) in stage.news() {
            let is_new = |other: &EvidenceRecord| other.stage != record.stage;
            if record.replica == Some(victim) && found.records.iter().all(is_new) {
                found.records.push(record);
            }
        }
        let status = stage.status(victim);
        let repaired = status.as_ref().is_some_and(|status| status.repairs > repairs);
        let named = !found.records.is_empty();
        found.proven = match scene.proof {
            Proof::Repaired => named && repaired,
            Proof::Named => named,
            Proof::FrameDropped => stage.dropped_frames() > dropped,
        };
        if found.proven {
            found.repair_us = status.filter(|_| repaired).map(|status| status.last_repair_us);
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(found)
}

fn finish(endings: &[Ended], stage: Stage, tale: &Tale) -> Outcome {
    tale.heading("In the end")?;
    let (seen, keeper) = stage.quiet();
    let answers = digest::collect(&keeper.replicas);
    let equal = digest::compare(&answers);
    for (replica, answer) in &answers {
        let told = answer.as_ref().map_or_else(ToString::to_string, |digest| digest.digest.clone());
        tale.step(&format!("replica {}", replica.number), Tone::Plain, format!("state digest {told}"))?;
    }
    let told = equal.as_ref().map_or_else(String::as_str, |()| "all replicas are bit-identical");
    tale.step("digests", if equal.is_ok() { Tone::Good } else { Tone::Bad }, told)?;
    let seen_tone = if seen.wrong == 0 { Tone::Good } else { Tone::Bad };
    let told = format!("{} replies compared byte by byte, {} wrong", grouped(seen.answered), seen.wrong);
    tale.step("clients", seen_tone, told)?;
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
    let told = if holds { "Every promise held." } else { "A PROMISE DID NOT HOLD." };
    tale.line(Line::default())?;
    tale.line(Line::of(if holds { Tone::Good } else { Tone::Bad }, told))?;
    Ok(Verdict::of(holds))
}

fn summary(endings: &[Ended], tale: &Tale) -> anyhow::Result<()> {
    tale.line(Line::default())?;
    let row = |cells: [&str; 6]| {
        let [fault, replica, noticed, class, repair, wait] = cells;
        format!("  {fault:<27} {replica:>7}  {noticed:<24} {class:<14} {repair:>11} {wait:>12}")
    };
    let heads = row(["fault", "replica", "noticed by", "class", "repaired in", "longest wait"]);
    tale.line(Line::of(Tone::Quiet, heads))?;
    for ended in endings {
        let repair = ended.repair_us.map_or_else(|| "-".to_owned(), micros);
        let wait = micros(ended.longest_wait_us);
        let replica = ended.replica.to_string();
        let cells = row([ended.fault, &replica, &ended.noticed_by, &ended.class, &repair, &wait]);
        tale.line(Line::of(if ended.holds { Tone::Good } else { Tone::Bad }, cells))?;
        if let Some(problem) = &ended.problem {
            tale.line(Line::of(Tone::Bad, format!("    {problem}")))?;
        }
    }
    Ok(())
}

/// A record without what a story does not need: checksums that were wrong only because of what they stand for.
fn brief(record: &EvidenceRecord) -> EvidenceRecord {
    let is_cause = |object: &&String| !object.ends_with("only its checksum was wrong");
    let mut objects: Vec<String> = record.objects.iter().filter(is_cause).cloned().collect();
    if record.outcome.starts_with("self-reported") {
        // The replica itself names the object; the list tells what its abandoned request did not touch.
        objects.clear();
    }
    if objects.is_empty() && record.stage == "repair" {
        objects.extend(record.objects.first().cloned());
    }
    objects.truncate(2);
    EvidenceRecord { objects, ..record.clone() }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
