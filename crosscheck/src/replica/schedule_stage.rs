//! Order → Schedule: delivered batches become jobs with footprints, counted alike at every replica.

use std::sync::Arc;

use bytes::Bytes;
use order::{Batch, Delivered, OrderEngine};
use schedule::Footprint;

use super::Replica;
use super::pending::{PendingReply, Recipient};
use super::solo::Slice;
use crate::hooks::Hooks;
use crate::job::{InFlight, Job, ResultSlot, Work};
use crate::ordered::Control;
use crate::service::{Service, declared};
use crate::world::{Observation, World};
use crate::{limits, state};

impl<S: Service, E: OrderEngine, W: World> Replica<S, E, W> {
    /// Executes what the log has, as far as the workers have room.
    pub(super) fn execute(&mut self) {
        self.take_deliveries();
        let Some(execution) = &mut self.execution else { return };
        let is_full = execution.in_flight() >= limits::ENTRIES_IN_EXECUTION;
        let mut reports = std::mem::take(&mut self.reports);
        let (slice, time) = execution.run_here(&mut reports, || self.world.stopwatch());
        self.is_slow = time > limits::SOLO_SHORT;
        self.is_busy = slice == Slice::More || (is_full && !reports.is_empty());
        reports.drain(..).for_each(|report| self.on_report(report));
        self.reports = reports;
    }

    /// Takes batches from the log as far as the workers have room.
    fn take_deliveries(&mut self) {
        while self
            .execution
            .as_ref()
            .is_some_and(|execution| execution.in_flight() < limits::ENTRIES_IN_EXECUTION)
        {
            let Some(delivered) = self.orderer.poll_delivery() else { return };
            if self.hooks.skips(&delivered, self.tally.executed) {
                continue;
            }
            self.deliver(&delivered);
        }
    }

    fn deliver(&mut self, delivered: &Delivered) {
        let mine = !delivered.tags.is_empty();
        let owners = delivered.tags.iter().map(|tag| self.pending.take(*tag)).collect();
        let owners: Vec<Recipient> = match owners {
            Ok(owners) => owners,
            Err(what) => return self.replace(what),
        };
        let order_state = self.orderer.export_state();
        let Some(execution) = &mut self.execution else { return };
        let batch = execution.next_batch;
        self.hooks.on_batch(batch);
        self.group.on_delivered(delivered.index, batch);
        let newest =
            (delivered.index == self.orderer.standing().last_index).then_some(delivered.batch.time_us);
        self.world.see(Observation::Delivered { batch, requests: &delivered.batch });
        execution.next_batch += 1;
        let Batch { time_us, origin, .. } = delivered.batch;
        let in_flight = InFlight::new(batch, time_us, origin, delivered.batch.len());
        let mut requests = Vec::with_capacity(delivered.batch.len());
        let mut owed = Vec::with_capacity(owners.len());
        let (mut wants_checkpoint, mut is_long) = (false, false);
        for (number, request) in delivered.batch.requests().enumerate() {
            let mut asked = request.checksum;
            let mut request = self.hooks.on_request(batch, request);
            let (mut work, mut footprint) = execution.decode(&request);
            if matches!(work, Work::Unsound)
                && let Some(again) = delivered.batch.requests().nth(number)
            {
                (asked, request) = (again.checksum, again);
                (work, footprint) = execution.decode_again(&request, &delivered.batch);
            }
            let footprint = self.hooks.on_footprint(footprint, execution.locks());
            wants_checkpoint |= matches!(&work, Work::Control(Control::Checkpoint));
            is_long |= matches!(&work, Work::Control(control) if control.is_long(self.settings.me));
            let result = ResultSlot {
                batch: in_flight.clone(),
                request: number as u16,
                mine,
                of_client: !Control::is_control(&request.bytes),
                checksum: asked,
                position: 0,
                time_us: 0,
            };
            let owner = owners.get(number).copied();
            owed.extend(owner.map(|owner| PendingReply { owner, asked }));
            let stream = owner.as_ref().and_then(Recipient::stream);
            requests.push(schedule::Work {
                request: Job { work, ordered: request.bytes, result: Some(result) },
                footprint,
                stream,
            });
        }
        if wants_checkpoint {
            // The checkpoint is the state after the whole batch: it runs behind it, alone.
            let head = state::CheckpointHead { index: delivered.index, batch, order: order_state };
            let job = Job { work: Work::Checkpoint(Arc::new(head)), ordered: Bytes::new(), result: None };
            requests.push(schedule::Work { request: job, footprint: Footprint::all(), stream: None });
        }
        if mine {
            self.owed.insert(batch, owed);
        }
        let entry = Arc::new(schedule::Entry {
            index: batch,
            time_us,
            seed: delivered.batch.seed,
            drain: delivered.batch.drain,
            requests,
        });
        execution.append(delivered.index, entry, is_long);
        self.pulse.execute(execution.oldest());
        if let Some(time_us) = newest {
            self.mind_ordered_time(time_us);
        }
    }

    /// Who is owed the reply at `place`; asked once per request.
    pub(super) fn owed_at(&mut self, place: vote::Place) -> PendingReply {
        let Some(owed) = self.owed.get_mut(&place.batch) else { return PendingReply::NOTHING };
        owed.get_mut(usize::from(place.request))
            .map_or(PendingReply::NOTHING, |owed| std::mem::replace(owed, PendingReply::NOTHING))
    }

    /// Forgets batches below `batch`: all their replies have left or never will.
    pub(super) fn settle_owed(&mut self) {
        while let Some(first) = self.owed.first_entry() {
            if first.get().iter().any(|owed| owed.owner != Recipient::Nobody) {
                return;
            }
            first.remove();
        }
    }
}

/// Decodes one ordered request and its footprint: pure, so every replica comes to the same.
pub(super) fn decode<S: Service>(
    service: &S,
    locks: u32,
    request: &order::Request,
) -> (Work<S::Request>, Footprint) {
    if !request.is_sound() {
        return (Work::Unsound, Footprint::new());
    }
    let ordered: &Bytes = &request.bytes;
    if Control::is_control(ordered) {
        return match Control::decode(ordered) {
            Some(control) => {
                let footprint = control_footprint(&control, locks);
                (Work::Control(control), footprint)
            }
            None => (Work::Unsound, Footprint::new()),
        };
    }
    match service.decode(ordered) {
        Ok(request) => {
            let footprint = declared(service, &request);
            (Work::Service(request), footprint)
        }
        Err(_) => (Work::Unsound, Footprint::new()),
    }
}

fn control_footprint(control: &Control, locks: u32) -> Footprint {
    let within =
        |homes: &[u32]| -> Footprint { homes.iter().copied().filter(|home| *home < locks).collect() };
    match control {
        Control::Recover(recover) => within(&recover.homes()),
        Control::Noop { home, .. } | Control::Scrub { home } => within(&[*home]),
        Control::Digest { .. } => Footprint::all(),
        Control::Recheck { objects, .. } => {
            within(&objects.iter().map(|(home, _)| *home).collect::<Vec<_>>())
        }
        Control::Checkpoint => Footprint::new(),
    }
}
