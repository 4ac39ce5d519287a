//! The only functions that release a reply: their checks hold back a corrupt one.

use crate::config::{Protections, Set};
use crate::digest::{self, Answer};
use crate::event::{RequestInfo, RequestResult};

/// The reason to hold a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
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
    let reply_digest = digest::reply(result.request_info.checksum, reply);
    if !protections.reply_gate {
        return Ok(reply_digest);
    }
    let now = digest::request(&result.pairs, &Answer { digest: reply_digest, ..result.answer() });
    if now != agreed { Err(Withheld::Corrupt) } else { Ok(reply_digest) }
}

/// The runs of a request that can have agreed: the second with the first, or a third with one of them.
const PAIRS_OF_RUNS: [(u8, u8); 3] = [(1, 2), (1, 3), (2, 3)];

/// Whether a reply may leave a replica that runs each request twice and compares with itself.
///
/// Each run made its digest inside the run ([`RunDigests`](crate::RunDigests)). Both have to be there, and both have to
/// be those of the bytes that leave and of the objects that the later run touched. So a reply does not leave if a run
/// was skipped, if one run stands for both, or if anything changed since the runs. Returns the digest that the earlier
/// run made of its reply: the bytes that leave are compared with it once more, in front of the system call.
///
/// # Errors
/// [`Withheld`] has the reason to hold the reply; never [`Withheld::NotYet`].
pub fn twice_may_leave(result: &RequestResult) -> Result<u128, Withheld> {
    let Some(reply) = &result.reply else { return Err(Withheld::NotKept) };
    let RequestInfo { position, time_us, checksum, .. } = result.request_info;
    let answer = Answer { started: result.started, ..Answer::new(position, time_us, checksum, reply) };
    let of_result = digest::request(&result.pairs, &answer);
    let are = |(first, second)| {
        result.digest == digest::run(first, of_result) && result.second_run == digest::run(second, of_result)
    };
    if answer.digest == result.reply_digest && PAIRS_OF_RUNS.into_iter().any(are) {
        Ok(result.reply_digest)
    } else {
        Err(Withheld::Corrupt)
    }
}

/// Whether a reply may leave a replica that verifies after execution: `agreed` is the digest of the request's answer
/// that went into the token on which the replicas have agreed. The bytes are digested once more, since a fault may have
/// hit them meanwhile. Returns the digest of the bytes that may leave.
///
/// # Errors
/// [`Withheld`] has the reason to hold the reply; never [`Withheld::NotYet`].
pub fn verified_may_leave(result: &RequestResult, agreed: u128) -> Result<u128, Withheld> {
    if result.failure.is_some() {
        return Err(Withheld::Corrupt);
    }
    let Some(reply) = &result.reply else { return Err(Withheld::NotKept) };
    let RequestInfo { position, time_us, checksum, .. } = result.request_info;
    let answer = Answer { started: result.started, ..Answer::new(position, time_us, checksum, reply) };
    if digest::request(&[], &answer) == agreed { Ok(answer.digest) } else { Err(Withheld::Corrupt) }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use object::{ObjectId, Pair};

    use super::*;
    use crate::event::{Pairs, RunDigests};

    const REQUEST_INFO: RequestInfo =
        RequestInfo { position: 40, time_us: 9, checksum: 77, mine: true, of_client: true, kind: 0 };

    fn pairs(sum: u64) -> Pairs {
        Pairs::from_slice(&[Pair { region_id: 3, id: ObjectId::new(8, 1), sum }])
    }

    /// The digests that runs with these numbers make of a reply.
    fn runs(first: u8, second: u8, reply: &[u8]) -> RunDigests {
        let answer = Answer::new(REQUEST_INFO.position, REQUEST_INFO.time_us, REQUEST_INFO.checksum, reply);
        let result = digest::request(&pairs(5), &answer);
        RunDigests {
            first: digest::run(first, result),
            second: digest::run(second, result),
            reply: answer.digest,
            started: 0,
        }
    }

    fn result(runs: RunDigests) -> RequestResult {
        RequestResult::of_two_runs(REQUEST_INFO, pairs(5), Some(Bytes::from_static(b"STORED")), runs)
    }

    #[test]
    fn a_reply_of_two_different_runs_leaves_with_the_digest_of_the_earlier_one() {
        for (first, second) in [(1, 2), (1, 3), (2, 3)] {
            let runs = runs(first, second, b"STORED");
            assert_eq!(twice_may_leave(&result(runs)), Ok(runs.reply), "runs {first} and {second}");
        }
    }

    #[test]
    fn only_the_agreed_answer_leaves_after_verification() {
        let result =
            |reply: &'static [u8]| RequestResult::new(REQUEST_INFO, Pairs::new(), Bytes::from_static(reply));
        let agreed = result(b"STORED").digest;
        assert_eq!(
            verified_may_leave(&result(b"STORED"), agreed),
            Ok(digest::reply(REQUEST_INFO.checksum, b"STORED"))
        );
        assert_eq!(verified_may_leave(&result(b"STOREF"), agreed), Err(Withheld::Corrupt));
        let moved = RequestInfo { position: 41, ..REQUEST_INFO };
        let elsewhere = RequestResult::new(moved, Pairs::new(), Bytes::from_static(b"STORED"));
        assert_eq!(verified_may_leave(&elsewhere, agreed), Err(Withheld::Corrupt));
        let failed = RequestResult { failure: Some(crate::Failure::Panic), ..result(b"STORED") };
        assert_eq!(verified_may_leave(&failed, agreed), Err(Withheld::Corrupt));
        let without = RequestResult::without_reply(REQUEST_INFO, Pairs::new(), b"STORED");
        assert_eq!(verified_may_leave(&without, agreed), Err(Withheld::NotKept));
    }

    #[test]
    fn a_run_that_was_skipped_or_stands_for_both_holds_the_reply() {
        let whole = runs(1, 2, b"STORED");
        for (what, runs) in [
            ("no second run", RunDigests { second: 0, ..whole }),
            ("no first run", RunDigests { first: 0, ..whole }),
            ("no run", RunDigests::default()),
            ("the first run twice", RunDigests { second: whole.first, ..whole }),
            ("the second run twice", RunDigests { first: whole.second, ..whole }),
            ("exchanged", RunDigests { first: whole.second, second: whole.first, ..whole }),
            ("numbers that no run has", runs(3, 4, b"STORED")),
        ] {
            assert_eq!(twice_may_leave(&result(runs)), Err(Withheld::Corrupt), "{what}");
        }
    }

    #[test]
    fn whatever_changed_since_the_runs_holds_the_reply() {
        type Change = fn(&mut RequestResult);
        let changes: [(&str, Change, Withheld); 8] = [
            ("a byte", |result| result.reply = Some(Bytes::from_static(b"STOREF")), Withheld::Corrupt),
            ("the end", |result| result.reply = Some(Bytes::from_static(b"STORE")), Withheld::Corrupt),
            ("an object", |result| result.pairs = pairs(6), Withheld::Corrupt),
            ("the position", |result| result.request_info.position += 1, Withheld::Corrupt),
            ("the request", |result| result.request_info.checksum ^= 1, Withheld::Corrupt),
            ("the reply's digest", |result| result.reply_digest ^= 1, Withheld::Corrupt),
            ("what it started", |result| result.started ^= 1, Withheld::Corrupt),
            ("no bytes", |result| result.reply = None, Withheld::NotKept),
        ];
        for (what, change, why) in changes {
            let mut result = result(runs(1, 2, b"STORED"));
            change(&mut result);
            assert_eq!(twice_may_leave(&result), Err(why), "{what}");
        }
    }
}
