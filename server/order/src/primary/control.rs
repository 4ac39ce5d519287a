//! What replicas with a primary tell each other besides batches: their progress, and where a state can be fetched.
//!
//! ```text
//! PROGRESS    : 32 u8 | incarnation u32 | view u64 | last u64 | stable u64
//! ASK-STATE   : 33 u8 | above u64
//! OFFER-STATE : 34 u8 | index u64
//! ```

use bytes::Bytes;
use wire::{Malformed, Put, Reader};

use crate::limits;

/// Tags differ from those of the raft engine's messages (`raft/boot.rs`), which are of the same kind of frame.
const PROGRESS: u8 = 32;
const ASK_STATE: u8 = 33;
const OFFER_STATE: u8 = 34;
/// No index of an entry reaches it.
const INDEX_LIMIT: u64 = limits::TERM_LIMIT * limits::PRIMARY_PARTS as u64;

/// How far a replica has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    /// Its incarnation: see [`super::PrimaryConfig`].
    pub incarnation: u32,
    /// The view that it is in, 0 before its first.
    pub view: u64,
    /// The last batch that it has, with all before it.
    pub last: u64,
    /// The last batch that was agreed on: it needs none up to there.
    pub stable: u64,
}

/// A message of kind [`crate::FrameKind::Control`] between replicas with a primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrimaryControl {
    /// PROGRESS.
    Progress(Progress),
    /// ASK-STATE: the sender needs the state at a checkpoint beyond this index.
    AskState { above: u64 },
    /// OFFER-STATE: the state at this index can be fetched.
    OfferState { index: u64 },
}

impl PrimaryControl {
    pub fn encode(self) -> Bytes {
        let mut out = Vec::with_capacity(29);
        match self {
            PrimaryControl::Progress(Progress { incarnation, view, last, stable }) => {
                out.put8(PROGRESS).put32(incarnation).put64(view).put64(last).put64(stable)
            }
            PrimaryControl::AskState { above } => out.put8(ASK_STATE).put64(above),
            PrimaryControl::OfferState { index } => out.put8(OFFER_STATE).put64(index),
        };
        out.into()
    }

    pub fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let control = match reader.u8()? {
            PROGRESS => {
                let incarnation = reader.u32()?;
                let [view, last, stable] = [reader.u64()?, reader.u64()?, reader.u64()?];
                let is_within = view < limits::TERM_LIMIT && last < limits::TERM_LIMIT && stable <= last;
                if incarnation == 0 || !is_within {
                    return Err(Malformed("progress out of range"));
                }
                PrimaryControl::Progress(Progress { incarnation, view, last, stable })
            }
            ASK_STATE => PrimaryControl::AskState { above: index(&mut reader)? },
            OFFER_STATE => PrimaryControl::OfferState { index: index(&mut reader)? },
            _ => return Err(Malformed("an unknown control message")),
        };
        reader.end()?;
        Ok(control)
    }
}

fn index(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let index = reader.u64()?;
    if index < INDEX_LIMIT { Ok(index) } else { Err(Malformed("an index out of range")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_trip_and_no_other_bytes_are_one() {
        let messages = [
            PrimaryControl::Progress(Progress { incarnation: 1, view: 2, last: 9, stable: 8 }),
            PrimaryControl::AskState { above: INDEX_LIMIT - 1 },
            PrimaryControl::OfferState { index: 16 },
        ];
        for message in messages {
            let bytes = message.encode();
            assert_eq!(PrimaryControl::decode(&bytes), Ok(message));
            for len in 0..bytes.len() {
                assert!(PrimaryControl::decode(&bytes[..len]).is_err());
            }
            assert!(PrimaryControl::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
        let beyond = PrimaryControl::AskState { above: INDEX_LIMIT }.encode();
        assert!(PrimaryControl::decode(&beyond).is_err());
    }
}
