//! What goes into a verifier and what comes out of it, below the rules that make the one of the other.

use std::collections::BTreeMap;

use crate::message::{Reason, TokenRecord, VerifyMessage};
use crate::saved::SavedRecord;
use crate::slots::{Slot, Slots};
use crate::version::Version;

/// All events of a verifier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VerifierEvent {
    /// A message arrived. The host gives every message of the stage to both machines of its process, also those that
    /// its own process sends; each ignores what is not for it.
    Message {
        /// The process that sent it, as the link knows it.
        from: Slot,
        /// The message.
        message: VerifyMessage,
    },
    /// A process can be reached (again).
    Connected(Slot),
    /// The connection to a process ended; it may live.
    Disconnected(Slot),
    /// Proof that a process has ended, and with it its memory: its host refuses connections, or a later incarnation
    /// sends a heartbeat.
    ProcessGone(Slot),
    /// The host wants another view: the primary orders nothing although requests wait.
    Suspect(Reason),
    /// The operator permits this process to begin a group where no replica has one, as
    /// [`Config::that_begins`](crate::Config::that_begins).
    Begin,
    /// The operator lets the group go on with what this process has: of two executors, the other one will not come back
    /// with its memory, or of more verifiers a majority has lost it. If the group has agreed on more than the version
    /// that this one has, the batches in between are given up.
    GoAlone {
        /// The version of the own executor that is kept.
        has: Version,
        /// The other verifiers that are here without memory: the incarnation in which each has told that. Where
        /// verifiers decide by majority, nothing happens unless they and this one are a quorum.
        blank: BTreeMap<Slot, u64>,
    },
    /// A timer has elapsed. [`VerifierEvent::Tick`] finds out by itself; an exploration has no time.
    Elapsed(Timer),
    /// Time passed. Any interval up to a few milliseconds works.
    Tick,
}

/// What waits for time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// A batch is known and not recorded, or a view did not begin.
    ViewChange,
    /// Messages may have been lost.
    Resend,
    /// Extra protection waits for tokens.
    Extra,
    /// The primary of a pair is silent.
    Silence,
}

/// The receivers of a message, the own process included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recipients {
    /// One process.
    One(Slot),
    /// Every process with a verifier.
    Verifiers,
    /// Every process with an executor.
    Executors,
}

/// All commands of a verifier. They are performed in order: what is persisted first is durable before a later message
/// leaves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VerifierCommand {
    /// Send a message.
    Send {
        /// Its receivers.
        to: Recipients,
        /// The message.
        message: VerifyMessage,
    },
    /// With `durability = "disk"`: write this and wait until it is durable. Otherwise nothing.
    Persist(SavedRecord),
    /// This verifier takes part from the group's beginning.
    Founded,
    /// This verifier had lost its memory and takes part again.
    Recovered,
    /// A view began at this verifier.
    ViewBegan {
        /// Its start.
        record: TokenRecord,
    },
    /// Tokens of the batch after `version` differ, and the batch is rolled back to run sequentially.
    Differed {
        /// The last version that was agreed on.
        version: Version,
        /// Executors whose token is another than that of a majority of all executors; empty if there is no majority. A
        /// concurrency bug may have hit the majority.
        executors: Slots,
    },
    /// The batch after `version` ran sequentially and the tokens differ all the same: it is unknown which is wrong.
    Undecided {
        /// The last version that was agreed on.
        version: Version,
    },
    /// The primary of a pair waits for its peer, or for the operator ([`VerifierEvent::GoAlone`]): its peer may have
    /// gone on without it.
    WaitsForPeer {
        /// The last version that was agreed on.
        version: Version,
    },
}

/// Where commands go, and the time.
pub(super) struct Out<'a> {
    pub(super) now_us: u64,
    pub(super) commands: &'a mut Vec<VerifierCommand>,
}

impl Out<'_> {
    pub(super) fn send(&mut self, to: Recipients, message: VerifyMessage) {
        self.commands.push(VerifierCommand::Send { to, message });
    }
}
