//! `crosscheck digest`: whether the state of all replicas is equal at one position, bit for bit.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use crosscheck::admin::{Command, StateDigest};
use serde_json::json;

use crate::cluster::{Replica, Target};
use crate::control::{NoAnswer, ask};
use crate::outcome::{Outcome, Verdict, say, say_json};
use crate::view::grouped;

/// Summing all of a large state takes its time.
const PATIENCE: Duration = Duration::from_secs(60);
/// Each question takes a position of its own. Digests that are equal in spite of that prove what they say; those that
/// differ do so only when the state stood still between two questions, so they are asked for again this often.
const ATTEMPTS: usize = 8;

/// What `digest --help` begins with.
pub const ABOUT: &str = "Orders a digest over every object of the state: each replica takes it at the same position of the \
log, while requests go on, and they are compared.";

/// Options of `digest`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "Examples:
  crosscheck digest
  crosscheck digest --json

Exit code: 0 when all replicas are equal, 1 when one differs or does not answer.")]
pub struct Args {
    /// Which cluster.
    #[command(flatten)]
    pub target: Target,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One replica's answer.
pub type Answer = (Replica, Result<StateDigest, NoAnswer>);

/// Prints the digests and compares them.
pub fn run(args: &Args) -> Outcome {
    let answers = collect(&args.target.replicas()?);
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
                    digest.index
                ),
                Err(why) => format!("replica {}  {why}", replica.number),
            })?;
        }
        say(verdict.as_ref().map_or_else(String::as_str, |()| "equal: the replicas are bit-identical"))?;
    }
    Ok(Verdict::of(verdict.is_ok()))
}

fn row_json((replica, answer): &Answer) -> serde_json::Value {
    match answer {
        Ok(digest) => json!({"replica": replica.number, "digest": digest}),
        Err(why) => json!({"replica": replica.number, "why_not": why.to_string()}),
    }
}

/// The digests of all replicas: equal ones, or ones that prove a difference, where the load allows it.
pub fn collect(replicas: &[Replica]) -> Vec<Answer> {
    let mut before = Vec::new();
    for _ in 0..ATTEMPTS {
        let mut answers = round(replicas);
        if stood_still(&before, &answers) {
            // Nothing changed at any replica from the first question to the last: all of it is one position's state.
            let last = answers.iter().flat_map(|(_, answer)| answer).map(|digest| digest.index).max();
            for digest in answers.iter_mut().filter_map(|(_, answer)| answer.as_mut().ok()) {
                digest.index = last.unwrap_or(digest.index);
            }
            return answers;
        }
        if compare(&answers).is_ok() {
            return answers;
        }
        before = answers;
    }
    before
}

fn round(replicas: &[Replica]) -> Vec<Answer> {
    thread::scope(|scope| {
        let ask = |replica: Replica| (replica, ask(replica.admin, &Command::Digest, PATIENCE));
        let asked: Vec<_> = replicas.iter().map(|replica| scope.spawn(move || ask(*replica))).collect();
        asked
            .into_iter()
            .map(|answer| answer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Whether every replica gave the same digest twice.
fn stood_still(before: &[Answer], after: &[Answer]) -> bool {
    let same = |(one, other): (&Answer, &Answer)| match (&one.1, &other.1) {
        (Ok(one), Ok(other)) => one.digest == other.digest,
        _ => false,
    };
    before.len() == after.len() && before.iter().zip(after).all(same)
}

/// Whether all answers are equal; otherwise the sentence that says why not.
pub fn compare(answers: &[Answer]) -> Result<(), String> {
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
    let indices: Vec<u64> =
        answers.iter().flat_map(|(_, answer)| answer).map(|digest| digest.index).collect();
    if indices.iter().any(|index| *index != indices[0]) {
        return Err("unknown: the digests are of different positions; ask again under less load".to_owned());
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
    use super::*;

    fn answer(number: u8, index: u64, digest: &str) -> Answer {
        let replica = Replica { number, admin: ([127, 0, 0, 1], 1).into(), clients: None };
        (replica, Ok(StateDigest { index, digest: digest.into(), objects: 1 }))
    }

    #[test]
    fn equal_digests_are_equal_even_at_different_positions() {
        assert_eq!(compare(&[answer(1, 5, "a"), answer(2, 6, "a"), answer(3, 5, "a")]), Ok(()));
    }

    #[test]
    fn the_minority_is_named_and_different_positions_prove_nothing() {
        let told = compare(&[answer(1, 5, "a"), answer(2, 5, "b"), answer(3, 5, "a")]).unwrap_err();
        assert_eq!(told, "DIFFERENT: replica 2 differs from replicas 1, 3");
        let told = compare(&[answer(1, 5, "a"), answer(2, 6, "b"), answer(3, 5, "a")]).unwrap_err();
        assert!(told.starts_with("unknown: "), "{told}");
        let told = compare(&[answer(1, 5, "a"), answer(2, 5, "b"), answer(3, 5, "c")]).unwrap_err();
        assert!(told.contains("no majority"), "{told}");
    }

    #[test]
    fn a_state_stands_still_when_every_replica_repeats_itself() {
        let first = [answer(1, 5, "a"), answer(2, 6, "b")];
        assert!(stood_still(&first, &[answer(1, 8, "a"), answer(2, 7, "b")]));
        assert!(!stood_still(&first, &[answer(1, 8, "a"), answer(2, 7, "c")]));
        assert!(!stood_still(&[], &first));
    }

    #[test]
    fn a_silent_replica_is_not_equal() {
        let mut answers = vec![answer(1, 5, "a"), answer(2, 5, "a")];
        answers[1].1 = Err(NoAnswer::Refused("busy".into()));
        assert_eq!(compare(&answers).unwrap_err(), "unknown: no digest from replica 2");
    }
}
