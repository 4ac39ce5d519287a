//! Execute → Vote → Externalize: results go into the voter, and its commands are performed.

use std::collections::BTreeSet;

use verify::VerifierEvent;
use vote::{Command, Event, Message, Place, Reexecution, To, Voter};
use wire::ReplicaId;

use super::Replica;
use super::barrier::CheckedBatch;
use super::environment::Environment;
use super::execute_stage::ExecuteStage;
use super::repairs::{self, Repairs};
use super::speculate::{SpeculateStage, Speculator};
use crate::hooks::Hooks;
use crate::job::{Executed, Runs};
use crate::ordered::Control;
use crate::peers;
use crate::service::{Service, kind_in_words};
use crate::worker::Report;
use crate::world::{Observation, World};
use crate::{Corrupted, ReplaceReason, Stop, evidence};

/// The voter, and the state that its commands need.
#[derive(Default)]
pub(super) struct VoteStage {
    /// The voter, once this replica executes, in a mode with votes.
    pub(super) voter: Option<Voter>,
    /// A buffer for the voter's commands, empty between events.
    commands: Vec<Command>,
    /// A bit per replica whose clients wait for a batch that was executed in this round.
    awaited_by: u16,
    /// Requests whose replies are held.
    pub(super) held: BTreeSet<Place>,
    pub(super) repairs: Repairs,
}

/// Where a worker waits for the objects of a RECOVER.
type Install = std::sync::mpsc::Sender<Vec<vote::Packed>>;

impl VoteStage {
    /// Creates the voter of a replica that executes from batch `first_batch` on, with a service of so many `locks`.
    pub(super) fn start<W: World>(&mut self, locks: u32, first_batch: u64, env: &Environment<W>) {
        let replicas = env.settings.peers.len() as u8;
        let buffers = env.settings.buffer_limit;
        let config = vote::Config::new(replicas, env.settings.me, locks, first_batch)
            .with_window_bytes(buffers / 4)
            .with_kept_reply_bytes(buffers / 8)
            // Replies meet the bound of `KeptReplies` first.
            .with_owed_reply_bytes(buffers / 2 + vote::limits::LARGEST_BATCH_BYTES);
        #[cfg(feature = "lab")]
        let config = crate::lab::on_voter(config);
        self.voter = Some(Voter::new(config));
    }

    /// Last batch up to which the vote is closed; in modes without votes, the last executed one.
    pub(super) fn validated<W: World>(&self, env: &Environment<W>) -> u64 {
        self.voter.as_ref().map_or(env.tally.executed, Voter::validated)
    }

    /// Sends the voter's messages to its peers. Where this replica `is_alone`, a peer may wait for any of them.
    fn send<W: World>(&self, to: To, message: &Message, is_alone: bool, env: &mut Environment<W>) {
        let mut body = Vec::new();
        message.encode(&mut body);
        if !env.hooks.on_vote_message(message, &mut body) {
            return;
        }
        let kind = match message {
            Message::Repair { .. } => order::FrameKind::Repair,
            _ => order::FrameKind::Check,
        };
        match to {
            To::One(peer) => env.send(peer, kind, &body, false),
            To::All => {
                let me = env.settings.me;
                for peer in (0..env.settings.peers.len() as u8).filter(|peer| *peer != me) {
                    // A digest is urgent where a client waits for it; otherwise it leaves with the next frame to that
                    // peer.
                    let deferrable =
                        matches!(message, Message::Check { .. }) && self.awaited_by >> peer & 1 == 0;
                    env.send(peer, kind, &body, deferrable && !is_alone);
                }
            }
        }
    }

    /// No client gets the reply to `request`, which is the one at `place`: reports this, the reason, and the remedy.
    fn hold<W: World>(&mut self, place: Place, why: vote::Held, request: &str, env: &Environment<W>) {
        self.held.insert(place);
        match why {
            vote::Held::EverybodyStands => env.world.say(format_args!(
                "the reply to {request} is held: no f+1 replicas agree ({why}). {NOT_DETERMINISTIC} \
                    `crosscheck evidence` names the objects that differ. The client that waits for the reply gets none"
            )),
            vote::Held::TooFewLive | vote::Held::VoteLost => env
                .world
                .say(format_args!("the reply to {request} is held: no f+1 replicas agree ({why})")),
        }
    }

    fn on_evidence<S: Service, W: World>(
        &mut self,
        record: &vote::Evidence,
        executor: &ExecuteStage<S>,
        env: &mut Environment<W>,
    ) {
        env.tally.mismatches += 1;
        let void = executor.void(record);
        if record.replica == env.settings.me && void.is_none() {
            let place = Place::new(record.batch, record.request.unwrap_or_default());
            self.repairs.note_verdict(place, env.world.now_us());
        }
        let mut reported = match void {
            Some((origin, place)) => evidence::void(origin, place),
            None => evidence::record(record, kind_in_words::<S>(record.kind)),
        };
        // For a fault of another replica, its core is not known here.
        let is_own = reported.replica == Some(env.settings.me + 1);
        if let (true, Some((batch, request))) = (is_own, reported.request) {
            reported.core = executor.ran(Place::new(batch, request as u16)).map(|ran| ran.core);
        }
        env.keep_evidence(reported);
    }
}

impl<S: Service, W: World> Replica<S, W> {
    /// Handles a worker's report.
    pub(super) fn on_report(&mut self, report: Report) {
        if self.executor.is_retiring() {
            // Of workers on a state that another one is about to replace.
            return;
        }
        let env = &mut self.env;
        match report {
            Report::Executed(executed) => self.on_executed(executed),
            Report::RecoverTurn { turn, time_us, recover, packed, install } => {
                self.on_recover_turn(install, turn, Event::RecoverTurn { turn, time_us, recover, packed });
            }
            Report::Installed { turn, overwritten } => {
                let has_donors = self.group.has_donors();
                self.votes.repairs.on_installed(turn, overwritten, has_donors, env);
            }
            Report::Checkpoint { head, state } => {
                if let Some(execution) = &mut self.executor.running {
                    execution.has_packed();
                }
                match Speculator::of(self) {
                    Some(mut speculator) => speculator.checkpoint().on_packed_at_once(&head, state),
                    None => self.transfer.on_checkpoint(&head, state, &mut self.order, &mut self.env),
                }
            }
            report @ (Report::CopyPart { .. } | Report::Cut { .. } | Report::TooMuchLeft { .. }) => {
                self.on_copied(report);
            }
            Report::Digest { position, region_id, digest } => {
                self.on_region_digest(position, region_id, digest);
            }
            Report::Nudged { ticket, injected } => self.calls.on_nudged(ticket, injected),
            Report::Rechecked { place, corrupt } => self.vote(Event::Rechecked { place, corrupt }),
            Report::Scrubbed { place, region_id, findings } => {
                let recover = self.votes.repairs.on_scrubbed(place, region_id, &findings, env);
                self.order.submit_control(&recover);
            }
            Report::Returned => {
                if let Some(execution) = &mut self.executor.running {
                    execution.on_returned();
                }
            }
            Report::Corrupted(what) => env.replace(what),
            // A worker that found the schedule corrupted ends as well.
            Report::Ended if self.executor.is_corrupted() => env.replace(Corrupted::Schedule),
            // Workers end when the replica stops. One that ends before was hit by a fault that no check could catch.
            Report::Ended if env.outcome().is_none() && self.executor.running.is_some() => {
                env.stop_with(Ok(Stop::Replace(ReplaceReason::WorkerEnded)));
            }
            Report::Ended => {}
            Report::TurnEnded => self.pass_barrier(),
            Report::BatchEnded(ended) => {
                if let Some(mut speculator) = Speculator::of(self) {
                    speculator.on_batch_ended(ended);
                }
            }
            Report::Damaged { batch, objects } => {
                if let Some(execution) = &mut self.executor.running {
                    execution.has_packed();
                }
                if let Some(mut speculator) = Speculator::of(self) {
                    speculator.on_damaged(batch, objects);
                }
            }
            Report::Boundary(done) => {
                if let Some(mut speculator) = Speculator::of(self) {
                    speculator.on_boundary(done);
                }
            }
            Report::ScrubTook(time) => self.scrubs.on_done(env.world.measured(time)),
            Report::Masked { place, core, kind } => {
                env.tally.failed_checks += 1;
                let kind = kind_in_words::<S>(kind);
                env.keep_evidence(evidence::masked(env.settings.me, place, core, kind));
            }
            Report::Named(names) => env.learn_names(names),
            Report::Large { region_id: at, objects } => objects.iter().for_each(|one| env.on_large(at, one)),
        }
    }

    /// The RECOVER at `turn` has its turn here; the objects that it is to get are sent through `install`.
    fn on_recover_turn(&mut self, install: Option<Install>, turn: Place, event: Event) {
        let Event::RecoverTurn { recover, packed, .. } = &event else { return };
        let env = &mut self.env;
        let is_replayed = self.group.is_replayed(turn.batch);
        match install {
            Some(install) if is_replayed => repairs::stop_waiting(install, env),
            Some(install) => {
                let now_us = env.world.now_us();
                self.votes.repairs.wait_for(turn, recover.cause, install, now_us);
            }
            None => {}
        }
        env.world.see(Observation::Packed { turn, objects: packed });
        // An earlier process knew which objects were undecided. This one does not, and cannot judge the RECOVER that
        // settled them.
        if !(is_replayed && matches!(recover.scope, vote::Scope::SettleOn(_))) {
            self.vote(event);
        }
    }

    fn on_executed(&mut self, executed: Executed) {
        if self.speculate.as_ref().is_some_and(SpeculateStage::is_rolling_back) {
            return;
        }
        let Executed { batch, origin, mut results, runs } = executed;
        let env = &mut self.env;
        for (place, reply) in env.hooks.on_executed(batch, &mut results) {
            self.clients.release(place, reply, None, env);
        }
        env.world.see(Observation::Executed { batch, results: &results });
        self.executor.keep_runs(batch, Runs { origin, of_requests: runs }, &env.hooks);
        env.tally.requests += results.len() as u64;
        env.tally.executed = env.tally.executed.max(batch);
        env.tally.failed_checks += results.iter().filter(|result| result.failure.is_some()).count() as u64;
        if let Some(executed) = self.executor.on_executed(batch) {
            env.peers.progress.executed = executed;
        }
        self.votes.awaited_by |= 1 << origin;
        if self.votes.voter.is_some() {
            self.vote(Event::Executed { batch, requests: results });
        } else if let Some(stage) = &mut self.speculate {
            stage.on_executed(batch, results);
        } else if env.settings.mode.twice && !env.settings.is_solo() {
            let progress = self.executor.progress();
            self.clients.barrier.hold(progress, CheckedBatch { batch, origin, results });
            self.pass_barrier();
        } else {
            self.clients.externalize_unvoted::<S>(batch, origin, results, env);
        }
    }

    /// Lets the replies leave that waited for requests which have ended meanwhile.
    pub(super) fn pass_barrier(&mut self) {
        if !self.clients.barrier.is_holding() {
            return;
        }
        // First this, so that each request that is found running reports its end.
        self.executor.report_ends(true);
        let progress = self.executor.progress();
        while let Some(CheckedBatch { batch, origin, results }) = self.clients.barrier.pass(&progress) {
            self.clients.externalize_unvoted::<S>(batch, origin, results, &mut self.env);
        }
        self.executor.report_ends(self.clients.barrier.is_holding());
    }

    /// Passes one event to the voter and performs its commands.
    pub(super) fn vote(&mut self, event: Event) {
        let now_us = self.env.world.now_us();
        if let Some(voter) = &mut self.votes.voter {
            voter.handle(event, now_us, &mut self.votes.commands);
            self.perform_commands();
        }
    }

    /// The end of a round: CHECKs of all batches of the round share a message.
    pub(super) fn flush_votes(&mut self) {
        let now_us = self.env.world.now_us();
        if let Some(voter) = &mut self.votes.voter {
            voter.flush(now_us, &mut self.votes.commands);
            self.perform_commands();
            self.clients.forget_answered();
        }
        self.votes.awaited_by = 0;
    }

    /// Receives a CHECK, a REPAIR, or another message between voters.
    pub(super) fn on_vote_message(&mut self, from: u8, body: &bytes::Bytes) {
        if !self.env.hooks.receives_votes() {
            return;
        }
        match Message::decode(body) {
            Ok(message) => self.vote(Event::Message { from, message }),
            Err(_) => self.vote(Event::Garbled { from }),
        }
    }

    /// Performs the voter's commands.
    fn perform_commands(&mut self) {
        let mut commands = std::mem::take(&mut self.votes.commands);
        for command in commands.drain(..) {
            self.perform(command);
        }
        if self.votes.commands.is_empty() {
            self.votes.commands = commands;
        }
    }

    fn perform(&mut self, command: Command) {
        let (votes, env) = (&mut self.votes, &mut self.env);
        match command {
            Command::Send { to, message } => votes.send(to, &message, self.executor.is_alone(), env),
            Command::Release { place, reply, digest } | Command::ReplyRepaired { place, reply, digest } => {
                votes.held.remove(&place);
                self.clients.release(place, reply, Some(digest), env);
            }
            Command::DropReply { place, .. } => {
                votes.held.remove(&place);
                self.clients.give_up_reply(place);
            }
            Command::ProposeRecover(_) if !env.hooks.proposes_repairs() => {}
            Command::ProposeRecover(recover) => self.order.submit_control(&Control::Recover(recover)),
            Command::Install { turn, objects } => {
                let objects = env.hooks.on_install(objects);
                votes.repairs.install(turn, objects, env);
            }
            Command::RecheckObjects { place, objects } => {
                self.order.submit_control(&Control::Recheck { by: env.settings.me, place, objects });
            }
            Command::Reexecute { place } => {
                // While a replica is absent, every request is run again when its turn comes (`Runner::reproduced`).
                let reproduced = self.executor.ran(place).is_some_and(|ran| ran.reproduced);
                let outcome = if reproduced { Reexecution::Reproduced } else { Reexecution::NotKept };
                self.vote(Event::Reexecuted { place, outcome });
            }
            Command::Evidence(record) => votes.on_evidence(&record, &self.executor, env),
            Command::Held { place, why } => votes.hold(place, why, &self.executor.asked_at(place), env),
            Command::Resumed { place } => {
                votes.held.remove(&place);
            }
            Command::GiveUpRepair { turn } => votes.repairs.give_up(turn, self.group.has_donors(), env),
            Command::PassTurn { turn } => votes.repairs.pass(turn, env),
            Command::NotSettled { place, region_id, id } => {
                let object = env.with_names(&format!("object {region_id}:{id}"));
                let request = self.executor.asked_at(place);
                env.world.say(format_args!(
                    "replicas differ in {object} again at {request}, although they settled on one version of it \
                        several times. It stays as it is. {NOT_DETERMINISTIC}"
                ));
            }
            Command::ManyRepairs { replica } => env.world.say(format_args!(
                "replica {} had to be repaired more than {} times within {} s: its hardware is broken. Move it to \
                    another machine, and test the memory and the processor of this one. `crosscheck evidence` shows \
                    what was wrong. It goes on being repaired",
                ReplicaId(replica),
                vote::limits::REPAIRS_BEFORE_REPORT,
                vote::limits::REPAIR_RATE_US / 1_000_000
            )),
            Command::ReplaceSelf(why) => env.stop_with(Ok(Stop::Replace(ReplaceReason::Vote(why)))),
            Command::PeerBeyondRepair { replica, why } => {
                env.world.say(format_args!(
                    "replica {} cannot be repaired in place and replaces itself: {why}",
                    ReplicaId(replica)
                ));
            }
        }
    }

    /// Handles the events of the peers' sockets.
    pub(super) fn on_peer_events(&mut self, received: &mut Vec<peers::PeerEvent>) {
        if !received.is_empty() {
            self.order.orderer.accept_stamps(self.time.latest_stamp_us(&self.env));
        }
        for event in received.drain(..) {
            match event {
                peers::PeerEvent::Up(peer) => {
                    if !self.env.settings.is_witness() {
                        self.order.orderer.peer_up(peer);
                    }
                    if let Some(mut speculator) = Speculator::of(self) {
                        speculator.on_verifier_event(VerifierEvent::Connected(peer));
                    }
                    self.time.clock.forget(peer);
                    self.env.refusals.forget(peer);
                    self.group.on_received(peer, self.env.world.now_us());
                    self.group.on_changed(peer, self.env.world.now_us());
                    let own = self.own_progress();
                    self.group.send_heartbeat(peer, own, &mut self.time, &mut self.env);
                    self.transfer.on_peer_up(&mut self.env);
                }
                peers::PeerEvent::Down(peer) => {
                    self.group.on_changed(peer, self.env.world.now_us());
                    self.order.orderer.peer_down(peer);
                    if let Some(mut speculator) = Speculator::of(self) {
                        speculator.on_verifier_event(VerifierEvent::Disconnected(peer));
                    }
                }
                peers::PeerEvent::Ended(peer) => {
                    if let Some(mut speculator) = Speculator::of(self) {
                        speculator.on_process_gone(peer);
                    }
                }
                peers::PeerEvent::Corrupt(error) => {
                    let peer = error.peer();
                    self.env.world.say(format_args!("{error}; the connection is reset"));
                    self.env.tally.dropped_frames += 1;
                    self.env.keep_evidence(evidence::message(peer));
                    self.vote(Event::Garbled { from: peer });
                }
                peers::PeerEvent::Frame { from, kind, body } => self.on_frame(from, kind, body),
                peers::PeerEvent::Refused { peer, why } => {
                    if let Some(peer) = peer {
                        self.group.on_changed(peer, self.env.world.now_us());
                    }
                    self.env.on_refused(peer, &why);
                }
                peers::PeerEvent::Unresolved { peer, why } => self.env.on_unresolved(peer, why),
            }
        }
    }
}

/// The reason why healthy replicas differ, and the remedy.
const NOT_DETERMINISTIC: &str = "The handler of this kind of request is not deterministic: look in it for a clock, \
    randomness, a HashMap, an address, or state that is in no object, correct it, and restart all replicas with the \
    corrected program.";
