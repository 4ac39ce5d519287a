//! The only way out for a reply: the line that holds back a corrupt one.

use crate::config::{Protections, Set};
use crate::digest::{self, Answer};
use crate::event::RequestResult;

/// Why a reply stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withheld {
    /// Too few replicas agree so far.
    NotYet,
    /// The reply here is not the one that was agreed on.
    Corrupt,
    /// There was no room for the reply's bytes: it can never leave.
    NotKept,
}

/// Whether this replica's reply may leave (EDCC'16 Fig. 2 lines 22-27; docs/design.md, section 6).
///
/// `agreeing` are the replicas, this one included, that say `agreed` about the request. The reply's bytes are
/// digested once more, together with the pairs: memory between execution and this line is as fallible as any.
/// Returns the digest of the bytes that may leave.
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
