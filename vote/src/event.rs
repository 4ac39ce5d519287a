//! What happens to a voter: its own replica's results, its peers' messages, and the passing of time.

use bytes::Bytes;
use object::{Home, ObjectId, Pair};
use smallvec::SmallVec;
use wire::{Malformed, Reader};

use crate::config::Replica;
use crate::digest::{self, Answer};
use crate::limits::{KEPT_REPLY_BYTES_MAX, LONG_REPLY_BYTES};
use crate::message::Message;
use crate::repair::Recover;

/// Which request of which batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place {
    /// Index of the batch in the order; dense.
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

/// A state delta, sorted by (home, id).
pub type Pairs = SmallVec<[Pair; 4]>;

/// Everything that can happen to a voter.
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
        /// The peer, as the link knows it; never taken from the message.
        from: Replica,
        /// What it says.
        message: Message,
    },
    /// Bytes from a peer were not a message ([`Message::decode`] failed) or their frame was corrupt.
    Garbled {
        /// The peer.
        from: Replica,
    },
    /// A peer is gone (process, host or link). Nobody waits for it until it is back.
    PeerDown(Replica),
    /// A peer is back with the state it had.
    PeerUp(Replica),
    /// A peer was rebuilt by state transfer and continues at `first_batch`: what was known wrong there is gone.
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
        /// Time stamp of its batch, in microseconds: ordered time, the same at every replica.
        time_us: u64,
        /// What is to be repaired, and where.
        recover: Recover,
        /// Where [`Recover::packs_at`] says so, every listed object and region in any order. Elsewhere empty:
        /// the worker keeps the turn until [`Command::Install`](crate::Command::Install) is done, or the turn
        /// is passed.
        packed: Vec<Packed>,
    },
    /// Answer to [`Command::RecheckObjects`](crate::Command::RecheckObjects).
    Rechecked {
        /// The request.
        place: Place,
        /// Those of its objects whose checksum does not match their members.
        corrupt: Vec<(Home, ObjectId)>,
    },
    /// Answer to [`Command::Reexecute`](crate::Command::Reexecute).
    Reexecuted {
        /// The request.
        place: Place,
        /// What came of it.
        outcome: Reexecution,
    },
    /// Time passed. Any rate between 1 ms and 100 ms will do.
    Tick,
}

/// What came of running a request again on the before-images of what it touched. A pipeline may do so ahead of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reexecution {
    /// It ran; this is its digest now.
    Digest(u128),
    /// It was run twice when its turn came, and did the same.
    Reproduced,
    /// No before-images were kept: nobody was missing when the request ran.
    NotKept,
}

/// What a result answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Asked {
    /// Position of the request in the schedule of this replica, where the result comes from.
    pub position: u64,
    /// Ordered time at which it ran here, in microseconds.
    pub time_us: u64,
    /// Checksum of the ordered request (`order::Request`), as the log of this replica has it.
    pub checksum: u32,
    /// Whether this replica owes the client the reply.
    pub mine: bool,
    /// Whether a client asked for it, and not the pipeline itself.
    pub of_client: bool,
    /// What the service calls this kind of request, for evidence only: equal requests at different replicas differing
    /// again and again are a bug, not a bit flip.
    pub kind: u16,
}

/// What one request did at this replica.
#[derive(Clone, Debug)]
pub struct RequestResult {
    /// What it answers. Its `mine` ends with the reply's release.
    pub asked: Asked,
    /// What it touched, sorted by (home, id).
    pub pairs: Pairs,
    /// The bytes of what it answers, while somebody may need them: this replica's own client until its reply has left,
    /// or the owner of the client, who may find its own copy wrong. None where they are not kept. The caller must not
    /// keep another way out.
    pub reply: Option<Bytes>,
    /// Length of what it answers, in bytes.
    pub reply_len: u64,
    /// [`digest::reply`] of the reply, computed where the reply was made.
    pub reply_digest: u128,
    /// [`digest::request`] of all of it.
    pub digest: u128,
    /// Set when the request was abandoned here; the other members then mean nothing.
    pub failure: Option<Failure>,
}

impl RequestResult {
    /// The result of a request that ran; computes both digests (on the worker's thread).
    pub fn new(asked: Asked, pairs: Pairs, reply: Bytes) -> Self {
        let result = Self::without_reply(asked, pairs, &reply);
        RequestResult { reply: Some(reply), ..result }
    }

    /// The same result with the same digests, of which the reply's bytes are not kept: see [`keeps_reply`]. Where this
    /// replica owes the reply, its client gets none ([`Dropped::NoRoom`](crate::Dropped::NoRoom)).
    pub fn without_reply(asked: Asked, mut pairs: Pairs, reply: &[u8]) -> Self {
        if !pairs.is_sorted() {
            pairs.sort_unstable();
        }
        let (reply_len, reply_digest) = (reply.len() as u64, digest::reply(asked.checksum, reply));
        let mut result =
            RequestResult { asked, pairs, reply: None, reply_len, reply_digest, digest: 0, failure: None };
        result.digest = result.recomputed();
        result
    }

    /// The result of a request that ran where nobody votes: nothing is digested.
    pub fn unvoted(asked: Asked, reply: Bytes) -> Self {
        RequestResult {
            asked,
            pairs: Pairs::new(),
            reply_len: reply.len() as u64,
            reply: Some(reply),
            reply_digest: 0,
            digest: 0,
            failure: None,
        }
    }

    /// A request that this replica could not carry out and has undone.
    pub fn abandoned(asked: Asked, failure: Failure) -> Self {
        RequestResult { failure: Some(failure), reply: None, ..Self::unvoted(asked, Bytes::new()) }
    }

    /// Whether the reply's bytes are kept.
    pub fn has_reply(&self) -> bool {
        self.reply.is_some()
    }

    /// The digest as its stored parts give it, to find out whether the stored digest is the corrupted one.
    pub(crate) fn recomputed(&self) -> u128 {
        digest::request(&self.pairs, &self.answer())
    }

    /// What it answers, as replicas tell each other.
    pub fn answer(&self) -> Answer {
        let Asked { position, time_us, checksum, .. } = self.asked;
        Answer { position, time_us, asked: checksum, bytes: self.reply_len, digest: self.reply_digest }
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
        if self.asked.mine && bytes >= LONG_REPLY_BYTES { bytes } else { 0 }
    }
}

/// Whether a voter keeps the bytes of a reply of this length: of one that this replica owes (`mine`) until it
/// has left, of others only if they are short enough to be kept for their owner. Where it does not, the
/// caller need not make the bytes: [`RequestResult::without_reply`].
pub fn keeps_reply(mine: bool, length: usize) -> bool {
    mine || length <= KEPT_REPLY_BYTES_MAX
}

/// Why a replica blames itself for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An object's checksum did not match its members when the request entered it: passive corruption.
    Check {
        /// Region of the object.
        home: Home,
        /// The object.
        id: ObjectId,
    },
    /// A reference led to no object where the structure says there is one.
    Missing {
        /// Region that should hold the object.
        home: Home,
        /// The object.
        id: ObjectId,
    },
    /// The service's code panicked here.
    Panic,
    /// The ordered bytes of the request did not match their checksum any more.
    Request,
    /// It was ordered as something that nobody can run: its bytes did not fit its checksum before it had its
    /// position, or say nothing. Healthy replicas agree on that.
    Invalid,
    /// The watchdog of the turn fired.
    Hang,
    /// The replica does not get its own result again: its stored result or its re-execution differs.
    Unreproducible,
}

impl Failure {
    /// The object the failure itself names, if any.
    pub fn object(&self) -> Option<(Home, ObjectId)> {
        match *self {
            Failure::Check { home, id } | Failure::Missing { home, id } => Some((home, id)),
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
    pub home: Home,
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
    /// It failed its own check while it was packed. Never sent: this replica has no say about the object.
    Damaged,
}
