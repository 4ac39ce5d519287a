//! The voter of one replica: its input is events, its output is commands.

mod ask;
mod check;
mod details;
mod dispute;
mod examine;
mod outvoted;
mod reply;
mod settle;
mod tick;

use crate::classify::{Status, classify};
use crate::command::{Command, To};
use crate::config::{Config, Replica, Set};
use crate::event::{Event, Failure, Place};
use crate::evidence::{Classifier, Evidence, FaultClass, FaultStage, Finding, VoteCounters, WrongObject};
use crate::limits::{FETCH_BYTES, LARGEST_BATCH_BYTES, MAX_PARKED_BATCHES, Occupancy, WINDOW_BATCHES};
use crate::message::Message;
use crate::record::Window;
use crate::repair::{Repairs, Scope, Settling};
use check::{Checks, LateVotes};
use outvoted::Streaks;
use reply::OwedReplies;

/// Compares this replica's results with its peers', releases replies, and drives repair. Owns no socket, clock or
/// thread.
///
/// The pipeline feeds every [`Event`] with the current time, performs the [`Command`]s in order, and calls
/// [`Voter::flush`] at the end of each round of its loop, so that digests of several batches share a CHECK.
#[derive(Debug)]
pub struct Voter {
    ballots: Ballots,
    checks: Checks,
    late: LateVotes,
    streaks: Streaks,
    replies: OwedReplies,
    settling: Settling,
    repairs: Repairs,
    /// The newest batch executed here.
    newest: u64,
}

/// The data on the open batches: the votes of each replica, the live replicas, and the findings.
#[derive(Debug)]
pub(crate) struct Ballots {
    pub(crate) config: Config,
    /// Replicas that are up, this one included.
    pub(crate) live: Set,
    pub(crate) window: Window,
    classifier: Classifier,
    pub(crate) counters: VoteCounters,
    scratch: Vec<u8>,
}

/// The time of an event and the list for its commands.
pub(crate) struct Round<'a> {
    pub now_us: u64,
    pub commands: &'a mut Vec<Command>,
}

impl Round<'_> {
    pub(crate) fn send(&mut self, to: To, message: Message) {
        self.commands.push(Command::Send { to, message });
    }

    pub(crate) fn send_one(&mut self, to: Replica, message: Message) {
        self.send(To::One(to), message);
    }
}

impl Voter {
    /// A voter without any event so far. Every peer counts as up until [`Event::PeerDown`].
    pub fn new(config: Config) -> Self {
        Voter {
            checks: Checks::default(),
            late: LateVotes::default(),
            streaks: Streaks::default(),
            replies: OwedReplies::default(),
            settling: Settling::default(),
            repairs: Repairs::new(&config),
            newest: config.first_batch(),
            ballots: Ballots::new(config),
        }
    }

    /// One event at `now_us` (monotonic, microseconds; only differences matter).
    pub fn handle(&mut self, event: Event, now_us: u64, commands: &mut Vec<Command>) {
        let round = &mut Round { now_us, commands };
        match event {
            Event::Executed { batch, requests } => self.on_executed(batch, requests, round),
            Event::Message { from, message } => self.on_message(from, message, round),
            Event::Garbled { from } => self.ballots.on_garbled(from, round),
            Event::PeerDown(replica) => self.on_peer_down(replica, round),
            Event::PeerUp(replica) => self.on_peer_up(replica, round),
            Event::PeerReplaced { replica, first_batch } => {
                self.on_peer_replaced(replica, first_batch, round)
            }
            Event::RecoverTurn { turn, time_us, recover, packed } => {
                self.ballots.counters.recovers_done += 1;
                match recover.scope {
                    Scope::Faulty(faulty) => {
                        self.streaks.count_repair(faulty, &mut self.ballots, round);
                        self.repairs.on_turn(turn, time_us, recover, packed, self.ballots.live, round);
                    }
                    Scope::SettleOn(source) => self.on_settling_turn(turn, &recover, source, packed, round),
                }
            }
            Event::Rechecked { place, corrupt } => {
                if self.ballots.on_rechecked(place, &corrupt, round) {
                    self.evaluate(place.batch, round);
                }
            }
            Event::Reexecuted { place, outcome } => {
                if self.ballots.on_reexecuted(place, outcome, round) {
                    self.evaluate(place.batch, round);
                }
            }
            Event::Tick => self.on_tick(round),
        }
        self.ballots.report_repairs(&mut self.repairs, round);
        self.replies.start_fetches(&mut self.ballots, round);
    }

    /// `replicas` vote on the batches after this one, which is the last one that was delivered: the group has grown or
    /// shrunk. Those that were added count as up from [`Event::PeerUp`] on.
    pub fn resize(&mut self, after: u64, replicas: u8, now_us: u64, commands: &mut Vec<Command>) {
        let sizes = &mut self.ballots.config.sizes;
        sizes.change(after, replicas);
        self.repairs.resize(*sizes);
        self.ballots.live = self.ballots.live.and(Set::first(replicas));
        for batch in self.ballots.window.base().max(after + 1)..self.ballots.window.end() {
            if let Some(record) = self.ballots.window.get_mut(batch) {
                record.forget_from(replicas);
            }
        }
        let round = &mut Round { now_us, commands };
        self.evaluate_all(round);
        self.ballots.report_repairs(&mut self.repairs, round);
        self.replies.start_fetches(&mut self.ballots, round);
    }

    /// Sends the collected CHECKs, and RECOVERs for the findings of this round.
    pub fn flush(&mut self, now_us: u64, commands: &mut Vec<Command>) {
        let round = &mut Round { now_us, commands };
        self.checks.send(round);
        self.repairs.propose(self.ballots.live, round);
    }

    /// Running totals.
    pub fn counters(&self) -> &VoteCounters {
        &self.ballots.counters
    }

    /// The status of each replica for one request, while its batch is open.
    pub fn statuses(&self, place: Place) -> Option<Vec<Status>> {
        let record = self.ballots.window.get(place.batch)?;
        record.requests().get(place.request as usize)?;
        let votes = self.ballots.votes(record, place.request);
        let sizes = &self.ballots.config.sizes;
        let verdict = classify(&votes, sizes.quorum_at(place.batch));
        Some(verdict.statuses[..usize::from(sizes.at(place.batch))].to_vec())
    }

    /// Batches that are open: still waiting for a vote, or kept for a peer that may ask.
    pub fn open_batches(&self) -> std::ops::Range<u64> {
        self.ballots.window.base()..self.ballots.window.end()
    }

    /// The last batch up to which the vote is closed here. A batch with a mismatch leaves the window while it is still
    /// disputed.
    pub fn validated(&self) -> u64 {
        let disputed =
            self.ballots.window.parked.iter().find(|(_, record)| !record.finished).map(|(batch, _)| *batch);
        disputed.unwrap_or(u64::MAX).min(self.ballots.window.base()).saturating_sub(1)
    }

    /// Whether nothing is open: every live replica is classified for every batch executed here, every owed reply has
    /// left, and no repair is due or in progress.
    pub fn is_settled(&self) -> bool {
        self.open_below(u64::MAX).is_none()
    }

    /// A description of what is unfinished in the batches before `batch`; none when all are finished. Under load the
    /// last batches are always open.
    pub fn open_below(&self, batch: u64) -> Option<String> {
        let batches = self.open_batches().chain(self.ballots.window.parked.keys().copied());
        let open = |batch: &u64| self.ballots.window.get(*batch).is_some_and(|record| !record.finished);
        if let Some(batch) = batches.filter(|one| *one < batch).find(open) {
            return Some(format!("batch {batch} is open"));
        }
        if let Some(place) = self.replies.first().filter(|place| place.batch < batch) {
            return Some(format!("the reply of {place} is asked for"));
        }
        self.repairs.open(self.ballots.live)
    }

    /// The occupancy of the queues and buffers that peers and clients can fill.
    pub fn loads(&self) -> [Occupancy; 6] {
        let open = self.ballots.window.end() - self.ballots.window.base();
        let load = |what, holds, bound| Occupancy { what, holds, bound };
        [
            load("open batches", open, WINDOW_BATCHES),
            load("parked batches", self.ballots.window.parked.len() as u64, MAX_PARKED_BATCHES as u64),
            // There may be one batch more than fits until another is dropped.
            load(
                "bytes of open batches",
                self.ballots.window.bytes as u64,
                (self.ballots.config.window_bytes() + LARGEST_BATCH_BYTES) as u64,
            ),
            load(
                "bytes of long replies owed to clients",
                self.ballots.window.owed_bytes as u64,
                (self.ballots.config.owed_reply_bytes() + LARGEST_BATCH_BYTES) as u64,
            ),
            load(
                "bytes of replies kept for other replicas",
                self.ballots.window.kept_bytes as u64,
                self.ballots.config.kept_reply_bytes() as u64,
            ),
            load("bytes of replies being fetched", self.replies.bytes(), FETCH_BYTES as u64),
        ]
    }

    /// The data on open batches, for tests that check it.
    #[cfg(test)]
    pub(crate) fn window(&self) -> &Window {
        &self.ballots.window
    }

    /// The stored data on a batch, for tests that corrupt it.
    #[cfg(test)]
    pub(crate) fn stored_mut(&mut self, batch: u64) -> Option<&mut crate::record::Record> {
        self.ballots.window.get_mut(batch)
    }

    fn on_message(&mut self, from: Replica, message: Message, round: &mut Round<'_>) {
        let sizes = &self.ballots.config.sizes;
        let votes = message.batch().map_or(sizes.most(), |batch| sizes.at(batch));
        if from >= votes || from == self.ballots.config.me() {
            return;
        }
        match message {
            Message::Check { first, digests } => self.on_check(from, first, &digests, round),
            Message::Digests { batch, digests } => self.on_digests(from, batch, digests, round),
            Message::Pairs { place, answer, total, first, pairs } => {
                let part = dispute::DeltaPart { answer, total, first, pairs };
                self.on_pairs(from, place, part, round);
            }
            Message::SelfBlame { place, failure } => {
                if self.ballots.on_self_blame(from, place, failure, round) {
                    self.evaluate(place.batch, round);
                    self.advance(round);
                }
            }
            Message::Confirm { place } => {
                if self.ballots.on_stand(from, place, round) {
                    self.evaluate(place.batch, round);
                }
            }
            Message::Ask(ask) => self.on_ask(from, ask, round),
            Message::Forgotten { batch, digest } => self.on_gone(from, batch, digest, round),
            Message::ReplyGone { place } => self.replies.on_reply_gone(from, place, &mut self.ballots, round),
            Message::Reply { place, total, offset, bytes } => {
                self.replies.on_reply(from, place, (total, offset), &bytes, &mut self.ballots, round);
            }
            Message::Repair { turn, parts } => self.repairs.on_repair(from, turn, parts, round),
            Message::Repaired { turn } => self.repairs.on_repaired(from, turn),
        }
    }

    fn on_peer_down(&mut self, replica: Replica, round: &mut Round<'_>) {
        if replica < self.ballots.config.replicas()
            && replica != self.ballots.config.me()
            && self.ballots.live.contains(replica)
        {
            self.ballots.live.remove(replica);
            self.evaluate_all(round);
        }
    }

    fn on_peer_up(&mut self, replica: Replica, round: &mut Round<'_>) {
        if replica < self.ballots.config.replicas() && !self.ballots.live.contains(replica) {
            self.ballots.live.insert(replica);
            self.evaluate_all(round);
        }
    }

    fn on_peer_replaced(&mut self, replica: Replica, first_batch: u64, round: &mut Round<'_>) {
        if replica >= self.ballots.config.replicas() || replica == self.ballots.config.me() {
            return;
        }
        self.repairs.on_peer_replaced(replica, first_batch);
        self.settling.on_peer_replaced(first_batch);
        self.late.forget(replica);
        self.streaks.forget(replica);
        for batch in self.ballots.window.base()..self.ballots.window.end().min(first_batch) {
            let had_vote = replica < self.ballots.config.sizes.at(batch);
            if let Some(record) = self.ballots.window.get_mut(batch).filter(|_| had_vote) {
                record.gone.insert(replica);
            }
        }
        self.ballots.live.insert(replica);
        self.evaluate_all(round);
    }

    fn evaluate_all(&mut self, round: &mut Round<'_>) {
        let parked: Vec<u64> = self.ballots.window.parked.keys().copied().collect();
        for batch in parked.into_iter().chain(self.ballots.window.base()..self.ballots.window.end()) {
            self.evaluate(batch, round);
        }
        self.advance(round);
    }
}

impl Ballots {
    /// The data of a voter without any event so far.
    fn new(config: Config) -> Self {
        Ballots {
            live: Set::first(config.replicas()),
            window: Window::new(config.first_batch()),
            classifier: Classifier::default(),
            counters: VoteCounters::default(),
            scratch: Vec::with_capacity(4096),
            config,
        }
    }

    /// Those that are up of the replicas that vote on a batch.
    pub(crate) fn live_at(&self, batch: u64) -> Set {
        self.live.and(Set::first(self.config.sizes.at(batch)))
    }

    /// A frame or message was invalid: it is reported, and its content will be requested again.
    fn on_garbled(&mut self, from: Replica, round: &mut Round<'_>) {
        if from < self.config.sizes.most() {
            let case = Case { batch: self.window.base(), request: None, kind: 0, stage: FaultStage::Message };
            self.evidence(from, case, None, &[], round);
        }
    }

    /// Reports findings of repairs: senders whose packed bytes did not match their digest.
    fn report_repairs(&mut self, repairs: &mut Repairs, round: &mut Round<'_>) {
        self.counters.objects_installed = repairs.installed();
        for (from, turn) in repairs.take_bad_pieces() {
            let (batch, request) = (turn.batch, Some(turn.request));
            let case = Case { batch, request, kind: 0, stage: FaultStage::Message };
            self.evidence(from, case, None, &[], round);
        }
    }

    /// Emits one evidence record and counts it.
    fn evidence(
        &mut self,
        replica: Replica,
        case: Case,
        failure: Option<Failure>,
        wrong: &[WrongObject],
        round: &mut Round<'_>,
    ) -> FaultClass {
        let finding = Finding {
            replica,
            kind: case.kind,
            stage: case.stage,
            panicked: failure == Some(Failure::Panic),
            abandoned_by_quorum: false,
            everybody_stands: false,
        };
        self.evidence_of(&finding, case, failure, wrong, round)
    }

    fn evidence_of(
        &mut self,
        finding: &Finding,
        case: Case,
        failure: Option<Failure>,
        wrong: &[WrongObject],
        round: &mut Round<'_>,
    ) -> FaultClass {
        let record = self.new_evidence(finding, case, failure, wrong);
        let class = record.class;
        round.commands.push(Command::Evidence(Box::new(record)));
        class
    }

    /// Classifies and counts a disagreement.
    fn new_evidence(
        &mut self,
        finding: &Finding,
        case: Case,
        failure: Option<Failure>,
        wrong: &[WrongObject],
    ) -> Evidence {
        let class = self.classifier.classify(finding);
        self.counters.blamed[finding.replica as usize] += 1;
        Evidence {
            replica: finding.replica,
            batch: case.batch,
            request: case.request,
            kind: case.kind,
            stage: case.stage,
            class,
            failure,
            wrong: wrong.iter().take(Evidence::MAX_OBJECTS).copied().collect(),
            wrong_total: wrong.len() as u32,
            settled_on: None,
            number: self.counters.blamed.iter().sum(),
        }
    }
}

/// The subject of an evidence record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub batch: u64,
    pub request: Option<u16>,
    pub kind: u16,
    pub stage: FaultStage,
}
