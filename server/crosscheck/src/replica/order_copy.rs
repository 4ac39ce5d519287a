//! What the stages of a replica do for a copy of its state: a leader orders the parts, and what workers have packed
//! goes on to the receivers and the disk.

use object::{CopiedPart, RegionId};

use super::copies::CopyEnd;
use super::core::Core;
use crate::checkpoint::CheckpointHead;
use crate::ordered::Control;
use crate::packed_state::PackedState;
use crate::service::Service;
use crate::transfer::CopyRoom;
use crate::worker::Report;
use crate::world::World;

impl<S: Service, W: World> Core<S, W> {
    /// A leader orders what is due of a copy that a replica needs.
    pub(super) fn order_copy(&mut self) {
        let now_us = self.time.listened_us();
        let Some(execution) = &self.executor.running else { return };
        let wanted = self.transfer.take_wanted_copy();
        let engine_status = self.order.orderer.engine_status();
        if !engine_status.is_leader {
            return self.copies.forget_ordering();
        }
        // With a disk a copy is of use without a receiver.
        let is_on_disk = self.env.settings.durability.is_disk();
        let room = |session| {
            let room = self.transfer.donor.room(session, now_us);
            let is_ahead = room.is_full && (room.has_receiver || !is_on_disk);
            CopyRoom { is_full: is_ahead || self.transfer.disk.is_behind(), ..room }
        };
        if let Some(extent) = wanted {
            self.copies.want(extent, (engine_status.last_index, now_us), room);
        }
        if let Some(control) = self.copies.next_control(execution.locks(), now_us, room) {
            if let Control::Checkpoint { .. } = control {
                self.transfer.on_checkpoint_ordered();
            }
            self.order.submit_control(&control);
        }
    }

    /// A part of a copy was packed here, or too much of it is left.
    pub(super) fn on_copied(&mut self, report: Report) {
        let now_us = self.env.world.now_us();
        let Some(execution) = &self.executor.running else { return };
        match report {
            Report::CopyPart { session, number, part, took } => {
                // In a simulation, no time that was measured may decide anything.
                let took = self.env.world.measured(took);
                self.copies.on_part((session, number), part, (took, now_us), execution.locks());
                if let Some((session, pieces)) = self.copies.take_pieces() {
                    self.transfer.add_to_copy(session, pieces, &mut self.env);
                }
            }
            Report::TooMuchLeft { session } => {
                self.transfer.forget_requested();
                self.copies.on_too_much(session, now_us);
            }
            _ => {}
        }
    }

    /// The last part of a copy was packed here, which ends with `packed`; none if batches of it are rolled back.
    pub(super) fn on_cut(
        &mut self,
        (session, head): (u64, &CheckpointHead),
        rest: &[(RegionId, CopiedPart)],
        packed: Option<PackedState>,
    ) {
        if self.executor.running.is_some() {
            let end = packed.map(|packed| CopyEnd { batch: head.batch, index: head.index, packed });
            self.copies.on_cut(session, rest, end);
        }
    }

    /// Once per tick: frees a copy that no leader finishes.
    pub(super) fn tend_copies(&mut self) {
        if let Some(execution) = &self.executor.running
            && let Some(session) = self.copies.free_abandoned(self.env.world.now_us(), &execution.copy)
        {
            self.transfer.abandon_copy(session);
        }
    }
}
