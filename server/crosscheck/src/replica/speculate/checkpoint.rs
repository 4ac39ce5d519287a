//! The state after a batch, packed region by region while later batches run: a replica that joins costs the others no
//! pause as long as packing everything takes.
//!
//! A job behind the batch packs what is in no region. Then boundaries pack some regions each, as they were after the
//! batch: objects that later batches have changed are put back from their before-images (`execute::Speculation`). The
//! result is, to the byte, what packing everything behind the batch gives, so replicas that offer it need not agree on
//! how it was made. Where a before-image is not to be had (the store that an object was in is gone too, or too much has
//! changed meanwhile), the next checkpoint is packed at once.

use std::sync::Arc;

use object::RegionId;

use super::{RollingBack, Speculator};
use crate::boundary::{BoundaryWork, PackingRegions};
use crate::checkpoint::CheckpointHead;
use crate::limits;
use crate::packed_state::{PackWriter, PackedState};
use crate::service::Service;
use crate::state::StateProof;
use crate::world::World;

/// A checkpoint of which parts are packed.
#[derive(Debug)]
pub(super) struct OpenCheckpoint {
    head: Arc<CheckpointHead>,
    /// What is packed.
    packed: PackWriter,
    /// The next region.
    next: RegionId,
    /// What proves the version of its batch, once that is stable.
    proof: Option<StateProof>,
    /// Not before this time, in microseconds.
    pauses_until_us: u64,
}

impl OpenCheckpoint {
    /// Whether its batch is a later one.
    pub(super) fn is_after(&self, batch: u64) -> bool {
        self.head.batch > batch
    }
}

/// What a checkpoint in parts acts on.
pub(in crate::replica) struct CheckpointStage<'s, 'r, S: Service, W: World>(&'s mut Speculator<'r, S, W>);

impl<'r, S: Service, W: World> Speculator<'r, S, W> {
    /// The checkpoint that is made in parts.
    pub(in crate::replica) fn checkpoint(&mut self) -> CheckpointStage<'_, 'r, S, W> {
        CheckpointStage(self)
    }
}

impl<S: Service, W: World> CheckpointStage<'_, '_, S, W> {
    /// The batch has run, and this is what is in no region. While another checkpoint is made, there is no further one:
    /// who needs it asks again.
    pub(in crate::replica) fn begin(&mut self, head: Arc<CheckpointHead>, begun: PackWriter) {
        let stage = &mut *self.0.stage;
        if stage.checkpoint.is_some() || stage.is_rolling_back() || stage.takes_state() {
            return;
        }
        stage.checkpoint =
            Some(OpenCheckpoint { head, packed: begun, next: 0, proof: None, pauses_until_us: 0 });
    }

    /// Packs the next regions, if nothing else has the state.
    pub(in crate::replica) fn advance(&mut self) {
        let stage = &mut *self.0.stage;
        let Some(checkpoint) = &stage.checkpoint else {
            stage.speculation.iter_mut().for_each(|speculation| speculation.pin(None));
            return;
        };
        let is_whole = stage.is_whole();
        let Some(speculation) = stage.speculation.as_mut().filter(|_| is_whole) else { return };
        let batch = checkpoint.head.batch;
        // From its own batch on, every before-image is needed.
        speculation.pin(Some(batch));
        if speculation.version().number < batch || self.0.env.world.now_us() < checkpoint.pauses_until_us {
            return;
        }
        let from = checkpoint.next;
        let running = stage.running();
        self.0.repair().lend(|speculation| {
            BoundaryWork::PackRegions(Box::new(PackingRegions { speculation, running, batch, from }))
        });
    }

    /// A boundary has packed regions up to `next`, which was known or not.
    pub(super) fn on_packed(&mut self, regions: Vec<Vec<u8>>, next: RegionId, is_known: bool) {
        let Speculator { stage, env, executor, order, transfer, .. } = &mut *self.0;
        let Some(checkpoint) = &mut stage.checkpoint else { return };
        regions.iter().for_each(|region| checkpoint.packed.put_block(region));
        checkpoint.next = next;
        checkpoint.pauses_until_us = env.world.now_us() + limits::PACKING_PAUSE.as_micros() as u64;
        let region_ids = executor.running.as_ref().map_or(0, |execution| execution.locks());
        if is_known && next < region_ids {
            return;
        }
        stage.past.packs_at_once |= !is_known;
        let Some(OpenCheckpoint { head, packed, proof, .. }) = stage.checkpoint.take() else { return };
        if is_known {
            transfer.on_checkpoint_of(&head, packed.finish(), proof, order, env);
        } else {
            transfer.forget_requested();
        }
    }

    /// The version after a batch is stable.
    pub(super) fn note_stable(&mut self, batch: u64, proof: StateProof) {
        let of_batch = self.0.stage.checkpoint.as_mut();
        if let Some(checkpoint) = of_batch.filter(|checkpoint| checkpoint.head.batch == batch) {
            checkpoint.proof = Some(proof);
        }
    }

    /// Packs the stable state without ordering that, if another replica needs it and nothing becomes stable before it
    /// has got it. Batches that are not stable are rolled back first; they run again afterwards.
    pub(in crate::replica) fn pack_stable(&mut self) {
        let stage = &mut *self.0.stage;
        let Some(execution) = &mut self.0.executor.running else { return };
        if !self.0.transfer.wants_unordered {
            return;
        }
        let stable = stage.stable();
        // What it has may not be what was agreed on: batches have to come to repair that.
        let is_wrong =
            stage.taking.is_some() || stage.repairing.is_some() || stage.executor.wanted().is_some();
        let is_under_way = stage.checkpoint.as_ref().is_some_and(|checkpoint| !checkpoint.is_after(stable));
        // Who waits for it asks again, and is offered it.
        let is_there = self.0.transfer.marks().0 == Some(stage.stable_order.index);
        if is_wrong || is_under_way || is_there {
            self.0.transfer.wants_unordered = false;
            return;
        }
        if stage.rolling_back.is_some() || stage.speculation.is_none() {
            return;
        }
        if stage.unstable.is_empty() && execution.is_idle() {
            self.0.transfer.wants_unordered = false;
            let order = stage.stable_order.clone();
            execution.pack_now(CheckpointHead { index: order.index, batch: stable, order });
        } else if !stage.unstable.is_empty() {
            self.0.roll_back(RollingBack { to: stable, view: None });
        }
    }

    /// A whole state was packed at once.
    pub(in crate::replica) fn on_packed_at_once(&mut self, head: &CheckpointHead, packed: PackedState) {
        let Speculator { stage, env, order, transfer, .. } = &mut *self.0;
        let stable = stage.stable();
        let proof = Some(stage.stable_proof()).filter(|_| head.batch == stable);
        transfer.on_checkpoint_of(head, packed, proof, order, env);
    }
}
