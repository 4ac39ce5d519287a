//! The engine is entered only through here: what may have happened to its numbers while it was not at work is found
//! before they are used, and what it does to them is compared with the rules of Raft.
//!
//! One code covers all numbers ([`Node::seal`]). To make it takes as long as the engine's work on a message, and a
//! batch enters the engine a dozen times. So it is compared where a round of the loop enters the engine first, before
//! it looks at a message, and made where the round leaves it last ([`Node::end_round`]):
//!
//! - *At rest* (from the end of a round to the next one's first call: while the thread sleeps, executes requests, or
//!   does anything for longer than it takes to order a batch) every number is under the code. No call of the engine
//!   comes before the comparison, so none uses a number that changed at rest.
//! - *Between two calls of one round* the numbers that decide what is final and who leads ([`Critical`]) are compared
//!   with those that the last call has left, at each call and before the code is made. One that changes there is
//!   found at the next call, before that call uses it, and it never gets under a code. The others (where to go on
//!   sending, where the unstable log begins, who has sent something, ticks) may be used changed, and are then sealed as
//!   they are. They cost a follower a refusal or the group an election; what they make a leader send, `check.rs`
//!   compares with its checksums and the votes with what the others executed.
//! - *Within a call* the rules of Raft hold between what was found and what is left ([`Node::broken_rule`]).
//!
//! A call that no [`Node::end_round`] follows (a tick, a connection, an operator) is a round of its own. Whether a
//! round has begun is one word as well: if it is lost, the code is compared too early and this replica replaced; if
//! it is set by a fault, that was the fault.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Node;
use crate::engine::{CorruptPart, FailStop};
use crate::log::LogStore;

impl<L: LogStore> Node<L> {
    /// A round of the loop enters the engine: the numbers must be as the last round has left them. Then they may be
    /// read until [`Node::end_round`], which has to follow.
    pub(super) fn begin_round(&mut self) {
        if self.left.is_some() || self.failed.is_some() || self.removed {
            return;
        }
        // First: a number that changes after this differs from it at the next call.
        self.left = Some(self.critical());
        if self.config.seals_numbers && !self.is_sealed() {
            self.fail(FailStop::Corrupted(CorruptPart::EngineNumbers));
        }
    }

    /// A round has done its work on the engine: it must find its numbers as they are now.
    pub fn end_round(&mut self) {
        if self.left.is_none() {
            return;
        }
        // In this order: a number that changes before it is sealed differs from the one that was left.
        self.seal();
        self.compare_left();
        self.left = None;
    }

    /// Whether the numbers that decide are those that the last call of this round has left; this member stops if not.
    fn compare_left(&mut self) -> bool {
        let changed = self.left.is_some_and(|left| left != self.critical());
        if changed && self.config.seals_numbers && self.failed.is_none() {
            self.fail(FailStop::Corrupted(CorruptPart::EngineNumbers));
        }
        !changed || !self.config.seals_numbers
    }

    /// Runs `f` unless this member stopped; afterwards it has stopped if the engine found its state impossible.
    pub fn guard(&mut self, f: impl FnOnce(&mut Self)) {
        self.guard_received(0, f);
    }

    /// As [`Node::guard`], where `f` gives the engine a message of the term `last_received`.
    pub(super) fn guard_received(&mut self, last_received: u64, f: impl FnOnce(&mut Self)) {
        let is_alone = self.left.is_none();
        self.begin_round();
        if self.failed.is_none() && !self.removed && self.compare_left() {
            self.call(last_received, f);
        }
        if is_alone {
            self.end_round();
        }
    }

    fn call(&mut self, last_received: u64, f: impl FnOnce(&mut Self)) {
        let queued = self.out.outputs.len();
        let Some(before) = self.left else { return };
        let outcome = catch_unwind(AssertUnwindSafe(|| f(self)));
        if let Err(panic) = outcome {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("panic").to_owned();
            let poisoned = self.mirror().poisoned.get();
            self.fail(poisoned.map_or(FailStop::Engine(text), |index| FailStop::LogCorrupt { index }));
            return;
        }
        self.raw.mut_store().note_offer();
        let timeout = self.election_timeout();
        if self.raw.raft.randomized_election_timeout() != timeout {
            self.raw.raft.set_randomized_election_timeout(timeout);
        }
        // In this order: a number that changes before it is noted is compared with the rules, and one that changes
        // later differs from it at the next call.
        self.left = Some(self.critical());
        if self.config.seals_numbers
            && self.failed.is_none()
            && let Some(rule) = self.broken_rule(before, last_received)
        {
            // No consequence of it leaves.
            self.out.outputs.truncate(queued);
            self.fail(FailStop::Corrupted(CorruptPart::EngineRule(rule)));
        }
    }
}
