//! How a replica comes to a state and begins on it: its own, a saved one, or that of the others, which may replace the
//! one that it has.

use wire::ReplicaId;

use super::Replica;
use super::agree::NotProven;
use super::disk_writer::KeptState;
use super::execution::Execution;
use super::moving;
use super::solo::WorkerLinks;
use super::state_transfer::Arrived;
use crate::admin::ReplicaPhase;
use crate::hooks::{FaultPoint, Hooks};
use crate::job::Job;
use crate::packed_state::PackedState;
use crate::service::Service;
use crate::state::{LoadedState, LoadingState};
use crate::state_writer::WriteEnd;
use crate::world::{Observation, World};
use crate::{ServeError, behavior, state};

impl<S: Service, W: World> Replica<S, W> {
    /// This replica belongs to the group. Without a log of its own it waits for its peers' state.
    pub(super) fn on_established(&mut self, joined: bool) {
        let has_state = self.core.env.settings.has_data || self.core.executor.base.is_some();
        self.core.own_settings.begin(!joined && !has_state);
        if joined {
            self.phase = ReplicaPhase::Joining;
            // Of a backup, for a founding in which this replica has no part.
            self.core.executor.base = None;
            self.core.transfer.prepare(0, &mut self.core.env);
        } else if self.core.executor.running.is_none() {
            match self.core.executor.base.take() {
                Some(((mut head, dispatcher), size)) => {
                    if self.core.env.settings.restore.is_some() {
                        head.order.sizes = order::GroupSizes::default();
                    }
                    if self.core.env.settings.durability.is_disk() {
                        self.core.transfer.disk.set_kept(head.index, size);
                    }
                    self.core.order.orderer.begin_after(head.order.clone());
                    self.core.env.counts_file = self.core.env.settings.restore.is_some();
                    self.start_execution(dispatcher, &head, false);
                }
                None => {
                    let first = state::CheckpointHead { index: 0, batch: 0, order: order::State::default() };
                    if let Err(why) = self.agreement.begin(&first, &mut self.core) {
                        return self.core.env.stop_with(Err(ServeError::BadState(why)));
                    }
                    self.start_execution(schedule::DispatcherState::genesis(), &first, false);
                }
            }
        }
    }

    fn start_execution(
        &mut self,
        dispatcher: schedule::DispatcherState<Job<S::Request>>,
        head: &state::CheckpointHead,
        from_others: bool,
    ) {
        let (first_batch, behavior) = (head.batch + 1, behavior::of_order(head.order.acting));
        // A group of a release that knows only later behaviors changes to one of them before it serves.
        let is_earlier = behavior < self.core.env.settings.behaviors.oldest;
        if !is_earlier && !self.core.env.can_act_as(behavior) {
            return;
        }
        self.core.env.peers.act_as(behavior);
        moving::follow(&self.core.order, &mut self.core.env);
        self.core.follow_size();
        let Some(service) = self.core.executor.service.take() else { return };
        if let Some(session) = std::mem::take(&mut self.core.copies).session() {
            self.core.transfer.abandon_copy(session);
        }
        let env = &mut self.core.env;
        let piece = env.world.scale().piece;
        let ties = WorkerLinks { mailbox: &env.mailbox, lockstep: &env.lockstep, hooks: &env.hooks, piece };
        match Execution::start(&env.settings, service, dispatcher, (first_batch, behavior), &ties) {
            Ok(execution) => {
                if self.core.transfer.disk.states().kept_index() > 0 {
                    self.core.copies.begin_kept(execution.locks(), &execution.copy);
                }
                self.core.executor.running = Some(execution);
                env.tally.executed = first_batch - 1;
                env.peers.progress.executed = env.tally.executed;
                self.core.executor.watchdog_view.execute_done(env.tally.executed);
                self.core.group.begin();
                self.agreement.started(first_batch, from_others, &mut self.core);
            }
            Err(error) => env.stop_with(Err(error.into())),
        }
    }

    /// Begins to serve clients as soon as there is a leader to order their requests.
    pub(super) fn serve_when_led(&mut self) {
        let acts_as = behavior::of_order(self.core.order.orderer.state().acting);
        let is_new = self.core.executor.running.is_some()
            && self.core.env.settings.behaviors.include(acts_as)
            && !self.core.env.is_observer()
            && !self.core.clients.are_served();
        let status = self.core.order.orderer.engine_status();
        if let (true, Some(_), Some(incarnation)) = (is_new, status.leader, status.incarnation) {
            match self.core.clients.serve(&self.core.env.world, incarnation) {
                Ok(true) => self.phase = ReplicaPhase::Serving,
                Ok(false) => {}
                Err(error) => self.core.env.stop_with(Err(error.into())),
            }
        }
    }

    /// The write of a state has ended.
    pub(super) fn on_kept(&mut self, write: u64, end: WriteEnd) {
        if let (WriteEnd::Failed(_), Some(execution)) = (&end, &self.core.executor.running) {
            self.core.copies.on_not_written(&execution.copy);
        }
        match self.core.transfer.disk.on_ended(write, end, &mut self.core.env) {
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
            let in_place = self.core.executor.service.is_some();
            let Some(piece) = self.core.transfer.take_piece(in_place, &mut self.core.env) else { break };
            let service = self.core.executor.service.as_mut().filter(|_| !piece.is_packed_at_once);
            let Some(service) = service else {
                self.core.executor.loading = None;
                self.core.transfer.collect(piece);
                continue;
            };
            if piece.number == 0 {
                self.core.executor.loading = Some(LoadingState::new(service));
            }
            let loading = self.core.executor.loading.as_mut();
            if let Some(Err(why)) = loading.map(|loading| loading.put(service, piece.bytes)) {
                return self.on_bad_state(None, why);
            }
        }
        self.end_transfer();
    }

    /// Continues after a state that has come as a whole, once the engine has asked for it.
    pub(super) fn end_transfer(&mut self) {
        let Some(index) = self.core.transfer.arrived(&mut self.core.env) else { return };
        if self.core.executor.loading.is_none() {
            if let Some(arrived) = self.core.transfer.take_collected(index, &mut self.core.env) {
                self.on_arrived(arrived);
            }
        } else if !self.core.transfer.end_in_place(index, &self.core.env) {
            self.end_loading(index);
        }
    }

    /// The state after entry `index`, which is in place, is taken.
    fn end_loading(&mut self, index: u64) {
        if let Some(loading) = self.core.executor.loading.take() {
            self.begin_from(index, loading.finish());
        }
    }

    /// The whole state of others is there.
    fn on_arrived(&mut self, Arrived { index, state }: Arrived) {
        if self.agreement.takes_state() {
            if let Err(why) = self.agreement.take_in_place(index, state, &mut self.core) {
                self.on_unproven(index, &why);
            }
            return;
        }
        if self.core.executor.running.is_some() {
            return self.retire(index, state);
        }
        let Some(service) = &mut self.core.executor.service else { return };
        // Loading a large state has no time limit.
        self.core.executor.watchdog_view.begin_or_end_work();
        let loaded = match self.agreement.proves_states() {
            false => state::load(service, state).map(|base| LoadedState { base, proof: None }),
            true => state::split_proof(state).and_then(|(proof, packed)| {
                Ok(LoadedState { base: state::load(service, packed)?, proof: Some(proof) })
            }),
        };
        self.core.executor.watchdog_view.begin_or_end_work();
        self.begin_from(index, loaded);
    }

    /// Continues after a state that the service has now. In verified mode, it has to prove itself.
    fn begin_from(&mut self, index: u64, loaded: Result<LoadedState<S>, String>) {
        let LoadedState { base, proof } = match loaded {
            Ok(loaded) => loaded,
            Err(why) => return self.on_bad_state(Some(index), why),
        };
        self.core.executor.watchdog_view.begin_or_end_work();
        let proven = self.agreement.prove(index, &base, proof, &mut self.core);
        self.core.executor.watchdog_view.begin_or_end_work();
        if let Err(why) = proven {
            return self.on_unproven(index, &why);
        }
        let (head, dispatcher) = base;
        // The engine may need another checkpoint by now; then it requests that one, and the transfer begins again.
        if !self.core.order.orderer.installed(index, head.order.clone()) {
            return self.core.transfer.prepare(0, &mut self.core.env);
        }
        if let Err(why) = self.agreement.begin(&head, &mut self.core) {
            return self.core.env.stop_with(Err(ServeError::BadState(why)));
        }
        self.start_execution(dispatcher, &head, true);
    }

    /// The state of others cannot be read.
    fn on_bad_state(&mut self, index: Option<u64>, why: String) {
        if !self.agreement.proves_states() {
            // f+1 replicas sent the same bytes, so the formats differ: another attempt would not help.
            return self.core.env.stop_with(Err(ServeError::BadState(why)));
        }
        self.refuse_state(index, (true, &why));
    }

    /// The state of others does not prove itself.
    fn on_unproven(&mut self, index: u64, why: &NotProven) {
        let is_wrong = matches!(why, NotProven::Wrong(_));
        self.refuse_state(Some(index), (is_wrong, &why.to_string()));
    }

    fn refuse_state(&mut self, index: Option<u64>, (is_wrong, why): (bool, &str)) {
        self.core.executor.loading = None;
        let from = self.core.transfer.refuse(&mut self.core.order, &self.core.env, (index, is_wrong));
        let whose = from.map_or_else(|| "the others".into(), |from| format!("replica {}", ReplicaId(from)));
        self.core.env.world.say(format_args!(
            "the state that {whose} has sent is of no use: {why}. This replica asks again"
        ));
        if is_wrong {
            self.core.env.world.see(Observation::StateRefused { from });
        }
    }

    /// A replica that executes has got the state after entry `index` from others, since it lacks entries that they do
    /// not have any more. It ends its workers; [`Replica::replace_state`] continues as soon as they have ended.
    fn retire(&mut self, index: u64, state: PackedState) {
        let head = match state::head(state.clone()) {
            Ok(head) => head,
            Err(why) => return self.core.env.stop_with(Err(ServeError::BadState(why))),
        };
        // The engine may need another checkpoint by now; then it requests that one, and the transfer begins again.
        if !self.core.order.orderer.installed(index, head.order) {
            return;
        }
        self.core.env.world.say(format_args!(
            "this replica lacked entries of the log that the others do not have any more. It takes the state after \
                entry {index} in place of its own; clients that waited for replies are disconnected"
        ));
        self.core.clients.give_up_owed();
        // Nor do the positions come that these wait for.
        self.core.env.hooks.at(FaultPoint::TurnsSkipped);
        self.core.calls.skip_positions();
        self.agreement.retired();
        self.core.executor.retire(state, &self.core.env.lockstep);
    }

    /// Puts a state in place once the workers that ran on the one before have ended.
    pub(super) fn replace_state(&mut self) {
        let Some(packed) = self.core.executor.take_retired() else { return };
        let Some(service) = &mut self.core.executor.service else { return };
        self.core.executor.watchdog_view.begin_or_end_work();
        let loaded = state::load::<S>(service, packed);
        self.core.executor.watchdog_view.begin_or_end_work();
        match loaded {
            Ok((head, dispatcher)) => self.start_execution(dispatcher, &head, true),
            Err(why) => self.core.env.stop_with(Err(ServeError::BadState(why))),
        }
    }
}
