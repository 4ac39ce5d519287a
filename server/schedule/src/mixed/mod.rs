//! Mixed batches: requests that do not conflict run beside each other in any order, batch after batch.
//!
//! Eve (OSDI 2012, section 4.1). A batch comes with its plan ([`ParallelBatches`](crate::ParallelBatches)): parallel
//! batches that run one after the other. Any worker takes the next request of the open one; who resolves its last one
//! opens the next. A request takes the locks of its footprint first, in ascending order. A conflict that the plan has
//! overlooked therefore costs the determinism of the order of two requests, and nothing else; replicas compare their
//! states afterwards. A lock outside the footprint gives [`Retry`](crate::Retry), and the request runs again at once,
//! at its position: ids and random numbers must be equal at all replicas.
//!
//! What can be rolled back stays behind its locks until then: [`Cx::release_early`](crate::Cx::release_early) has no
//! effect here. Requests that a request starts run first in a later batch, one at a time, in the order of their
//! positions.
//!
//! A *boundary* is a request of the runtime that has the whole state alone: between two batches, or at once to go back
//! to an earlier version ([`Schedule::roll_back`](crate::Schedule::go_back)).

mod gate;
#[cfg(all(test, loom))]
mod model;
mod planned;
mod shared;

use std::any::Any;
use std::sync::Arc;

use crate::MAX_ATTEMPTS;
use crate::cell::Slot;
use crate::chain::{ChainReader, Writer};
use crate::current::CurrentRequest;
use crate::cx::{Pass, Run, RunKind};
use crate::entry::{Entry, Internal, Source};
use crate::footprint::Footprint;
use crate::log::{FootprintOf, Worker};
use crate::mixer::ParallelBatches;
use crate::predict::Predictor;
use crate::start::Starts;
use crate::state::{Again, DispatcherState};
use crate::turn::{Drive, EntryEnd, Outcome, Scheduler, Step, Turn};
use crate::turn_state::{TurnState, Want};
use gate::Entering;
use planned::{Planned, PlannedRequest, Resolved};
pub(crate) use shared::digest_of;
use shared::{NextBoundary, SharedSchedule};

/// The appending side.
pub(crate) struct Plans<R> {
    log: Writer<Arc<Planned<R>>>,
    shared: Arc<SharedSchedule<R>>,
    appended: u64,
}

impl<R> Plans<R> {
    /// Of a schedule that continues at this state.
    pub fn new(state: &DispatcherState<R>) -> Self {
        Plans { log: Writer::new(), shared: Arc::new(SharedSchedule::new(state)), appended: 0 }
    }

    /// Appends a batch, and returns the number of those appended before.
    pub fn push(&mut self, entry: Arc<Entry<R>>, plan: ParallelBatches) -> u64 {
        let number = self.appended;
        self.log.push(Arc::new(Planned::new(entry, number, plan)));
        self.appended += 1;
        number
    }

    /// Wants a boundary; if it goes back, every batch appended so far is dropped or rolled back by it.
    pub fn want(&self, request: R, back_to: Option<u64>) {
        self.shared.want(request, back_to, self.appended);
    }

    /// See [`SharedSchedule::first_deadline`].
    pub fn first_deadline(&self) -> u64 {
        self.shared.first_deadline()
    }

    /// Wants a boundary that puts another state in the place of this one, of which every batch appended so far is
    /// dropped.
    pub fn want_state(&self, request: R, state: &DispatcherState<R>) {
        self.shared.want_state(request, state, self.appended);
    }

    /// No boundary goes back before this batch any more.
    pub fn forget(&self, batch: u64) {
        self.shared.forget(batch);
    }
}

struct MixedWorker<R> {
    turns: Arc<TurnState>,
    shared: Arc<SharedSchedule<R>>,
    log: ChainReader<Arc<Planned<R>>>,
    batch: Option<Arc<Planned<R>>>,
    run: Run,
    starts: Starts<R>,
    footprint: FootprintOf<R>,
    /// Slots of the run whose locks are held: so many from the first one.
    held: usize,
    /// It missed a lock and runs next.
    again: Option<Again<R>>,
    current: CurrentRequest<R>,
    is_boundary: bool,
    locks: u32,
    /// Steps that the others had taken when this worker found nothing to do.
    seen: u64,
    ended: bool,
}

/// A worker's next step.
enum Found {
    Run,
    Nothing,
    Closed,
}

/// The workers of a schedule of mixed batches.
pub(crate) fn workers<R: Any + Send + Sync>(
    turns: &Arc<TurnState>,
    footprint: &FootprintOf<R>,
    locks: u32,
    plans: &Plans<R>,
    predictor: &Predictor,
) -> Vec<Worker<R>> {
    let make = |worker| {
        Box::new(MixedWorker {
            turns: Arc::clone(turns),
            shared: Arc::clone(&plans.shared),
            log: plans.log.reader(),
            batch: None,
            run: Run::new(Arc::clone(turns), worker),
            starts: Starts::new(),
            footprint: Arc::clone(footprint),
            held: 0,
            again: None,
            current: CurrentRequest::new(predictor.clone()),
            is_boundary: false,
            locks,
            seen: 0,
            ended: false,
        }) as Worker<R>
    };
    (0..turns.workers()).map(make).collect()
}

impl<R: Any + Send + Sync> MixedWorker<R> {
    fn advance(&mut self) -> Found {
        self.turns.may_pause(self.run.worker);
        if self.turns.is_aborted() || self.ended {
            self.ended = true;
            return Found::Closed;
        }
        self.seen = self.turns.steps();
        let closed = self.turns.is_closed();
        let found = match self.take_boundary() {
            Found::Nothing => self.take_request(closed),
            found => found,
        };
        match found {
            Found::Run if self.is_boundary => self.take_everything(),
            Found::Run if !self.acquire() => {
                self.ended = true;
                return Found::Closed;
            }
            _ => {}
        }
        if let Found::Run = found {
            self.turns.begin(self.run.worker, self.run.position);
        }
        self.ended |= matches!(found, Found::Closed);
        found
    }

    fn take_boundary(&mut self) -> Found {
        match self.shared.take_boundary() {
            None => Found::Nothing,
            Some(NextBoundary::Unknown) => {
                self.turns.abort_corrupted();
                Found::Closed
            }
            Some(NextBoundary::Run { request, position, time_us, batch }) => {
                self.again = None;
                self.is_boundary = true;
                self.run.position = position;
                self.current.begin_stored(&mut self.run, first_attempt(request, time_us, batch));
                Found::Run
            }
        }
    }

    fn take_request(&mut self, closed: bool) -> Found {
        loop {
            let Some(batch) = self.batch.take().or_else(|| self.log.next()) else {
                return if closed { Found::Closed } else { Found::Nothing };
            };
            if self.shared.is_dropped(&batch) {
                self.again = None;
            } else if !batch.has_ended() {
                self.batch = Some(Arc::clone(&batch));
                if batch.has_begun() {
                    return self.take_from(&batch);
                } else if !self.begin(&batch) {
                    return Found::Nothing;
                }
            }
        }
    }

    /// Begins the batch; false if another worker does so or a boundary comes first.
    fn begin(&self, batch: &Planned<R>) -> bool {
        if !self.shared.gate.enter(Entering::Batch) {
            return false;
        }
        // It may have been dropped before this worker entered; nothing is dropped while it is inside.
        let is_dropped = self.shared.is_dropped(batch);
        let begins = !is_dropped && batch.claim_begin();
        if begins {
            self.shared.begin(batch);
            self.turns.step();
        }
        self.leave();
        begins || is_dropped
    }

    fn take_from(&mut self, batch: &Planned<R>) -> Found {
        if !self.shared.gate.enter(Entering::Request) {
            return Found::Nothing;
        }
        if self.shared.is_dropped(batch) {
            // The boundary that drops it comes next.
            self.leave();
            return Found::Nothing;
        }
        if let Some(again) = self.again.take() {
            self.current.begin_stored(&mut self.run, again);
            return Found::Run;
        }
        let Some((position, placed)) = batch.claim().and_then(|place| batch.placed(place)) else {
            self.leave();
            return Found::Nothing;
        };
        self.run.position = position;
        match placed {
            PlannedRequest::Own(number) => {
                self.current.begin_open(&mut self.run, &batch.entry, number, batch.time_us());
            }
            PlannedRequest::Started(internal) => {
                let first = first_attempt(internal, batch.time_us(), batch.entry.index);
                self.current.begin_stored(&mut self.run, first);
            }
        }
        Found::Run
    }

    /// This worker runs nothing any more; a boundary may have waited for that.
    fn leave(&self) {
        if self.shared.gate.leave() {
            self.turns.step();
        }
    }

    /// Waits for the locks of the footprint, in ascending order; false after an abort.
    fn acquire(&mut self) -> bool {
        let footprint = self.current.forecast(open_entry(&self.batch), self.run.attempt);
        if self.run.attempt >= MAX_ATTEMPTS || !footprint.fits(self.locks) {
            self.take_everything();
        } else {
            self.reset(RunKind::Ready);
            self.run.slots.extend(footprint.iter().map(|(lock, shared)| Slot::new(lock, shared, 0)));
        }
        for at in 0..self.run.slots.len() {
            let (lock, shared) = (self.run.slots[at].lock, self.run.slots[at].shared);
            while !self.turns.try_lock(lock, shared) {
                if !self.turns.wait(self.run.worker, Want::Lock { lock, shared }) {
                    return false;
                }
            }
            self.held = at + 1;
            self.turns.may_pause(self.run.worker);
        }
        true
    }

    /// The slots of every lock, for a request that is alone or takes all of them.
    fn take_everything(&mut self) {
        self.current.drop_forecast();
        self.reset(RunKind::Alone);
        self.run.slots.extend((0..self.locks).map(|lock| Slot::new(lock, false, 0)));
    }

    fn reset(&mut self, kind: RunKind) {
        self.run.kind = kind;
        self.run.released.set(false);
        self.run.rng_calls.set(0);
        // What is passed early could not be rolled back.
        self.run.pass.set(Pass::Counted);
        self.run.slots.clear();
    }

    fn release(&mut self) {
        self.run.slots.iter().for_each(Slot::set_passed);
        let held = std::mem::take(&mut self.held);
        self.run.slots[..held].iter().for_each(|slot| self.turns.unlock(slot.lock, slot.shared));
        if held > 0 {
            self.turns.wake();
        }
    }

    /// A request of the batch is resolved, or runs again. Returns what is known at the end of the batch.
    fn end_request(&mut self, outcome: Outcome) -> Option<EntryEnd> {
        match outcome {
            Outcome::Done => {
                self.current.learn(open_entry(&self.batch), &self.run.slots);
                if !self.starts.is_empty() {
                    self.shared.collect(self.starts.take(&self.run, &*self.footprint));
                }
            }
            Outcome::Mispredicted(retry) if self.run.kind != RunKind::Alone => {
                self.again = self.current.next_attempt(open_entry(&self.batch), &self.run, retry);
                return None;
            }
            Outcome::Mispredicted(_) | Outcome::Abandoned => {}
        }
        let batch = self.batch.as_ref()?;
        let ended = match batch.resolve() {
            Resolved::OneOfMany => return None,
            Resolved::OpenedNext => None,
            Resolved::LastOfAll => Some(self.shared.end(batch)),
        };
        self.turns.step();
        ended
    }
}

impl<R: Any + Send + Sync> Scheduler<R> for MixedWorker<R> {
    fn next(&mut self) -> Step<'_, R> {
        match self.advance() {
            Found::Run => Step::Run(Turn::new(self)),
            Found::Nothing => Step::Idle,
            Found::Closed => Step::Closed,
        }
    }

    fn wait(&mut self) {
        self.turns.wait(self.run.worker, Want::Step { seen: self.seen });
    }

    fn next_blocking(&mut self) -> Option<Turn<'_, R>> {
        loop {
            match self.advance() {
                Found::Run => return Some(Turn::new(self)),
                Found::Nothing => self.wait(),
                Found::Closed => return None,
            }
        }
    }
}

impl<R: Any + Send + Sync> Drive<R> for MixedWorker<R> {
    #[cfg(feature = "inject")]
    fn lose_count(&mut self) {
        self.run.position += 1;
    }

    fn run(&self) -> &Run {
        &self.run
    }

    fn starts(&self) -> &Starts<R> {
        &self.starts
    }

    fn request(&self) -> &R {
        self.current.request(open_entry(&self.batch))
    }

    fn footprint(&self) -> &Footprint {
        self.current.footprint(open_entry(&self.batch))
    }

    fn resolve(&mut self, outcome: Outcome) -> Option<EntryEnd> {
        self.release();
        self.turns.may_pause(self.run.worker);
        let is_boundary = std::mem::take(&mut self.is_boundary);
        let ended = if is_boundary { None } else { self.end_request(outcome) };
        self.starts.forget();
        self.turns.end(self.run.worker);
        if is_boundary {
            self.shared.boundary_done();
            self.turns.step();
        } else {
            self.leave();
        }
        ended
    }

    fn state(&self) -> Option<DispatcherState<R>> {
        if self.is_boundary {
            return Some(self.shared.state_between());
        }
        let batch = self.batch.as_ref().filter(|_| self.run.kind == RunKind::Alone)?;
        Some(self.shared.state_after(batch))
    }
}

impl<R> Drop for MixedWorker<R> {
    /// A worker that ends before its log would leave the others waiting for ever.
    fn drop(&mut self) {
        if !self.ended {
            self.turns.abort();
        }
    }
}

/// The entry of the batch that a worker stands in.
fn open_entry<R>(batch: &Option<Arc<Planned<R>>>) -> Option<&Arc<Entry<R>>> {
    batch.as_ref().map(|batch| &batch.entry)
}

fn first_attempt<R>(internal: Arc<Internal<R>>, time_us: u64, entry_index: u64) -> Again<R> {
    Again {
        footprint: internal.footprint,
        attempt: 0,
        time_us,
        seed: internal.seed,
        entry_index,
        source: Source::Internal(internal),
    }
}
