//! One client: sends one request after another over one connection, and records the request, the answer, and their
//! times.

use std::collections::HashMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use memcached_client::history::{Bytes, HistoryEvent, Key, NEVER, Operation, OperationRecord};
use memcached_client::{Failure as NoReply, StoreVerb, Value};
use wire::SplitMix64;

use crate::announce::{Announcer, Gap, Unanswered};
use crate::draw::stream;
use crate::place::ClientPlace;
use crate::service::{KeyStore, TrialService};

/// How long a replica may take to accept; a host that is cut off never answers.
pub const CONNECT: Duration = Duration::from_millis(700);
/// Pause between two attempts to connect.
pub const RECONNECT: Duration = Duration::from_millis(30);
/// Keys with values, and counters, of each generation: few, so that clients conflict.
pub const KEYS: (u16, u16) = (12, 4);
/// Keys of one `gets`, at most.
const MOST_AT_ONCE: u64 = 4;
/// One in so many requests asks for the behavior, in runs with upgrades.
const BEHAVIOR_EACH: u64 = 8;
/// Bytes of long values in all clients' requests and replies, per second.
const MOST_BYTES_PER_SECOND: f64 = 16e6;
/// Fills long values. Runs of it are folded in histories.
const FILLING: u8 = b'=';
/// The shortest run that is folded.
const SHORTEST_RUN: usize = 32;

/// Shared state of all clients of a run.
#[derive(Debug)]
pub struct SharedRun {
    /// Distinguishes the keys of different runs.
    pub run: u64,
    /// Decides the requests.
    pub seed: u64,
    /// What the replicas serve.
    pub service: TrialService,
    /// Accounts of the bank.
    pub accounts: u32,
    /// Where clients connect to the replicas.
    pub replicas: Vec<SocketAddr>,
    /// How long a generation of keys is used.
    pub generation: Duration,
    /// How long an answer may take.
    pub patience: Duration,
    /// Between two requests of one client, on average.
    pub interval: Duration,
    /// Lengths of values, one for each generation in turn; none: short ones that differ.
    pub value_bytes: Vec<usize>,
    /// When each client had its last answer, in nanoseconds of the run; 0 before the first.
    pub answered_at: Vec<AtomicU64>,
    /// When each replica gave its last answer, in nanoseconds of the run; 0 before the first.
    pub answered_by: Vec<AtomicU64>,
    /// The group answers no more: nothing is read once again.
    pub hopeless: AtomicBool,
    /// The latest behavior that a client was answered with; none where releases have no behaviors.
    pub behavior: Option<AtomicU16>,
    /// Announced windows, and the run's clock.
    pub announcer: Arc<Announcer>,
    /// Clients send no more requests.
    pub over: AtomicBool,
    /// Requests sent.
    pub sent: AtomicU64,
    /// Requests answered.
    pub answered: AtomicU64,
    /// Connections that were made.
    pub connected: AtomicU64,
    /// Requests without an answer.
    pub failures: Mutex<Vec<Unanswered>>,
    /// Intervals without an answer that were not short.
    pub gaps: Mutex<Vec<Gap>>,
}

impl SharedRun {
    /// The length of the values of a generation; none: short ones that differ.
    fn value_length(&self, generation: u32) -> Option<usize> {
        self.value_bytes.get(generation as usize % self.value_bytes.len().max(1)).copied()
    }

    /// The pause between two requests of a client, on average: long values leave no more bytes per second.
    fn interval_of(&self, generation: u32) -> Duration {
        let bytes = self.value_length(generation).unwrap_or(0) as f64;
        let least = bytes * self.answered_at.len() as f64 / MOST_BYTES_PER_SECOND;
        self.interval.max(Duration::from_secs_f64(least))
    }

    /// The generation of keys that clients use now.
    pub fn generation_now(&self) -> u32 {
        (self.announcer.now() / self.generation.as_nanos() as u64) as u32
    }
}

/// One client.
#[derive(Debug)]
pub struct TrialClient {
    place: ClientPlace,
    history: Sender<HistoryEvent>,
    draw: SplitMix64,
    connection: Option<Box<dyn KeyStore>>,
    generation: u32,
    /// The answers of `gets` for keys of this generation.
    read: HashMap<u16, Value>,
    sequence: u64,
}

/// A request to be sent.
#[derive(Clone, Debug)]
enum Ask {
    Gets(Vec<u16>),
    Set(u16, Bytes),
    Add(u16, Bytes),
    Replace(u16, Bytes),
    Append(u16, Bytes),
    Cas(u16, Bytes, Bytes, u64),
    Delete(u16),
    Incr(u16, u64),
}

impl TrialClient {
    /// Client `number`, from 0; its home is the replica of the same number.
    pub fn new(number: u16, shared: Arc<SharedRun>, history: Sender<HistoryEvent>) -> Self {
        TrialClient {
            draw: stream(shared.seed, 0xC11E + u64::from(number)),
            place: ClientPlace::new(number, shared),
            history,
            connection: None,
            generation: 0,
            read: HashMap::new(),
            sequence: 0,
        }
    }

    /// Sends requests until the run is over.
    pub fn run(mut self) {
        while !self.place.shared.over.load(Ordering::Relaxed) {
            self.enter_generation();
            if self.connection.is_none() && !self.connect() {
                thread::sleep(RECONNECT);
                continue;
            }
            let ask = self.draw_ask();
            self.ask(&ask);
            if self.place.shared.behavior.is_some() && self.draw.below(BEHAVIOR_EACH) == 0 {
                self.ask_behavior();
            }
            let pause = self.place.shared.interval_of(self.generation).mul_f64(2.0 * self.draw.unit());
            thread::sleep(pause);
        }
        // A client that waits when the run ends counts its wait until then.
        self.place.record_gap(self.place.now());
        let _ = self.history.send(HistoryEvent::Left { client: self.place.number, before: u32::MAX });
    }

    /// Takes new keys when their time has come, and then also moves back to the home replica.
    fn enter_generation(&mut self) {
        let generation = self.place.shared.generation_now();
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        self.read.clear();
        let _ = self.history.send(HistoryEvent::Left { client: self.place.number, before: generation });
        if self.place.move_home() {
            self.connection = None;
        }
    }

    /// Connects to this replica, or to the next one if this one does not accept.
    fn connect(&mut self) -> bool {
        let shared = &self.place.shared;
        match shared.service.connect(self.place.address(), CONNECT, shared.patience) {
            Ok(connection) => {
                self.connection = Some(connection);
                shared.connected.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(_) => {
                self.move_on();
                false
            }
        }
    }

    fn move_on(&mut self) {
        self.connection = None;
        self.place.move_on();
    }

    fn draw_ask(&mut self) -> Ask {
        let (values, counters) = KEYS;
        if self.draw.below(100) < 18 {
            let key = values + self.draw.below(u64::from(counters)) as u16;
            return match self.draw.below(10) {
                0..=4 => Ask::Incr(key, 1 + self.draw.below(9)),
                5..=6 => Ask::Gets(vec![key]),
                7 => Ask::Add(key, self.number_value()),
                8 => Ask::Set(key, self.number_value()),
                _ => Ask::Delete(key),
            };
        }
        let key = self.draw.below(u64::from(values)) as u16;
        match self.draw.below(100) {
            0..=29 => Ask::Gets(vec![key]),
            30..=41 => {
                let count = 2 + self.draw.below(MOST_AT_ONCE - 1) as u16;
                Ask::Gets((0..count).map(|step| (key + step) % values).collect())
            }
            42..=61 => Ask::Set(key, self.value("")),
            62..=67 => Ask::Add(key, self.value("")),
            68..=73 => Ask::Replace(key, self.value("")),
            74..=81 => Ask::Append(key, self.value("+")),
            82..=93 => match self.read.get(&key).cloned() {
                Some(found) => Ask::Cas(key, found.bytes.into(), self.value(""), found.unique),
                // No value was read yet with which `cas` could compare.
                None => Ask::Gets(vec![key]),
            },
            _ => Ask::Delete(key),
        }
    }

    /// A value that is written once: a read of it identifies its write. Lengths differ, so that objects grow and
    /// shrink.
    fn value(&mut self, mark: &str) -> Bytes {
        self.sequence += 1;
        if let Some(length) = self.place.shared.value_length(self.generation).filter(|_| mark.is_empty()) {
            let mut value = format!("c{}.{}.", self.place.number, self.sequence).into_bytes();
            value.resize(length.saturating_sub(1).max(value.len()), FILLING);
            value.push(b';');
            return Arc::from(value);
        }
        let filling = "0123456789abcdefghijklmnopqrstuvwxyz".chars().cycle();
        let length = 4 + self.draw.below(90) as usize;
        let filling: String = filling.skip(self.sequence as usize % 36).take(length).collect();
        Arc::from(format!("{mark}c{}.{}.{filling};", self.place.number, self.sequence).as_bytes())
    }

    /// A counter's first value, far from all other counters.
    fn number_value(&mut self) -> Bytes {
        self.sequence += 1;
        let number = (u64::from(self.place.number) * 1_000_000 + self.sequence) * 1_000_000;
        Arc::from(number.to_string().as_bytes())
    }

    fn ask(&mut self, ask: &Ask) {
        let Some(connection) = &mut self.connection else { return };
        let shared = &self.place.shared;
        shared.sent.fetch_add(1, Ordering::Relaxed);
        let sent = self.place.now();
        let name = |key: u16| Key { generation: self.generation, number: key }.name(shared.run);
        let answer = answer(connection.as_mut(), ask, name);
        let answered = self.place.now();
        match answer {
            Ok(events) => {
                self.place.answered(answered);
                for (key, event, found) in events {
                    let unique = found.as_ref().map(|found| found.unique).filter(|unique| *unique != 0);
                    self.remember(key, found, &event);
                    self.record(key, sent, answered, event, unique);
                }
            }
            Err(trouble) => self.failed(ask, sent, answered, &trouble),
        }
    }

    /// Asks as which behavior the group acts. It never acts as an earlier one again.
    fn ask_behavior(&mut self) {
        let shared = Arc::clone(&self.place.shared);
        let (Some(connection), Some(latest)) = (&mut self.connection, &shared.behavior) else { return };
        shared.sent.fetch_add(1, Ordering::Relaxed);
        let (before, sent) = (latest.load(Ordering::SeqCst), shared.announcer.now());
        let answer = connection.behavior();
        let answered = self.place.now();
        match answer {
            Ok(behavior) => {
                latest.fetch_max(behavior, Ordering::SeqCst);
                self.place.answered(answered);
                if behavior < before {
                    self.impossible(
                        answered,
                        format!("the group acts as behavior {behavior}, after {before}"),
                    );
                }
            }
            Err(trouble) => {
                self.no_answer(sent, answered, &trouble, &"stats behavior");
                self.move_on();
            }
        }
    }

    /// Remembers a value for a later `cas`.
    fn remember(&mut self, key: u16, found: Option<Value>, event: &Operation) {
        match (found, event) {
            (Some(found), _) if key < KEYS.0 => drop(self.read.insert(key, found)),
            (None, Operation::Read(None)) => drop(self.read.remove(&key)),
            _ => {}
        }
    }

    fn failed(&mut self, ask: &Ask, sent: u64, ended: u64, trouble: &NoReply) {
        self.no_answer(sent, ended, trouble, ask);
        if let Some((key, event)) = unanswered(ask) {
            self.record(key, sent, NEVER, event, None);
        }
        self.move_on();
    }

    /// Records that a request was not answered, or in a way that no correct server answers.
    fn no_answer(&mut self, sent: u64, ended: u64, trouble: &NoReply, ask: &dyn Debug) {
        if let NoReply::Malformed(what) = trouble {
            self.impossible(ended, format!("{ask:?}: {what}"));
        }
        self.place.failed(sent, ended, trouble.to_string());
    }

    fn impossible(&self, at: u64, what: String) {
        let (client, replica) = (self.place.number, self.place.replica());
        let _ = self.history.send(HistoryEvent::Impossible { client, replica, at, what });
    }

    fn record(&self, key: u16, sent: u64, answered: u64, event: Operation, unique: Option<u64>) {
        let key = Key { generation: self.generation, number: key };
        let (client, replica) = (self.place.number, self.place.replica());
        let record = OperationRecord { client, replica, key, sent, answered, event, unique };
        // The checker ends after the clients.
        let _ = self.history.send(HistoryEvent::Did(record));
    }
}

/// A value as histories have it, in which each long run of the filling is its length: seconds of long values fit into
/// memory. What is joined and then folded equals what is folded and then joined: values end with another byte. A value
/// with a wrong byte in a run has other runs, and stays another value.
pub fn fold(value: &[u8]) -> Vec<u8> {
    let mut folded = Vec::with_capacity(value.len().min(256));
    for run in value.chunk_by(|one, next| (*one == FILLING) == (*next == FILLING)) {
        if run[0] == FILLING && run.len() >= SHORTEST_RUN {
            folded.extend_from_slice(format!("={}=", run.len()).as_bytes());
        } else {
            folded.extend_from_slice(run);
        }
    }
    folded
}

fn folded(value: &Bytes) -> Bytes {
    if value.len() < SHORTEST_RUN { value.clone() } else { fold(value).into() }
}

/// The result of an answer for one key: the operation, and the value that a `gets` found.
type Said = (u16, Operation, Option<Value>);

/// Sends a request, and converts the answer to operations.
fn answer(
    connection: &mut dyn KeyStore,
    ask: &Ask,
    name: impl Fn(u16) -> String,
) -> Result<Vec<Said>, NoReply> {
    let one = |key: &u16, event| Ok(vec![(*key, event, None)]);
    match ask {
        Ask::Gets(keys) => {
            let names: Vec<String> = keys.iter().map(|key| name(*key)).collect();
            let found = connection.gets(&names)?;
            // Every value of this run is stored with flags 0.
            if let Some(other) = found.iter().flatten().find(|value| value.flags != 0) {
                return Err(NoReply::Malformed(format!("a value with the flags {}", other.flags)));
            }
            let read = |(key, found): (&u16, Option<Value>)| {
                let found = found.map(|found| Value { bytes: fold(&found.bytes), ..found });
                let value = found.as_ref().map(|found| Arc::from(found.bytes.as_slice()));
                (*key, Operation::Read(value), found)
            };
            Ok(keys.iter().zip(found).map(read).collect())
        }
        Ask::Set(key, value) => {
            connection.store(StoreVerb::Set, &name(*key), value)?;
            one(key, Operation::Set(folded(value)))
        }
        Ask::Add(key, value) => {
            let stored = connection.store(StoreVerb::Add, &name(*key), value)?;
            one(key, Operation::Add(folded(value), Some(stored)))
        }
        Ask::Replace(key, value) => {
            let stored = connection.store(StoreVerb::Replace, &name(*key), value)?;
            one(key, Operation::Replace(folded(value), Some(stored)))
        }
        Ask::Append(key, value) => {
            let stored = connection.store(StoreVerb::Append, &name(*key), value)?;
            one(key, Operation::Append(folded(value), Some(stored)))
        }
        Ask::Cas(key, expected, value, unique) => {
            let compared = connection.cas(&name(*key), expected, value, *unique)?;
            one(key, Operation::Cas(expected.clone(), folded(value), Some(compared)))
        }
        Ask::Delete(key) => {
            let found = connection.delete(&name(*key))?;
            one(key, Operation::Delete(Some(found)))
        }
        Ask::Incr(key, by) => {
            let value = connection.incr(&name(*key), *by)?;
            one(key, Operation::Incr(*by, Some(value)))
        }
    }
}

/// The operation of a request that may have been executed, or may be executed later; none for reads.
fn unanswered(ask: &Ask) -> Option<(u16, Operation)> {
    Some(match ask {
        Ask::Gets(_) => return None,
        Ask::Set(key, value) => (*key, Operation::Set(folded(value))),
        Ask::Add(key, value) => (*key, Operation::Add(folded(value), None)),
        Ask::Replace(key, value) => (*key, Operation::Replace(folded(value), None)),
        Ask::Append(key, value) => (*key, Operation::Append(folded(value), None)),
        Ask::Cas(key, expected, value, _) => (*key, Operation::Cas(expected.clone(), folded(value), None)),
        Ask::Delete(key) => (*key, Operation::Delete(None)),
        Ask::Incr(key, by) => (*key, Operation::Incr(*by, None)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_folded_and_joined_in_any_order_and_wrong_ones_stay_others() {
        let long = |mark: &str, length: usize| [mark.as_bytes(), &vec![FILLING; length], b";"].concat();
        let (one, two) = (long("c1.2.", 20_000), long("+c3.4.", 7));
        assert_eq!(fold(&one), b"c1.2.=20000=;");
        assert_eq!(fold(&two), two, "a short run is left");
        assert_eq!(fold(&[&one[..], &two].concat()), [fold(&one), fold(&two)].concat());
        let mut wrong = one.clone();
        wrong[9_000] ^= 1;
        assert_ne!(fold(&wrong), fold(&one));
        assert_ne!(fold(&one[..one.len() - 2]), fold(&one));
    }
}
