//! Order → Schedule: delivered batches become jobs with footprints and with numbers that are equal at every replica.

use std::sync::Arc;

use bytes::Bytes;
use order::{Batch, Delivered};
use schedule::Footprint;
use vote::Place;

use super::copies;
use super::core::Core;
use super::environment::Environment;
use super::execution::Execution;
use super::pending::{PendingReply, Recipient};
use crate::evidence;
use crate::hooks::Hooks;
use crate::job::{InFlight, Job, ResultSlot, Work};
use crate::ordered::Control;
use crate::service::{Service, declared};
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
        self.env.hooks.on_batch(batch);
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

/// A request of a delivered batch.
pub(super) struct Decoded<R> {
    /// Its checksum, as its client's replica recorded it.
    pub(super) request_checksum: u32,
    pub(super) request: order::Request,
    pub(super) work: Work<R>,
    pub(super) footprint: Footprint,
}

/// Decodes the request at `place`, which is the one with number `at` of what was delivered. A request that was
/// corrupted is copied from there once more.
pub(super) fn decode_delivered<S: Service, W: World>(
    execution: &Execution<S>,
    delivered: &Delivered,
    (place, at, request): (Place, usize, order::Request),
    env: &mut Environment<W>,
) -> Decoded<S::Request> {
    let mut request_checksum = request.checksum;
    let mut request = env.hooks.on_request(place.batch, request);
    let (mut work, mut footprint) = execution.decode(&request);
    if matches!(work, Work::Damaged)
        && let Some(again) = delivered.batch.requests().nth(at)
    {
        (request_checksum, request) = (again.checksum, again);
        (work, footprint) = execution.decode_again(&request, &delivered.batch);
    }
    footprint = env.hooks.on_footprint(footprint, execution.locks());
    if env.settings.mode.twice && execution.decode(&request).1 != footprint {
        // With wrong locks every run would ask for the right ones, and the request would run again at another position.
        // A third decoding decides: a fault hits one of three.
        (work, footprint) = execution.decode(&request);
        env.tally.failed_checks += 1;
        env.keep_evidence(evidence::decoded_wrong(env.settings.me, place));
    }
    Decoded { request_checksum, request, work, footprint }
}

/// Decodes one ordered request and its footprint: a pure function, so that every replica gets the same result.
pub(super) fn decode<S: Service>(
    service: &S,
    locks: u32,
    request: &order::Request,
) -> (Work<S::Request>, Footprint) {
    if !request.is_intact() {
        return (Work::Damaged, Footprint::new());
    }
    let ordered: &Bytes = &request.bytes;
    if Control::is_control(ordered) {
        return match Control::decode(ordered) {
            Some(control) => {
                let footprint = control_footprint(&control, locks);
                (Work::Control(control), footprint)
            }
            None => (Work::Damaged, Footprint::new()),
        };
    }
    match service.decode(ordered) {
        Ok(request) => {
            let footprint = declared(service, &request);
            (Work::Service(request), footprint)
        }
        Err(_) => (Work::Damaged, Footprint::new()),
    }
}

fn control_footprint(control: &Control, locks: u32) -> Footprint {
    let within = |region_ids: &[u32]| -> Footprint {
        region_ids.iter().copied().filter(|region_id| *region_id < locks).collect()
    };
    match control {
        Control::Recover(recover) => within(&recover.region_ids()),
        Control::Noop { region_id, .. }
        | Control::Scrub { region_id }
        | Control::Digest { region_id, .. } => within(&[*region_id]),
        Control::Recheck { objects, .. } => {
            within(&objects.iter().map(|(region_id, _)| *region_id).collect::<Vec<_>>())
        }
        Control::CopyPart { region_id, count, .. } => {
            within(&(*region_id..region_id.saturating_add(u32::from(*count))).collect::<Vec<_>>())
        }
        Control::Checkpoint { .. } | Control::CopyWanted => Footprint::new(),
    }
}
