//! Admin commands, answered by the order thread, which knows the answers; some wait for an ordered position first.

use std::collections::BTreeMap;

use object::{RegionDigest, RegionId};

use super::Replica;
use super::core::Core;
use super::digests::{DigestProgress, Digests};
use super::environment::Environment;
use super::execution::Execution;
use super::order_stage::OrderStage;
use super::tolerance::Tolerates;
use crate::admin::{AdminCommand, EvidenceList, Injected, Position, ReplicaPhase, StateDigest, Status};
use crate::admin_server::Call;
use crate::hooks::{Arming, Hooks};
use crate::ordered::Control;
use crate::service::Service;
use crate::world::{Observation, World};
use crate::{Stop, limits};

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
        self.last_ticket += 1;
        let ticket = u64::from(me) << 56 | self.last_ticket;
        self.waiting.insert(ticket, Waiting { call, since_us: now_us });
        Some(ticket)
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
    fn expect_digest(&mut self, position: Position, first: u64, now_us: u64, call: Call) {
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
            self.expecting.push((position, Waiting { call, since_us: now_us }));
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
    fn on_inject<S: Service, W: World>(
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

impl<S: Service, W: World> Core<S, W> {
    /// A region was digested here, as part of a digest of the whole state.
    pub(super) fn on_region_digest(&mut self, position: Position, region_id: RegionId, digest: RegionDigest) {
        let regions = self.executor.running.as_ref().map_or(0, Execution::locks);
        match self.calls.on_region_digest(position, (region_id, regions), digest) {
            DigestProgress::Next(control) => self.order.submit_control(&control),
            DigestProgress::Done { digest: Some(digest), .. } => {
                self.env.world.see(Observation::Digest { position, digest });
            }
            DigestProgress::Done { digest: None, .. } | DigestProgress::Waits => {}
        }
    }
}

impl<S: Service, W: World> Replica<S, W> {
    pub(super) fn on_call(&mut self, call: Call) {
        let env = &mut self.core.env;
        match &call.command {
            AdminCommand::Status => call.reply(&self.status()),
            AdminCommand::Evidence { after } => {
                let records = env.evidence.after(*after);
                call.reply(&EvidenceList { records });
            }
            AdminCommand::Digest { .. } if env.settings.is_witness() => call.refuse("a witness has no state"),
            AdminCommand::Digest { .. } if self.core.executor.running.is_none() => {
                call.refuse("this replica has no state yet; try again")
            }
            AdminCommand::Digest { at: Some(position) } => {
                let first = self.core.executor.first_batch();
                self.core.calls.expect_digest(*position, first, env.world.now_us(), call);
            }
            AdminCommand::Digest { at: None } => {
                let Some(ticket) = self.core.calls.wait(env.settings.me, env.world.now_us(), call) else {
                    return;
                };
                self.core.order.submit_control(&Control::Digest { ticket, begun: 0, region_id: 0 });
            }
            AdminCommand::Inject(_) => {
                self.core.calls.on_inject(
                    call,
                    self.core.executor.running.as_ref(),
                    &mut self.core.order,
                    env,
                );
            }
            AdminCommand::BeginGroup | AdminCommand::KeepState { .. } | AdminCommand::TakeState { .. } => {
                self.agreement.decide(call, &mut self.core);
                self.perform_outputs();
            }
            AdminCommand::Shutdown => {
                call.reply(&());
                env.stop_with(Ok(Stop::Asked));
            }
        }
    }

    /// The phase as operators see it. One that lacks acknowledged batches, or cannot vote, replaces no other one: an
    /// operator who wants to stop the next replica has to wait.
    fn shown_phase(&self, engine_status: &order::EngineStatus, tolerates: &Tolerates) -> ReplicaPhase {
        let is_voted = self.core.env.settings.mode.replicated && self.core.env.settings.peers.len() > 1;
        match self.phase {
            ReplicaPhase::Serving if engine_status.members.is_learner(self.core.env.settings.me) => {
                ReplicaPhase::Joining
            }
            ReplicaPhase::Serving if is_voted && engine_status.stuck => ReplicaPhase::Waiting,
            ReplicaPhase::Serving if is_voted => match tolerates.is_level {
                None => ReplicaPhase::Waiting,
                Some(false) => ReplicaPhase::CatchingUp,
                Some(true) => ReplicaPhase::Serving,
            },
            phase => phase,
        }
    }

    pub(super) fn status(&self) -> Status {
        let engine_status = self.core.order.orderer.engine_status();
        let (env, counters) = (&self.core.env, &self.core.clients.counters);
        let execution = self.core.executor.running.as_ref();
        let progress = self.agreement.progress(&self.core);
        let tolerates = self.tolerates(&progress);
        let kept = execution.map_or(0, |execution| execution.kept.bytes() as u64);
        let mut status = Status {
            replica: env.settings.me + 1,
            pid: std::process::id(),
            phase: self.shown_phase(&engine_status, &tolerates),
            mode: env.settings.mode.to_string(),
            leader: progress.leader.map(|leader| leader + 1),
            incarnation: engine_status.incarnation.unwrap_or(0),
            logged: engine_status.last_index,
            committed: engine_status.commit_index,
            executed: env.tally.executed,
            validated: progress.validated,
            verification: None,
            requests: env.tally.requests,
            connections: counters.open(),
            peers: env.peers.connected().map(|peer| peer + 1).collect(),
            mismatches: env.tally.mismatches,
            repairs: env.tally.repairs,
            failed_checks: env.tally.failed_checks + counters.failed_checks(),
            dropped_frames: env.tally.dropped_frames,
            refused: env.refusals.seen(),
            tolerates: tolerates.failures,
            tolerates_why: tolerates.why,
            waits_for: self.waits_for(),
            buffers: self.core.clients.buffers(env.settings.buffer_limit, kept, engine_status.log_bytes),
            held: 0,
            armed: env.hooks.armed() as u64,
            alone: self.core.executor.is_alone(),
            last_repair_us: 0,
            last_evidence: env.evidence.last().as_ref().map(crate::evidence::line),
            large: env.large(),
            sent: env.peers.sent,
            counts: execution.map(|execution| execution.service.counts()).unwrap_or_default(),
            giving: self
                .core
                .executor
                .running
                .as_ref()
                .and_then(|running| self.core.copies.given(running.locks())),
            receiving: self.core.transfer.receiving(self.copy_rate.bytes_per_second()),
        };
        self.agreement.status(&self.core, &mut status);
        status
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
