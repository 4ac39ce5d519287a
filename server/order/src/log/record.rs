//! The records of a log: entries, and the little state that must survive with them.

use ::raft::eraftpb::{Entry, HardState};
use bytes::Bytes;
use wire::{Malformed, Put, Reader};

use crate::raft::codec;
use crate::raft::members::Configuration;

/// One piece of state that a replica must not forget. Opaque outside this crate; written and read through its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Record(pub(crate) RecordKind);

/// The kinds of records; a later record of a kind replaces the earlier one, except for entries.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RecordKind {
    /// The identity of this replica, and how often it started with this log.
    Identity { group: u64, id: u64, boots: u32 },
    /// The log begins after `index`: by compaction (`keep`), or because a state from elsewhere was installed.
    Start { index: u64, term: u64, keep: bool, configuration: Configuration },
    /// Term, vote, and a lower bound of the commit index.
    Hard(Hard),
    /// An entry; it and all later ones replace those at its index and beyond.
    Entry(Entry),
    /// The membership from this index on.
    Membership { index: u64, configuration: Configuration },
}

/// The engine's hard state as a type of our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Hard {
    pub term: u64,
    pub vote: u64,
    pub commit: u64,
}

impl From<&HardState> for Hard {
    fn from(hard: &HardState) -> Self {
        Hard { term: hard.term, vote: hard.vote, commit: hard.commit }
    }
}

impl Record {
    /// The record as bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match &self.0 {
            RecordKind::Identity { group, id, boots } => {
                out.put8(1).put64(*group).put64(*id).put32(*boots);
            }
            RecordKind::Start { index, term, keep, configuration } => {
                out.put8(2).put64(*index).put64(*term).put8(u8::from(*keep));
                configuration.encode(out);
            }
            RecordKind::Hard(hard) => {
                out.put8(3).put64(hard.term).put64(hard.vote).put64(hard.commit);
            }
            RecordKind::Entry(entry) => {
                out.put8(4);
                codec::encode_entry(entry, out);
            }
            RecordKind::Membership { index, configuration } => {
                out.put8(5).put64(*index);
                configuration.encode(out);
            }
        }
    }

    /// Reads the output of `encode`.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not one record exactly.
    pub fn decode(bytes: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::shared(&bytes);
        let kind = match reader.u8()? {
            1 => RecordKind::Identity { group: reader.u64()?, id: reader.u64()?, boots: reader.u32()? },
            2 => {
                let (index, term, keep) = (reader.u64()?, reader.u64()?, reader.flag()?);
                RecordKind::Start { index, term, keep, configuration: Configuration::decode(&mut reader)? }
            }
            3 => RecordKind::Hard(Hard { term: reader.u64()?, vote: reader.u64()?, commit: reader.u64()? }),
            4 => RecordKind::Entry(codec::decode_entry(&mut reader)?),
            5 => {
                let index = reader.u64()?;
                RecordKind::Membership { index, configuration: Configuration::decode(&mut reader)? }
            }
            _ => return Err(Malformed("unknown record")),
        };
        reader.end()?;
        Ok(Record(kind))
    }

    /// Index of the entry this record holds, if it holds one.
    pub fn entry_index(&self) -> Option<u64> {
        match &self.0 {
            RecordKind::Entry(entry) => Some(entry.index),
            _ => None,
        }
    }
}
