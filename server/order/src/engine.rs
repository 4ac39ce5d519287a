//! The interface of a consensus engine for the rest of CrossCheck, so that replacing it stays a week's work.

use std::collections::VecDeque;

use bytes::Bytes;
use wire::{Malformed, ReplicaId};

use crate::batch::Encoded;
use crate::body::FrameBody;
use crate::frame::FrameKind;
use crate::log::LogError;

/// Which replicas make up the group after some log entry, as bit sets over the slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemberSet {
    /// Slots that vote in the engine.
    pub voters: u16,
    /// Slots that receive the log but do not vote in the engine yet.
    pub learners: u16,
}

impl MemberSet {
    /// Whether the replica in `slot` votes.
    pub const fn is_voter(&self, slot: u8) -> bool {
        self.voters >> slot & 1 == 1
    }

    /// Whether the replica in `slot` is still catching up.
    pub const fn is_learner(&self, slot: u8) -> bool {
        self.learners >> slot & 1 == 1
    }
}

/// A replica's knowledge of others on their way into a group, from their last messages: bit sets over the slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outside {
    /// Slots whose replicas are here without a log.
    pub fresh: u16,
    /// Slots whose replicas are here without a log, and would begin a group with another state.
    pub differ: u16,
    /// Slots whose replicas belong to a group.
    pub members: u16,
    /// Slots whose replicas belong to another group than this replica: an operator has let one of the two continue
    /// without the other.
    pub elsewhere: u16,
    /// The group is to begin, as soon as all replicas are here.
    pub is_ordered: bool,
}

/// A decision that replicas cannot make, because only an operator knows whether the others are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The group begins, empty: no replica has data of it that is still needed. For the replica in slot 0, which
    /// waits for all others.
    Found,
    /// More replicas have lost their logs for ever than the group can survive. It continues with this replica's log,
    /// and entries that only the others had are lost.
    TakeOver,
}

/// Why a decision is not carried out here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecisionError {
    /// Only the replica in slot 0 founds.
    #[error("a group is begun by replica 1")]
    NotFirst,
    /// There is nothing to decide.
    #[error("this replica belongs to a group already")]
    Belongs,
    /// Another replica does.
    #[error("replica {} belongs to a group already", .0 + 1)]
    OtherBelongs(u8),
    /// There is no log to continue with.
    #[error("this replica has no data of a group")]
    NoData,
    /// A majority is up.
    #[error("the group has a leader, replica {}", .0 + 1)]
    Led(u8),
    /// A majority is up, and about to elect a leader.
    #[error(
        "{0} of the group's replicas are here with their data: they elect a leader by themselves; end those \
            first that should not"
    )]
    Majority(u32),
    /// It is too early to tell.
    #[error("there was a leader a moment ago, and an election may be on its way: ask again in a second")]
    Election,
    /// It stopped, or was replaced.
    #[error("this replica is about to stop")]
    Stopped,
    /// There is one replica, or no agreement.
    #[error("in this mode a replica needs no decision")]
    NoGroup,
}

/// An event or a task for the pipeline; see each variant for the answer it expects.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Put this frame on the connection to the replica in slot `to` (drop it when there is none).
    Send {
        /// Receiver's slot.
        to: u8,
        /// One of the kinds of this crate.
        kind: FrameKind,
        /// Body of the frame.
        body: FrameBody,
        /// Not urgent: it may be deferred to the next frame to that replica, or for some 25 ms.
        deferrable: bool,
    },
    /// Another replica leads now, or none does.
    LeaderChanged {
        /// Slot of the leader, if one is known.
        leader: Option<u8>,
        /// Its term.
        term: u64,
    },
    /// This replica is a member of the group and takes part from here on.
    Established {
        /// The incarnation that its batches name.
        incarnation: u64,
        /// Whether it joined (its state comes from peers), and did not found the group or start from its own log.
        joined: bool,
    },
    /// The group's membership changed at this log index.
    Membership {
        /// Log index of the change.
        index: u64,
        /// The members from there on.
        members: MemberSet,
    },
    /// A replica needs the state at a checkpoint that does not exist yet. Answer with `state_available`.
    CheckpointWanted {
        /// Order a CHECKPOINT; the leader only. Otherwise nothing can be ordered before that replica has a state: pack
        /// the present one, after the last delivery; with a primary the one after the last stable batch.
        ordered: bool,
    },
    /// This replica's log begins after `index`. Fetch the state that f+1 replicas agree on; answer with `installed`.
    NeedState {
        /// Log index of the checkpoint: the state after this entry.
        index: u64,
        /// The leader, which certainly has it; other replicas have it too.
        from: u8,
    },
    /// Requests of this replica that are part of a state installed from elsewhere: they were executed, once, but their
    /// replies are not available here. Close their clients' connections.
    Skipped {
        /// The tags that they were submitted with.
        tags: Vec<u64>,
    },
    /// The leader takes entries for acknowledged and committed here that this log does not have: the log on disk has
    /// lost its synced end, or the leader is wrong. The leader sends the missing entries; the operator should know.
    Lacking {
        /// The leader.
        from: u8,
        /// The index up to which it assumes that they are here.
        believed: u64,
        /// Index at which the log ends.
        last: u64,
    },
    /// The leader keeps stamping batches later than f+1 clocks allow: this replica called an election against it.
    StampsRefused {
        /// The leader.
        leader: u8,
        /// How much too late its last stamp was, in microseconds.
        ahead_us: u64,
    },
    /// The log on disk does not fit the state at hand, and is of no use without one that does: this replica joins as a
    /// new incarnation. The operator should know: a log that ends before its state has lost entries.
    LogDropped {
        /// Index before the first entry of the log.
        begins_after: u64,
        /// Index of its last entry.
        ends_at: u64,
        /// Index of the entry that the state is of, 0 without a state.
        state: u64,
    },
    /// The group replaced this incarnation of the replica by a later one. Forget the log ([`crate::Orderer::forget`]),
    /// which is the earlier incarnation's, and stop; the next process joins as a new incarnation.
    Removed,
    /// The group's log has a batch of this incarnation of this replica, or of a later one, that this process
    /// did not send. So this process began with an older copy of a disk: entries acknowledged after the copy was made
    /// are missing, and its batches would take the numbers of others. Forget the log ([`crate::Orderer::forget`]) and
    /// stop; the next process joins as a new incarnation.
    OlderCopy {
        /// Index of the entry, or of the state that names it.
        index: u64,
        /// The batch's incarnation: the replica's incarnation as a member, and its number of starts.
        incarnation: (u32, u32),
        /// The batch's number.
        number: u64,
    },
    /// This replica cannot continue without breaking a promise. No acknowledged entry is lost. Stop the process.
    FailStop(FailStop),
}

impl From<FailStop> for Output {
    fn from(reason: FailStop) -> Self {
        Output::FailStop(reason)
    }
}

/// Why a replica stopped itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FailStop {
    /// A log entry no longer matches its checksum (state corrupted).
    #[error("log entry {index} is corrupt in memory; restart to join anew")]
    LogCorrupt {
        /// The entry.
        index: u64,
    },
    /// The disk refused a write or sync of the log (operator: free space or replace the disk).
    #[error("cannot write the log: {0}")]
    LogWrite(String),
    /// The log has no room left (operator: free space). What was acknowledged is on the disk.
    #[error("cannot write the log: {0}")]
    LogFull(String),
    /// The engine found its own state impossible (state corrupted, or a bug of ours).
    #[error("the order engine stopped: {0}")]
    Engine(String),
    /// Memory of the orderer was corrupted: this process has to be replaced.
    #[error("memory was corrupted: {0}")]
    Corrupted(CorruptPart),
}

impl FailStop {
    /// The log could not be written, for this reason.
    pub(crate) fn of_log(error: &LogError) -> Self {
        let text = error.to_string();
        if matches!(error, LogError::Full(_)) { FailStop::LogFull(text) } else { FailStop::LogWrite(text) }
    }
}

/// Memory of the orderer outside of objects that was found corrupted. No repair of objects corrects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CorruptPart {
    /// A request would be ordered twice, never, or in another order.
    #[error("the queue of requests that wait for a batch lost count")]
    Requests,
    /// A batch of this replica's clients is not the one that was formed.
    #[error("a batch of its own clients is not what was formed")]
    OwnBatch,
    /// Terms, positions, or the state of peers.
    #[error("a number of the consensus engine changed outside of it")]
    EngineNumbers,
    /// The engine broke a rule of Raft.
    #[error("the consensus engine broke a rule: {0}")]
    EngineRule(&'static str),
    /// The members that a snapshot named when it arrived.
    #[error("the membership that came with a snapshot changed")]
    Membership,
    /// The position, or the state of the exactly-once rule.
    #[error("the position of the delivery does not go forward")]
    Delivery,
}

/// A peer sent something that no honest, healthy replica sends. Count it against the peer and reset its connection. Or
/// this replica has damaged what it kept itself: then `peer` is its own slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("replica {}: {why}", ReplicaId(*peer))]
pub struct Blame {
    /// Slot of the sender.
    pub peer: u8,
    /// Which rule it broke.
    pub why: &'static str,
}

impl Blame {
    pub(crate) fn new(peer: u8, why: &'static str) -> Self {
        Blame { peer, why }
    }

    pub(crate) fn malformed(peer: u8) -> impl FnOnce(Malformed) -> Blame {
        move |error| Blame { peer, why: error.0 }
    }
}

/// The engine does not take proposals now; the batch stays queued and is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the leader, or its leadership is being handed over")]
pub struct NotNow;

/// One entry whose position is final.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    /// Position in the log; grows, with gaps where the engine keeps entries of its own.
    pub index: u64,
    /// The batch, not verified yet.
    pub entry: Encoded,
    /// Number of the primary's batch that the entry is a part of. Every other engine counts each entry as one: then it
    /// is the index.
    pub number: u64,
    /// Whether no entry of the same number follows.
    pub ends: bool,
    /// Whether the requests of this number are to run one after the other: set by a primary only.
    pub sequential: bool,
}

impl Committed {
    /// An entry with a number to itself.
    pub(crate) fn whole(index: u64, entry: Encoded) -> Self {
        Committed { index, entry, number: index, ends: true, sequential: false }
    }
}

/// A view: the period in which one replica, the primary, numbers the batches that all executors run (Eve, section
/// 4.1). The host decides when one begins, and from which batch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrimaryView {
    /// Its number, from 1; each later view has a greater one.
    pub number: u64,
    /// Slot of its primary.
    pub primary: u8,
    /// Slots of its executors, the primary's among them: a bit set.
    pub executors: u16,
    /// Number of its first batch, from 1. The batches before it were agreed on.
    pub next: u64,
    /// Whether its first batch is to run sequentially, because replicas differed after that batch before.
    pub sequential: bool,
}

impl PrimaryView {
    /// Whether the replica in `slot` executes in this view.
    pub const fn has(&self, slot: u8) -> bool {
        self.executors >> slot & 1 == 1
    }
}

/// The results of pumping an engine.
#[derive(Debug, Default)]
pub struct EngineOut {
    /// In the order in which they have to be performed.
    pub outputs: VecDeque<Output>,
    /// In log order.
    pub committed: VecDeque<Committed>,
}

impl EngineOut {
    /// Appends what is in `other`, which is empty afterwards.
    pub(crate) fn take_over(&mut self, other: &mut EngineOut) {
        // Mostly there is nothing, and to append nothing costs more than to find that out.
        if !other.outputs.is_empty() {
            self.outputs.append(&mut other.outputs);
        }
        if !other.committed.is_empty() {
            self.committed.append(&mut other.committed);
        }
    }

    pub(crate) fn send(&mut self, to: u8, kind: FrameKind, body: impl Into<FrameBody>) {
        let body = body.into();
        self.outputs.push_back(Output::Send { to, kind, body, deferrable: false });
    }

    pub(crate) fn send_deferred(&mut self, to: u8, kind: FrameKind, body: impl Into<FrameBody>) {
        let body = body.into();
        self.outputs.push_back(Output::Send { to, kind, body, deferrable: true });
    }
}

/// The engine's progress; cheap to read at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineStatus {
    /// Slot of the leader, if one is known.
    pub leader: Option<u8>,
    /// Whether that is this replica.
    pub is_leader: bool,
    /// The current term; only ever grows.
    pub term: u64,
    /// The incarnation that this replica's batches name; `None` until it belongs to a group.
    pub incarnation: Option<u64>,
    /// The members of the group as far as this replica knows.
    pub members: MemberSet,
    /// Last entry in this replica's log.
    pub last_index: u64,
    /// Term of that entry. Of two logs of a group the one with the later term has every acknowledged entry of the
    /// other; of two with the same term the longer one has.
    pub last_term: u64,
    /// Last entry known to be committed.
    pub commit_index: u64,
    /// First entry still in this replica's log.
    pub first_index: u64,
    /// Memory of the entries that are in memory, in bytes.
    pub log_bytes: u64,
    /// There has been a leader for a second, and nothing was committed in its term.
    pub stuck: bool,
    /// Messages of others that are not in the group, or from before this replica was in it.
    pub outside: Outside,
}

/// How many further replicas may fail, the rest going on by itself, as a leader finds it. All sets are over the slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tolerance {
    /// The number.
    pub failures: u8,
    /// Voters with every acknowledged entry, or that can get those they lack from any other one in this set.
    pub level: u16,
    /// Replicas that were not heard lately.
    pub away: u16,
    /// Voters that lack more than a few entries, or entries that another one does not have any more.
    pub behind: u16,
    /// Replicas on their way into the group.
    pub joining: u16,
    /// The leader does not know yet that its log counts: nothing was committed in its term, or an operator's decision
    /// is not in the log yet.
    pub unproven: bool,
}

/// Who leads: the part of a [`EngineStatus`] that is read several times per batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leadership {
    /// Slot of the leader, if one is known.
    pub leader: Option<u8>,
    /// Whether that is this replica.
    pub is_leader: bool,
    /// The current term.
    pub term: u64,
    /// The incarnation that this replica's batches name; `None` until it belongs to a group.
    pub incarnation: Option<u64>,
}

/// The size of a group, as its order's state says, or before that the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupSize {
    /// Replicas from which messages are accepted.
    pub known: u8,
    /// Those that vote: the first ones. The others follow the log.
    pub voting: u8,
    /// Whether members from `known` on were let go, and have to leave.
    pub excludes_others: bool,
}

/// A consensus engine without I/O: it receives messages and ticks, and is pumped for the actions to perform.
///
/// Calls never block, except [`OrderEngine::persist`] for one sync of the disk.
pub trait OrderEngine: Send {
    /// Leader only: appends one entry (already stamped) to the log.
    ///
    /// # Errors
    /// [`NotNow`]; the entry is not appended, also not later.
    fn propose(&mut self, entry: Encoded) -> Result<(), NotNow>;

    /// A frame of kind [`FrameKind::Order`], [`FrameKind::Control`] or [`FrameKind::Batch`] from the replica in slot
    /// `from`.
    ///
    /// # Errors
    /// [`Blame`] when a field is out of range; the engine's state is then unchanged.
    fn on_frame(&mut self, from: u8, kind: FrameKind, body: Bytes) -> Result<(), Blame>;

    /// This replica has handed a batch of its own to the leader, whose log entry may come back without the requests.
    fn handed_over(&mut self, batch: &Encoded) {
        let _ = batch;
    }

    /// One tick of the caller's clock passed (25 ms suggested).
    fn tick(&mut self);

    /// The connection to a peer is usable.
    fn peer_up(&mut self, peer: u8);

    /// The connection to a peer is gone.
    fn peer_down(&mut self, peer: u8);

    /// The group has this size from now on: see [`crate::Orderer::resize`]. Nothing where it cannot change.
    fn resize(&mut self, size: GroupSize) {
        let _ = size;
    }

    /// A round of the caller's loop has ended: until the next frame or pump nothing changes here.
    fn rest(&mut self) {}

    /// Moves all outputs that do not wait for the disk into `out`.
    fn pump(&mut self, out: &mut EngineOut);

    /// Whether [`OrderEngine::persist`] has something to sync. Write the sockets first: the peers work meanwhile.
    fn needs_persist(&self) -> bool {
        false
    }

    /// Syncs the log to the disk and moves the outputs that waited for it into `out`.
    fn persist(&mut self, out: &mut EngineOut) {
        let _ = out;
    }

    /// Its progress.
    fn engine_status(&self) -> EngineStatus;

    /// Who leads: equal to those fields of [`OrderEngine::engine_status`].
    fn leadership(&self) -> Leadership {
        let EngineStatus { leader, is_leader, term, incarnation, .. } = self.engine_status();
        Leadership { leader, is_leader, term, incarnation }
    }

    /// Whether entries go anywhere but to this replica's next delivery: to other replicas, or to a disk.
    fn hands_on(&self) -> bool {
        true
    }

    /// Entries in this replica's log that the slowest live replica has not delivered yet.
    fn backlog(&self) -> u64 {
        0
    }

    /// At a leader: how many further replicas may fail. None where that is not found from the log.
    fn tolerance(&self) -> Option<Tolerance> {
        None
    }

    /// The pipeline took delivery of everything up to `index`.
    fn delivered(&mut self, index: u64) {
        let _ = index;
    }

    /// The state after entry `checkpoint` can be fetched from this replica.
    fn state_available(&mut self, checkpoint: u64) {
        let _ = checkpoint;
    }

    /// The state after entry `checkpoint` cannot be fetched from this replica any more.
    fn state_freed(&mut self, checkpoint: u64) {
        let _ = checkpoint;
    }

    /// The state after entry `checkpoint` is at hand; returns whether it is (still) the one that
    /// [`Output::NeedState`] asked for.
    fn installed(&mut self, checkpoint: u64) -> bool {
        let _ = checkpoint;
        false
    }

    /// The state after `checkpoint` is not available any more (its holders made later ones): request another.
    fn state_lost(&mut self, checkpoint: u64) {
        let _ = checkpoint;
    }

    /// The state here is wrong: another one, after a later batch than `number`, is asked for in its place. It is
    /// answered by [`OrderEngine::rewind_to`] the entry of that state. Primaries only.
    fn want_state_after(&mut self, number: u64) {
        let _ = number;
    }

    /// This replica stops, and its log is of no use any more: files that survive the process are deleted, and the next
    /// process joins as a new incarnation. The engine must not be used afterwards.
    ///
    /// # Errors
    /// [`LogError`] when a file would be left behind.
    fn forget(&mut self) -> Result<(), LogError> {
        Ok(())
    }

    /// Drops at most [`crate::limits::COMPACT_STEP`] entries up to `index`, never past the
    /// [`OrderEngine::compaction_floor`] and, where the log survives the process, never past the latest
    /// checkpoint. Returns whether more could be dropped now.
    fn compact_to(&mut self, index: u64) -> bool {
        let _ = index;
        false
    }

    /// No live replica needs entries up to here.
    fn compaction_floor(&self) -> u64 {
        0
    }

    /// Leader only: of the replicas in these slots, the voter that can lead next with the shortest pause: the one to
    /// which the leadership is being handed, or the one with the longest log as far as that is known.
    fn successor(&self, among: u16) -> Option<u8> {
        let _ = among;
        None
    }

    /// Leader only: hands the leadership to the replica in `slot`.
    fn transfer_leader(&mut self, slot: u8) {
        let _ = slot;
    }

    /// Follower only: stands for election now, although it may receive heartbeats of a leader.
    fn campaign(&mut self) {}

    /// The incarnation of the replica in `slot` that was let into the group last, if that is known.
    fn admitted_incarnation(&self, slot: u8) -> Option<u32> {
        let _ = slot;
        None
    }

    /// Carries out an operator's decision.
    ///
    /// # Errors
    /// [`DecisionError`] when it is not possible here; nothing has changed then.
    fn decide(&mut self, decision: Decision) -> Result<(), DecisionError> {
        let _ = decision;
        Err(DecisionError::NoGroup)
    }

    /// Entries that are stamped later than this, in microseconds since 1970, are refused from now on: f+1 clocks are
    /// not that late. A leader that keeps sending such entries is deposed
    /// ([`Output::StampsRefused`]).
    fn accept_stamps(&mut self, until_us: u64) {
        let _ = until_us;
    }

    /// A view begins: see [`crate::Orderer::begin_view`]. Returns whether it does; then what was handed on before and
    /// was not delivered is to be dropped, as it is handed on again if it is part of the view. Nothing without a
    /// primary.
    fn begin_view(&mut self, view: PrimaryView) -> bool {
        let _ = view;
        false
    }

    /// Deliveries are rolled back, or replaced by a state of other replicas: the next entry to deliver is that after
    /// `index`. See [`crate::Orderer::rewind`].
    fn rewind_to(&mut self, index: u64) {
        let _ = index;
    }

    /// Batches up to this number of a primary are not rolled back any more: they are needed for others only.
    fn stable(&mut self, number: u64) {
        let _ = number;
    }
}

/// Faults that tests and simulations inject into an engine; one that cannot have a fault says so.
#[cfg(feature = "inject")]
pub trait EngineFaults {
    /// Changes one byte of the entry at `index` at rest in memory. False when it has no such byte.
    fn corrupt_entry(&mut self, index: u64, at: usize) -> bool {
        let _ = (index, at);
        false
    }

    /// Changes one byte of each batch that this replica keeps until its entry comes back without the requests. False
    /// when there is none.
    fn corrupt_own(&mut self, at: usize) -> bool {
        let _ = at;
        false
    }

    /// Loses the bodies of all batches that were delivered; false if there was none.
    fn lose_entries(&mut self) -> bool {
        false
    }

    /// Flips a bit of one of the engine's own numbers, and returns its name. `None` when there are not so many.
    fn corrupt_number(&mut self, ordinal: usize, bit: u32) -> Option<&'static str> {
        let _ = (ordinal, bit);
        None
    }
}
