//! The histories of clients: operations on keys with the time they were asked, the time of the answer, and the answer.

use std::sync::Arc;

use probe::CasReply;
use serde::Serialize;

/// Time of an answer that never came: the operation may have taken effect at any time since it was asked.
pub const NEVER: u64 = u64::MAX;

/// Bytes of a value, shared between records.
pub type Bytes = Arc<[u8]>;

/// One of the keys of a generation. Keys live for some seconds, so that each has a history short enough to be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Key {
    /// Which generation, from 0.
    pub generation: u32,
    /// Which of its keys, from 0.
    pub number: u16,
}

impl Key {
    /// Its name on the server; `run` tells the keys of runs apart.
    pub fn name(self, run: u64) -> String {
        format!("t{:x}:{}:{}", run & 0xFFFF_FFFF, self.generation, self.number)
    }
}

/// An operation and its answer; `None` where an answer should be: it never came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Operation {
    /// `get`, `gets`: the value that was there. Reads without an answer are not recorded: they have no effect.
    Read(#[serde(serialize_with = "maybe_text")] Option<Bytes>),
    /// `set`, which always stores.
    Set(#[serde(serialize_with = "text")] Bytes),
    /// `add`, and whether it stored.
    Add(#[serde(serialize_with = "text")] Bytes, Option<bool>),
    /// `replace`, and whether it stored.
    Replace(#[serde(serialize_with = "text")] Bytes, Option<bool>),
    /// `append`, and whether it stored.
    Append(#[serde(serialize_with = "text")] Bytes, Option<bool>),
    /// `cas`: the value whose number was given, the new one, and what came of it.
    Cas(#[serde(serialize_with = "text")] Bytes, #[serde(serialize_with = "text")] Bytes, Option<CasReply>),
    /// `delete`, and whether something was there.
    Delete(Option<bool>),
    /// `incr` by a number; the new value, or none when nothing was there.
    Incr(u64, Option<Option<u64>>),
}

fn text<S: serde::Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&String::from_utf8_lossy(bytes))
}

fn maybe_text<S: serde::Serializer>(bytes: &Option<Bytes>, to: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => text(bytes, to),
        None => to.serialize_none(),
    }
}

/// One operation on one key by one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperationRecord {
    /// Who asked.
    pub client: u16,
    /// Which replica was asked, from 1.
    pub replica: u8,
    /// About what.
    pub key: Key,
    /// When it was asked, in nanoseconds of the run.
    pub asked: u64,
    /// When the answer was there; [`NEVER`] when it did not come.
    pub answered: u64,
    /// What was asked and answered.
    pub event: Operation,
    /// The unique number that `gets` gave with the value.
    pub unique: Option<u64>,
}

/// What clients tell the checker.
#[derive(Clone, Debug)]
pub enum Note {
    /// An operation is over.
    Did(OperationRecord),
    /// This client asks nothing more about generations before this one.
    Left {
        /// Who.
        client: u16,
        /// The first generation it may still ask about.
        before: u32,
    },
    /// A reply that is none: no correct server gives it, whatever its state.
    Impossible {
        /// Who got it.
        client: u16,
        /// From which replica, from 1.
        replica: u8,
        /// When, in nanoseconds of the run.
        at: u64,
        /// What it was.
        what: String,
    },
}
