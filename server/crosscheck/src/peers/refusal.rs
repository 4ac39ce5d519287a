//! Why a connection between replicas was refused, in words for an operator.

use std::fmt;

use wire::ReplicaId;

use super::hello::Difference;
use super::secure::Untrusted;
use super::whereabouts::Misplaced;

/// Why a connection was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The other end, at this address, did not prove that it belongs to the group.
    Untrusted(Untrusted, Option<String>),
    /// It has the key, but a value differs that must be equal.
    Differs(Difference),
    /// It has the key, but reports this number instead of the expected one.
    Number(u8),
    /// It repeatedly hangs up without an answer.
    HungUp,
    /// One of the two processes is not where its number is.
    Misplaced(Box<Misplaced>),
    /// One of the two is not a replica of the group.
    Outside(Box<Outsider>),
    /// It knows of a later size of the group, with which it is connected at the next attempt.
    KnowsMore,
}

/// A process that is no replica of the group: not yet, or not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outsider {
    /// Its number.
    pub replica: u8,
    /// Where the other end is, as it says.
    pub at: String,
    /// Whether it is this process.
    pub is_own: bool,
    /// Whether it has data of the group.
    pub was_in: bool,
    /// How many replicas the group has.
    pub replicas: u8,
}

impl fmt::Display for Outsider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outsider { replica, at, is_own, was_in, replicas } = self;
        let number = ReplicaId(*replica);
        match (was_in, is_own) {
            (true, true) => write!(
                f,
                "the group has let this replica go: it has {replicas} replicas now, and this is replica {number}. End \
                    it; its data is of no more use. To be added again, it begins with an empty data directory"
            ),
            (false, true) => write!(
                f,
                "the group has {replicas} replicas, and this is replica {number}: it waits until it is added. Run \
                    `crosscheck group grow --address A --address B` at a replica of the group, with the addresses \
                    of the two replicas that are to be added"
            ),
            (true, false) => write!(
                f,
                "a process at {at} says that it is replica {number}, and the group has {replicas} replicas: it was let \
                    go. End it"
            ),
            (false, false) => write!(
                f,
                "a process at {at} says that it is replica {number}, and the group has {replicas} replicas. If it is \
                    to be added, run `crosscheck group grow --address A --address B`, with the addresses of both that \
                    are added"
            ),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Untrusted(untrusted, None) => write!(f, "{untrusted}"),
            Refusal::Untrusted(untrusted, Some(from)) => write!(f, "{untrusted} ({from})"),
            Refusal::Differs(difference) if difference.is_of_build() => write!(
                f,
                "{difference}: another build of the program. It is kept out, because its objects, requests or replies \
                    may have another meaning; run the same build on all replicas. A release whose types have changed \
                    says so in them (`#[critical(version = N)]`)"
            ),
            Refusal::Differs(difference) if difference.is_of_behavior() => write!(
                f,
                "{difference}: the earlier release cannot act as the group does. Start a release of that replica that \
                    can"
            ),
            Refusal::Differs(difference) => write!(f, "{difference}; make them equal, and start it again"),
            Refusal::HungUp => f.write_str(
                "it hangs up without an answer; does it have the same group_key, and the same release? Its \
                    own messages say why",
            ),
            Refusal::Misplaced(misplaced) => write!(f, "{misplaced}"),
            Refusal::Outside(outsider) => write!(f, "{outsider}"),
            Refusal::KnowsMore => f.write_str("the group has another size, of which this replica learns now"),
            Refusal::Number(number) => {
                write!(
                    f,
                    "it calls itself replica {}, which is another replica; see this_replica there",
                    ReplicaId(*number)
                )
            }
        }
    }
}
