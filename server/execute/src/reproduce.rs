//! Runs a handler again on before-images until two runs agree: the protection of one replica when too few others are
//! up, and of a single node that compares with itself.
//!
//! A vote needs f+1 replicas that agree. While one is absent and a fault hits a computation of another one, no vote can
//! show which one is right (docs/design.md, section 6). So while a replica is absent the others run every request twice
//! and undo the first run. Two runs that differ are followed by a third, and the result of two of three stays: the
//! fault is detected where it happened, and no wrong result is kept.
//!
//! A single node in mode `00GT` always does so (SEI, NSDI'15, section 4.2: the phases E1, R, E2). Each run also makes a
//! digest of what it did, inside the run. [`vote::twice_may_leave`] requires two of them: a fault that jumps over a run
//! jumps over its digest.

use object::request::{self, Found};
use object::{ObjectId, Touched};
use schedule::{Cx, Outcome, Retry, Turn};
use vote::RunDigests;
use vote::digest::{self, Answer};

use crate::{End, Ran, Runner, SealHook};

/// The result of repeating a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reproduced {
    /// Two runs agreed.
    Same,
    /// Two of three runs agreed: a fault in the other one was masked.
    Masked,
    /// No two runs agreed; all effects are undone.
    Never,
    /// A run was stopped by a failed check: there is nothing to repeat.
    Stopped,
}

/// Why a handler ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It needs a lock outside its footprint.
    Retry(Retry),
    /// The request cannot be decoded again: its ordered bytes have changed.
    Undecodable,
}

impl From<Retry> for Stopped {
    fn from(retry: Retry) -> Self {
        Stopped::Retry(retry)
    }
}

/// A request that is run more than once.
pub struct Repeat<H, B> {
    /// The handler. It gets the number of the run, from 1, and returns the checksum of the request that it executed.
    /// Only the first run may use the request as it was decoded before: a fault in it must not be common to two runs.
    pub handler: H,
    /// The bytes by which a request that the handler starts is compared.
    pub started: B,
}

/// The visible result of one run: two that agree have the same.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunTrace {
    /// [`digest::request`] of the run; it covers the requests that it started.
    Sealed(u128),
    Retry(Retry),
    Undecodable,
    Panicked,
}

/// One run, as later ones are compared with it.
#[derive(Clone, Copy)]
struct Earlier {
    trace: RunTrace,
    /// [`digest::run`] of it.
    run: u128,
    /// [`digest::reply`] of its reply.
    reply: u128,
    /// [`digest::started`] of what it started.
    started: u128,
}

impl<B: SealHook> Runner<'_, B> {
    /// Runs a handler in `turn` until two runs have the same state delta, reply and started requests; the last of them
    /// stays.
    ///
    /// Needs [`Protection::undo`](crate::Protection::undo). Otherwise as [`Runner::once`].
    pub fn reproduced<R, H, S>(
        &self,
        turn: &mut Turn<'_, R>,
        reply: &mut Vec<u8>,
        repeat: &Repeat<H, S>,
    ) -> (End, Outcome, Reproduced, RunDigests)
    where
        H: Fn(u8, &Cx<'_, R>, &R, &mut Vec<u8>) -> Result<u32, Stopped>,
        S: Fn(&R) -> &[u8],
    {
        let start = reply.len();
        let mut earlier = [None, None];
        let mut found_first = Found::new();
        // The second run counts: there is one unless a check stops the first. Of three, another one's effects may stay.
        for (number, counted) in [(1, false), (2, true), (3, false)] {
            turn.repeat(counted);
            let handler = |cx: &Cx<'_, R>, request: &R, reply: &mut Vec<u8>| {
                (repeat.handler)(number, cx, request, reply)
            };
            let ran = self.run(turn, reply, request::begin_with_whole_images, handler);
            let touched = self.touched(&ran);
            let made = made(turn, number, &ran, &touched, &reply[start..], &repeat.started);
            let found = request::found();
            if number == 1 {
                found_first = found;
            } else if !is_same_state(&found_first, &found) {
                reply.truncate(start);
                self.undo(turn);
                return NOT_UNDONE;
            }
            let Some(made) = made else {
                let (end, outcome) = self.conclude(turn, ran, touched, reply, start);
                return (end, outcome, Reproduced::Stopped, RunDigests::default());
            };
            let same = earlier.iter().flatten().find(|one: &&Earlier| one.trace == made.trace);
            if let Some(&Earlier { run, reply: of_reply, .. }) = same {
                let how = if earlier[1].is_none() { Reproduced::Same } else { Reproduced::Masked };
                let (end, outcome) = self.conclude(turn, ran, touched, reply, start);
                let runs =
                    RunDigests { first: run, second: made.run, reply: of_reply, started: made.started };
                return (end, outcome, how, runs);
            }
            earlier[usize::from(earlier[0].is_some())] = Some(made);
            reply.truncate(start);
            if !self.undo(turn) {
                return NOT_UNDONE;
            }
        }
        (End::Unreproducible, Outcome::Abandoned, Reproduced::Never, RunDigests::default())
    }
}

/// The end of a request of which a run was not undone, or only in part. Later runs would agree on what they made of the
/// wrong state.
const NOT_UNDONE: (End, Outcome, Reproduced, RunDigests) = (
    End::NotUndone,
    Outcome::Abandoned,
    Reproduced::Stopped,
    RunDigests { first: 0, second: 0, reply: 0, started: 0 },
);

/// Whether a later run found the objects as the first run had found them: what is still left of an earlier run shows in
/// the first object that both have entered and that differs.
fn is_same_state(first: &[(ObjectId, u64)], later: &[(ObjectId, u64)]) -> bool {
    // Nearly always both have entered the same objects in the same order.
    first == later
        || later.iter().all(|(id, sum)| {
            first.iter().find(|(known, _)| known == id).is_none_or(|(_, known_sum)| known_sum == sum)
        })
}

/// What the run with this number did; none if a check stopped it. It is still in its scope.
fn made<R>(
    turn: &Turn<'_, R>,
    number: u8,
    ran: &Ran<u32>,
    touched: &Touched,
    reply: &[u8],
    started_bytes: impl Fn(&R) -> &[u8],
) -> Option<Earlier> {
    let nothing = |trace| Some(Earlier { trace, run: 0, reply: 0, started: 0 });
    let request_checksum = match ran {
        Ran::Sealed(request_checksum) => *request_checksum,
        Ran::Retry(retry) => return nothing(RunTrace::Retry(*retry)),
        Ran::Undecodable => return nothing(RunTrace::Undecodable),
        Ran::Panicked => return nothing(RunTrace::Panicked),
        Ran::Corrupted(..) => return None,
    };
    let started = started(turn, started_bytes);
    let answer = Answer { started, ..Answer::new(turn.position(), turn.time_us(), request_checksum, reply) };
    let result = digest::request(touched.pairs(), &answer);
    Some(Earlier {
        trace: RunTrace::Sealed(result),
        run: digest::run(number, result),
        reply: answer.digest,
        started,
    })
}

/// [`Answer::started`] of a request that has run: 0 if it has started nothing, which costs nothing. `bytes` are those
/// by which a started request is compared.
pub fn started<R>(turn: &Turn<'_, R>, bytes: impl Fn(&R) -> &[u8]) -> u128 {
    let mut started = 0;
    turn.visit_started(|time_us, request| started = digest::started(started, time_us, bytes(request)));
    started
}
