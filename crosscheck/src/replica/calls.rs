//! Admin commands, answered by the order thread, which knows the answers; some wait for an ordered position first.

use std::collections::BTreeMap;

use order::OrderEngine;

use super::Replica;
use super::execution::Execution;
use crate::admin::{Buffers, Command, EvidenceList, Injected, Phase, Position, StateDigest, Status};
use crate::admin_server::Call;
use crate::ordered::Control;
use crate::service::Service;
use crate::world::World;
use crate::{Stop, limits};

const TOO_MANY: &str = "too many admin commands wait for their position; try again";
const NO_SUCH_DIGEST: &str = "this replica has no digest of that position; ask for a new one";

/// Callers that wait for an ordered position.
#[derive(Default)]
pub(super) struct Calls {
    /// Tickets of this replica: in the order everybody sees them, so they carry its number.
    last_ticket: u64,
    waiting: BTreeMap<u64, Waiting>,
    /// The last digests, also those that another replica was asked for.
    digests: BTreeMap<Position, StateDigest>,
    /// Callers that want the digest of a position still to come.
    expecting: Vec<(Position, Waiting)>,
}

/// A caller, and since when he waits.
struct Waiting {
    call: Call,
    since_us: u64,
}

impl Waiting {
    /// Whether his connection has answered him in the meantime that there is no answer.
    fn is_over(&self, now_us: u64) -> bool {
        u128::from(now_us.saturating_sub(self.since_us)) >= limits::ADMIN_ANSWER.as_micros()
    }
}

impl Calls {
    /// A ticket for `call`; none when too many wait already, of which the caller is told.
    pub(super) fn wait(&mut self, me: u8, now_us: u64, call: Call) -> Option<u64> {
        if self.waiting.len() >= limits::CALLS_WAITING {
            // Without a leader nobody ever answers those who have given up.
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

    /// The digest of the whole state at one position: every replica makes it, so that they can be compared.
    pub(super) fn on_digest(&mut self, ticket: u64, index: u64, digest: u128, objects: u64) {
        let position = Position { index, ticket };
        let digest = StateDigest { position, digest: format!("{digest:032x}"), objects };
        if let Some(waiting) = self.waiting.remove(&ticket) {
            waiting.call.reply(&digest);
        }
        for (_, waiting) in self.expecting.extract_if(.., |(expected, _)| *expected == position) {
            waiting.call.reply(&digest);
        }
        let gone = |expected: &Position| expected.index + limits::ENTRIES_IN_EXECUTION as u64 <= index;
        for (_, waiting) in self.expecting.extract_if(.., |(expected, _)| gone(expected)) {
            waiting.call.refuse(NO_SUCH_DIGEST);
        }
        self.digests.insert(position, digest);
        if self.digests.len() > limits::DIGESTS_KEPT {
            self.digests.pop_first();
        }
    }

    /// Answers with the digest of `position`, now or when it is there; this replica has executed nothing
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

    pub(super) fn on_nudged(&mut self, ticket: u64, injected: Injected) {
        if let Some(waiting) = self.waiting.remove(&ticket) {
            waiting.call.reply(&injected);
        }
    }
}

impl<S: Service, E: OrderEngine, W: World> Replica<S, E, W> {
    pub(super) fn on_call(&mut self, call: Call) {
        match &call.command {
            Command::Status => call.reply(&self.status()),
            Command::Evidence { after } => {
                let records = self.evidence.after(*after);
                call.reply(&EvidenceList { records });
            }
            Command::Digest { .. } if self.execution.is_none() => {
                call.refuse("this replica has no state yet; try again")
            }
            Command::Digest { at: Some(position) } => {
                let first = self.execution.as_ref().map_or(0, |execution| execution.first_batch);
                self.calls.expect_digest(*position, first, self.world.now_us(), call);
            }
            Command::Digest { at: None } => {
                let Some(ticket) = self.calls.wait(self.settings.me, self.world.now_us(), call) else {
                    return;
                };
                self.submit_control(&Control::Digest { ticket });
            }
            Command::Inject(_) => self.on_inject(call),
            Command::BeginGroup | Command::KeepState { .. } => self.on_decision(call),
            Command::Shutdown => {
                call.reply(&());
                self.stop_with(Ok(Stop::Asked));
            }
        }
    }

    #[cfg(not(feature = "inject"))]
    fn on_inject(&mut self, call: Call) {
        call.refuse(
            "this build carries no fault injector; build with `--features inject`, or use `crosscheck up`",
        );
    }

    #[cfg(not(feature = "inject"))]
    fn pending_faults(&self) -> [(); 0] {
        []
    }

    pub(super) fn status(&self) -> Status {
        let standing = self.orderer.standing();
        // Without a vote it cannot stand in for another one: whoever goes by this to stop the next replica has to wait.
        let is_joining = self.phase == Phase::Serving && standing.members.is_learner(self.settings.me);
        Status {
            replica: self.settings.me + 1,
            pid: std::process::id(),
            phase: if is_joining { Phase::Joining } else { self.phase },
            mode: self.settings.mode.to_string(),
            leader: standing.leader.map(|leader| leader + 1),
            incarnation: standing.incarnation.unwrap_or(0),
            logged: standing.last_index,
            committed: standing.commit_index,
            executed: self.tally.executed,
            validated: self.validated(),
            requests: self.tally.requests,
            connections: self.counters.open.load(std::sync::atomic::Ordering::Relaxed),
            peers: self.peers.connected().map(|peer| peer + 1).collect(),
            mismatches: self.tally.mismatches,
            repairs: self.tally.repairs,
            failed_checks: self.tally.failed_checks + self.counters.failed_checks(),
            dropped_frames: self.tally.dropped_frames,
            refused: self.refusals.seen(),
            waits_for: self.waits_for(),
            buffers: self.buffers(),
            held: self.tally.held.len() as u64,
            armed: self.pending_faults().len() as u64,
            alone: self.execution.as_ref().is_some_and(Execution::is_alone),
            last_repair_us: self.tally.last_repair_us,
            last_evidence: self.evidence.last().as_ref().map(crate::evidence::line),
            large: self.large.values().cloned().collect(),
            sent: self.peers.sent,
        }
    }
}

impl<S: Service, E: OrderEngine, W: World> Replica<S, E, W> {
    fn buffers(&self) -> Buffers {
        let counters = &*self.counters;
        let read =
            |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
        Buffers {
            limit: self.settings.buffer_limit as u64,
            held: read(&counters.held),
            replies: self.execution.as_ref().map_or(0, |execution| execution.kept.bytes() as u64),
            log: self.orderer.standing().log_bytes,
            waiting: read(&counters.waiting),
            evicted: read(&counters.evicted),
            idle: read(&counters.idle),
        }
    }
}

#[cfg(feature = "inject")]
mod injecting {
    use super::*;
    use crate::admin::{Inject, Kind};
    use crate::inject::{Armed, Occasion, Target};

    /// Wrong results of a core that is wrong again and again.
    const WRONG_IN_A_ROW: u64 = 8;

    impl<S: Service, E: OrderEngine, W: World> Replica<S, E, W> {
        /// Arms a fault; a fault in a resting object strikes at an ordered turn on its lock, which is asked for here.
        pub(super) fn on_inject(&mut self, call: Call) {
            let Command::Inject(inject) = call.command.clone() else { return };
            let Some(execution) = &self.execution else {
                return call.refuse("this replica has no state yet; try again");
            };
            let locks = execution.locks();
            let home = match inject.object.as_deref().map(|name| execution.service.home_of(name)) {
                Some(None) => {
                    return call.refuse("no such object name; use item:KEY, slot:KEY, queue:N or shard:N");
                }
                Some(Some(home)) => home,
                None => (inject.seed % u64::from(locks)) as u32,
            };
            let name = inject.object.clone();
            let (bit, member, seed) = (inject.bit, inject.member, inject.seed);
            let target = Target { home, name, id: None, bit, member, seed };
            let armory = execution.armory.clone();
            match inject.kind {
                Kind::Message => {
                    self.peers.garble_next.push(inject.seed);
                    call.reply(&armed("the next frame to a peer will be corrupt"));
                }
                Kind::Check | Kind::Repair => {
                    self.garble_vote.push((inject.kind, inject.seed));
                    call.reply(&armed("the next such message will carry a wrong value"));
                }
                Kind::Flip
                | Kind::MultiFlip
                | Kind::Checksum
                | Kind::Id
                | Kind::Length
                | Kind::Lost
                | Kind::Stray
                | Kind::Doubled => self.noop(call, &inject, target),
                // Which object a name means is known at an ordered turn only.
                Kind::InRequest if inject.object.is_some() => self.noop(call, &inject, target),
                Kind::Sticky | Kind::Erratic => {
                    let every = 2 + inject.seed % 14;
                    let gap = |number: u64| match inject.kind {
                        Kind::Sticky => every,
                        _ => 1 + inject.seed.rotate_left(number as u32 * 5) % 24,
                    };
                    let mut at = armory.requests();
                    for number in 0..WRONG_IN_A_ROW {
                        at += gap(number);
                        let seed = inject.seed.wrapping_add(number * 977);
                        let target = Target { seed, ..target.clone() };
                        armory.arm(Armed { kind: inject.kind, occasion: Occasion::Later(at), target });
                    }
                    call.reply(&armed("armed; it strikes again and again"));
                }
                Kind::InRequest
                | Kind::Digest
                | Kind::Reply
                | Kind::Request
                | Kind::Asked
                | Kind::Skip
                | Kind::Twice
                | Kind::Footprint
                | Kind::Position
                | Kind::Image => {
                    armory.arm(Armed { kind: inject.kind, occasion: occasion(&inject), target });
                    call.reply(&armed("armed; it strikes at the next occasion"));
                }
            }
        }

        /// Faults that were armed and have not struck yet.
        pub(in crate::replica) fn pending_faults(&self) -> Vec<Kind> {
            let armed = self.execution.iter().flat_map(|execution| execution.armory.kinds());
            let votes = self.garble_vote.iter().map(|(kind, _)| *kind);
            armed.chain(votes).chain(self.peers.garble_next.iter().map(|_| Kind::Message)).collect()
        }

        /// Asks for an ordered turn on the target's lock.
        fn noop(&mut self, call: Call, inject: &Inject, target: Target) {
            let Some(execution) = &self.execution else { return };
            let (armory, home) = (execution.armory.clone(), target.home);
            let Some(ticket) = self.calls.wait(self.settings.me, self.world.now_us(), call) else { return };
            armory.arm(Armed { kind: inject.kind, occasion: Occasion::Noop(ticket), target });
            self.submit_control(&Control::Noop { home, ticket });
        }
    }

    fn occasion(inject: &Inject) -> Occasion {
        if inject.object.is_some() { Occasion::RequestOnHome } else { Occasion::AnyRequest }
    }

    fn armed(what: &str) -> Injected {
        Injected { done: true, what: what.to_owned(), home: None, id: None }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn call() -> (Call, mpsc::Receiver<serde_json::Value>) {
        let (answer, answered) = mpsc::channel();
        (Call { command: Command::Digest { at: None }, answer }, answered)
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
        let (one_too_many, told) = call();
        assert_eq!(calls.wait(0, over - 1, one_too_many), None);
        assert_eq!(told.recv().expect("an answer")["error"], TOO_MANY);
        let (one_too_many, told) = call();
        calls.expect_digest(position(0), 0, over - 1, one_too_many);
        assert_eq!(told.recv().expect("an answer")["error"], TOO_MANY);
        assert!(calls.wait(0, over, call().0).is_some());
        calls.expect_digest(position(0), 0, over, call().0);
        assert_eq!((calls.waiting.len(), calls.expecting.len()), (1, 1));
    }
}
