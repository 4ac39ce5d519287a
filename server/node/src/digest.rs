//! `digest`: compares the state of all replicas, bit for bit.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use crosscheck::admin::client::NoAnswer;
use crosscheck::admin::{AdminCommand, Position, StateDigest};
use serde_json::json;

use crate::cluster::{ClusterTarget, ReplicaHandle, at_once};
use crate::outcome::{CommandOutcome, CommandVerdict, say, say_json};
use crate::program::text;
use crate::view::grouped;

/// Computing the digest of a large state takes long.
const PATIENCE: Duration = Duration::from_secs(60);
/// A replica that received its state from its peers between two requests has no digest of the first one's position: all
/// are requested again.
const ATTEMPTS: usize = 8;
/// Pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(250);

/// The beginning of `digest --help`.
pub const ABOUT: &str = "Orders a digest over every object of the state, region by region: each replica takes that of \
    a region at the same position of the log, while requests go on, and they are compared. No request waits for more \
    than one region.";

/// Options of `digest`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = text("Examples:
  {program} digest
  {program} digest --json

Exit code: 0 when all replicas are equal, 1 when one differs or does not answer."))]
pub struct Args {
    /// The cluster.
    #[command(flatten)]
    pub target: ClusterTarget,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One replica's answer.
pub type DigestAnswer = (ReplicaHandle, Result<StateDigest, NoAnswer>);

/// Prints the digests and compares them.
pub fn run(args: &Args) -> CommandOutcome {
    let mut replicas = args.target.replicas()?;
    // A witness has no clients, and no state.
    if replicas.iter().any(|replica| replica.clients.is_some()) {
        replicas.retain(|replica| replica.clients.is_some());
    }
    let answers = collect(&replicas);
    let verdict = compare(&answers);
    if args.json {
        let rows: Vec<_> = answers.iter().map(row_json).collect();
        say_json(&json!({ "equal": verdict.is_ok(), "why_not": verdict.as_ref().err(), "replicas": rows }))?;
    } else {
        for (replica, answer) in &answers {
            say(&match answer {
                Ok(digest) => format!(
                    "replica {}  {}  {} objects at position {}",
                    replica.number,
                    digest.digest,
                    grouped(digest.objects),
                    digest.position.index
                ),
                Err(why) => format!("replica {}  {why}", replica.number),
            })?;
        }
        say(verdict.as_ref().map_or_else(String::as_str, |()| "equal: the replicas are bit-identical"))?;
    }
    Ok(CommandVerdict::of(verdict.is_ok()))
}

fn row_json((replica, answer): &DigestAnswer) -> serde_json::Value {
    match answer {
        Ok(digest) => json!({"replica": replica.number, "digest": digest}),
        Err(why) => json!({"replica": replica.number, "why_not": why.to_string()}),
    }
}

/// The digests of all replicas, made at the same positions of the log.
pub fn collect(replicas: &[ReplicaHandle]) -> Vec<DigestAnswer> {
    let mut answers = round(replicas, PATIENCE);
    for _ in 1..ATTEMPTS {
        let refused = answers.iter().any(|(_, answer)| matches!(answer, Err(NoAnswer::Refused(_))));
        if !refused || answers.iter().all(|(_, answer)| answer.is_err()) {
            break;
        }
        thread::sleep(PAUSE);
        answers = round(replicas, PATIENCE);
    }
    answers
}

/// The same in one attempt: the first replica that answers has the digest ordered; the others are then asked for the
/// digest of the same position. Each has `patience` to answer.
pub fn round(replicas: &[ReplicaHandle], patience: Duration) -> Vec<DigestAnswer> {
    let digest = |replica: &ReplicaHandle, at: Option<Position>| -> DigestAnswer {
        (replica.clone(), replica.ask(&AdminCommand::Digest { at }, patience))
    };
    let mut answers: Vec<DigestAnswer> = Vec::new();
    let mut others = replicas.iter();
    let mut at = None;
    while at.is_none()
        && let Some(first) = others.next()
    {
        let answer = digest(first, None);
        at = answer.1.as_ref().ok().map(|digest| digest.position);
        answers.push(answer);
    }
    answers.extend(at_once(others, |other| digest(other, at)));
    answers
}

/// Whether all answers are equal; otherwise a sentence with the reason.
pub fn compare(answers: &[DigestAnswer]) -> Result<(), String> {
    let silent: Vec<String> = answers
        .iter()
        .filter(|(_, answer)| answer.is_err())
        .map(|(replica, _)| replica.number.to_string())
        .collect();
    if !silent.is_empty() {
        return Err(format!("unknown: no digest from replica {}", silent.join(", ")));
    }
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (replica, answer) in answers {
        let digest = answer.as_ref().map_or("", |answer| &answer.digest);
        groups.entry(digest).or_default().push(replica.number.to_string());
    }
    if groups.len() <= 1 {
        return Ok(());
    }
    let largest = groups.values().map(Vec::len).max().unwrap_or(0);
    let is_majority = |members: &&Vec<String>| members.len() == largest && 2 * largest > answers.len();
    match groups.values().find(is_majority) {
        None => Err("DIFFERENT: no majority of the replicas agrees".to_owned()),
        Some(majority) => {
            let others: Vec<String> =
                groups.values().filter(|members| *members != majority).flatten().cloned().collect();
            Err(format!(
                "DIFFERENT: replica {} differs from replicas {}",
                others.join(", "),
                majority.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use crosscheck::admin::Endpoint;

    use super::*;

    fn answer(number: u8, digest: &str) -> DigestAnswer {
        let replica = ReplicaHandle { number, admin: Endpoint::Unix("admin.sock".into()), clients: None };
        let position = Position { index: 5, ticket: 1 };
        (replica, Ok(StateDigest { position, digest: digest.into(), objects: 1 }))
    }

    #[test]
    fn the_minority_is_named() {
        assert_eq!(compare(&[answer(1, "a"), answer(2, "a"), answer(3, "a")]), Ok(()));
        let reported = compare(&[answer(1, "a"), answer(2, "b"), answer(3, "a")]).unwrap_err();
        assert_eq!(reported, "DIFFERENT: replica 2 differs from replicas 1, 3");
        let reported = compare(&[answer(1, "a"), answer(2, "b"), answer(3, "c")]).unwrap_err();
        assert!(reported.contains("no majority"), "{reported}");
    }

    #[test]
    fn a_silent_replica_is_not_equal() {
        let mut answers = vec![answer(1, "a"), answer(2, "a")];
        answers[1].1 = Err(NoAnswer::Refused("busy".into()));
        assert_eq!(compare(&answers).unwrap_err(), "unknown: no digest from replica 2");
    }
}
