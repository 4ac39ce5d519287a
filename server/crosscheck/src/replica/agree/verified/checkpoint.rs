//! A checkpoint: a copy of the state that has come to its end (`replica/copies.rs`), or a state that is packed at once
//! because nothing can be ordered. It is offered with what proves its version.

use super::{RollingBack, Speculator};
use crate::checkpoint::CheckpointHead;
use crate::packed_state::PackedState;
use crate::replica::copies::WholeCopy;
use crate::replica::core::Core;
use crate::service::Service;
use crate::state::{self, StateProof};
use crate::world::World;

/// What a checkpoint acts on.
pub(super) struct CheckpointStage<'s, 'r, S: Service, W: World>(&'s mut Speculator<'r, S, W>);

impl<'r, S: Service, W: World> Speculator<'r, S, W> {
    /// The checkpoint that is made.
    pub(super) fn checkpoint(&mut self) -> CheckpointStage<'_, 'r, S, W> {
        CheckpointStage(self)
    }
}

impl<S: Service, W: World> CheckpointStage<'_, '_, S, W> {
    /// The version after a batch is stable. If a copy of the state ends there, it is whole.
    pub(super) fn on_stable(&mut self, batch: u64, proof: StateProof) {
        let Core { copies, executor, transfer, order, env, .. } = &mut *self.0.core;
        let Some(execution) = &executor.running else { return };
        if let Some(WholeCopy { copy, last }) = copies.on_stable(batch, false, &execution.copy) {
            transfer.end_copy(copy, state::with_proof(proof, last), order, env);
        }
    }

    /// A copy that is made here is of no use any more.
    pub(super) fn give_up_copy(&mut self) {
        let Core { copies, executor, transfer, .. } = &mut *self.0.core;
        let Some(execution) = &executor.running else { return };
        copies.give_up(&execution.copy).into_iter().for_each(|session| transfer.abandon_copy(session));
    }

    /// Packs the stable state without ordering that, if another replica needs it and nothing becomes stable before it
    /// has got it. Batches that are not stable are rolled back first; they run again afterwards.
    pub(super) fn pack_stable(&mut self) {
        let stage = &mut *self.0.stage;
        let Some(execution) = &mut self.0.core.executor.running else { return };
        if !self.0.core.transfer.wants_unordered {
            return;
        }
        let stable = stage.stable();
        // What it has may not be what was agreed on: batches have to come to repair that.
        let is_wrong =
            stage.taking.is_some() || stage.repairing.is_some() || stage.executor.wanted().is_some();
        // Who waits for it asks again, and is offered it.
        let is_there = self.0.core.transfer.marks().0 == Some(stage.stable_order.index);
        if is_wrong || is_there {
            self.0.core.transfer.wants_unordered = false;
            return;
        }
        if stage.rolling_back.is_some() || stage.speculation.is_none() {
            return;
        }
        if stage.unstable.is_empty() && execution.is_idle() {
            self.0.core.transfer.wants_unordered = false;
            let order = stage.stable_order.clone();
            execution.pack_now(CheckpointHead { index: order.index, batch: stable, order });
        } else if !stage.unstable.is_empty() {
            self.0.roll_back(RollingBack { to: stable, view: None });
        }
    }

    /// A whole state was packed at once.
    pub(super) fn on_packed_at_once(&mut self, head: &CheckpointHead, packed: PackedState) {
        let stage = &*self.0.stage;
        if head.batch != stage.stable() {
            return;
        }
        let proof = stage.stable_proof();
        self.give_up_copy();
        let Core { transfer, order, env, .. } = &mut *self.0.core;
        transfer.on_checkpoint(head, state::with_proof(proof, packed), order, env);
    }
}
