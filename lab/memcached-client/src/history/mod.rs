//! The histories of clients: operations on keys with the time of the request, the time of the answer, and the answer.

pub mod check;

use std::sync::Arc;

use serde::Serialize;

use crate::blocking::CasReply;

/// Time of an answer that never came: the operation may have taken effect at any time since its request.
pub const NEVER: u64 = u64::MAX;

/// Bytes of a value, shared between records.
pub type Bytes = Arc<[u8]>;

/// One of the keys of a generation. Keys are used for some seconds, so that each has a history short enough to be
/// checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Key {
    /// Which generation, from 0.
    pub generation: u32,
    /// Which of its keys, from 0.
    pub number: u16,
}

impl Key {
    /// Its name on the server; `run` distinguishes the keys of different runs.
    pub fn name(self, run: u64) -> String {
        format!("t{:x}:{}:{}", run & 0xFFFF_FFFF, self.generation, self.number)
    }
}

/// An operation and its answer; `None` in place of an answer: it never came.
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
    /// `cas`: the expected value, the new one, and the answer.
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
    /// The client.
    pub client: u16,
    /// The replica that received the request, from 1.
    pub replica: u8,
    /// The key.
    pub key: Key,
    /// When the request was sent, in nanoseconds of the run.
    #[serde(rename = "asked")]
    pub sent: u64,
    /// When the answer was received; [`NEVER`] when it did not come.
    pub answered: u64,
    /// The request and the answer.
    pub event: Operation,
    /// The unique number that `gets` gave with the value.
    pub unique: Option<u64>,
}

/// Messages of clients to the checker.
#[derive(Clone, Debug)]
pub enum HistoryEvent {
    /// An operation is over.
    Did(OperationRecord),
    /// This client sends no more requests for generations before this one.
    Left {
        /// The client.
        client: u16,
        /// The first generation that it may still use.
        before: u32,
    },
    /// An impossible reply: no correct server gives it, whatever its state.
    Impossible {
        /// The client that received it.
        client: u16,
        /// The replica that sent it, from 1.
        replica: u8,
        /// When, in nanoseconds of the run.
        at: u64,
        /// The reply.
        what: String,
    },
}
