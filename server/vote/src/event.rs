//! The events of a voter: its own replica's results, its peers' messages, and the passing of time.

use bytes::Bytes;
use object::{ObjectId, Pair, RegionId, Touched};
use smallvec::SmallVec;
use wire::{Malformed, Reader};

use crate::config::Replica;
use crate::digest::{self, Answer};
use crate::limits::{KEPT_REPLY_BYTES_MAX, LONG_REPLY_BYTES};
use crate::message::Message;
use crate::repair::Recover;

/// The place of a request in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place {
    /// Index of the batch in the order, without gaps.
    pub batch: u64,
    /// Index of the request in its batch.
    pub request: u16,
}

impl Place {
    /// The `request`-th of `batch`.
    pub const fn new(batch: u64, request: u16) -> Self {
        Place { batch, request }
    }

    /// Its form in messages.
    pub(crate) fn to_bytes(self) -> [u8; 10] {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&self.batch.to_le_bytes());
        bytes[8..].copy_from_slice(&self.request.to_le_bytes());
        bytes
    }

    /// Reads [`Place::to_bytes`].
    pub(crate) fn read<W>(reader: &mut Reader<'_, W>) -> Result<Place, Malformed> {
        Ok(Place { batch: reader.u64()?, request: reader.u16()? })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.batch, self.request)
    }
}

/// A state delta, sorted by (region id, object id).
pub type Pairs = SmallVec<[Pair; Touched::INLINE]>;

/// All events of a voter.
#[derive(Clone, Debug)]
pub enum Event {
    /// This replica executed a batch. Batches may finish out of order (a turn may wait for a repair).
    Executed {
        /// Index of the batch.
        batch: u64,
        /// One result per request, in order.
        requests: Vec<RequestResult>,
    },
    /// A message from a peer arrived; the link has already checked its frame.
    Message {
        /// The peer, as identified by the link; never taken from the message.
        from: Replica,
        /// The message.
        message: Message,
    },
    /// Bytes from a peer were not a message ([`Message::decode`] failed) or their frame was corrupt.
    Garbled {
        /// The peer.
        from: Replica,
    },
    /// A peer is absent (process, host or link). No vote waits for it until it is back.
    PeerDown(Replica),
    /// A peer is back with the state it had.
    PeerUp(Replica),
    /// A peer was rebuilt by state transfer and continues at `first_batch`: errors that were known there no longer
    /// exist.
    PeerReplaced {
        /// The peer.
        replica: Replica,
        /// First batch it will vote on.
        first_batch: u64,
    },
    /// The RECOVER at `turn` has its turn: all earlier requests on its footprint are done, and no later one has begun.
    RecoverTurn {
        /// Place of the RECOVER in the order.
        turn: Place,
        /// Time stamp of its batch, in microseconds: ordered time, equal at every replica.
        time_us: u64,
        /// The objects to repair, and the replicas.
        recover: Recover,
        /// Where [`Recover::packs_at`] is true, every listed object and region in any order. Elsewhere empty: the
        /// worker keeps the turn until [`Command::Install`](crate::Command::Install) is done, or the turn is passed.
        packed: Vec<Packed>,
    },
    /// Answer to [`Command::RecheckObjects`](crate::Command::RecheckObjects).
    Rechecked {
        /// The request.
        place: Place,
        /// Those of its objects whose checksum does not match their members.
        corrupt: Vec<(RegionId, ObjectId)>,
    },
    /// Answer to [`Command::Reexecute`](crate::Command::Reexecute).
    Reexecuted {
        /// The request.
        place: Place,
        /// The outcome.
        outcome: Reexecution,
    },
    /// Time passed. Any interval between 1 ms and 100 ms works.
    Tick,
}

/// The outcome of running a request again on the before-images of its objects. A pipeline may do this in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reexecution {
    /// It ran; this is its digest now.
    Digest(u128),
    /// It was run twice when its turn came, and both runs agreed.
    Reproduced,
    /// No before-images were kept: no replica was absent when the request ran.
    NotKept,
}

/// The request that a result answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RequestInfo {
    /// Position of the request in the schedule of this replica.
    pub position: u64,
    /// Ordered time at which it ran here, in microseconds.
    pub time_us: u64,
    /// Checksum of the ordered request (`order::Request`), as the log of this replica has it; of a reply with parts,
    /// what stands for it ([`digest::with_parts`]).
    pub checksum: u32,
    /// Whether this replica owes a client the reply, or a part of it.
    pub mine: bool,
    /// Whether a client sent it, and not the pipeline itself.
    pub of_client: bool,
    /// The service's number for this kind of request, for evidence only: if the same kind of request repeatedly differs
    /// at different replicas, this is a bug, not a bit flip.
    pub kind: u16,
}

/// The result of one request at this replica.
#[derive(Clone, Debug)]
pub struct RequestResult {
    /// The request. Its `mine` ends with the reply's release.
    pub request_info: RequestInfo,
    /// The objects that it touched, sorted by (region id, object id).
    pub pairs: Pairs,
    /// The bytes of its reply, while they may be needed: by this replica's own client until its reply has left, or by
    /// the client's replica, which may find its own copy wrong. None where they are not kept. The caller must not
    /// release them in any other way.
    pub reply: Option<Bytes>,
    /// Length of the reply, in bytes.
    pub reply_len: u64,
    /// [`digest::reply`] of the reply, computed where the reply was made.
    pub reply_digest: u128,
    /// [`Answer::started`]: the requests and timers that it started.
    pub started: u128,
    /// [`digest::request`] of all of it. Where a replica compares with itself: [`RunDigests::first`].
    pub digest: u128,
    /// Where a replica compares with itself: [`RunDigests::second`]. Otherwise 0.
    pub second_run: u128,
    /// Set when the request was abandoned here. The other members then have no meaning, except for the reply, which may
    /// tell the client so.
    pub failure: Option<Failure>,
}

/// The digests that two runs of a request made, each inside its run. 0 where there was no such run: no result has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunDigests {
    /// [`digest::run`] of the earlier run.
    pub first: u128,
    /// [`digest::run`] of the later run, whose effects and reply stay.
    pub second: u128,
    /// [`digest::reply`] of the earlier run's reply.
    pub reply: u128,
    /// [`Answer::started`] of the later run.
    pub started: u128,
}

impl RequestResult {
    /// The result of a request that ran; computes both digests (on the worker's thread).
    pub fn new(request_info: RequestInfo, pairs: Pairs, reply: Bytes) -> Self {
        let result = Self::without_reply(request_info, pairs, &reply);
        RequestResult { reply: Some(reply), ..result }
    }

    /// The same result with the same digests, without the reply's bytes: see [`keeps_reply`]. Where this replica owes
    /// the reply, its client gets none ([`Dropped::NoRoom`](crate::Dropped::NoRoom)).
    pub fn without_reply(request_info: RequestInfo, mut pairs: Pairs, reply: &[u8]) -> Self {
        if !pairs.is_sorted() {
            pairs.sort_unstable();
        }
        let (reply_len, reply_digest) = (reply.len() as u64, digest::reply(request_info.checksum, reply));
        let mut result =
            RequestResult { pairs, reply_len, reply_digest, ..Self::without_digests(request_info, None) };
        result.digest = result.recomputed();
        result
    }

    /// The request has started others as well: `started` is their digest, by [`digest::started`], or 0.
    pub fn set_started(&mut self, started: u128) {
        if started != 0 {
            self.started = started;
            self.digest = self.recomputed();
        }
    }

    /// The result of a request in a mode without votes: nothing is digested.
    pub fn unvoted(request_info: RequestInfo, reply: Bytes) -> Self {
        RequestResult { reply_len: reply.len() as u64, ..Self::without_digests(request_info, Some(reply)) }
    }

    /// The result of a request that was run twice: `pairs` and `reply` are those of the later run. Without a reply
    /// where there was no room for its bytes.
    pub fn of_two_runs(
        request_info: RequestInfo,
        pairs: Pairs,
        reply: Option<Bytes>,
        runs: RunDigests,
    ) -> Self {
        RequestResult {
            pairs,
            reply_len: reply.as_ref().map_or(0, |reply| reply.len() as u64),
            reply_digest: runs.reply,
            started: runs.started,
            digest: runs.first,
            second_run: runs.second,
            ..Self::without_digests(request_info, reply)
        }
    }

    fn without_digests(request_info: RequestInfo, reply: Option<Bytes>) -> Self {
        RequestResult {
            request_info,
            pairs: Pairs::new(),
            reply,
            reply_len: 0,
            reply_digest: 0,
            started: 0,
            digest: 0,
            second_run: 0,
            failure: None,
        }
    }

    /// A request that this replica could not carry out and has undone.
    pub fn abandoned(request_info: RequestInfo, failure: Failure) -> Self {
        RequestResult { failure: Some(failure), ..Self::without_digests(request_info, None) }
    }

    /// Whether the reply's bytes are kept.
    pub fn has_reply(&self) -> bool {
        self.reply.is_some()
    }

    /// The digest of its stored parts, to find out whether the stored digest is the corrupted one.
    pub(crate) fn recomputed(&self) -> u128 {
        digest::request(&self.pairs, &self.answer())
    }

    /// Its answer, as replicas exchange it.
    pub fn answer(&self) -> Answer {
        let RequestInfo { position, time_us, checksum, .. } = self.request_info;
        Answer {
            position,
            time_us,
            request_checksum: checksum,
            bytes: self.reply_len,
            digest: self.reply_digest,
            started: self.started,
        }
    }

    /// Bytes this result keeps alive.
    pub(crate) fn bytes(&self) -> usize {
        let spilled = if self.pairs.spilled() { self.pairs.capacity() * size_of::<Pair>() } else { 0 };
        size_of::<RequestResult>() + spilled + self.reply_bytes()
    }

    /// Bytes of the reply that are kept.
    pub(crate) fn reply_bytes(&self) -> usize {
        self.reply.as_ref().map_or(0, Bytes::len)
    }

    /// Bytes of a long reply that is owed to a client of this replica.
    pub(crate) fn owed_bytes(&self) -> usize {
        let bytes = self.reply_bytes();
        if self.request_info.mine && bytes >= LONG_REPLY_BYTES { bytes } else { 0 }
    }
}

/// Whether a voter keeps the bytes of a reply of this length. It keeps one that this replica owes (`mine`) until it has
/// left, and others only if they are short enough to be kept for their owner. Otherwise the caller need not store the
/// bytes: [`RequestResult::without_reply`].
pub fn keeps_reply(mine: bool, length: usize) -> bool {
    mine || length <= KEPT_REPLY_BYTES_MAX
}

/// Why a replica blames itself for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An object's checksum did not match its members when the request entered it: passive corruption.
    Check {
        /// Region of the object.
        region_id: RegionId,
        /// The object.
        id: ObjectId,
    },
    /// A reference led to no object, although the structure requires one.
    Missing {
        /// Region that should hold the object.
        region_id: RegionId,
        /// The object.
        id: ObjectId,
    },
    /// The service's code panicked here.
    Panic,
    /// The ordered bytes of the request did not match their checksum any more.
    Request,
    /// The ordered bytes cannot be run by any replica: they did not fit their checksum before the request had its
    /// position, or are no request. Healthy replicas agree on this.
    Invalid,
    /// The watchdog of the turn fired.
    Hang,
    /// The replica cannot reproduce its own result: its stored result or its re-execution differs.
    Unreproducible,
}

impl Failure {
    /// The object that the failure itself names, if any.
    pub fn object(&self) -> Option<(RegionId, ObjectId)> {
        match *self {
            Failure::Check { region_id, id } | Failure::Missing { region_id, id } => Some((region_id, id)),
            Failure::Panic
            | Failure::Request
            | Failure::Invalid
            | Failure::Hang
            | Failure::Unreproducible => None,
        }
    }
}

/// One object, or one whole region, as bytes; or the fact that it does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Region.
    pub region_id: RegionId,
    /// The object, or [`ObjectId::NONE`] for the whole region.
    pub id: ObjectId,
    /// Its content.
    pub content: Content,
}

/// The content of a [`Packed`] object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// It exists; these bytes replace it.
    Present(Bytes),
    /// It does not exist; the faulty replica drops it if it has one.
    Absent,
    /// It failed its own check while it was packed. Never sent: this replica's version of the object does not count.
    Damaged,
}
