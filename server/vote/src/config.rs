//! The members of the vote, and the protections that are on.

use crate::limits::{
    FINISHED_SHARE, KEEP_FINISHED_BYTES, KEPT_REPLY_BYTES, KEPT_SHARE, MAX_REPLICAS, OWED_REPLY_BYTES,
    REPAIRS_BEFORE_REPLACE, WINDOW_BYTES,
};

use crate::sizes::VotersByBatch;

/// Number of a replica, from 0.
pub type Replica = u8;

/// The data that a voter needs about its group.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) sizes: VotersByBatch,
    me: Replica,
    region_ids: u32,
    first_batch: u64,
    repair_limit: usize,
    window_bytes: usize,
    kept_reply_bytes: usize,
    owed_reply_bytes: usize,
    pub(crate) protections: Protections,
}

impl Config {
    /// A group of `replicas` = 2f+1 (1, 3, 5 or 7) in which this one is number `me`.
    ///
    /// `region_ids` is the number of regions of the service; a corrupted region number beyond it is never put into a
    /// RECOVER. `first_batch` is the first batch this replica will execute: 0, or the one after its state transfer.
    ///
    /// # Panics
    /// When `replicas` is even or too large, or `me` is not one of them: the operator misconfigured the group.
    pub fn new(replicas: u8, me: Replica, region_ids: u32, first_batch: u64) -> Self {
        // panics: the configuration at the start, which the operator chose
        assert!(replicas % 2 == 1, "a group has 2f+1 replicas, not {replicas}");
        assert!(replicas as usize <= MAX_REPLICAS, "at most {MAX_REPLICAS} replicas, not {replicas}");
        assert!(me < replicas, "replica {me} is not one of {replicas}");
        Config {
            sizes: VotersByBatch::of(replicas),
            me,
            region_ids,
            first_batch,
            repair_limit: REPAIRS_BEFORE_REPLACE,
            window_bytes: WINDOW_BYTES,
            kept_reply_bytes: KEPT_REPLY_BYTES,
            owed_reply_bytes: OWED_REPLY_BYTES,
            protections: Protections::ALL,
        }
    }

    /// The same group, in which a replica is replaced after `repairs` within
    /// [`REPAIR_RATE_US`](crate::limits::REPAIR_RATE_US) of ordered time. It must be equal at every replica, or they
    /// will not agree on which replica to replace.
    pub fn with_repair_limit(mut self, repairs: usize) -> Self {
        self.repair_limit = repairs;
        self
    }

    /// Repairs of one replica per interval after which it is replaced.
    pub fn repair_limit(&self) -> usize {
        self.repair_limit
    }

    /// The same group, in which this replica's open batches hold at most so many bytes, own and peers', without the
    /// long replies that it owes: the oldest batch is closed when they hold more. Other bounds depend on it, see
    /// [`Config::kept_reply_bytes`].
    pub fn with_window_bytes(mut self, bytes: usize) -> Self {
        self.window_bytes = bytes;
        self
    }

    /// Bytes of pairs and replies that open batches may hold, without long replies that are owed.
    pub fn window_bytes(&self) -> usize {
        self.window_bytes
    }

    /// The same group, in which this replica keeps at most so many bytes of replies to other replicas' clients.
    pub fn with_kept_reply_bytes(mut self, bytes: usize) -> Self {
        self.kept_reply_bytes = bytes;
        self
    }

    /// The same group, in which the long replies that this replica owes to its clients have at most so many bytes: the
    /// oldest batch is closed when they have more. If this bound is no less than that of the workers, which make the
    /// replies, only a fault can reach it.
    pub fn with_owed_reply_bytes(mut self, bytes: usize) -> Self {
        self.owed_reply_bytes = bytes;
        self
    }

    /// Most bytes of long replies that are owed to this replica's clients.
    pub fn owed_reply_bytes(&self) -> usize {
        self.owed_reply_bytes
    }

    /// Bytes of replies to other replicas' clients that are kept in case their owner's copy is wrong. Never more than
    /// half of the window: the rest is for open votes.
    pub fn kept_reply_bytes(&self) -> usize {
        self.kept_reply_bytes.min(self.window_bytes / KEPT_SHARE)
    }

    /// Bytes that finished batches may hold.
    pub(crate) fn finished_bytes(&self) -> usize {
        KEEP_FINISHED_BYTES.min(self.window_bytes / FINISHED_SHARE)
    }

    /// The same group without some protections, to show their effect.
    #[cfg(any(test, feature = "unprotected"))]
    pub fn with_protections(mut self, protections: Protections) -> Self {
        self.protections = protections;
        self
    }

    /// Present size of the group, 2f+1.
    pub fn replicas(&self) -> u8 {
        self.sizes.now()
    }

    /// This replica.
    pub fn me(&self) -> Replica {
        self.me
    }

    /// Regions of the service.
    pub fn region_ids(&self) -> u32 {
        self.region_ids
    }

    /// First batch that this replica will execute.
    pub fn first_batch(&self) -> u64 {
        self.first_batch
    }

    /// Faulty replicas the group tolerates.
    pub fn faults(&self) -> u8 {
        self.replicas() / 2
    }
}

/// The protections of this crate. All are on; only a test or a demonstration can remove one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protections {
    /// Peers' digests are compared with the own ones. Without it every peer counts as agreeing.
    pub digest_comparison: bool,
    /// A reply waits until its own replica and f others agree. Without it every reply leaves at once.
    pub reply_gate: bool,
    /// A packed object is installed on f+1 equal digests. Without it the first REPAIR is accepted, as in the paper.
    pub repair_quorum: bool,
    /// A replica takes the version of one other only where its own voter found no majority. Without it any proposer of
    /// such a RECOVER is trusted.
    pub settle_check: bool,
    /// A replica that starts other requests or timers than f+1 others is replaced. Without it only its objects are
    /// repaired.
    pub started_check: bool,
}

impl Protections {
    /// All protections on.
    pub const ALL: Protections = Protections {
        digest_comparison: true,
        reply_gate: true,
        repair_quorum: true,
        settle_check: true,
        started_check: true,
    };
}

/// A set of replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set(u8);

impl Set {
    pub(crate) const EMPTY: Set = Set(0);

    pub(crate) fn first(count: u8) -> Set {
        Set(((1u16 << count) - 1) as u8)
    }

    pub(crate) fn contains(self, replica: Replica) -> bool {
        self.0 & (1 << replica) != 0
    }

    pub(crate) fn insert(&mut self, replica: Replica) {
        self.0 |= 1 << replica;
    }

    pub(crate) fn remove(&mut self, replica: Replica) {
        self.0 &= !(1 << replica);
    }

    pub(crate) fn with(self, replica: Replica) -> Set {
        Set(self.0 | 1 << replica)
    }

    pub(crate) fn without(self, replica: Replica) -> Set {
        Set(self.0 & !(1 << replica))
    }

    pub(crate) fn minus(self, other: Set) -> Set {
        Set(self.0 & !other.0)
    }

    pub(crate) fn and(self, other: Set) -> Set {
        Set(self.0 & other.0)
    }

    pub(crate) fn or(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    pub(crate) fn len(self) -> u32 {
        self.0.count_ones()
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Replica> {
        (0..8u8).filter(move |&replica| self.contains(replica))
    }

    pub(crate) fn lowest(self) -> Option<Replica> {
        (!self.is_empty()).then(|| self.0.trailing_zeros() as u8)
    }
}
