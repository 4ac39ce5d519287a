//! What a voter wants done: decisions are values, and the pipeline performs them.

use std::fmt;

use bytes::Bytes;
use object::{Home, ObjectId};

use crate::config::Replica;
use crate::event::{Packed, Place};
use crate::evidence::Evidence;
use crate::limits::OUTVOTED_BEFORE_REPLACE;
use crate::message::Message;
use crate::repair::Recover;

/// To whom a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Every other replica that is up.
    All,
    /// One replica.
    One(Replica),
}

/// Everything a voter can ask of its pipeline.
#[derive(Clone, Debug)]
pub enum Command {
    /// Send a message; it may be lost, doubled or overtaken.
    Send {
        /// To whom.
        to: To,
        /// What.
        message: Message,
    },
    /// The reply may leave: this replica and f others agree on it. Only for requests that are `mine`.
    Release {
        /// The request.
        place: Place,
        /// Its reply, checked against its digest a moment ago.
        reply: Bytes,
        /// That digest (`digest::reply`): whoever hands the bytes to the client can check them once more.
        digest: u128,
    },
    /// The own reply was wrong or missing; these bytes from a peer match the digest f+1 replicas agree on.
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
        objects: Vec<(Home, ObjectId)>,
    },
    /// Run the request again on before-images and answer with [`Event::Reexecuted`](crate::Event::Reexecuted).
    Reexecute {
        /// The request.
        place: Place,
    },
    /// Keep this record and show it to the operator.
    Evidence(Box<Evidence>),
    /// Nobody can tell who is right: the reply is held and the operator told. Other requests go on.
    Held {
        /// The request.
        place: Place,
        /// What was found out.
        why: Held,
    },
    /// A held request was decided after all.
    Resumed {
        /// The request.
        place: Place,
    },
    /// The objects of this RECOVER did not arrive: its turn is passed, and what is still wrong will show again.
    GiveUpRepair {
        /// The turn.
        turn: Place,
    },
    /// This replica does not take part in this RECOVER, or the version that the group settles on did not
    /// arrive: the turn is passed. It says nothing about this replica, and must not be counted against it.
    PassTurn {
        /// The turn.
        turn: Place,
    },
    /// The group settled on one version of this object again and again, and replicas have it differently all
    /// the same. It stays as it is: whatever makes it differ has to be found by the operator.
    NotSettled {
        /// The last request that showed it.
        place: Place,
        /// Region of the object.
        home: Home,
        /// The object, or [`ObjectId::NONE`] for the whole region.
        id: ObjectId,
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
    /// The right reply is known by its digest, but nobody holds its bytes any more.
    NotFetched,
    /// The window closed before enough replicas had voted.
    WindowClosed,
    /// All replicas are up and stand by their results, and no f+1 agree: nobody can say what is right.
    NoMajority,
    /// There was no room for its bytes when it was made
    /// ([`RequestResult::without_reply`](crate::RequestResult::without_reply)).
    NoRoom,
}

/// Why a request is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Every live replica stands by its result and no f+1 agree.
    EverybodyStands,
    /// Too few replicas are up to replace the ones that blamed themselves.
    TooFewLive,
}

impl fmt::Display for Held {
    /// As an operator reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Held::EverybodyStands => "all replicas confirm their own result",
            Held::TooFewLive => "too few replicas are up: start the others",
        })
    }
}

/// Why repairing single objects is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeyondRepair {
    /// More repairs than the limit within the interval.
    TooManyRepairs,
    /// It disagreed about a batch whose details nobody keeps any more.
    TooLate,
    /// Its schedule has lost count: it runs requests at other positions, or ordered times, than f+1 others.
    OutOfStep,
    /// Its results come under numbers of batches that it cannot be executing: one twice, one never, or one
    /// from far ahead.
    Miscounted,
    /// f+1 others outvoted it in [`OUTVOTED_BEFORE_REPLACE`] batches of clients' requests in a row: nothing
    /// that can be repaired is wrong with it, or repairs do not help. All batches that named wrong objects
    /// before one RECOVER of it count as one.
    Outvoted,
}

impl fmt::Display for BeyondRepair {
    /// As an operator reads it.
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
            BeyondRepair::Miscounted => {
                f.write_str("its results came under a batch number it cannot execute")
            }
            BeyondRepair::Outvoted => {
                write!(f, "f+1 others outvoted it {OUTVOTED_BEFORE_REPLACE} times in a row")
            }
        }
    }
}
