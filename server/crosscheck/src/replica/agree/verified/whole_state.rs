//! A replica whose state is wrong, and which cannot be repaired by object, takes the whole state of the others in
//! place.
//!
//! Its verifier and its connections stay: with the process, the verifier's memory would be lost, and two such losses of
//! three at once end the group. The state comes as it does to a replica that joins (`state_transfer.rs`): a checkpoint
//! of a stable batch, which f+1 others offer alike. A boundary puts it behind the locks, and batches run from there on.
//! Until then no batch runs here, and none is folded. What had become stable before has left, or still does.
//!
//! Which tokens the executor may send then: see `server/verify/src/executor/incarnation.rs`.
//!
//! One of two without a third verifier cannot do that: no batch becomes stable without its token. It ends its process
//! instead, which lets the other one go on alone, and joins it.

use execute::Speculation;
use order::{FrameKind, PrimaryView};
use verify::{ExecutorEvent, Reason, VerifierEvent};

use super::taking::{TakingState, TakingStep};
use super::{Speculator, Verified, takes_states};
use crate::boundary::InstallingState;
use crate::hooks::{FaultPoint, Hooks};
use crate::packed_state::PackedState;
use crate::replica::agree::NotProven;
use crate::service::Service;
use crate::state::{Base, StateProof};
use crate::transfer::Message;
use crate::world::{Observation, World};
use crate::{ReplaceReason, ServeError, Stop, limits, state};

impl Verified {
    /// The own state is of no use any more.
    pub(super) fn give_up_state(&mut self, is_wrong: bool) {
        let view = self.rolling_back.take().and_then(|rolling_back| rolling_back.view);
        let taking = TakingState { step: TakingStep::Wanted, is_wrong, view };
        self.taking.get_or_insert(taking).is_wrong |= is_wrong;
        self.repairing = None;
        self.answer = None;
        self.speculation = None;
        self.parts.clear();
    }

    /// Whether it takes the state of the others in place. It executes nothing until that is there.
    pub(super) fn is_taking_state(&self) -> bool {
        self.taking.is_some()
    }

    /// A view begins. Whether this replica follows it only once it has the state.
    pub(super) fn begins_later(&mut self, view: PrimaryView) -> bool {
        self.taking.as_mut().map(|taking| taking.view = Some(view)).is_some()
    }

    /// What a replica without a state of use waits for.
    pub(super) fn awaited_state(&self) -> Option<&'static str> {
        self.taking.as_ref().map(|taking| match taking.is_wrong {
            true => "for the whole state of the others, because its own is wrong",
            false => "for the whole state of the others, because it is too far behind",
        })
    }
}

/// What a whole state from the others takes the place of.
pub(super) struct WholeState<'s, 'r, S: Service, W: World>(&'s mut Speculator<'r, S, W>);

impl<'r, S: Service, W: World> Speculator<'r, S, W> {
    /// A whole state from the others, in place of the own one.
    pub(super) fn whole_state(&mut self) -> WholeState<'_, 'r, S, W> {
        WholeState(self)
    }
}

impl<S: Service, W: World> WholeState<'_, '_, S, W> {
    /// This replica lags too far, or cannot go back: it takes the whole state, in place if that is possible.
    pub(super) fn take(&mut self, otherwise: ReplaceReason) {
        if !takes_states(&self.0.core.env.settings) || self.0.core.executor.running.is_none() {
            return self.0.core.env.stop_with(Ok(Stop::Replace(otherwise)));
        }
        self.0.stage.give_up_state(!matches!(otherwise, ReplaceReason::TooFarBehind));
    }

    /// Asks for the state, if that was not done.
    pub(super) fn ask(&mut self) {
        let Some(taking) = &mut self.0.stage.taking else { return };
        if !matches!(taking.step, TakingStep::Wanted) {
            return;
        }
        taking.step = TakingStep::Asked;
        let why = match taking.is_wrong {
            true => "this replica's state is wrong, and cannot be repaired by object",
            false => "this replica is too far behind to run what it lacks",
        };
        let stable = self.0.stage.stable();
        let taken = &mut self.0.stage.past.taken;
        taken.in_a_row = if taken.batch == stable && stable > 0 { taken.in_a_row + 1 } else { 1 };
        if taken.in_a_row > limits::REPAIRS_GIVEN_UP {
            return self.0.core.env.stop_with(Ok(Stop::Replace(ReplaceReason::RepairsMissing)));
        }
        self.0.core.env.world.say(format_args!(
            "{why}: it takes the state of the others, after batch {stable} or a later one"
        ));
        self.0.core.order.orderer.want_state_after(stable);
        self.0.checkpoint().give_up_copy();
        self.0.core.transfer.prepare(self.0.stage.stable_order.index + 1, &mut self.0.core.env);
        // The others know from this that they must not give up theirs.
        let at_least = self.0.stage.stable_order.index + 1;
        let ask = Message::AskState { at_least, copy: 0, known: 0, taken: 0 }.encode();
        let peers: Vec<u8> = self.0.core.env.peers.connected().collect();
        for peer in peers.into_iter().filter(|peer| usize::from(*peer) < self.0.core.env.settings.executors())
        {
            self.0.core.env.peers.send(peer, FrameKind::Transfer, &[&ask]);
        }
        let leads = self.0.core.order.orderer.engine_status().is_leader;
        if leads {
            // A primary that executes nothing numbers few batches.
            self.0.on_verifier_event(VerifierEvent::Suspect(Reason::Late));
        }
    }

    /// Compares a state after entry `index` with its proof, without its objects. If it came from one replica alone, a
    /// quorum of verifiers must be known here to have recorded its version.
    pub(super) fn check(
        &self,
        index: u64,
        (head, dispatcher): &Base<S>,
        proof: &StateProof,
    ) -> Result<(), NotProven> {
        if head.index != index || head.order.index != index || !proof.fits(head, dispatcher) {
            return Err(NotProven::Wrong("its position is not the one that was agreed on".into()));
        }
        let (version, stage) = (proof.version(head.batch), &self.0.stage);
        let was_recorded = || stage.executor.is_agreed(version) || stage.recorded.0.contains(&version);
        match self.0.core.transfer.arrived_from() {
            Some(_) if !was_recorded() => Err(NotProven::Unrecorded),
            _ => Ok(()),
        }
    }

    /// The state has come.
    pub(super) fn on_arrived(&mut self, state: PackedState) {
        if let Some(taking) = self.0.stage.taking.as_mut().filter(|taking| taking.is_asked()) {
            taking.step = TakingStep::Arrived(state);
            self.install();
        }
    }

    /// Puts the state in place that has come, once no boundary has the batches.
    pub(super) fn install(&mut self) {
        let stage = &mut *self.0.stage;
        let Some(taking) = stage.taking.as_mut().filter(|_| !stage.is_lent) else { return };
        let (proof, packed) = match std::mem::replace(&mut taking.step, TakingStep::Asked) {
            TakingStep::Arrived(state) => match state::split_proof(state) {
                Ok(split) => split,
                Err(why) => return self.0.core.env.stop_with(Err(ServeError::BadState(why))),
            },
            before => {
                taking.step = before;
                return;
            }
        };
        let Some(execution) = &mut self.0.core.executor.running else { return };
        let ((head, dispatcher), regions) = match state::open(&*execution.service, packed) {
            Ok(opened) => opened,
            // f+1 replicas have sent the same bytes.
            Err(why) => return self.0.core.env.stop_with(Err(ServeError::BadState(why))),
        };
        let stable = stage.executor.stable().number;
        if head.batch < stable {
            // More has become stable here meanwhile.
            return self.0.core.order.orderer.want_state_after(stable);
        }
        execution.continue_at(&dispatcher, InstallingState { batch: head.batch, proof, regions });
        taking.step = TakingStep::Installs(Box::new(head));
    }

    /// The state is in place: this replica goes on from there.
    pub(super) fn on_installed(&mut self, state: Result<Box<Speculation>, String>) {
        let Some(TakingState { step: TakingStep::Installs(head), is_wrong, view }) =
            self.0.stage.taking.take()
        else {
            return;
        };
        let speculation = match state {
            Ok(speculation) => speculation,
            Err(why) => {
                // It is asked for again a few times: what one replica has may be corrupted, and others have it.
                let from =
                    self.0.core.transfer.refuse(&mut self.0.core.order, &self.0.core.env, (None, true));
                self.0.core.env.world.see(Observation::StateRefused { from });
                self.0
                    .core
                    .env
                    .world
                    .say(format_args!("the state of the others could not be put in place: {why}"));
                return self.0.stage.taking = Some(TakingState { step: TakingStep::Wanted, is_wrong, view });
            }
        };
        let stable = speculation.stable();
        let stage = &mut *self.0.stage;
        stage.unstable.clear();
        stage.parts.clear();
        // First everything that is not stable is rolled back: then what the state counts is reported as skipped.
        let before = std::mem::replace(&mut stage.stable_order, head.order.clone());
        self.0.core.order.orderer.rewind(before);
        self.0.core.order.orderer.rewind(head.order.clone());
        self.0.core.act_as_ordered();
        self.0.core.env.world.see(Observation::Installed {
            version: stable,
            order: &head.order,
            in_place: true,
        });
        stage.stable_parts = speculation.parts();
        stage.speculation = Some(*speculation);
        stage.past.taken.batch = stable.number;
        self.0.core.env.hooks.at(FaultPoint::TurnsSkipped);
        self.0.core.calls.skip_positions();
        // What others have executed meanwhile may have answered clients here.
        self.0.core.clients.give_up_waiting();
        self.0.core.env.tally.executed = stable.number;
        self.0.core.env.tally.repairs += u64::from(is_wrong);
        self.0.core.env.tally.own_faults += u64::from(is_wrong);
        self.0.core.env.tally.states_taken += 1;
        self.0.core.env.world.say(format_args!(
            "this replica goes on with the state of the others after batch {}",
            stable.number
        ));
        if let Some(view) = view {
            stage.view = view.number - 1;
            // It may have begun before the batch of the state.
            let next = view.next.max(stable.number + 1);
            self.0.core.order.orderer.begin_view(PrimaryView { next, ..view });
        }
        self.0.on_executor_event(ExecutorEvent::Installed(stable));
        self.0.repair().answer_next();
    }
}
