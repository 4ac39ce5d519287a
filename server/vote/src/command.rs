//! The commands of a voter: decisions are values, and the pipeline performs them.

use std::fmt;

use bytes::Bytes;
use object::{ObjectId, RegionId};

use crate::config::Replica;
use crate::event::{Packed, Place};
use crate::evidence::Evidence;
use crate::limits::OUTVOTED_BEFORE_REPLACE;
use crate::message::Message;
use crate::repair::Recover;

/// The receivers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Every other replica that is up.
    All,
    /// One replica.
    One(Replica),
}

/// All commands of a voter to its pipeline.
#[derive(Clone, Debug)]
pub enum Command {
    /// Send a message; it may be lost, duplicated or reordered.
    Send {
        /// Its receivers.
        to: To,
        /// The message.
        message: Message,
    },
    /// The reply may leave: this replica and f others agree on it. Only for requests that are `mine`.
    Release {
        /// The request.
        place: Place,
        /// Its reply, just checked against its digest.
        reply: Bytes,
        /// That digest (`digest::reply`), so that the pipeline can check the bytes once more before it sends them to
        /// the client.
        digest: u128,
    },
    /// The own reply was wrong or missing; these bytes from a peer match the digest that f+1 replicas agree on.
    ReplyRepaired {
        /// The request.
        place: Place,
        /// The right reply.
        reply: Bytes,
        /// Its digest, which f+1 replicas agree on.
        digest: u128,
    },
    /// This reply can never leave; the pipeline drops the client's connection.
    DropReply {
        /// The request.
        place: Place,
        /// Why.
        why: Dropped,
    },
    /// Give this RECOVER a position in the order, like a request.
    ProposeRecover(Recover),
    /// Overwrite these objects (drop the absent ones, create the missing ones), then pass the turn of the RECOVER. An
    /// id of [`ObjectId::NONE`] is a whole region.
    Install {
        /// Place of the RECOVER.
        turn: Place,
        /// Every object and region it lists, accepted on f+1 equal digests, or from the replica that the
        /// group settles on.
        objects: Vec<Packed>,
    },
    /// Check these objects against their checksums and answer with [`Event::Rechecked`](crate::Event::Rechecked).
    RecheckObjects {
        /// The request that touched them.
        place: Place,
        /// The objects.
        objects: Vec<(RegionId, ObjectId)>,
    },
    /// Run the request again on before-images and answer with [`Event::Reexecuted`](crate::Event::Reexecuted).
    Reexecute {
        /// The request.
        place: Place,
    },
    /// Keep this record and show it to the operator.
    Evidence(Box<Evidence>),
    /// It is unknown which replica is right: the reply is held, and this is reported to the operator. Other requests
    /// continue.
    Held {
        /// The request.
        place: Place,
        /// The reason.
        why: Held,
    },
    /// A held request was decided after all.
    Resumed {
        /// The request.
        place: Place,
    },
    /// The objects of this RECOVER did not arrive: its turn is passed, and objects that are still wrong will be
    /// detected again.
    GiveUpRepair {
        /// The turn.
        turn: Place,
    },
    /// This replica does not take part in this RECOVER, or the version that the group settles on did not arrive: the
    /// turn is passed. This is no evidence against this replica, and must not be counted against it.
    PassTurn {
        /// The turn.
        turn: Place,
    },
    /// The group settled on one version of this object repeatedly, and replicas still have different ones. They are
    /// left so: the operator has to find the cause.
    NotSettled {
        /// The last request in which they differed.
        place: Place,
        /// Region of the object.
        region_id: RegionId,
        /// The object, or [`ObjectId::NONE`] for the whole region.
        id: ObjectId,
    },
    /// A replica, which may be this one, had to be repaired more often than any healthy hardware explains
    /// ([`REPAIRS_BEFORE_REPORT`](crate::limits::REPAIRS_BEFORE_REPORT)): to be said to the operator. At most once per
    /// interval.
    ManyRepairs {
        /// The replica.
        replica: Replica,
    },
    /// This replica should be replaced by state transfer.
    ReplaceSelf(BeyondRepair),
    /// A peer should be replaced by state transfer.
    PeerBeyondRepair {
        /// The peer.
        replica: Replica,
        /// Why.
        why: BeyondRepair,
    },
}

/// Why a reply can never leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Every replica abandoned the request: there is no reply anywhere.
    NoResult,
    /// The digest of the right reply is known, but no replica holds its bytes any more.
    NotFetched,
    /// The window closed before enough replicas had voted.
    WindowClosed,
    /// All replicas are up and stand by their results, and no f+1 agree: the right result is unknown.
    NoMajority,
    /// There was no room for its bytes when it was made
    /// ([`RequestResult::without_reply`](crate::RequestResult::without_reply)).
    NoRoom,
}

/// Why a request is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// All replicas are up, each stands by its result, and no f+1 agree.
    EverybodyStands,
    /// Too few replicas are up: others have blamed themselves, or stand by other results.
    TooFewLive,
    /// All replicas are up, and one of them does not have its vote any more.
    VoteLost,
}

impl fmt::Display for Held {
    /// The text for an operator.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Held::EverybodyStands => "all replicas confirm their own result",
            Held::TooFewLive => "too few replicas are up: start the others",
            Held::VoteLost => {
                "all replicas are up, and one has lost its vote with its memory: its client gets no reply"
            }
        })
    }
}

/// The reason to stop repairing single objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeyondRepair {
    /// More repairs than the limit within the interval.
    TooManyRepairs,
    /// It disagreed about a batch whose details no replica keeps any more.
    TooLate,
    /// Its schedule is wrong: it runs requests at other positions, or ordered times, than f+1 others.
    OutOfStep,
    /// It started other requests or timers than f+1 others, or none since it abandoned the request. They are in no
    /// object that could be repaired.
    StartedOthers,
    /// Its results have numbers of batches that it cannot be executing: one twice, one never, or one from far ahead.
    Miscounted,
    /// f+1 others outvoted it in [`OUTVOTED_BEFORE_REPLACE`] batches of clients' requests in a row: it has no wrong
    /// object that can be repaired, or repairs do not help. All batches that named wrong objects before one RECOVER of
    /// it count as one.
    Outvoted,
}

impl fmt::Display for BeyondRepair {
    /// The text for an operator.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BeyondRepair::TooManyRepairs => {
                f.write_str("its objects had to be repaired too often within a short time")
            }
            BeyondRepair::TooLate => {
                f.write_str("it disagreed about a batch whose details no replica keeps any more")
            }
            BeyondRepair::OutOfStep => {
                f.write_str("it ran a request at another position or ordered time than f+1 others")
            }
            BeyondRepair::StartedOthers => f.write_str(
                "a request of it did not start the requests or timers that it started at f+1 others",
            ),
            BeyondRepair::Miscounted => {
                f.write_str("its results came under a batch number it cannot execute")
            }
            BeyondRepair::Outvoted => {
                write!(f, "f+1 others outvoted it {OUTVOTED_BEFORE_REPLACE} times in a row")
            }
        }
    }
}
