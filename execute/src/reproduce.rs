//! Runs a handler again on before-images until two runs agree: the protection of one replica when too few others are
//! up.
//!
//! A vote needs f+1 replicas that agree. While one is absent and a fault hits a computation of another one, no vote can
//! show which one is right (docs/design.md, section 6). So while a replica is absent the others run every request twice
//! and undo the first run. Two runs that differ are followed by a third, and the result of two of three stays: the
//! fault is detected where it happened, and no wrong result is kept.

use object::Touched;
use object::request;
use schedule::{Cx, Outcome, Retry, Turn};

use crate::{Between, End, Ran, Runner};

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

/// The visible results of one run.
#[derive(PartialEq, Eq)]
enum RunTrace {
    Sealed(Box<Touched>, Vec<u8>),
    Retry(Retry),
    Panicked,
}

impl<B: Between> Runner<'_, B> {
    /// Runs `handler` in `turn` until two runs have the same state delta and reply; the last of them stays.
    ///
    /// Needs [`Protection::undo`](crate::Protection::undo). Otherwise as [`Runner::once`].
    pub fn reproduced<R>(
        &self,
        turn: &mut Turn<'_, R>,
        reply: &mut Vec<u8>,
        handler: impl Fn(&Cx<'_, R>, &R, &mut Vec<u8>) -> Result<(), Retry>,
    ) -> (End, Outcome, Reproduced) {
        let start = reply.len();
        let mut earlier: Vec<RunTrace> = Vec::with_capacity(2);
        // The second run counts: there is one unless a check stops the first. Of three, another one's effects may stay.
        for counted in [false, true, false] {
            turn.repeat(counted);
            let ran = self.run(turn, reply, &handler);
            let Some(trace) = trace(&ran, &reply[start..]) else {
                let (end, outcome) = self.conclude(turn, ran, reply, start);
                return (end, outcome, Reproduced::Stopped);
            };
            if earlier.contains(&trace) {
                let (end, outcome) = self.conclude(turn, ran, reply, start);
                let how = if earlier.len() == 1 { Reproduced::Same } else { Reproduced::Masked };
                return (end, outcome, how);
            }
            earlier.push(trace);
            reply.truncate(start);
            self.undo(turn);
        }
        (End::Unreproducible, Outcome::Abandoned, Reproduced::Never)
    }
}

fn trace(ran: &Ran, reply: &[u8]) -> Option<RunTrace> {
    match ran {
        Ran::Sealed => Some(RunTrace::Sealed(Box::new(request::so_far()), reply.to_vec())),
        Ran::Retry(retry) => Some(RunTrace::Retry(*retry)),
        Ran::Panicked => Some(RunTrace::Panicked),
        Ran::Corrupted(..) => None,
    }
}
