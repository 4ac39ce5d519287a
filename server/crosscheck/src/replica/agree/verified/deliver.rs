//! Order → Schedule: the parts of a primary's batch become one entry of the schedule, with a plan.

use std::sync::Arc;

use execute::TokenParts;
use order::Delivered;
use schedule::{Entry, Footprint, Keys, Mixed, Mixer, ParallelBatches};
use vote::Place;

use super::{Speculator, UnstableBatch, Verified};
use crate::hooks::{self, FaultPoint, Hooks, Rule};
use crate::job::{Job, Work};
use crate::limits;
use crate::ordered::Control;
use crate::replica::copies::{self, Copies};
use crate::replica::core::started_replies;
use crate::replica::environment::Environment;
use crate::replica::execution::Execution;
use crate::replica::group::Group;
use crate::replica::order_stage::OrderStage;
use crate::replica::rows::BatchRows;
use crate::replica::state_transfer::StateTransfer;
use crate::replica::{acting, departures, moving};
use crate::running::RunningBatch;
use crate::service::Service;
use crate::state;
use crate::world::{Observation, World};

/// A batch of a primary while it gets its rows.
struct MixedRows<R> {
    rows: BatchRows<R>,
    /// What the mixer gets of each request.
    keys: Vec<(Keys, Option<u32>)>,
    /// Numbers of this replica's own requests, with the tags of the replies' owners.
    tags: Vec<(u16, u64)>,
    /// Parts of a copy of the state, and its checkpoint: packed behind the batch.
    copied: Vec<(Control, Footprint)>,
    /// Rows that say what the group is to act as: the part, and the number there.
    wanting: Vec<(usize, usize, usize)>,
    /// Those that say where a replica is to be.
    moves: Vec<(usize, usize)>,
    /// Those that say which replies requests have made that the service has started itself.
    answered: Vec<(u8, Vec<u128>)>,
    /// Those that hold a process of a replica for gone.
    gone: Vec<(usize, usize)>,
}

impl<S: Service, W: World> Speculator<'_, S, W> {
    /// A part of the next batch. With the last one the batch is scheduled.
    pub(super) fn deliver_part(&mut self, delivered: Delivered) {
        let stage = &mut *self.stage;
        let ends = delivered.ends;
        stage.parts.push(delivered);
        if ends {
            self.deliver_batch();
        }
    }

    fn deliver_batch(&mut self) {
        let stage = &mut *self.stage;
        let Some(execution) = &mut self.core.executor.running else { return };
        let parts = std::mem::take(&mut stage.parts);
        let Some(last) = parts.last() else { return };
        let (number, index) = (last.number, last.index);
        if number != execution.next_batch {
            // The order counts batches as this replica does, or one of the two is corrupted.
            return self.core.env.replace(crate::Corrupted::Schedule);
        }
        execution.next_batch += 1;
        self.core.env.hooks.at(FaultPoint::Batch(number));
        self.core.group.on_delivered(index, number);
        let newest =
            (index == self.core.order.orderer.engine_status().last_index).then_some(last.batch.time_us);
        let (time_us, seed, drain) = (last.batch.time_us, last.batch.seed, last.batch.drain);
        // What is run again fits the version that the others have agreed on, in whatever order it ran there.
        let mut sequential = last.sequential || stage.is_compared();
        self.core.env.hooks.at(FaultPoint::Sequential(&mut sequential));
        let len = parts.iter().map(|part| part.batch.len()).sum();
        let running = RunningBatch::new(number, time_us, last.batch.origin, len);
        if let Some(speculation) = &mut stage.speculation {
            running.furnish(speculation.rooms(len));
        }
        let mut mixed = MixedRows::new(running.clone(), len);
        for (number, part) in parts.iter().enumerate() {
            mixed.add((number, part), execution, &mut self.core.env);
        }
        let of = (&mut self.core.order, &mut self.core.env);
        if !mixed.follow(&parts, self.core.group.faults() + 1, execution, of) {
            return;
        }
        if !running.awaits(len) {
            return self.core.env.replace(crate::Corrupted::Results);
        }
        let of = (&mut self.core.order, &mut self.core.group, &mut self.core.env);
        mixed.end_departed(&parts, execution, of);
        let order = self.core.order.orderer.state().clone();
        let head = state::CheckpointHead { index, batch: number, order: order.clone() };
        let (made, of) =
            ((&mut self.core.copies, &mut self.core.transfer), (&mut self.core.order, &mut self.core.env));
        push_copied(&mut mixed, &head, execution, made, of);
        if mixed.rows.rows.is_empty() {
            // Every part was a repeat. The number counts all the same.
            mixed.push(Job::nothing(), Footprint::new());
        }
        let plan = plan(&mut stage.mixer, &mixed.keys, sequential, &self.core.env.hooks);
        self.core.env.world.see(Observation::Speculated { batch: number, parts: &parts, order: &order });
        let results = (len == 0).then(Vec::new);
        let MixedRows { rows: BatchRows { rows, is_long, .. }, tags, answered, .. } = mixed;
        if stage.unstable.len() >= limits::UNSTABLE_BATCHES {
            stage.give_up_oldest(number, execution);
        }
        execution.unstable.push(running.clone());
        let entry = Arc::new(Entry { index: number, time_us, seed, drain, rows });
        let appended = execution.append_mixed(index, entry, (plan, is_long));
        stage.unstable.push_back(UnstableBatch {
            number,
            appended,
            running,
            order,
            tags,
            results,
            ended: None,
            started_replies: Vec::new(),
            damaged: Vec::new(),
            version: None,
            parts: TokenParts::default(),
        });
        self.core.executor.watchdog_view.execute(execution.oldest());
        for (origin, digests) in answered {
            let (replies, around) = started_replies(self.core);
            replies.on_answered(origin, &digests, around);
        }
        if let Some(time_us) = newest
            && self.core.time.check_ordered_time(time_us, &mut self.core.order, &mut self.core.env)
        {
            self.suspect_primary();
        }
    }
}

impl<R: Clone + Send + Sync + 'static> MixedRows<R> {
    /// No rows of `batch` yet, which has so many requests.
    fn new(batch: Arc<RunningBatch>, requests: usize) -> Self {
        MixedRows {
            rows: BatchRows::new(batch, requests),
            keys: Vec::with_capacity(requests + 1),
            tags: Vec::new(),
            copied: Vec::new(),
            wanting: Vec::new(),
            moves: Vec::new(),
            answered: Vec::new(),
            gone: Vec::new(),
        }
    }

    /// Adds the requests of one part.
    fn add<S: Service<Request = R>, W: World>(
        &mut self,
        (part_number, part): (usize, &Delivered),
        execution: &Execution<S>,
        env: &mut Environment<W>,
    ) {
        for (at, request) in part.batch.requests().enumerate() {
            let tag = part.tags.get(at).copied();
            let (number, stream) = (self.rows.rows.len() as u16, request.stream);
            let row = self.rows.add((part, at, request), (tag.is_some(), 0), execution, env);
            self.tags.extend(tag.map(|tag| (number, tag)));
            let mut keys = Keys::new();
            match &row.request.work {
                Work::Service(request) => execution.service.keys(request, &row.footprint, &mut keys),
                work => {
                    keys.of_footprint(&row.footprint);
                    match work {
                        Work::Control(control @ Control::CopyPart { .. }) => {
                            self.copied.push((control.clone(), row.footprint));
                        }
                        Work::Control(Control::ActAs { .. } | Control::Set { .. }) => {
                            self.wanting.push((usize::from(number), part_number, at));
                        }
                        Work::Control(Control::Move { .. }) => self.moves.push((part_number, at)),
                        Work::Control(Control::Gone { .. }) => self.gone.push((part_number, at)),
                        Work::Control(Control::Answered { digests }) => {
                            self.answered.push((part.batch.origin, digests.clone()));
                        }
                        Work::Control(control @ Control::Checkpoint { .. }) => {
                            self.copied.push((control.clone(), Footprint::all()));
                        }
                        _ => {}
                    }
                }
            }
            if !env.hooks.at(FaultPoint::Keys(Place::new(part.number, number))) {
                keys.clear();
            }
            let has_stream = stream != 0 && env.hooks.keeps(Rule::KeepsStreams);
            self.keys.push((keys, has_stream.then(|| of_origin(part.batch.origin, stream))));
        }
    }

    /// Follows what requests of these parts say that the group is to act as, and where replicas are.
    fn follow<S: Service<Request = R>, W: World>(
        &mut self,
        parts: &[Delivered],
        needed: usize,
        execution: &mut Execution<S>,
        (order, env): (&mut OrderStage, &mut Environment<W>),
    ) -> bool {
        let moves: Vec<_> = self.moves.iter().map(|(part, at)| (&parts[*part], *at)).collect();
        if !moving::delivered(&moves, needed, order, env) {
            return false;
        }
        let wanting: Vec<_> = self.wanting.iter().map(|(row, part, at)| (*row, &parts[*part], *at)).collect();
        acting::delivered(&mut self.rows.rows, (&wanting, needed), execution, (order, env))
    }

    /// Adds what the service does because processes of replicas have ended.
    fn end_departed<S: Service<Request = R>, W: World>(
        &mut self,
        parts: &[Delivered],
        execution: &Execution<S>,
        (order, group, env): (&mut OrderStage, &mut Group, &mut Environment<W>),
    ) {
        for (number, part) in parts.iter().enumerate() {
            let of_part = self.gone.iter().filter(|(of, _)| *of == number);
            let gone: Vec<usize> = of_part.map(|(_, at)| *at).collect();
            let stages = (&mut *order, &mut *group, &mut *env);
            let needed = stages.1.faults() + 1;
            let ended = departures::delivered((part, &gone), needed, execution, stages);
            ended.into_iter().for_each(|(job, footprint)| self.push(job, footprint));
        }
    }

    /// Adds a request of the pipeline itself, which runs behind all before it.
    fn push(&mut self, job: Job<R>, footprint: Footprint) {
        let mut keys = Keys::new();
        keys.alone();
        self.keys.push((keys, None));
        self.rows.add_unordered(job, footprint);
    }
}

/// Adds the parts of a copy of the state, and its checkpoint: they are packed behind the batch. A replica that takes no
/// part in the copy only takes their turns.
fn push_copied<S: Service, W: World>(
    mixed: &mut MixedRows<S::Request>,
    head: &state::CheckpointHead,
    execution: &Execution<S>,
    (copies, transfer): (&mut Copies, &mut StateTransfer),
    (order, env): (&mut OrderStage, &mut Environment<W>),
) {
    let time_us = mixed.rows.batch.time_us;
    for (control, footprint) in std::mem::take(&mut mixed.copied) {
        let work = match control {
            Control::Checkpoint { session, limit } => {
                copies.checkpoint_delivered(session, limit, Arc::new(head.clone()))
            }
            control => copies::delivered((control, time_us), execution, (copies, transfer), (order, env)),
        };
        mixed.push(Job::unordered(work), footprint);
    }
}

impl Verified {
    /// Only a replica that lags has so many unstable batches. It keeps their replies until it knows that they are
    /// agreed on. If they are not, it needs the state of another replica. What has not been folded is not given up: to
    /// go back, the workers need the version that the last folded batch left. Batch `next` is scheduled after this.
    fn give_up_oldest<S: Service>(&mut self, next: u64, execution: &mut Execution<S>) {
        if let Some(speculation) = &mut self.speculation {
            let given_up = last_to_give_up(next, speculation.version().number);
            speculation.agree(given_up);
            execution.agree(given_up);
        }
    }
}

/// The last batch that a replica which lags gives up to roll back, before it schedules batch `next`.
fn last_to_give_up(next: u64, folded: u64) -> u64 {
    next.saturating_sub(limits::UNSTABLE_BATCHES as u64).min(folded)
}

/// Connections of different replicas are different ones.
fn of_origin(origin: u8, stream: u32) -> u32 {
    u32::from(origin) << 28 | (stream & 0x0fff_ffff)
}

fn plan(
    mixer: &mut Mixer,
    keys: &[(Keys, Option<u32>)],
    sequential: bool,
    hooks: &hooks::Active,
) -> ParallelBatches {
    let mixed: Vec<Mixed<'_>> = keys.iter().map(|(keys, stream)| Mixed { keys, stream: *stream }).collect();
    let plan = mixer.mix(&mixed);
    let mut plan = if sequential { plan.sequential() } else { plan };
    hooks.at(FaultPoint::Plan(&mut plan));
    plan
}
