//! `evidence`: what was wrong, where, and how it ended.

use std::collections::BTreeMap;
use std::time::Duration;

use crosscheck::admin::client::{Link, NoAnswer};
use crosscheck::admin::{AdminCommand, EvidenceList, EvidenceRecord};
use jiff::Timestamp;
use serde_json::json;

use crate::cluster::{ClusterTarget, ReplicaHandle};
use crate::outcome::{CommandOutcome, CommandVerdict, say, say_json};
use crate::program::{self, text};
use crate::signals::Ending;
use crate::view::{Paint, Tone, ViewLine};

/// Between two questions with --follow.
const PERIOD: Duration = Duration::from_millis(300);
/// A replica that does not answer in this time is asked again in the next round.
const PATIENCE: Duration = Duration::from_secs(2);

/// What `evidence --help` begins with.
pub const ABOUT: &str = "Lists the evidence records: every disagreement between replicas and every object \
    that failed its own check, with the replica and object that were wrong, the difference, the class \
    (hardware-like, nondeterminism, software-bug), and how it ended. Each replica keeps its own records; the \
    same disagreement shows at each that saw it.";

/// Options of `evidence`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = text("Examples:
  {program} evidence
  {program} evidence --follow
  {program} evidence --replica 1 --json | jq .objects

Exit code: 0 when at least one replica answered (also when nothing was ever wrong), 1 otherwise."))]
pub struct Args {
    /// Which cluster.
    #[command(flatten)]
    pub target: ClusterTarget,
    /// Only what this replica saw, from 1
    #[arg(long, short, value_name = "R")]
    pub replica: Option<u8>,
    /// Go on and print new records as they come, until Ctrl-C
    #[arg(long, short)]
    pub follow: bool,
    /// Print JSON, one record per line, with the replica that saw it as `seen_by`
    #[arg(long)]
    pub json: bool,
}

/// Prints the records.
pub fn run(args: &Args) -> CommandOutcome {
    let ending = Ending::catch()?;
    let mut replicas = args.target.replicas()?;
    replicas.retain(|replica| args.replica.is_none_or(|number| number == replica.number));
    let mut watch = EvidenceWatch::new(&replicas);
    let paint = Paint::for_stdout();
    let mut answered = false;
    loop {
        let round = watch.poll();
        answered |= round.answered > 0;
        for (seen_by, record) in &round.records {
            if args.json {
                let mut value = serde_json::to_value(record)?;
                value["seen_by"] = json!(seen_by);
                say_json(&value)?;
            } else {
                let mut line = Tone::Quiet.line(format!("seen by {seen_by}  "));
                line.extend(reported(record));
                say(&paint.printed(&line))?;
            }
        }
        if !args.follow {
            for (replica, why) in &round.silent {
                eprintln!("{}: replica {replica}: {why}", program::name());
            }
            return Ok(CommandVerdict::of(answered));
        }
        if ending.sleep(PERIOD) {
            return Ok(CommandVerdict::of(answered));
        }
    }
}

/// One record in one line.
pub fn reported(record: &EvidenceRecord) -> ViewLine {
    let (tone, who) = match record.replica {
        Some(replica) => (Tone::Notable, format!("replica {replica} was wrong")),
        None => (Tone::Bad, "the faulty replica is not known".to_owned()),
    };
    let kind = record.kind.as_ref().map(|kind| format!(" ({kind})")).unwrap_or_default();
    let at = record
        .request
        .map(|(index, number)| format!(" in request {index}.{number}{kind}"))
        .unwrap_or_default();
    let core = record.core.map(|core| format!(", core {core}")).unwrap_or_default();
    let objects = match record.objects.as_slice() {
        [] => String::new(),
        objects => format!(": {}", objects.join("; ")),
    };
    let ended = if record.outcome == "held" { Tone::Bad } else { Tone::Good };
    Tone::Quiet.line(format!("{}  #{}  ", date_and_time(record.time_us), record.number))
        + tone.span(who)
        + Tone::Plain.span(format!("{at}{core} (found by {}){objects}  ", record.stage))
        + Tone::Quiet.span(format!("[{}] ", record.class))
        + ended.span(&record.outcome)
}

/// Date and time in UTC as RFC 3339 has it: records of several machines are compared by it. A time that no
/// calendar has is shown as it is.
pub(crate) fn date_and_time(time_us: u64) -> String {
    let time = i64::try_from(time_us).ok().and_then(|time_us| Timestamp::from_microsecond(time_us).ok());
    time.map_or_else(|| format!("{time_us} us"), |time| format!("{time:.3}"))
}

/// Reads each replica's records once each.
#[derive(Debug)]
pub struct EvidenceWatch {
    links: Vec<(u8, Link)>,
    /// Last number seen of each replica. A replica that restarts begins again at 1, with an empty list.
    after: BTreeMap<u8, u64>,
}

/// What one round of questions brought.
#[derive(Debug, Default)]
pub struct Round {
    /// New records with the replica that saw them, oldest first.
    pub records: Vec<(u8, EvidenceRecord)>,
    /// Replicas that answered.
    pub answered: usize,
    /// Replicas that did not, and why.
    pub silent: Vec<(u8, NoAnswer)>,
}

impl EvidenceWatch {
    /// Has seen nothing yet.
    pub fn new(replicas: &[ReplicaHandle]) -> Self {
        let link = |replica: &ReplicaHandle| (replica.number, Link::new(replica.admin.clone()));
        EvidenceWatch { links: replicas.iter().map(link).collect(), after: BTreeMap::new() }
    }

    /// Asks every replica for what is new.
    pub fn poll(&mut self) -> Round {
        let mut round = Round::default();
        for (number, link) in &mut self.links {
            let after = self.after.entry(*number).or_default();
            match link.ask::<EvidenceList>(&AdminCommand::Evidence { after: *after }, PATIENCE) {
                Ok(list) => {
                    round.answered += 1;
                    *after = list.records.iter().map(|record| record.number).fold(*after, u64::max);
                    round.records.extend(list.records.into_iter().map(|record| (*number, record)));
                }
                Err(why) => {
                    if matches!(why, NoAnswer::Silent(_)) {
                        *after = 0;
                    }
                    round.silent.push((*number, why));
                }
            }
        }
        round.records.sort_by_key(|(_, record)| record.time_us);
        round
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_as_a_sentence() {
        let record = EvidenceRecord {
            number: 3,
            time_us: 3_661_002_000,
            replica: Some(2),
            request: Some((77, 4)),
            objects: vec!["item \"k\" (Item, object 7:12.0), field accessed_s: bit 10 wrong".into()],
            class: "hardware-like".into(),
            stage: "entry-check".into(),
            outcome: "repaired".into(),
            core: None,
            took_us: None,
            kind: Some("set".into()),
        };
        assert_eq!(
            reported(&record).to_string(),
            "1970-01-01T01:01:01.002Z  #3  replica 2 was wrong in request 77.4 (set) (found by entry-check): \
             item \"k\" (Item, object 7:12.0), field accessed_s: bit 10 wrong  [hardware-like] repaired"
        );
    }
}
