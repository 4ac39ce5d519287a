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
