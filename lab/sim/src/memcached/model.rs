//! A memcached in its simplest form: the independent model that computes the right answer to every ordered command.
//!
//! It shares no code with the service: its input is the client's command, not the one that the service decoded.

use std::collections::BTreeMap;

use vote::Place;

use super::memory::Memory;
use super::meta;
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
    /// `set`, `add`, `replace`, `append`, `prepend`.
    Store {
        /// The mode.
        mode: StoringMode,
        /// The key.
        key: String,
        /// The client's flags.
        flags: u32,
        /// Seconds until it expires: 0 is never, negative is at once.
        expiry: i64,
        /// The bytes.
        value: Vec<u8>,
    },
    /// `cas`.
    Cas {
        /// The key.
        key: String,
        /// The client's flags.
        flags: u32,
        /// The unique from a `gets`.
        unique: u64,
        /// The bytes.
        value: Vec<u8>,
    },
    /// `delete`.
    Delete(String),
    /// `incr` or `decr`.
    Step {
        /// The counter.
        key: String,
        /// Up or down.
        up: bool,
        /// By how much.
        delta: u64,
    },
    /// `touch`.
    Touch {
        /// The key or keys.
        key: String,
        /// Seconds until it expires, as in [`ModelCommand::Store`].
        expiry: i64,
    },
    /// `flush_all`.
    Flush,
    /// One of the others, in the syntax of the meta protocol.
    Meta(Box<ModelCommand>),
}

/// The modes of storing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoringMode {
    /// In any case.
    Set,
    /// If there is none.
    Add,
    /// If there is one.
    Replace,
    /// Behind the existing value.
    Append,
    /// Before the existing value.
    Prepend,
}

impl ModelCommand {
    /// The bytes a client sends.
    pub fn text(&self) -> Vec<u8> {
        let with = |head: String, value: &[u8]| [head.as_bytes(), b"\r\n", value, b"\r\n"].concat();
        match self {
            ModelCommand::Get { keys, unique } => {
                format!("{} {}\r\n", if *unique { "gets" } else { "get" }, keys.join(" ")).into_bytes()
            }
            ModelCommand::Store { mode, key, flags, expiry, value } => {
                let name = match mode {
                    StoringMode::Set => "set",
                    StoringMode::Add => "add",
                    StoringMode::Replace => "replace",
                    StoringMode::Append => "append",
                    StoringMode::Prepend => "prepend",
                };
                with(format!("{name} {key} {flags} {expiry} {}", value.len()), value)
            }
            ModelCommand::Cas { key, flags, unique, value } => {
                with(format!("cas {key} {flags} 0 {} {unique}", value.len()), value)
            }
            ModelCommand::Delete(key) => format!("delete {key}\r\n").into_bytes(),
            ModelCommand::Step { key, up, delta } => {
                format!("{} {key} {delta}\r\n", if *up { "incr" } else { "decr" }).into_bytes()
            }
            ModelCommand::Touch { key, expiry } => format!("touch {key} {expiry}\r\n").into_bytes(),
            ModelCommand::Flush => b"flush_all\r\n".to_vec(),
            ModelCommand::Meta(inner) => meta::text(inner).unwrap_or_else(|| inner.text()),
        }
    }
}

#[derive(Clone, Debug)]
struct Item {
    flags: u32,
    value: Vec<u8>,
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
    items: BTreeMap<String, Item>,
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

    /// Executes the command, ordered at `now_us`, and returns the answer that the service must give.
    fn execute(&mut self, command: &ModelCommand, now_us: u64) -> Expected {
        self.items.retain(|_, item| item.deadline_us.is_none_or(|deadline_us| deadline_us > now_us));
        let text = |text: &str| Expected::Bytes(text.as_bytes().to_vec());
        if self.memory.is_some() {
            return self.execute_short(command, now_us);
        }
        match command {
            ModelCommand::Meta(inner) => match self.execute(inner, now_us) {
                Expected::Bytes(classic) => Expected::Bytes(meta::reply(inner, &classic)),
                other => other,
            },
            ModelCommand::Get { keys, unique: true } => Expected::Uniques(self.uniques_of(keys)),
            ModelCommand::Get { keys, unique: false } => Expected::Bytes(self.get(keys)),
            ModelCommand::Store { mode, key, flags, expiry, value } => {
                text(self.store(*mode, key, *flags, deadline_us(*expiry, now_us), value))
            }
            ModelCommand::Cas { key, flags, unique, value } => match self.items.get(key) {
                None => text("NOT_FOUND\r\n"),
                Some(item) if self.uniques.get(unique) != Some(&item.version) => text("EXISTS\r\n"),
                Some(_) => text(self.store(StoringMode::Set, key, *flags, None, value)),
            },
            ModelCommand::Delete(key) => {
                text(self.items.remove(key).map_or("NOT_FOUND\r\n", |_| "DELETED\r\n"))
            }
            ModelCommand::Step { key, up, delta } => {
                Expected::Bytes(self.step(key, *up, *delta).into_bytes())
            }
            ModelCommand::Touch { key, expiry } => match self.items.get_mut(key) {
                Some(item) => {
                    item.deadline_us = deadline_us(*expiry, now_us);
                    text("TOUCHED\r\n")
                }
                None => text("NOT_FOUND\r\n"),
            },
            ModelCommand::Flush => {
                self.items.clear();
                text("OK\r\n")
            }
        }
    }

    fn put(&mut self, key: &str, flags: u32, deadline_us: Option<u64>, value: Vec<u8>) {
        self.versions += 1;
        if let Some(memory) = &mut self.memory {
            memory.write(self.versions, value.len());
        }
        self.items.insert(key.to_owned(), Item { flags, value, deadline_us, version: self.versions });
    }

    /// As [`Model::execute`], where items may have been evicted: each command is about single items.
    fn execute_short(&mut self, command: &ModelCommand, now_us: u64) -> Expected {
        let (inner, is_meta) = match command {
            ModelCommand::Meta(inner) => (&**inner, true),
            command => (command, false),
        };
        let said = |classic: &str| {
            if is_meta { meta::reply(inner, classic.as_bytes()) } else { classic.as_bytes().to_vec() }
        };
        match inner {
            ModelCommand::Get { keys, .. } if is_meta => match self.get(keys) {
                miss if miss == b"END\r\n" => Expected::Bytes(said("END\r\n")),
                item => {
                    let mut items = self.may_miss(keys);
                    items.iter_mut().for_each(|one| {
                        one.bytes = meta::reply(inner, &item);
                        one.otherwise = one.otherwise.map(|_| &b"EN\r\n"[..]);
                    });
                    Expected::Items(items, b"")
                }
            },
            ModelCommand::Get { keys, .. } => Expected::Items(self.may_miss(keys), b"END\r\n"),
            ModelCommand::Delete(key) if self.items.remove(key).is_some() => {
                Expected::Either([said("DELETED\r\n"), said("NOT_FOUND\r\n")])
            }
            ModelCommand::Delete(_) => Expected::Bytes(said("NOT_FOUND\r\n")),
            ModelCommand::Store { mode, key, flags, expiry, value } => {
                Expected::Bytes(said(self.store(*mode, key, *flags, deadline_us(*expiry, now_us), value)))
            }
            _ => {
                self.items.clear();
                Expected::Bytes(said("OK\r\n"))
            }
        }
    }

    fn may_miss(&self, keys: &[String]) -> Vec<MayMiss> {
        let present = keys.iter().filter_map(|key| Some((key, self.items.get(key)?.version)));
        let block = |(key, version): (&String, u64)| {
            let bytes = self.get(std::slice::from_ref(key));
            let bytes = bytes[..bytes.len() - b"END\r\n".len()].to_vec();
            let can_go = self.memory.as_ref().is_some_and(|memory| memory.may_miss(version));
            MayMiss { bytes, version, otherwise: can_go.then_some(b"") }
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
        for (key, item) in keys.iter().filter_map(|key| Some((key, self.items.get(key)?))) {
            reply
                .extend_from_slice(format!("VALUE {key} {} {}\r\n", item.flags, item.value.len()).as_bytes());
            reply.extend_from_slice(&item.value);
            reply.extend_from_slice(b"\r\n");
        }
        reply.extend_from_slice(b"END\r\n");
        reply
    }

    fn uniques_of(&self, keys: &[String]) -> Vec<(String, u32, Vec<u8>, u64)> {
        let item = |key: &String| {
            let item = self.items.get(key)?;
            Some((key.clone(), item.flags, item.value.clone(), item.version))
        };
        keys.iter().filter_map(item).collect()
    }

    fn store(
        &mut self,
        mode: StoringMode,
        key: &str,
        flags: u32,
        deadline_us: Option<u64>,
        value: &[u8],
    ) -> &'static str {
        let old = self.items.get(key).cloned();
        match (mode, old) {
            (StoringMode::Set, _) | (StoringMode::Add, None) | (StoringMode::Replace, Some(_)) => {
                self.put(key, flags, deadline_us, value.to_vec())
            }
            (StoringMode::Append, Some(old)) => {
                self.put(key, old.flags, old.deadline_us, [&old.value, value].concat())
            }
            (StoringMode::Prepend, Some(old)) => {
                self.put(key, old.flags, old.deadline_us, [value, &old.value].concat())
            }
            _ => return "NOT_STORED\r\n",
        }
        "STORED\r\n"
    }

    /// A number keeps the width it had: memcached pads a shorter one with spaces.
    fn step(&mut self, key: &str, up: bool, delta: u64) -> String {
        let Some(old) = self.items.get(key).cloned() else { return "NOT_FOUND\r\n".into() };
        let text = String::from_utf8_lossy(&old.value).into_owned();
        let number = text.split_whitespace().next().and_then(|digits| digits.parse::<u64>().ok());
        let Some(number) = number else {
            return "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".into();
        };
        let number = if up { number.wrapping_add(delta) } else { number.saturating_sub(delta) };
        let value = format!("{number:<width$}", width = old.value.len()).into_bytes();
        self.put(key, old.flags, old.deadline_us, value);
        format!("{number}\r\n")
    }
}

impl ReferenceModel for Model {
    type Command = ModelCommand;
    type Expected = Expected;

    fn apply(&mut self, command: &ModelCommand, turn: Turn) -> Expected {
        self.execute(command, turn.time_us)
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
    use super::*;

    fn bytes(model: &mut Model, command: ModelCommand) -> String {
        at(model, command, 5)
    }

    fn at(model: &mut Model, command: ModelCommand, now_us: u64) -> String {
        match model.execute(&command, now_us) {
            Expected::Bytes(bytes) => String::from_utf8(bytes).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn set(key: &str, value: &str) -> ModelCommand {
        ModelCommand::Store {
            mode: StoringMode::Set,
            key: key.into(),
            flags: 3,
            expiry: 0,
            value: value.into(),
        }
    }

    #[test]
    fn answers_are_memcacheds() {
        let mut model = Model::default();
        let get = || ModelCommand::Get { keys: vec!["a".into(), "b".into()], unique: false };
        assert_eq!(bytes(&mut model, get()), "END\r\n");
        assert_eq!(bytes(&mut model, set("a", "100")), "STORED\r\n");
        assert_eq!(bytes(&mut model, ModelCommand::Step { key: "a".into(), up: false, delta: 1 }), "99\r\n");
        assert_eq!(bytes(&mut model, get()), "VALUE a 3 3\r\n99 \r\nEND\r\n");
        assert_eq!(bytes(&mut model, ModelCommand::Delete("a".into())), "DELETED\r\n");
        let touch = ModelCommand::Touch { key: "a".into(), expiry: 0 };
        assert_eq!(bytes(&mut model, touch), "NOT_FOUND\r\n");
    }

    #[test]
    fn what_has_a_deadline_is_gone_then_whatever_was_done_to_it() {
        let mut model = Model::default();
        let store = |mode, expiry| {
            let (key, flags, value) = ("a".into(), 0, b"1".to_vec());
            ModelCommand::Store { mode, key, flags, expiry, value }
        };
        let get = || ModelCommand::Get { keys: vec!["a".into()], unique: false };
        at(&mut model, store(StoringMode::Set, 1), 10);
        at(&mut model, store(StoringMode::Append, 9), 20);
        at(&mut model, ModelCommand::Step { key: "a".into(), up: true, delta: 1 }, 30);
        assert!(model.fades(&["a".into()]));
        assert_eq!(at(&mut model, get(), 1_000_009), "VALUE a 0 2\r\n12\r\nEND\r\n");
        assert_eq!(at(&mut model, get(), 1_000_010), "END\r\n");
        assert_eq!(at(&mut model, store(StoringMode::Set, -1), 2_000_000), "STORED\r\n");
        assert_eq!(at(&mut model, get(), 2_000_000), "END\r\n");
        at(&mut model, store(StoringMode::Set, 0), 2_000_001);
        at(&mut model, ModelCommand::Touch { key: "a".into(), expiry: 2 }, 2_000_002);
        assert_eq!(at(&mut model, get(), 4_000_002), "END\r\n");
    }

    #[test]
    fn a_unique_stands_for_one_version() {
        let mut model = Model::default();
        model.execute(&set("a", "x"), 1);
        let gets = ModelCommand::Get { keys: vec!["a".into()], unique: true };
        let first = model.execute(&gets, 1);
        model.compare(&first, Place::new(1, 0), b"VALUE a 3 1 7\r\nx\r\nEND\r\n").unwrap();
        let cas = ModelCommand::Cas { key: "a".into(), flags: 0, unique: 7, value: b"y".to_vec() };
        assert_eq!(bytes(&mut model, cas.clone()), "STORED\r\n");
        assert_eq!(bytes(&mut model, cas), "EXISTS\r\n");
        let second = model.execute(&gets, 1);
        assert!(
            model.compare(&second, Place::new(2, 0), b"VALUE a 0 1 7\r\ny\r\nEND\r\n").is_err(),
            "of an older version"
        );
        model.compare(&second, Place::new(2, 0), b"VALUE a 0 1 8\r\ny\r\nEND\r\n").unwrap();
    }
}
