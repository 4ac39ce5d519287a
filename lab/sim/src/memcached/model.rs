//! A memcached in its simplest form: the independent model that computes the right answer to every ordered command.
//!
//! It shares no code with the service: its input is the client's command, not the one that the service decoded.

use std::collections::BTreeMap;

use memcached_client::model::{CachedItem, Cas, CommandOutcome};
use memcached_client::request::write_get;
use memcached_client::{KeyCommand, KeyRequest};
use vote::Place;

use super::memory::Memory;
use crate::workload::{ReferenceModel, Turn, same_bytes};

/// One command as a client means it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelCommand {
    /// `get`, or `gets` with uniques.
    Get {
        /// The key or keys.
        keys: Vec<String>,
        /// Whether uniques are requested.
        unique: bool,
    },
    /// Any other command on one key.
    One(String, KeyRequest<'static>),
    /// `flush_all`.
    Flush,
    /// `stats behavior`.
    Behavior,
}

impl ModelCommand {
    /// The bytes a client sends.
    pub fn text(&self) -> Vec<u8> {
        match self {
            ModelCommand::Get { keys, unique } => {
                let mut text = Vec::new();
                write_get(*unique, keys, &mut text);
                text
            }
            ModelCommand::One(key, request) => request.bytes(key.as_bytes()),
            ModelCommand::Flush => b"flush_all\r\n".to_vec(),
            ModelCommand::Behavior => b"stats behavior\r\n".to_vec(),
        }
    }

    /// The same in the syntax of the meta protocol, if it has that form.
    pub fn meta(self) -> Self {
        let (key, command) = match self {
            ModelCommand::Get { mut keys, unique: false } if keys.len() == 1 => {
                (keys.remove(0), KeyCommand::GET)
            }
            ModelCommand::One(key, request) => (key, request.command),
            other => return other,
        };
        let flags = match &command {
            KeyCommand::Read { .. } => "f v",
            KeyCommand::Count { .. } => "v",
            _ => "",
        };
        ModelCommand::One(key, command.meta(flags))
    }
}

#[derive(Clone, Debug)]
struct DatedItem {
    item: CachedItem,
    /// Ordered time from which on it is gone, in microseconds; none is never.
    deadline_us: Option<u64>,
    /// Counts the changes of all items; each unique corresponds to one count.
    version: u64,
}

/// The expected answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// These bytes.
    Bytes(Vec<u8>),
    /// One of these.
    Either([Vec<u8>; 2]),
    /// These items, as in a reply, where some may be evicted, and then this end.
    Items(Vec<MayMiss>, &'static [u8]),
    /// One item per pair, with a unique that stands for the version.
    Uniques(Vec<(String, u32, Vec<u8>, u64)>),
}

/// An item of a reply where memory is short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MayMiss {
    bytes: Vec<u8>,
    version: u64,
    /// The text in its place when it is gone; none if it has to be there.
    otherwise: Option<&'static [u8]>,
}

/// The items, and the unique that each version was found to have.
#[derive(Clone, Debug, Default)]
pub struct Model {
    items: BTreeMap<String, DatedItem>,
    versions: u64,
    /// Version of every unique that a client has received.
    uniques: BTreeMap<u64, u64>,
    /// Observations of evictions, where memory is short.
    memory: Option<Memory>,
}

impl Model {
    /// No item yet; if memory `is_short`, items may be evicted.
    pub fn new(is_short: bool) -> Self {
        Model { memory: is_short.then(Memory::default), ..Model::default() }
    }

    /// Executes the command, ordered at `now_us` where the group acts as `behavior`, and returns the answer that the
    /// service must give.
    fn execute(&mut self, command: &ModelCommand, (now_us, behavior): (u64, u16)) -> Expected {
        self.items.retain(|_, item| item.deadline_us.is_none_or(|deadline_us| deadline_us > now_us));
        match command {
            ModelCommand::Get { keys, .. } if self.memory.is_some() => {
                Expected::Items(self.may_miss(keys), b"END\r\n")
            }
            ModelCommand::Get { keys, unique: true } => Expected::Uniques(self.uniques_of(keys)),
            ModelCommand::Get { keys, unique: false } => Expected::Bytes(self.get(keys)),
            ModelCommand::One(key, request) => self.one(key, request, now_us),
            ModelCommand::Flush => {
                self.items.clear();
                Expected::Bytes(b"OK\r\n".to_vec())
            }
            ModelCommand::Behavior => Expected::Bytes(format!("{behavior}\r\n").into_bytes()),
        }
    }

    fn one(&mut self, key: &str, request: &KeyRequest<'static>, now_us: u64) -> Expected {
        let before = self.items.get(key).cloned();
        let item = before.as_ref().map(|stored| {
            let cas = match &request.command {
                KeyCommand::Cas { unique, .. } if self.uniques.get(unique) == Some(&stored.version) => {
                    Cas::Known(*unique)
                }
                _ => Cas::Not(None),
            };
            CachedItem { cas, ..stored.item.clone() }
        });
        let (after, outcome) = request.command.apply(&item);
        let reported = |outcome| request.reply(key, &item, outcome).bytes().unwrap_or_default();
        let reply = reported(outcome);
        let old_deadline_us = before.as_ref().and_then(|stored| stored.deadline_us);
        match (&request.command, outcome, after) {
            (_, _, None) => drop(self.items.remove(key)),
            (KeyCommand::Store { verb, expiry, .. }, CommandOutcome::Done, Some(item)) => {
                let deadline_us =
                    if verb.sets_expiry() { deadline_us(*expiry, now_us) } else { old_deadline_us };
                self.put(key, item, deadline_us);
            }
            (KeyCommand::Cas { .. }, CommandOutcome::Done, Some(item)) => self.put(key, item, None),
            (KeyCommand::Count { .. }, CommandOutcome::Number(_), Some(item)) => {
                self.put(key, item, old_deadline_us);
            }
            (KeyCommand::Touch { expiry }, ..) => {
                if let Some(stored) = self.items.get_mut(key) {
                    stored.deadline_us = deadline_us(*expiry, now_us);
                }
            }
            _ => {}
        }
        // Where memory is short, what is there may be gone.
        match (&self.memory, &request.command, before) {
            (Some(_), KeyCommand::Read { .. }, Some(DatedItem { version, .. })) => {
                let otherwise = self.may_be_gone(version).then_some(&b"EN\r\n"[..]);
                Expected::Items(vec![MayMiss { bytes: reply, version, otherwise }], b"")
            }
            (Some(_), KeyCommand::Delete, Some(_)) => {
                Expected::Either([reply, reported(CommandOutcome::Missing)])
            }
            _ => Expected::Bytes(reply),
        }
    }

    fn put(&mut self, key: &str, item: CachedItem, deadline_us: Option<u64>) {
        self.versions += 1;
        if let Some(memory) = &mut self.memory {
            memory.write(self.versions, key.len() + item.value.len());
        }
        self.items.insert(key.to_owned(), DatedItem { item, deadline_us, version: self.versions });
    }

    fn may_be_gone(&self, version: u64) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.may_miss(version))
    }

    fn may_miss(&self, keys: &[String]) -> Vec<MayMiss> {
        let present = keys.iter().filter_map(|key| Some((key, self.items.get(key)?.version)));
        let block = |(key, version): (&String, u64)| {
            let bytes = self.get(std::slice::from_ref(key));
            let bytes = bytes[..bytes.len() - b"END\r\n".len()].to_vec();
            MayMiss { bytes, version, otherwise: self.may_be_gone(version).then_some(b"") }
        };
        present.map(block).collect()
    }

    fn compare_items(
        &mut self,
        items: &[MayMiss],
        end: &[u8],
        place: Place,
        reply: &[u8],
    ) -> Result<(), String> {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut rest = reply;
        for item in items {
            let there = rest.strip_prefix(&item.bytes[..]);
            rest = match (there, item.otherwise) {
                (Some(rest), _) => rest,
                (None, Some(otherwise)) if rest.starts_with(otherwise) => &rest[otherwise.len()..],
                (None, _) => {
                    return Err(format!("{:?} where {:?} was expected", shown(rest), shown(&item.bytes)));
                }
            };
            if let Some(memory) = &mut self.memory {
                memory.look(item.version, place, there.is_some())?;
            }
        }
        if rest == end { Ok(()) } else { Err(format!("{:?} after the items", shown(rest))) }
    }

    /// Whether one of these will expire, or may be evicted.
    fn fades(&self, keys: &[String]) -> bool {
        self.memory.is_some()
            || keys.iter().filter_map(|key| self.items.get(key)).any(|item| item.deadline_us.is_some())
    }

    /// The answer to a `get` now.
    fn get(&self, keys: &[String]) -> Vec<u8> {
        let mut reply = Vec::new();
        for (key, stored) in keys.iter().filter_map(|key| Some((key, self.items.get(key)?))) {
            reply.extend(stored.item.rendered(key, false).bytes().unwrap_or_default());
        }
        reply.extend_from_slice(b"END\r\n");
        reply
    }

    fn uniques_of(&self, keys: &[String]) -> Vec<(String, u32, Vec<u8>, u64)> {
        let item = |key: &String| {
            let DatedItem { item, version, .. } = self.items.get(key)?;
            Some((key.clone(), item.flags, item.value.clone(), *version))
        };
        keys.iter().filter_map(item).collect()
    }
}

impl ReferenceModel for Model {
    type Command = ModelCommand;
    type Expected = Expected;

    fn apply(&mut self, command: &ModelCommand, turn: Turn) -> Expected {
        self.execute(command, (turn.time_us, turn.behavior))
    }

    /// Without the uniques of clients, which are as many as their requests.
    fn for_reads(&self) -> Self {
        Model { items: self.items.clone(), uniques: BTreeMap::new(), memory: self.memory.clone(), ..*self }
    }

    fn compare(&mut self, expected: &Expected, place: Place, reply: &[u8]) -> Result<(), String> {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match expected {
            Expected::Bytes(bytes) => same_bytes(bytes, reply),
            Expected::Either([_, other]) if other == reply => Ok(()),
            Expected::Either([one, _]) => same_bytes(one, reply),
            Expected::Items(items, end) => self.compare_items(items, end, place, reply),
            Expected::Uniques(items) => {
                let mut rest = reply;
                for (key, flags, value, version) in items {
                    let head = format!("VALUE {key} {flags} {} ", value.len()).into_bytes();
                    let wrong = || format!("{:?} where {key} was expected", shown(rest));
                    let tail = rest.strip_prefix(&head[..]).ok_or_else(wrong)?;
                    let digits = tail.iter().take_while(|byte| byte.is_ascii_digit()).count();
                    let unique: u64 = shown(&tail[..digits]).parse().map_err(|_| wrong())?;
                    let body = [b"\r\n", &value[..], b"\r\n"].concat();
                    rest = tail[digits..].strip_prefix(&body[..]).ok_or_else(wrong)?;
                    if *self.uniques.entry(unique).or_insert(*version) != *version {
                        return Err(format!("the unique {unique} stands for two versions of {key}"));
                    }
                }
                if rest == b"END\r\n" { Ok(()) } else { Err(format!("{:?} after the items", shown(rest))) }
            }
        }
    }

    /// An item that may be evicted may be there or not: [`ReferenceModel::compare`] decides.
    fn compare_final(&self, command: &ModelCommand, _turn: Turn, reply: &[u8]) -> Result<(), String> {
        let ModelCommand::Get { keys, unique: false } = command else { return Ok(()) };
        if self.fades(keys) || self.get(keys) == reply {
            return Ok(());
        }
        let (was, is) = (self.get(keys), String::from_utf8_lossy(reply));
        Err(format!("{keys:?} reads {is:?}, and {:?} was written", String::from_utf8_lossy(&was)))
    }

    /// Without any item, but with all observations of evictions. Uniques are assigned again.
    fn clear(&mut self) {
        *self = Model { versions: self.versions, memory: self.memory.take(), ..Model::default() };
    }

    fn evicted(&self) -> u64 {
        self.memory.as_ref().map_or(0, Memory::evicted)
    }
}

/// When an item with this expiry, written at `now_us`, expires.
fn deadline_us(expiry: i64, now_us: u64) -> Option<u64> {
    (expiry != 0).then(|| now_us + u64::try_from(expiry).unwrap_or(0) * 1_000_000)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use memcached_client::StoreVerb;

    use super::*;

    fn bytes(model: &mut Model, command: ModelCommand) -> String {
        at(model, command, 5)
    }

    fn at(model: &mut Model, command: ModelCommand, now_us: u64) -> String {
        match model.execute(&command, (now_us, 1)) {
            Expected::Bytes(bytes) => String::from_utf8(bytes).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn one(key: &str, command: KeyCommand<'static>) -> ModelCommand {
        ModelCommand::One(key.into(), command.classic())
    }

    fn set(key: &str, value: &'static str) -> ModelCommand {
        let (verb, value) = (StoreVerb::Set, Cow::Borrowed(value.as_bytes()));
        one(key, KeyCommand::Store { verb, flags: 3, expiry: 0, value })
    }

    #[test]
    fn answers_are_memcacheds() {
        let mut model = Model::default();
        let get = || ModelCommand::Get { keys: vec!["a".into(), "b".into()], unique: false };
        assert_eq!(bytes(&mut model, get()), "END\r\n");
        assert_eq!(bytes(&mut model, set("a", "100")), "STORED\r\n");
        assert_eq!(bytes(&mut model, one("a", KeyCommand::Count { up: false, by: 1 })), "99\r\n");
        assert_eq!(bytes(&mut model, get()), "VALUE a 3 3\r\n99 \r\nEND\r\n");
        assert_eq!(bytes(&mut model, one("a", KeyCommand::Delete)), "DELETED\r\n");
        let touch = one("a", KeyCommand::Touch { expiry: 0 });
        assert_eq!(bytes(&mut model, touch), "NOT_FOUND\r\n");
    }

    #[test]
    fn what_has_a_deadline_is_gone_then_whatever_was_done_to_it() {
        let mut model = Model::default();
        let store =
            |verb, expiry| one("a", KeyCommand::Store { verb, flags: 0, expiry, value: Cow::Borrowed(b"1") });
        let get = || ModelCommand::Get { keys: vec!["a".into()], unique: false };
        at(&mut model, store(StoreVerb::Set, 1), 10);
        at(&mut model, store(StoreVerb::Append, 9), 20);
        at(&mut model, one("a", KeyCommand::Count { up: true, by: 1 }), 30);
        assert!(model.fades(&["a".into()]));
        assert_eq!(at(&mut model, get(), 1_000_009), "VALUE a 0 2\r\n12\r\nEND\r\n");
        assert_eq!(at(&mut model, get(), 1_000_010), "END\r\n");
        assert_eq!(at(&mut model, store(StoreVerb::Set, -1), 2_000_000), "STORED\r\n");
        assert_eq!(at(&mut model, get(), 2_000_000), "END\r\n");
        at(&mut model, store(StoreVerb::Set, 0), 2_000_001);
        at(&mut model, one("a", KeyCommand::Touch { expiry: 2 }), 2_000_002);
        assert_eq!(at(&mut model, get(), 4_000_002), "END\r\n");
    }

    #[test]
    fn a_unique_stands_for_one_version() {
        let mut model = Model::default();
        model.execute(&set("a", "x"), (1, 1));
        let gets = ModelCommand::Get { keys: vec!["a".into()], unique: true };
        let first = model.execute(&gets, (1, 1));
        model.compare(&first, Place::new(1, 0), b"VALUE a 3 1 7\r\nx\r\nEND\r\n").unwrap();
        let cas = one("a", KeyCommand::Cas { unique: 7, flags: 0, expiry: 0, value: Cow::Borrowed(b"y") });
        assert_eq!(bytes(&mut model, cas.clone()), "STORED\r\n");
        assert_eq!(bytes(&mut model, cas), "EXISTS\r\n");
        let second = model.execute(&gets, (1, 1));
        assert!(
            model.compare(&second, Place::new(2, 0), b"VALUE a 0 1 7\r\ny\r\nEND\r\n").is_err(),
            "of an older version"
        );
        model.compare(&second, Place::new(2, 0), b"VALUE a 0 1 8\r\ny\r\nEND\r\n").unwrap();
    }
}
