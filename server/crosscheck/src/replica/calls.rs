//! Admin commands, answered by the order thread, which knows the answers; some wait for an ordered position first.

use std::collections::BTreeMap;

use object::{RegionDigest, RegionId};

use super::digests::{DigestProgress, Digests};
use super::environment::Environment;
use super::execution::Execution;
use super::order_stage::OrderStage;
use crate::admin::{AdminCommand, Injected, Position, StateDigest};
use crate::admin_server::Call;
use crate::hooks::{Arming, Hooks};
use crate::limits;
use crate::ordered::Control;
use crate::service::Service;
use crate::world::World;

const TOO_MANY: &str = "too many admin commands wait for their position; try again";
const SKIPPED: &str = "this replica has taken the state of the others meanwhile; try again";
const NO_SUCH_DIGEST: &str = "this replica has no digest of that position; ask for a new one";

/// Callers that wait for an ordered position.
#[derive(Default)]
pub(super) struct Calls {
    /// The last ticket of this replica. Tickets appear in the order, which all replicas see, so they contain the
    /// replica's number.
    last_ticket: u64,
    waiting: BTreeMap<u64, Waiting>,
    /// The digests that are being made.
    unfinished: Digests,
    /// The last digests, including those that another replica requested.
    digests: BTreeMap<Position, StateDigest>,
    /// Callers that want the digest of a position that has not been executed yet.
    expecting: Vec<(Position, Waiting)>,
}

/// A waiting caller, and the time since when it waits.
struct Waiting {
    call: Call,
    since_us: u64,
    /// Checksum of the ordered request whose reply it waits for; none where it waits for no reply.
    request: Option<u32>,
}

impl Waiting {
    /// Whether its connection has already reported to it that there is no answer.
    fn is_over(&self, now_us: u64) -> bool {
        u128::from(now_us.saturating_sub(self.since_us)) >= limits::ADMIN_ANSWER.as_micros()
    }
}

impl Calls {
    /// A ticket for `call`; none when too many callers wait already, which is reported to this one.
    pub(super) fn wait(&mut self, me: u8, now_us: u64, call: Call) -> Option<u64> {
        if self.waiting.len() >= limits::CALLS_WAITING {
            // Without a leader, entries of callers that have given up are never answered, so they are removed here.
            self.waiting.retain(|_, waiting| !waiting.is_over(now_us));
        }
        if self.waiting.len() >= limits::CALLS_WAITING {
            call.refuse(TOO_MANY);
            return None;
        }
        let ticket = self.ticket(me);
        self.waiting.insert(ticket, Waiting { call, since_us: now_us, request: None });
        Some(ticket)
    }

    /// A ticket for what no caller waits for.
    pub(super) fn ticket(&mut self, me: u8) -> u64 {
        self.last_ticket += 1;
        u64::from(me) << 56 | self.last_ticket
    }

    /// As [`Calls::wait`], for the reply to a request with this checksum.
    pub(super) fn wait_for_reply(&mut self, me: u8, now_us: u64, request: u32, call: Call) -> Option<u64> {
        let ticket = self.wait(me, now_us, call)?;
        self.waiting.get_mut(&ticket)?.request = Some(request);
        Some(ticket)
    }

    /// The caller that waits for the reply to a request, and the checksum of that.
    pub(super) fn take(&mut self, ticket: u64) -> Option<(Call, u32)> {
        let request = self.waiting.get(&ticket)?.request?;
        self.waiting.remove(&ticket).map(|waiting| (waiting.call, request))
    }

    /// There is nothing to wait for under this ticket.
    pub(super) fn refuse(&mut self, ticket: u64, why: &str) {
        if let Some(waiting) = self.waiting.remove(&ticket) {
            waiting.call.refuse(why);
        }
    }

    /// The digest of a region, of so many, as part of the one at `position`: every replica computes it, so that they
    /// can be compared.
    pub(super) fn on_region_digest(
        &mut self,
        position: Position,
        region: (RegionId, u32),
        digest: RegionDigest,
    ) -> DigestProgress {
        let orders = self.waiting.contains_key(&position.ticket);
        let progress = self.unfinished.on_region(position, region, digest, orders);
        if let DigestProgress::Done { digest, objects } = progress {
            self.on_digest(position, digest, objects);
        }
        progress
    }

    /// The digest of the whole state; none if this replica has not executed all of it.
    fn on_digest(&mut self, position: Position, digest: Option<u128>, objects: u64) {
        let digest = digest.map(|digest| StateDigest { position, digest: format!("{digest:032x}"), objects });
        let answer = |waiting: Waiting| match &digest {
            Some(digest) => waiting.call.reply(digest),
            None => waiting.call.refuse(NO_SUCH_DIGEST),
        };
        self.waiting.remove(&position.ticket).into_iter().for_each(answer);
        let those = self.expecting.extract_if(.., |(expected, _)| *expected == position);
        those.for_each(|(_, waiting)| answer(waiting));
        let gone = |expected: &Position| {
            let is_passed = expected.index + limits::ENTRIES_IN_EXECUTION as u64 <= position.index;
            is_passed && !self.unfinished.has_begun(expected)
        };
        for (_, waiting) in self.expecting.extract_if(.., |(expected, _)| gone(expected)) {
            waiting.call.refuse(NO_SUCH_DIGEST);
        }
        self.digests.extend(digest.map(|digest| (position, digest)));
        if self.digests.len() > limits::DIGESTS_KEPT {
            self.digests.pop_first();
        }
    }

    /// Answers with the digest of `position`, now or once it has been computed; this replica has executed nothing
    /// before `first`.
    pub(super) fn expect_digest(&mut self, position: Position, first: u64, now_us: u64, call: Call) {
        if self.expecting.len() >= limits::DIGESTS_KEPT {
            self.expecting.retain(|(_, waiting)| !waiting.is_over(now_us));
        }
        if let Some(digest) = self.digests.get(&position) {
            call.reply(digest);
        } else if position.index < first {
            call.refuse(NO_SUCH_DIGEST);
        } else if self.expecting.len() >= limits::DIGESTS_KEPT {
            call.refuse(TOO_MANY);
        } else {
            self.expecting.push((position, Waiting { call, since_us: now_us, request: None }));
        }
    }

    /// This replica goes on behind positions that it has not executed: callers that wait for one of them are refused.
    pub(super) fn skip_positions(&mut self) {
        self.unfinished.forget();
        let waiting = std::mem::take(&mut self.waiting).into_values();
        let expecting = std::mem::take(&mut self.expecting).into_iter().map(|(_, waiting)| waiting);
        waiting.chain(expecting).for_each(|waiting| waiting.call.refuse(SKIPPED));
    }

    pub(super) fn on_nudged(&mut self, ticket: u64, injected: Injected) {
        if let Some(waiting) = self.waiting.remove(&ticket) {
            waiting.call.reply(&injected);
        }
    }
}

impl Calls {
    /// A fault in a resting object is injected at an ordered turn on its lock, which is requested here.
    pub(super) fn on_inject<S: Service, W: World>(
        &mut self,
        call: Call,
        execution: Option<&Execution<S>>,
        order: &mut OrderStage,
        env: &Environment<W>,
    ) {
        let AdminCommand::Inject(inject) = call.command.clone() else { return };
        let service = execution.map(|execution| (&*execution.service, execution.locks()));
        match env.hooks.arm(&inject, service) {
            Arming::Refused(why) => call.refuse(why),
            Arming::Armed(what) => {
                call.reply(&Injected { done: true, what: what.to_owned(), home: None, id: None });
            }
            Arming::NeedsTurn(region_id) => {
                let Some(ticket) = self.wait(env.settings.me, env.world.now_us(), call) else {
                    return;
                };
                env.hooks.arm_at_turn(ticket, &inject, region_id);
                order.submit_control(&Control::Noop { region_id, ticket });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn call() -> (Call, mpsc::Receiver<serde_json::Value>) {
        let (answer, answered) = mpsc::channel();
        (Call { command: AdminCommand::Digest { at: None }, answer }, answered)
    }

    #[test]
    fn those_who_gave_up_make_room_and_others_do_not() {
        let mut calls = Calls::default();
        let position = |ticket| Position { index: 7, ticket };
        for ticket in 0..limits::CALLS_WAITING as u64 {
            assert!(calls.wait(0, 1, call().0).is_some());
            calls.expect_digest(position(ticket), 0, 1, call().0);
        }
        assert_eq!(calls.expecting.len(), limits::DIGESTS_KEPT);
        let over = 1 + limits::ADMIN_ANSWER.as_micros() as u64;
        let (one_too_many, reported) = call();
        assert_eq!(calls.wait(0, over - 1, one_too_many), None);
        assert_eq!(reported.recv().expect("an answer")["error"], TOO_MANY);
        let (one_too_many, reported) = call();
        calls.expect_digest(position(0), 0, over - 1, one_too_many);
        assert_eq!(reported.recv().expect("an answer")["error"], TOO_MANY);
        assert!(calls.wait(0, over, call().0).is_some());
        calls.expect_digest(position(0), 0, over, call().0);
        assert_eq!((calls.waiting.len(), calls.expecting.len()), (1, 1));
    }

    #[test]
    fn who_waits_for_a_position_that_is_skipped_is_answered() {
        let mut calls = Calls::default();
        let ((ordered, of_ordered), (expected, of_expected)) = (call(), call());
        let ticket = calls.wait(0, 1, ordered).expect("there is room");
        calls.expect_digest(Position { index: 7, ticket }, 0, 1, expected);
        calls.skip_positions();
        assert_eq!(of_ordered.try_recv().expect("an answer")["error"], SKIPPED);
        assert_eq!(of_expected.try_recv().expect("an answer")["error"], SKIPPED);
        assert!(calls.waiting.is_empty() && calls.expecting.is_empty());
    }
}
