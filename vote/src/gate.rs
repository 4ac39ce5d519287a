//! The only function that releases a reply: its check holds back a corrupt one.

use crate::config::{Protections, Set};
use crate::digest::{self, Answer};
use crate::event::RequestResult;

/// The reason to hold a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withheld {
    /// Too few replicas agree so far.
    NotYet,
    /// This replica's reply is not the one that was agreed on.
    Corrupt,
    /// There was no room for the reply's bytes: it can never leave.
    NotKept,
}

/// Whether this replica's reply may leave (EDCC'16 Fig. 2 lines 22-27; docs/design.md, section 6).
///
/// `agreeing` are the replicas, including this one, whose value for the request is `agreed`. The reply's bytes are
/// digested once more, together with the pairs: a fault may have hit them since the execution. Returns the digest of
/// the bytes that may leave.
pub(crate) fn reply_may_leave(
    result: &RequestResult,
    agreed: u128,
    agreeing: Set,
    quorum: u32,
    protections: Protections,
) -> Result<u128, Withheld> {
    if protections.reply_gate && agreeing.len() < quorum {
        return Err(Withheld::NotYet);
    }
    if result.failure.is_some() {
        return Err(Withheld::Corrupt);
    }
    let Some(reply) = &result.reply else { return Err(Withheld::NotKept) };
    let reply_digest = digest::reply(result.asked.checksum, reply);
    if !protections.reply_gate {
        return Ok(reply_digest);
    }
    let now = digest::request(&result.pairs, &Answer { digest: reply_digest, ..result.answer() });
    if now != agreed { Err(Withheld::Corrupt) } else { Ok(reply_digest) }
}
