//! Gives every request, and every repair, one agreed position; the only crate that knows the consensus engine.
//!
//! Nothing here owns a socket, a thread or a clock: the pipeline passes frames and time in, and performs the outputs
//! (docs/design.md, sections 5 and 8). Only the log uses the disk, behind the `LogStore` trait.
//!
//! - [`frame`]: the envelope of every message between replicas, for all crates.
//! - [`batch`]: the unit that gets a position.
//! - [`Orderer`]: driven by the pipeline; exactly-once from any origin to every replica.
//! - [`OrderEngine`]: the exchangeable engine below it: [`RaftEngine`], [`PrimaryEngine`],
//!   [`SingleEngine`].
//! - [`LogStore`]: the storage of the log: [`MemoryLog`], [`FileLog`], the latter on any [`Disk`].

pub mod batch;
mod batcher;
mod body;
mod engine;
pub mod frame;
mod gone;
pub mod limits;
mod log;
mod moves;
mod orderer;
mod primary;
mod queue;
mod raft;
mod sessions;
mod single;
mod sizes;
mod stamps;
mod timeouts;
mod wishes;

pub use batch::{Batch, Encoded, Request};
pub use batcher::{Batching, Refused};
pub use body::{BodyWriter, FrameBody};
#[cfg(feature = "inject")]
pub use engine::EngineFaults;
pub use engine::{
    Blame, Committed, CorruptPart, Decision, DecisionError, EngineOut, EngineStatus, FailStop, GroupSize,
    Leadership, MemberSet, NotNow, OrderEngine, Output, Outside, PrimaryView, Tolerance,
};
pub use frame::{Decoder, Frame, FrameError, FrameKind};
pub use gone::{GoneProcesses, ReplicaProcess};
pub use log::{
    Disk, DiskFile, FileLog, FileOptions, LogError, LogStore, MemoryLog, NAMES, Record, System,
    operators_remedy,
};
pub use moves::{Move, Moves};
pub use orderer::{Config, Delivered, OrderCounters, Orderer};
pub use primary::{PrimaryConfig, PrimaryEngine};
pub use raft::{BeginningState, OwnEntries, RaftConfig, RaftEngine};
pub use sessions::{Acting, HostSetting, Rule, Session, State};
pub use single::SingleEngine;
pub use sizes::{GroupSizes, SizeChange, SizeWish, WishedAt};
pub use wire::Malformed;

/// Entry points for the fuzz targets to decoders that are private otherwise. Not for use.
#[doc(hidden)]
pub mod fuzzing {
    use bytes::Bytes;

    /// Decodes an engine message, and encodes it again; returns whether it was one.
    pub fn raft_message(bytes: Bytes) -> bool {
        let Ok(received) = crate::raft::codec::decode(bytes) else { return false };
        crate::raft::codec::encode(&received.envelope, &received.message, |_| false).is_some()
    }

    /// Decodes a founding or joining message, and encodes it again; returns whether it was one.
    pub fn control(bytes: Bytes) -> bool {
        let Ok(control) = crate::raft::boot::Control::decode(bytes.clone()) else { return false };
        // panics: the entrance of a fuzz target
        assert_eq!(control.encode(), bytes);
        true
    }

    /// Decodes a message about a primary's batches, and a batch's parts; returns whether it was one.
    pub fn primary_message(bytes: &Bytes) -> bool {
        use crate::primary::message::BatchMessage;
        let Ok(message) = BatchMessage::decode(bytes) else { return false };
        // panics: the entrance of a fuzz target
        assert_eq!(message.encode(), bytes);
        if let BatchMessage::Execute(batch) = message {
            let parts: usize = batch.parts.iter().map(|part| 4 + part.len()).sum();
            // panics: the entrance of a fuzz target
            assert_eq!(crate::primary::message::EXECUTE_HEAD + parts, bytes.len());
            let _ = batch.verify(3);
        }
        true
    }

    /// Decodes what replicas with a primary tell each other besides, and encodes it again; returns whether it was that.
    pub fn primary_control(bytes: &Bytes) -> bool {
        let Ok(control) = crate::primary::control::PrimaryControl::decode(bytes) else { return false };
        // panics: the entrance of a fuzz target
        assert_eq!(control.encode(), bytes);
        true
    }

    /// Reads a log file, with and without a header; returns how many records it has.
    pub fn segment(bytes: &Bytes, last: bool) -> usize {
        let start = crate::log::segment::made_with(bytes).map_or(0, |_| crate::log::segment::FILE_HEADER);
        let found = crate::log::segment::scan(bytes, start, 0, last).found.len();
        // panics: the entrance of a fuzz target
        assert!(found == 0 || crate::log::segment::has_record(&bytes.slice(start..)));
        found
    }

    /// Reads the files next to a log, its owner and how far it is durable; returns which of them the bytes are.
    pub fn beside_log(bytes: &[u8]) -> (bool, bool) {
        let owner = crate::log::owner::Owner::decode(bytes);
        // panics: the entrance of a fuzz target
        assert!(owner.is_err() || owner.is_ok_and(|owner| owner.encode().as_bytes() == bytes));
        let claim = crate::log::synced::Claim::decode(bytes);
        // panics: the entrance of a fuzz target
        assert!(claim.is_none_or(|claim| bytes.starts_with(&claim.encode())));
        (owner.is_ok(), claim.is_some())
    }
}
