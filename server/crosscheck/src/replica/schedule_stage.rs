//! Order → Schedule: delivered batches become jobs with footprints and with numbers that are equal at every replica.

use std::sync::Arc;

use order::{Batch, Delivered};
use schedule::Footprint;
use vote::Place;

use super::copies;
use super::core::Core;
use super::decoded::{Decoded, decode_delivered};
use super::pending::{PendingReply, Recipient};
use crate::hooks::{FaultPoint, Hooks};
use crate::job::{InFlight, Job, ResultSlot, Work};
use crate::ordered::Control;
use crate::service::Service;
use crate::state;
use crate::world::{Observation, World};

impl<S: Service, W: World> Core<S, W> {
    /// Schedules the requests of a delivered batch.
    pub(super) fn deliver(&mut self, delivered: &Delivered) {
        let mine = !delivered.tags.is_empty();
        let owners = match self.order.recipients(&delivered.tags) {
            Ok(owners) => owners,
            Err(what) => return self.env.replace(what),
        };
        let Some(execution) = &mut self.executor.running else { return };
        let batch = execution.next_batch;
        self.env.hooks.at(FaultPoint::Batch(batch));
        self.group.on_delivered(delivered.index, batch);
        let newest = (delivered.index == self.order.orderer.engine_status().last_index)
            .then_some(delivered.batch.time_us);
        self.env.world.see(Observation::Delivered { batch, requests: &delivered.batch });
        execution.next_batch += 1;
        let Batch { time_us, origin, .. } = delivered.batch;
        let in_flight = InFlight::new(batch, time_us, origin, delivered.batch.len());
        let mut requests = Vec::with_capacity(delivered.batch.len());
        let mut owed = Vec::with_capacity(owners.len());
        let (mut checkpoint, mut is_long) = (None, false);
        for (number, request) in delivered.batch.requests().enumerate() {
            let place = Place::new(batch, number as u16);
            let Decoded { request_checksum, request, work, footprint } =
                decode_delivered(execution, delivered, (place, number, request), &mut self.env);
            let work = match work {
                Work::Control(control @ (Control::CopyPart { .. } | Control::CopyWanted)) => {
                    copies::delivered(
                        (control, time_us),
                        execution,
                        (&mut self.copies, &mut self.transfer),
                        (&mut self.order, &mut self.env),
                    )
                }
                work => work,
            };
            if let Work::Control(Control::Checkpoint { session, limit }) = &work {
                checkpoint = Some((*session, *limit));
            }
            is_long |= matches!(&work, Work::Control(control) if control.is_long(self.env.settings.me));
            let result = ResultSlot {
                batch: in_flight.clone(),
                request: number as u16,
                mine,
                of_client: !Control::is_control(&request.bytes),
                checksum: request_checksum,
                position: execution.next_position() + number as u64,
                time_us: 0,
            };
            let owner = owners.get(number).copied();
            owed.extend(owner.map(|owner| PendingReply { owner, request_checksum }));
            let stream = owner.as_ref().and_then(Recipient::stream);
            requests.push(schedule::Work {
                request: Job::new(work, request, Some(result)),
                footprint,
                stream,
            });
        }
        if let Some((session, limit)) = checkpoint {
            // The checkpoint is the state after the whole batch: it runs alone, after the batch.
            let order = self.order.orderer.export_state();
            let head = Arc::new(state::CheckpointHead { index: delivered.index, batch, order });
            let request = Job::unordered(self.copies.checkpoint_delivered(session, limit, head));
            requests.push(schedule::Work { request, footprint: Footprint::all(), stream: None });
        }
        if mine {
            self.clients.owe(batch, owed);
        }
        let entry = Arc::new(schedule::Entry {
            index: batch,
            time_us,
            seed: delivered.batch.seed,
            drain: delivered.batch.drain,
            requests,
        });
        execution.append(delivered.index, entry, is_long);
        self.executor.watchdog_view.execute(execution.oldest());
        if let Some(time_us) = newest {
            let _ = self.time.check_ordered_time(time_us, &mut self.order, &mut self.env);
        }
    }
}
