//! Handles the output of the ordering engine and the frames of peers, lets the replica take part, and runs its
//! watchdog.

use bytes::Bytes;
use order::{FailStop, FrameKind, Output};
use vote::Event;
use wire::ReplicaId;

use super::Replica;
use super::disk_writer::KeptState;
use super::execution::{Execution, StallCheck, WorkerLinks};
use super::group::{LogEnd, OwnProgress};
use super::speculate::{NotProven, SpeculateStage, Speculator};
use super::state_transfer::Arrived;
use super::vote_stage::VoteStage;
use crate::admin::ReplicaPhase;
use crate::hooks::Hooks;
use crate::job::Job;
use crate::packed_state::PackedState;
use crate::service::Service;
use crate::settings::Durability;
use crate::state::{LoadedState, LoadingState};
use crate::state_writer::WriteEnd;
use crate::world::{Observation, World};
use crate::{Corrupted, ReplaceReason, ServeError, Stop, state, transfer};

impl<S: Service, W: World> Replica<S, W> {
    /// Performs the output of the ordering engine.
    pub(super) fn perform_outputs(&mut self) {
        while let Some(output) = self.order.orderer.poll_output() {
            match output {
                Output::Send { to, kind, body, deferrable } => {
                    // So few replicas are connected that a peer may wait for this frame after all.
                    let deferrable = deferrable && !self.executor.is_alone();
                    self.env.send_parts(to, kind, &body, deferrable);
                }
                Output::LeaderChanged { .. } | Output::Membership { .. } => self.transfer.forget_requested(),
                Output::Established { joined, .. } => self.on_established(joined),
                Output::CheckpointWanted { ordered: true } => {
                    self.transfer.want_checkpoint(&self.env);
                }
                Output::CheckpointWanted { ordered: false } => {
                    if self.env.settings.mode.has_common_state() && self.env.hooks.gives_unordered() {
                        self.transfer.wants_unordered = true;
                    }
                }
                Output::NeedState { index, .. }
                    if self.executor.running.is_some() && self.env.settings.mode.verified =>
                {
                    if self.speculate.as_ref().is_some_and(SpeculateStage::takes_state) {
                        self.transfer.need(index, &mut self.env);
                        self.end_transfer();
                    } else if let Some(mut speculator) = Speculator::of(self) {
                        speculator.whole_state().take(ReplaceReason::TooFarBehind);
                    }
                }
                Output::NeedState { index, .. } => {
                    // One that executes keeps what it has until the other state is complete: it may be the last copy.
                    if self.executor.running.is_none() {
                        self.phase = ReplicaPhase::Joining;
                    }
                    self.transfer.need(index, &mut self.env);
                    self.end_transfer();
                }
                Output::Skipped { tags } => {
                    if let Err(what) = self.order.skip(tags, &mut self.clients) {
                        return self.env.replace(what);
                    }
                }
                Output::Lacking { from, believed, last } => self.env.world.say(format_args!(
                    "leader {} expects entries up to {believed} here, and this log ends at {last}: they were \
                        lost on disk, or the leader is faulty. It sends them again",
                    ReplicaId(from)
                )),
                Output::StampsRefused { leader, ahead_us } => {
                    let accuses = self.time.may_accuse(leader, self.env.world.now_us(), &self.env.hooks);
                    let ahead_us = i64::try_from(ahead_us).unwrap_or(i64::MAX);
                    self.env.report_refused_stamps(leader, ahead_us, accuses);
                    if let Some(mut speculator) = Speculator::of(self) {
                        speculator.suspect_primary();
                    }
                }
                Output::LogDropped { begins_after, ends_at, state } => self.env.world.say(format_args!(
                    "the log on disk has entries {} to {ends_at}, and the state saved beside it is of entry \
                        {state}: {} This replica joins as the next incarnation, and its peers fill it",
                    begins_after + 1,
                    if state > ends_at {
                        "the end of the log was lost."
                    } else {
                        "the entries between them were lost."
                    }
                )),
                Output::Removed => {
                    self.order.give_up_log(ReplaceReason::LaterIncarnation, &mut self.env);
                }
                Output::OlderCopy { index: entry, incarnation: sender, number: batch } => {
                    let directory = match &self.env.settings.durability {
                        Durability::Memory => None,
                        Durability::Disk(directory) => Some(directory.clone()),
                    };
                    let why = ReplaceReason::OlderCopy { entry, sender, batch, directory };
                    self.order.give_up_log(why, &mut self.env);
                }
                Output::FailStop(FailStop::Corrupted(part)) => self.env.replace(Corrupted::Order(part)),
                Output::FailStop(reason) => self.env.stop_with(Err(ServeError::FailStop(reason))),
            }
        }
    }

    /// This replica belongs to the group. Without a log of its own it waits for its peers' state.
    fn on_established(&mut self, joined: bool) {
        if joined {
            self.phase = ReplicaPhase::Joining;
            self.transfer.prepare(0, &mut self.env);
        } else if self.executor.running.is_none() {
            match self.executor.base.take() {
                Some(((head, dispatcher), size)) => {
                    self.transfer.disk.set_kept(head.index, size);
                    self.start_execution(dispatcher, head.batch + 1);
                }
                None => {
                    let first = state::CheckpointHead { index: 0, batch: 0, order: order::State::default() };
                    if let Some(mut speculator) = Speculator::of(self)
                        && let Err(why) = speculator.begin(&first)
                    {
                        return self.env.stop_with(Err(ServeError::BadState(why)));
                    }
                    self.start_execution(schedule::DispatcherState::genesis(), 1);
                }
            }
        }
    }

    fn start_execution(&mut self, dispatcher: schedule::DispatcherState<Job<S::Request>>, first_batch: u64) {
        let Some(service) = self.executor.service.take() else { return };
        if let Some(session) = std::mem::take(&mut self.copies).session() {
            self.transfer.abandon_copy(session);
        }
        let env = &mut self.env;
        let piece = env.world.scale().piece;
        let ties = WorkerLinks { mailbox: &env.mailbox, lockstep: &env.lockstep, hooks: &env.hooks, piece };
        match Execution::start(&env.settings, service, dispatcher, first_batch, &ties) {
            Ok(execution) => {
                if env.settings.mode.crosschecked {
                    self.votes.start(execution.locks(), first_batch, env);
                }
                if self.transfer.disk.states().kept_index() > 0 {
                    self.copies.begin_kept(execution.locks(), &execution.copy);
                }
                self.executor.running = Some(execution);
                env.tally.executed = first_batch - 1;
                env.peers.progress.executed = env.tally.executed;
                self.executor.watchdog_view.execute_done(env.tally.executed);
                self.group.begin();
            }
            Err(error) => env.stop_with(Err(error.into())),
        }
    }

    /// Begins to serve clients as soon as there is a leader to order their requests.
    pub(super) fn serve_when_led(&mut self) {
        let is_new = self.executor.running.is_some() && !self.clients.are_served();
        if is_new && self.order.orderer.engine_status().leader.is_some() {
            match self.clients.serve(&self.env.world) {
                Ok(true) => self.phase = ReplicaPhase::Serving,
                Ok(false) => {}
                Err(error) => self.env.stop_with(Err(error.into())),
            }
        }
    }

    /// The write of a state has ended.
    pub(super) fn on_kept(&mut self, write: u64, end: WriteEnd) {
        if let (WriteEnd::Failed(_), Some(execution)) = (&end, &self.executor.running) {
            self.copies.on_not_written(&execution.copy);
        }
        match self.transfer.disk.on_ended(write, end, &mut self.env) {
            Some(KeptState::Whole(index, state)) => self.on_arrived(Arrived { index, state }),
            Some(KeptState::InPlace(index)) => self.end_loading(index),
            None => {}
        }
        self.take_pieces();
    }

    /// Takes the pieces of a state that have come. A replica without a state puts each one in place at once; one that
    /// has a state collects them.
    pub(super) fn take_pieces(&mut self) {
        loop {
            let in_place = self.executor.service.is_some();
            let Some(piece) = self.transfer.take_piece(in_place, &mut self.env) else { break };
            let service = self.executor.service.as_mut().filter(|_| !piece.is_packed_at_once);
            let Some(service) = service else {
                self.executor.loading = None;
                self.transfer.collect(piece);
                continue;
            };
            if piece.number == 0 {
                self.executor.loading = Some(LoadingState::new(service));
            }
            let loading = self.executor.loading.as_mut();
            if let Some(Err(why)) = loading.map(|loading| loading.put(service, piece.bytes)) {
                return self.on_bad_state(None, why);
            }
        }
        self.end_transfer();
    }

    /// Continues after a state that has come as a whole, once the engine has asked for it.
    pub(super) fn end_transfer(&mut self) {
        let Some(index) = self.transfer.arrived(&mut self.env) else { return };
        if self.executor.loading.is_none() {
            if let Some(arrived) = self.transfer.take_collected(index, &mut self.env) {
                self.on_arrived(arrived);
            }
        } else if !self.transfer.end_in_place(index, &self.env) {
            self.end_loading(index);
        }
    }

    /// The state after entry `index`, which is in place, is taken.
    fn end_loading(&mut self, index: u64) {
        if let Some(loading) = self.executor.loading.take() {
            self.begin_from(index, loading.finish());
        }
    }

    /// The whole state of others is there.
    fn on_arrived(&mut self, Arrived { index, state }: Arrived) {
        if self.speculate.as_ref().is_some_and(SpeculateStage::takes_state) {
            return self.take_in_place(index, state);
        }
        if self.executor.running.is_some() {
            return self.retire(index, state);
        }
        let Some(service) = &mut self.executor.service else { return };
        // Loading a large state has no time limit.
        self.executor.watchdog_view.begin_or_end_work();
        let loaded = match self.env.settings.mode.verified {
            false => state::load(service, state).map(|base| LoadedState { base, proof: None }),
            true => state::split_proof(state).and_then(|(proof, packed)| {
                Ok(LoadedState { base: state::load(service, packed)?, proof: Some(proof) })
            }),
        };
        self.executor.watchdog_view.begin_or_end_work();
        self.begin_from(index, loaded);
    }

    /// Continues after a state that the service has now. In verified mode, it has to prove itself.
    fn begin_from(&mut self, index: u64, loaded: Result<LoadedState<S>, String>) {
        let LoadedState { base, proof } = match loaded {
            Ok(loaded) => loaded,
            Err(why) => return self.on_bad_state(Some(index), why),
        };
        self.executor.watchdog_view.begin_or_end_work();
        let proven = Speculator::of(self).map(|mut speculator| speculator.prove(index, &base, proof));
        self.executor.watchdog_view.begin_or_end_work();
        let proven = match proven.transpose() {
            Ok(proven) => proven,
            Err(why) => return self.on_unproven(index, why),
        };
        let (head, dispatcher) = base;
        // The engine may need another checkpoint by now; then it requests that one, and the transfer begins again.
        if !self.order.orderer.installed(index, head.order.clone()) {
            return self.transfer.prepare(0, &mut self.env);
        }
        if let (Some(proven), Some(mut speculator)) = (proven, Speculator::of(self)) {
            speculator.begin_with(proven, &head);
        }
        self.start_execution(dispatcher, head.batch + 1);
        if let Some(mut speculator) = Speculator::of(self) {
            speculator.report_installed();
        }
    }

    /// In verified mode, at a replica that executes: the state takes the place of its own if it proves itself, as far
    /// as that shows before.
    fn take_in_place(&mut self, index: u64, state: PackedState) {
        let Some(execution) = &self.executor.running else { return };
        let opened = state::split_proof(state.clone()).and_then(|(proof, packed)| {
            let (base, _) = state::open(&*execution.service, packed)?;
            Ok((base, proof))
        });
        let (base, proof) = match opened {
            Ok(opened) => opened,
            Err(why) => return self.on_bad_state(Some(index), why),
        };
        let Some(mut speculator) = Speculator::of(self) else { return };
        match speculator.whole_state().check(index, &base, &proof) {
            Ok(()) => speculator.whole_state().on_arrived(state),
            Err(why) => self.on_unproven(index, why),
        }
    }

    /// The state of others cannot be read.
    fn on_bad_state(&mut self, index: Option<u64>, why: String) {
        if !self.env.settings.mode.verified {
            // f+1 replicas sent the same bytes, so the formats differ: another attempt would not help.
            return self.env.stop_with(Err(ServeError::BadState(why)));
        }
        self.refuse_state(index, (true, &why));
    }

    /// In verified mode: the state of others does not prove itself.
    fn on_unproven(&mut self, index: u64, why: NotProven) {
        let is_wrong = matches!(why, NotProven::Wrong(_));
        self.refuse_state(Some(index), (is_wrong, &why.to_string()));
    }

    fn refuse_state(&mut self, index: Option<u64>, (is_wrong, why): (bool, &str)) {
        self.executor.loading = None;
        let from = self.transfer.refuse(&mut self.order, &self.env, (index, is_wrong));
        let whose = from.map_or_else(|| "the others".into(), |from| format!("replica {}", ReplicaId(from)));
        self.env.world.say(format_args!(
            "the state that {whose} has sent is of no use: {why}. This replica asks again"
        ));
        if is_wrong {
            self.env.world.see(Observation::StateRefused { from });
        }
    }

    /// A replica that executes has got the state after entry `index` from others, since it lacks entries that they do
    /// not have any more. It ends its workers; [`Replica::replace_state`] continues as soon as they have ended.
    fn retire(&mut self, index: u64, state: PackedState) {
        let head = match state::head(state.clone()) {
            Ok(head) => head,
            Err(why) => return self.env.stop_with(Err(ServeError::BadState(why))),
        };
        // The engine may need another checkpoint by now; then it requests that one, and the transfer begins again.
        if !self.order.orderer.installed(index, head.order) {
            return;
        }
        self.env.world.say(format_args!(
            "this replica lacked entries of the log that the others do not have any more. It takes the state after \
                entry {index} in place of its own; clients that waited for replies are disconnected"
        ));
        self.clients.give_up_owed();
        // Nor do the positions come that these wait for.
        self.env.hooks.skip_turns();
        self.calls.skip_positions();
        self.votes = VoteStage::default();
        self.executor.retire(state, &self.env.lockstep);
    }

    /// Puts a state in place once the workers that ran on the one before have ended.
    pub(super) fn replace_state(&mut self) {
        let Some(packed) = self.executor.take_retired() else { return };
        let Some(service) = &mut self.executor.service else { return };
        self.executor.watchdog_view.begin_or_end_work();
        let loaded = state::load::<S>(service, packed);
        self.executor.watchdog_view.begin_or_end_work();
        match loaded {
            Ok((head, dispatcher)) => self.start_execution(dispatcher, head.batch + 1),
            Err(why) => self.env.stop_with(Err(ServeError::BadState(why))),
        }
    }

    /// Packs the state as it is, for a replica without which nothing can be ordered, as soon as nothing is in
    /// execution.
    pub(super) fn pack_unordered(&mut self) {
        if let Some(mut speculator) = Speculator::of(self) {
            return speculator.checkpoint().pack_stable();
        }
        let Some(execution) = &mut self.executor.running else { return };
        if self.transfer.wants_unordered && execution.is_idle() {
            let order = self.order.orderer.export_state();
            self.transfer.wants_unordered = false;
            let head = state::CheckpointHead { index: order.index, batch: execution.executed_to(), order };
            execution.pack_now(head);
        }
    }

    /// Handles a whole frame whose checksum is right.
    pub(super) fn on_frame(&mut self, from: u8, kind: FrameKind, body: Bytes) {
        self.group.on_received(from, self.env.world.now_us());
        match kind {
            FrameKind::Order | FrameKind::Forward | FrameKind::Control | FrameKind::Batch => {
                if let Err(blame) = self.order.orderer.on_frame(from, kind, body) {
                    self.group.on_dropped(blame, &mut self.env);
                }
            }
            FrameKind::Check | FrameKind::Repair => self.on_vote_message(from, &body),
            FrameKind::Verify => {
                if let Some(mut speculator) = Speculator::of(self) {
                    speculator.on_verify_message(from, &body);
                }
            }
            FrameKind::Transfer => {
                let Some(message) = transfer::Message::decode(body) else {
                    self.env.tally.dropped_frames += 1;
                    return;
                };
                let left = match Speculator::of(self) {
                    Some(mut speculator) => speculator.repair().on_message(from, message),
                    None => Some(message),
                };
                if let Some(message) = left {
                    self.transfer.on_message(from, message, &mut self.order, &mut self.env);
                    self.take_pieces();
                }
            }
            FrameKind::Admin => {
                let last = self.env.last_batch(self.speculate.as_ref());
                let now_us = self.env.world.now_us();
                if self.group.on_heartbeat(from, &body, last, &mut self.time, now_us) {
                    self.count_peer(from);
                }
                if self.group.take_ended(from)
                    && let Some(mut speculator) = Speculator::of(self)
                {
                    speculator.on_process_gone(from);
                }
            }
        }
    }

    /// Sends heartbeats from time to time, and informs the voter about the others.
    pub(super) fn send_heartbeats(&mut self) {
        let own = self.own_progress();
        self.group.send_heartbeats(own, &mut self.time, &mut self.env);
        for peer in 0..self.env.settings.peers.len() as u8 {
            self.count_peer(peer);
        }
        if let (Some(execution), true) = (&self.executor.running, self.votes.voter.is_some()) {
            execution.set_alone(self.group.is_alone(self.env.world.now_us()));
        }
    }

    /// What the others are told of this replica's progress.
    pub(super) fn own_progress(&self) -> OwnProgress {
        let engine_status = self.order.orderer.engine_status();
        // One that takes another state votes on nothing before that.
        let is_out = self.executor.running.is_some() && self.transfer.is_receiving();
        let first = if is_out { 0 } else { self.executor.first_batch() };
        OwnProgress {
            batches: (first, self.env.last_batch(self.speculate.as_ref())),
            log_end: LogEnd { term: engine_status.last_term, index: engine_status.last_index },
            tolerance: super::own_tolerance(self),
            verifying: self.speculate.as_ref().map(SpeculateStage::verifying).unwrap_or_default(),
        }
    }

    /// Informs the voter whether to wait for this peer.
    fn count_peer(&mut self, peer: u8) {
        if self.votes.voter.is_some() {
            let news: [Option<Event>; 2] = self.group.news_of(peer, self.env.world.now_us());
            news.into_iter().flatten().for_each(|event| self.vote(event));
        }
    }

    /// The watchdog of the turns (EDCC'16 section IV-C): it detects a handler that never ends. A worker that waits for
    /// a repair has a longer limit: the voter gives up on a repair that does not arrive, and if it does not, this
    /// function does.
    pub(super) fn watch(&mut self) {
        let now_us = self.env.world.now_us();
        if let Some(turn) = self.votes.repairs.overdue(now_us) {
            return self.votes.repairs.give_up(turn, self.group.has_donors(), &mut self.env);
        }
        let takes_state = self.speculate.as_ref().is_some_and(SpeculateStage::takes_state);
        if self.votes.repairs.are_awaited() || takes_state {
            return;
        }
        let limit_us = self.env.settings.watchdog.as_micros() as u64;
        let others = (self.env.settings.peers.len() > 1).then(|| self.group.others_progress(now_us));
        let others = others.filter(|_| self.env.hooks.asks_others());
        let verified = self.speculate.as_ref().map(SpeculateStage::progress);
        if let Some(why) = self.executor.stall(StallCheck { others, verified, now_us, limit_us }) {
            self.env.stop_with(Ok(Stop::Replace(why)));
        }
    }
}
