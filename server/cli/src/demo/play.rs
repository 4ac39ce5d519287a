//! Plays one scene: places the fault, reads through every replica, and waits for the proof that it was dealt with.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use crosscheck::admin::EvidenceRecord;

use super::scenes::{Object, Proof, Scene};
use super::stage::Stage;
use super::tale::Tale;
use memcached_client::load::LoadCounts;
use node::cluster::SupervisorEvent;
use node::evidence::reported;
use node::inject::place;
use node::view::{Tone, grouped, millis};

/// How long a fault may take to be noticed and dealt with.
const PATIENCE: Duration = Duration::from_secs(10);
/// A request that waits longer than this counts as a stop.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// Decides which bit is hit: the story is the same every time.
const SEED: u64 = 5;

/// How one scene ended.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Ended {
    /// Title of the scene.
    pub fault: &'static str,
    /// The victim.
    pub replica: u8,
    /// Whether everything was as promised.
    pub holds: bool,
    /// Stages at which it was noticed.
    pub noticed_by: String,
    /// Class of the evidence.
    pub class: String,
    /// Time from verdict to installed object in microseconds, where something was repaired.
    pub repair_us: Option<u64>,
    /// Longest wait of any other request meanwhile, in microseconds.
    pub longest_wait_us: u64,
    /// Replies compared meanwhile.
    pub replies_checked: u64,
    /// Of these, wrong ones.
    pub wrong_replies: u64,
    /// What was not as promised.
    pub problem: Option<String>,
}

/// Plays one scene.
pub fn play(scene: &Scene, victim: u8, stage: &mut Stage, tale: &Tale) -> anyhow::Result<Ended> {
    tale.heading(&format!("{} of replica {victim}", capitalised(scene.title)))?;
    tale.explain(scene.tale)?;
    stage.news();
    let dropped = stage.dropped_frames();
    let repairs = stage.status(victim).map_or(0, |status| status.repairs);
    let before = stage.load.counts();
    stage.load.tally().take_longest();
    let target = stage.replicas[usize::from(victim - 1)].clone();
    let injected = place(&target, &scene.fault(SEED))?;
    let done = if injected.done { Tone::Notable } else { Tone::Bad };
    tale.step("injected", done, &injected.what)?;

    let is_hit = injected.done && scene.is_hit(&injected.what);
    let mut problem = (!is_hit).then(|| format!("not the wanted fault: {}", injected.what));
    let object = scene.object.unwrap_or(Object::LongValue);
    if scene.stores {
        stage.store(victim, object)?;
        tale.step(&format!("client {victim}"), Tone::Good, "stores the value anew")?;
    }
    if let Some(wrong) = read_everywhere(object, stage, tale)? {
        problem.get_or_insert(wrong);
    }
    let found = investigate(scene, victim, dropped, repairs, stage)?;
    for record in &found.records {
        let mut line = Tone::Plain.line("  evidence   ");
        line.extend(reported(&brief(record)));
        tale.line(line)?;
    }
    if !found.proven {
        let missing = format!("within {} s nobody reported what was expected", PATIENCE.as_secs());
        tale.step("evidence", Tone::Bad, &missing)?;
        problem.get_or_insert(missing);
    }
    for event in stage.events() {
        if let SupervisorEvent::Said { replica, line } = event {
            tale.explain(&format!("(replica {replica} says: {line})"))?;
        } else {
            let reported = format!("a process ended or started, which it should not: {event:?}");
            problem.get_or_insert(reported);
        }
    }
    let (longest, replies, wrong) = load_since(&before, stage);
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

/// Reads the object through a client of every replica; returns the error, if there was one.
fn read_everywhere(object: Object, stage: &mut Stage, tale: &Tale) -> anyhow::Result<Option<String>> {
    let mut problem = None;
    for replica in stage.replicas.clone() {
        let (tone, seen) = match stage.read(replica.number, object) {
            Ok(took) => (Tone::Good, format!("reads every byte right, in {}", millis(took))),
            Err(why) => (Tone::Bad, problem.insert(why.to_string()).clone()),
        };
        tale.step(&format!("client {}", replica.number), tone, seen)?;
    }
    Ok(problem)
}

/// The load since `before`: its longest wait, its replies, and the wrong ones among them. A scene can be over
/// in less time than a busy machine leaves the load aside, so its first reply is waited for.
fn load_since(before: &LoadCounts, stage: &Stage) -> (Duration, u64, u64) {
    let deadline = Instant::now() + LONGEST_WAIT;
    let mut after = stage.load.counts();
    while after.answered == before.answered && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
        after = stage.load.counts();
    }
    let longest = stage.load.tally().take_longest();
    (longest, after.answered - before.answered, after.wrong - before.wrong)
}

/// What was found out about a fault.
#[derive(Default)]
struct FaultFound {
    /// Records that name the victim, one per kind of notice.
    records: Vec<EvidenceRecord>,
    repair_us: Option<u64>,
    proven: bool,
}

impl FaultFound {
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

/// Waits for the proof. The load continues meanwhile, and the object is read again: an armed fault is injected at the
/// next occasion.
fn investigate(
    scene: &Scene,
    victim: u8,
    dropped: u64,
    repairs: u64,
    stage: &mut Stage,
) -> anyhow::Result<FaultFound> {
    let mut found = FaultFound::default();
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

/// A record without what a story does not need: checksums that were wrong only because of what they stand for.
fn brief(record: &EvidenceRecord) -> EvidenceRecord {
    let is_cause = |object: &&String| !object.ends_with("only its checksum was wrong");
    let mut objects: Vec<String> = record.objects.iter().filter(is_cause).cloned().collect();
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
