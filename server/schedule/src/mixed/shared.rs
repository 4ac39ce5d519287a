//! What the workers of mixed batches share: boundaries, and the schedule's part of the versions that can be rolled
//! back.

use std::collections::VecDeque;
use std::sync::Arc;

use wire::mix;

use super::gate::{Gate, Wanted};
use super::planned::{Begun, Planned};
use crate::entry::{Entry, Internal, Origin};
use crate::footprint::Footprint;
use crate::predict::Predictor;
use crate::start::Started;
use crate::state::DispatcherState;
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::timers::PendingTimers;
use crate::turn::EntryEnd;

/// Shared by the workers.
pub(super) struct SharedSchedule<R> {
    pub gate: Gate,
    /// Batches that have begun, and those of them that have ended or were dropped.
    begun: AtomicU64,
    ended: AtomicU64,
    /// Batches with a smaller number are passed over.
    dropped: AtomicU64,
    boundaries: Mutex<VecDeque<Boundary<R>>>,
    versions: Mutex<Versions<R>>,
}

/// A request of the runtime that has the state alone, and no position.
struct Boundary<R> {
    request: Arc<Internal<R>>,
    /// After which batch the schedule continues: those after it are dropped, also one that runs.
    back_to: Option<u64>,
    /// The schedule's part of that version, if it comes from elsewhere.
    replaces: Option<Arc<ScheduleState<R>>>,
}

impl<R> Boundary<R> {
    fn of(request: R, back_to: Option<u64>, replaces: Option<Arc<ScheduleState<R>>>) -> Self {
        let internal = Internal {
            request,
            footprint: Footprint::all(),
            seed: 0,
            origin: Origin::Entry { index: back_to.unwrap_or(0), request: 0 },
        };
        Boundary { request: Arc::new(internal), back_to, replaces }
    }
}

/// The schedule's part of the newest version, and of those that it may have to return to.
struct Versions<R> {
    newest: Arc<ScheduleState<R>>,
    /// What the requests of the batch that runs have started.
    started: Vec<Started<R>>,
    /// By batch; the oldest is the last that became stable.
    kept: VecDeque<(u64, Arc<ScheduleState<R>>)>,
}

/// The digest that [`EntryEnd::schedule`] has of a state.
pub(crate) fn digest_of<R>(state: &DispatcherState<R>) -> u64 {
    ScheduleState::of(state).digest()
}

/// The schedule's part of the state after a batch.
struct ScheduleState<R> {
    /// Position that is given next.
    position: u64,
    time_us: u64,
    /// Started by requests, and not run yet: they run first in the next batch.
    queue: Vec<Arc<Internal<R>>>,
    timers: PendingTimers<R>,
}

impl<R> SharedSchedule<R> {
    pub fn new(state: &DispatcherState<R>) -> Self {
        let newest = Arc::new(ScheduleState::of(state));
        let kept = VecDeque::from([(state.entry_index.saturating_sub(1), Arc::clone(&newest))]);
        SharedSchedule {
            gate: Gate::new(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            boundaries: Mutex::new(VecDeque::new()),
            versions: Mutex::new(Versions { newest, started: Vec::new(), kept }),
        }
    }

    /// Whether the batch is passed over.
    pub fn is_dropped(&self, batch: &Planned<R>) -> bool {
        batch.number < self.dropped.load(Ordering::Acquire)
    }

    /// Begins a batch, after all before; the caller has entered the gate.
    pub fn begin(&self, batch: &Planned<R>) {
        self.begun.fetch_add(1, Ordering::AcqRel);
        let Entry { time_us, rows, .. } = &*batch.entry;
        let mut versions = self.versions.lock();
        let state = Arc::make_mut(&mut versions.newest);
        state.time_us = (*time_us).max(state.time_us.saturating_add(1));
        while let Some(timer) = state.timers.take_due(state.time_us) {
            state.queue.push(timer);
        }
        let started = std::mem::take(&mut state.queue);
        let begun = Begun { position: state.position, time_us: state.time_us, started };
        state.position += (begun.started.len() + rows.len()) as u64;
        drop(versions);
        if !batch.begin(begun) {
            self.end(batch);
        }
    }

    /// A request of the batch that runs has started others.
    pub fn collect(&self, started: Started<R>) {
        self.versions.lock().started.push(started);
    }

    /// The last request of a batch is resolved.
    pub fn end(&self, batch: &Planned<R>) -> EntryEnd {
        let index = batch.entry.index;
        let mut versions = self.versions.lock();
        let started = std::mem::take(&mut versions.started);
        Arc::make_mut(&mut versions.newest).start(started);
        let newest = Arc::clone(&versions.newest);
        let digest = newest.digest();
        versions.kept.push_back((index, newest));
        drop(versions);
        self.ended.fetch_add(1, Ordering::AcqRel);
        batch.end();
        EntryEnd { index, number: batch.number, schedule: digest }
    }

    /// The state after the running request, which is the last one of its batch and runs alone.
    pub fn state_after(&self, batch: &Planned<R>) -> DispatcherState<R> {
        let versions = self.versions.lock();
        let mut after = ScheduleState::clone(&versions.newest);
        after.start(versions.started.clone());
        after.saved(batch.entry.index)
    }

    /// The ordered time at which the next batch has something to run that requests have started: at once, or when the
    /// first timer is due; the end of time if there is nothing.
    pub fn first_deadline(&self) -> u64 {
        let ScheduleState { time_us, queue, timers, .. } = &*self.versions.lock().newest;
        if queue.is_empty() { timers.first_deadline() } else { time_us.saturating_add(1) }
    }

    /// The state that a boundary between two batches finds.
    pub fn state_between(&self) -> DispatcherState<R> {
        let versions = self.versions.lock();
        let batch = versions.kept.back().map_or(0, |(index, _)| *index);
        ScheduleState::clone(&versions.newest).saved(batch)
    }

    /// Versions before the one after `batch` are not returned to.
    pub fn forget(&self, batch: u64) {
        let mut versions = self.versions.lock();
        while versions.kept.get(1).is_some_and(|(next, _)| *next <= batch) {
            versions.kept.pop_front();
        }
    }

    /// Wants a boundary; of one that goes back, batches with numbers below `appended` are dropped.
    pub fn want(&self, request: R, back_to: Option<u64>, appended: u64) {
        self.push(Boundary::of(request, back_to, None), appended);
    }

    /// Wants a boundary that puts another state in the place of this one; batches below `appended` are dropped.
    pub fn want_state(&self, request: R, state: &DispatcherState<R>, appended: u64) {
        let replaces = Some(Arc::new(ScheduleState::of(state)));
        self.push(Boundary::of(request, Some(state.entry_index.saturating_sub(1)), replaces), appended);
    }

    fn push(&self, boundary: Boundary<R>, appended: u64) {
        let rolls_back = boundary.back_to.is_some();
        let mut boundaries = self.boundaries.lock();
        boundaries.push_back(boundary);
        if rolls_back {
            self.dropped.store(appended, Ordering::Release);
        }
        self.gate.want(Wanted { at_once: rolls_back, between: !rolls_back });
    }

    /// A boundary whose time has come.
    pub fn take_boundary(&self) -> Option<NextBoundary<R>> {
        let wanted = self.gate.wanted_alone()?;
        let is_between = || self.begun.load(Ordering::Acquire) == self.ended.load(Ordering::Acquire);
        if !(wanted.at_once || is_between()) || !self.gate.enter_alone(wanted) {
            return None;
        }
        // What runs now is this caller alone: nothing begins or ends meanwhile.
        let is_between = is_between();
        let next = {
            let mut boundaries = self.boundaries.lock();
            let at = boundaries.iter().position(|one| is_between || one.back_to.is_some());
            at.and_then(|at| boundaries.remove(at))
        };
        let Some(Boundary { request, back_to, replaces }) = next else {
            self.boundary_done();
            return None;
        };
        if let Some(batch) = back_to
            && self.roll_back(batch, replaces).is_err()
        {
            return Some(NextBoundary::Unknown);
        }
        let versions = self.versions.lock();
        let ScheduleState { position, time_us, .. } = *versions.newest;
        let batch = versions.kept.back().map_or(0, |(index, _)| *index);
        Some(NextBoundary::Run { request, position, time_us, batch })
    }

    /// The boundary has run. Returns whether others may wait for that.
    pub fn boundary_done(&self) {
        let boundaries = self.boundaries.lock();
        let at_once = boundaries.iter().any(|one| one.back_to.is_some());
        let between = boundaries.iter().any(|one| one.back_to.is_none());
        self.gate.still_wanted(Wanted { at_once, between });
        drop(boundaries);
        self.gate.leave();
    }

    fn roll_back(&self, batch: u64, replaces: Option<Arc<ScheduleState<R>>>) -> Result<(), Unknown> {
        let mut versions = self.versions.lock();
        versions.started.clear();
        if let Some(state) = replaces {
            versions.kept = VecDeque::from([(batch, state)]);
        }
        while versions.kept.pop_back_if(|(index, _)| *index > batch).is_some() {}
        let (index, state) = versions.kept.back().ok_or(Unknown)?;
        if *index != batch {
            return Err(Unknown);
        }
        versions.newest = Arc::clone(state);
        self.ended.store(self.begun.load(Ordering::Acquire), Ordering::Release);
        Ok(())
    }
}

/// A boundary that was taken.
pub(super) enum NextBoundary<R> {
    /// The caller has entered the gate alone, and calls [`SharedSchedule::boundary_done`] behind it.
    Run {
        /// Its request.
        request: Arc<Internal<R>>,
        /// The position that is given next.
        position: u64,
        /// Ordered time of the state that it has.
        time_us: u64,
        /// Index of the last batch that this state has seen, if the boundary came between two.
        batch: u64,
    },
    /// There is no version to roll back to: its number or the versions are corrupted.
    Unknown,
}

/// There is no version after that batch.
#[derive(Debug)]
struct Unknown;

impl<R> ScheduleState<R> {
    fn of(state: &DispatcherState<R>) -> Self {
        ScheduleState {
            position: state.position,
            time_us: state.time_us,
            queue: state.internal.clone(),
            timers: PendingTimers::of(&state.timers),
        }
    }

    /// The state after batch `index`, to be kept.
    fn saved(self, index: u64) -> DispatcherState<R> {
        let mut state = DispatcherState::genesis();
        state.position = self.position;
        state.entry_index = index + 1;
        state.time_us = self.time_us;
        state.timers = self.timers.save();
        state.internal = self.queue;
        state.predictor = Predictor::new();
        state
    }

    /// Adds what the requests of a batch have started, in the order of their positions.
    fn start(&mut self, started: Vec<Started<R>>) {
        let mut spawned = Vec::new();
        for (requests, timers) in started {
            spawned.extend(requests);
            self.timers.set(&timers);
        }
        spawned.sort_by_key(|request: &Arc<Internal<R>>| request.origin);
        self.queue.extend(spawned);
    }

    /// Equal where the states are. What a request is to do follows from the request that started it.
    fn digest(&self) -> u64 {
        let mut digest = mix(self.position) ^ self.time_us;
        let mut add = |deadline: Option<u64>, request: &Internal<R>| {
            if let Origin::Spawned { position, number } | Origin::Timer { position, number } = request.origin
            {
                let values = [position, u64::from(number), request.seed];
                for value in deadline.into_iter().chain(values) {
                    digest = mix(digest ^ value);
                }
            }
        };
        self.queue.iter().for_each(|request| add(None, request));
        self.timers.iter().for_each(|(deadline, timer)| add(Some(deadline), timer));
        digest
    }
}

impl<R> Clone for ScheduleState<R> {
    fn clone(&self) -> Self {
        ScheduleState { queue: self.queue.clone(), timers: self.timers.clone(), ..*self }
    }
}
