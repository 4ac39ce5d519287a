//! Decides for every key whether one correct server could have given these answers, in some order that agrees with
//! their times.
//!
//! The decision is that of Wing, Gong and Lowe, as `todc-utils` implements it; linearizability is local, so that each
//! key's history is judged alone (Herlihy and Wing, theorem 1). An operation whose answer never came is given an answer
//! after all others: it may take effect at any time since it was sent, or so late that no client reads it. A `gets` of
//! several keys counts as one read of each, so that its atomicity is not checked here (the simulation checks it).

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use serde::Serialize;
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

use super::{Bytes, HistoryEvent, Key, NEVER, Operation, OperationRecord};
use crate::blocking::CasReply;

/// Steps of the search for one key; a history that needs more is reported as undecided, never as right.
const MOST_STEPS: u64 = 200_000;
/// Wrong keys whose histories are kept.
const MOST_SHOWN: usize = 20;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// The payload that unwinds a search that takes too long.
struct TooLong;

/// The state of one key, changed by one request after another.
#[derive(Debug)]
struct OneKey;

impl Specification for OneKey {
    type State = Option<Bytes>;
    type Operation = Operation;

    fn init() -> Self::State {
        None
    }

    fn apply(event: &Operation, state: &Self::State) -> (bool, Self::State) {
        STEPS.with(|steps| {
            if steps.get() == 0 {
                // Unwinds without a panic message, to leave the search.
                panic::resume_unwind(Box::new(TooLong));
            }
            steps.set(steps.get() - 1);
        });
        step(event, state)
    }
}

/// Whether a key in `state` can give this answer, and its state afterwards. A missing answer matches any answer.
fn step(event: &Operation, state: &Option<Bytes>) -> (bool, Option<Bytes>) {
    let there = state.is_some();
    let fits = |reported: &Option<bool>, is: bool| reported.is_none_or(|reported| reported == is);
    match event {
        Operation::Read(reported) => (reported == state, state.clone()),
        Operation::Set(value) => (true, Some(value.clone())),
        Operation::Add(value, reported) => {
            (fits(reported, !there), if there { state.clone() } else { Some(value.clone()) })
        }
        Operation::Replace(value, reported) => (fits(reported, there), there.then(|| value.clone())),
        Operation::Append(suffix, reported) => {
            (fits(reported, there), state.as_ref().map(|value| [&value[..], &suffix[..]].concat().into()))
        }
        Operation::Cas(expected, value, reported) => {
            let (is, after) = match state {
                None => (CasReply::Missing, None),
                Some(now) if now == expected => (CasReply::Stored, Some(value.clone())),
                Some(now) => (CasReply::Exists, Some(now.clone())),
            };
            (reported.is_none_or(|reported| reported == is), after)
        }
        Operation::Delete(reported) => (fits(reported, there), None),
        Operation::Incr(by, reported) => {
            let number =
                state.as_ref().and_then(|value| std::str::from_utf8(value).ok()?.parse::<u64>().ok());
            let is = number.map(|number| number.wrapping_add(*by));
            // Counters hold numbers only: one that exists and holds no number is wrong, whatever the answer is.
            let fits = is.is_some() == there && reported.is_none_or(|reported| reported == is);
            (fits, is.map(|number| Arc::from(number.to_string().as_bytes())))
        }
    }
}

/// The verdict on one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum KeyVerdict {
    /// A correct server could have given these answers.
    Linearizable,
    /// No correct server could have given them.
    Wrong(String),
    /// The search was given up.
    Undecided,
}

/// Judges the history of one key.
pub fn judge(records: &[OperationRecord]) -> KeyVerdict {
    if let Some(why) = numbers_contradict(records) {
        return KeyVerdict::Wrong(why);
    }
    if records.is_empty() {
        return KeyVerdict::Linearizable;
    }
    // Of two events at the same time the request comes first: the operations are concurrent.
    let mut times: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * records.len());
    for (number, record) in records.iter().enumerate() {
        times.push((record.sent, false, number));
        times.push((record.answered, true, number));
    }
    times.sort_unstable();
    let action = |(_, is_answer, number): (u64, bool, usize)| {
        let event = records[number].event.clone();
        (number, if is_answer { Action::Response(event) } else { Action::Call(event) })
    };
    let history = History::from_actions(times.into_iter().map(action).collect());
    STEPS.with(|steps| steps.set(MOST_STEPS));
    match panic::catch_unwind(AssertUnwindSafe(|| WGLChecker::<OneKey>::is_linearizable(history))) {
        Ok(true) => KeyVerdict::Linearizable,
        Ok(false) => KeyVerdict::Wrong("no order of the operations explains the answers".to_owned()),
        Err(why) if why.is::<TooLong>() => KeyVerdict::Undecided,
        Err(why) => panic::resume_unwind(why),
    }
}

/// Checks that each unique number of a `gets` belongs to one value.
fn numbers_contradict(records: &[OperationRecord]) -> Option<String> {
    let mut values: HashMap<u64, &Bytes> = HashMap::new();
    for record in records {
        if let (Some(unique), Operation::Read(Some(value))) = (record.unique, &record.event) {
            let known = values.entry(unique).or_insert(value);
            if *known != value {
                return Some(format!("number {unique} was given for two values"));
            }
        }
    }
    None
}

/// A key whose history is not linearizable, or undecided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyFinding {
    /// The key.
    pub key: Key,
    /// The error.
    pub why: String,
    /// Every operation of clients on it.
    pub history: Vec<OperationRecord>,
}

/// What was checked, and with what result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Keys whose histories were judged.
    pub keys: u64,
    /// Operations in them; a `gets` counts once per key.
    pub operations: u64,
    /// Of these, operations whose answer never came.
    pub unknown: u64,
    /// Reads of keys some seconds after their last write.
    pub late_reads: u64,
    /// Keys whose histories are not linearizable.
    pub wrong_keys: u64,
    /// Replies that no correct server gives in any state.
    pub impossible: u64,
    /// The first of them, as text.
    pub impossible_words: Vec<String>,
    /// Keys whose search was given up.
    pub undecided: u64,
    /// The longest history, in operations.
    pub longest: u64,
}

/// Collects the operations of clients, and judges generations of keys that no client uses any more.
#[derive(Debug)]
pub struct Checker {
    generations: BTreeMap<u32, BTreeMap<Key, Vec<OperationRecord>>>,
    left: Vec<u32>,
    /// Generations that stay open after the last client has left them.
    linger: u32,
    /// The results so far.
    pub checked: Checked,
    /// Histories of the first wrong and undecided keys.
    pub findings: Vec<KeyFinding>,
}

impl Checker {
    /// A checker for so many clients. A generation is judged when all have left it and the `linger` following ones.
    pub fn new(clients: usize, linger: u32) -> Self {
        Checker {
            generations: BTreeMap::new(),
            left: vec![0; clients],
            linger,
            checked: Checked::default(),
            findings: Vec::new(),
        }
    }

    /// Records a note.
    pub fn take(&mut self, event: HistoryEvent) {
        match event {
            HistoryEvent::Did(record) => {
                let keys = self.generations.entry(record.key.generation).or_default();
                keys.entry(record.key).or_default().push(record);
            }
            HistoryEvent::Left { client, before } => self.left[usize::from(client)] = before,
            HistoryEvent::Impossible { client, replica, at, what } => {
                self.checked.impossible += 1;
                if self.checked.impossible_words.len() < MOST_SHOWN {
                    let seconds = at as f64 / 1e9;
                    self.checked
                        .impossible_words
                        .push(format!("at {seconds:.3} s client {client} from replica {replica}: {what}"));
                }
            }
        }
    }

    /// Judges the complete generations; before that, `late` reads each key once more.
    pub fn judge_complete(&mut self, mut late: impl FnMut(Key) -> Option<OperationRecord>) {
        let before = self.left.iter().copied().min().unwrap_or(0).saturating_sub(self.linger);
        while let Some(entry) = self.generations.first_entry().filter(|entry| *entry.key() < before) {
            for (key, mut records) in entry.remove() {
                if let Some(record) = late(key) {
                    self.checked.late_reads += 1;
                    records.push(record);
                }
                self.judge_key(key, records);
            }
        }
    }

    /// Judges all remaining generations.
    pub fn finish(&mut self, late: impl FnMut(Key) -> Option<OperationRecord>) {
        self.left.fill(u32::MAX);
        self.linger = 0;
        self.judge_complete(late);
    }

    fn judge_key(&mut self, key: Key, mut records: Vec<OperationRecord>) {
        let checked = &mut self.checked;
        checked.keys += 1;
        checked.operations += records.len() as u64;
        checked.unknown += records.iter().filter(|record| record.answered == NEVER).count() as u64;
        checked.longest = checked.longest.max(records.len() as u64);
        let why = match judge(&records) {
            KeyVerdict::Linearizable => return,
            KeyVerdict::Wrong(why) => {
                checked.wrong_keys += 1;
                why
            }
            KeyVerdict::Undecided => {
                checked.undecided += 1;
                format!("undecided after {MOST_STEPS} steps")
            }
        };
        if self.findings.len() < MOST_SHOWN {
            records.sort_by_key(|record| record.sent);
            self.findings.push(KeyFinding { key, why, history: records });
        }
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
