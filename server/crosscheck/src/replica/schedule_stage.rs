//! Order → Schedule: delivered batches become jobs with footprints and with numbers that are equal at every replica.

use std::sync::Arc;

use order::{Batch, Delivered};
use schedule::Footprint;

use super::clocks::Timekeeper;
use super::core::{Core, started_replies};
use super::environment::Environment;
use super::execution::Execution;
use super::group::Group;
use super::order_stage::OrderStage;
use super::pending::PendingReply;
use super::rows::BatchRows;
use super::{acting, copies, departures, moving, sizing};
use crate::Corrupted;
use crate::hooks::{FaultPoint, Hooks};
use crate::job::{Job, Work};
use crate::ordered::Control;
use crate::running::RunningBatch;
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
        let running = RunningBatch::new(batch, time_us, origin, delivered.batch.len());
        let mut rows = BatchRows::new(running, delivered.batch.len());
        let mut owed = Vec::with_capacity(owners.len());
        let (mut checkpoint, mut controls) = (None, Controls::default());
        for (number, request) in delivered.batch.requests().enumerate() {
            let position = execution.next_position() + number as u64;
            let row = rows.add((delivered, number, request), (mine, position), execution, &mut self.env);
            match &row.request.work {
                Work::Control(control @ (Control::CopyPart { .. } | Control::CopyWanted)) => {
                    row.request.work = copies::delivered(
                        (control.clone(), time_us),
                        execution,
                        (&mut self.copies, &mut self.transfer),
                        (&mut self.order, &mut self.env),
                    );
                }
                Work::Control(Control::Checkpoint { session, limit }) => {
                    checkpoint = Some((*session, *limit))
                }
                Work::Control(Control::ActAs { .. } | Control::Set { .. }) => {
                    controls.wanting.push((number, delivered, number));
                }
                Work::Control(Control::Move { .. }) => controls.moves.push((delivered, number)),
                Work::Control(Control::Size(_)) => controls.sizes.push((delivered, number)),
                Work::Control(Control::Gone { .. }) => controls.gone.push(number),
                Work::Control(Control::Answered { digests }) => controls.answered.extend_from_slice(digests),
                _ => {}
            }
            if let (Some(owner), Some(place)) = (owners.get(number), &row.request.place) {
                owed.push(PendingReply { owner: *owner, request_checksum: place.checksum });
                row.stream = owner.stream();
            }
        }
        if !rows.batch.awaits(delivered.batch.len()) {
            return self.env.replace(Corrupted::Results);
        }
        let stages = (&mut self.order, &mut self.group, &mut self.time);
        if !take_effect(&controls, delivered, (&mut rows, execution), stages, &mut self.env) {
            return;
        }
        if let Some((session, limit)) = checkpoint {
            // The checkpoint is the state after the whole batch: it runs alone, after the batch.
            let order = self.order.orderer.state().clone();
            let head = Arc::new(state::CheckpointHead { index: delivered.index, batch, order });
            let job = Job::unordered(self.copies.checkpoint_delivered(session, limit, head));
            rows.add_unordered(job, Footprint::all());
        }
        if mine {
            self.clients.owe(batch, owed);
        }
        let entry = Arc::new(schedule::Entry {
            index: batch,
            time_us,
            seed: delivered.batch.seed,
            drain: delivered.batch.drain,
            rows: rows.rows,
        });
        execution.append(delivered.index, entry, rows.is_long);
        self.executor.watchdog_view.execute(execution.oldest());
        let (replies, around) = started_replies(self);
        replies.on_answered(origin, &controls.answered, around);
        if let Some(time_us) = newest {
            let _ = self.time.check_ordered_time(time_us, &mut self.order, &mut self.env);
        }
    }
}

/// Requests of the pipeline in a delivered batch that change what the replicas know of the group, by their numbers.
#[derive(Default)]
struct Controls<'a> {
    moves: Vec<(&'a Delivered, usize)>,
    sizes: Vec<(&'a Delivered, usize)>,
    wanting: Vec<(usize, &'a Delivered, usize)>,
    answered: Vec<u128>,
    gone: Vec<usize>,
}

/// Carries these requests of what was delivered out. False if this replica ends.
#[inline]
fn take_effect<S: Service, W: World>(
    Controls { moves, sizes, wanting, gone, answered: _ }: &Controls<'_>,
    batch: &Delivered,
    (rows, execution): (&mut BatchRows<S::Request>, &mut Execution<S>),
    (order, group, time): (&mut OrderStage, &mut Group, &mut Timekeeper),
    env: &mut Environment<W>,
) -> bool {
    let needed = group.faults() + 1;
    let number = rows.batch.batch;
    let goes_on = sizing::delivered(sizes, number, (&mut *order, group, time), env)
        && moving::delivered(moves, needed, order, env)
        && acting::delivered(&mut rows.rows, (wanting, needed), execution, (order, env));
    let ended = departures::delivered((batch, gone), needed, execution, (order, group, env));
    ended.into_iter().for_each(|(job, footprint)| rows.add_unordered(job, footprint));
    goes_on && env.outcome().is_none()
}
