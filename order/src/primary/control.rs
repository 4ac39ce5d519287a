//! What replicas with a primary tell each other besides batches: their progress.
//!
//! ```text
//! PROGRESS : 32 u8 | life u32 | view u64 | last u64 | stable u64
//! ```

use bytes::Bytes;
use wire::{Malformed, Put, Reader};

use crate::limits;

/// Tags differ from those of the raft engine's messages (`raft/boot.rs`), which are of the same kind of frame.
const PROGRESS: u8 = 32;

/// How far a replica has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    /// Its life: no two processes in one slot have the same.
    pub life: u32,
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
}

impl PrimaryControl {
    pub fn encode(self) -> Bytes {
        let mut out = Vec::with_capacity(29);
        match self {
            PrimaryControl::Progress(Progress { life, view, last, stable }) => {
                out.put8(PROGRESS).put32(life).put64(view).put64(last).put64(stable)
            }
        };
        out.into()
    }

    pub fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let control = match reader.u8()? {
            PROGRESS => {
                let life = reader.u32()?;
                let [view, last, stable] = [reader.u64()?, reader.u64()?, reader.u64()?];
                let is_within = view < limits::TERM_LIMIT && last < limits::TERM_LIMIT && stable <= last;
                if life == 0 || !is_within {
                    return Err(Malformed("progress out of range"));
                }
                PrimaryControl::Progress(Progress { life, view, last, stable })
            }
            _ => return Err(Malformed("an unknown control message")),
        };
        reader.end()?;
        Ok(control)
    }
}
