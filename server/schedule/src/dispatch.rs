//! The request that runs at each position: a function of the log and of the outcomes of earlier positions
//! (docs/determinism.md, section 3). Every worker evaluates it alone, for the whole log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::MAX_ATTEMPTS;
use crate::cell::Slot;
use crate::chain::{ChainReader, Writer};
use crate::cx::{Pass, Run, RunKind, Seed};
use crate::entry::{BETWEEN, Entry, Internal, Origin, Source};
use crate::footprint::Footprint;
use crate::log::{Config, LockRules};
use crate::predict::{Lesson, Predictor, lesson};
use crate::state::{Again, DispatcherState, Due};
use crate::timers::PendingTimers;
use crate::turn_state::{Tickets, TurnState, Want};

/// The dispatcher's answer to its worker.
pub(crate) enum Found {
    /// `Run` has been filled with a request of this worker.
    Mine,
    /// Nothing until this wish is fulfilled.
    Wait(Want),
    /// The log is closed and everything that was in it has run.
    End,
    /// This worker has lost count of positions: an outcome was passed over, and would never take effect.
    Corrupted,
}

/// A worker's dispatcher and the writing end of the list of its outcomes.
pub(crate) type Part<R> = (Dispatcher<R>, Writer<Arc<Due<R>>>);

/// One worker's evaluation of the dispatch function.
pub(crate) struct Dispatcher<R> {
    me: usize,
    workers: usize,
    lag: u64,
    locks: u32,
    /// Dispatched next; while a request of this worker runs, its position.
    pub position: u64,
    tickets: Tickets,
    feed: Feed<R>,
    /// Every position below is resolved and its outcome collected (as far as this worker has checked).
    resolved: u64,
    /// Nothing is dispatched before all positions below are resolved: an exclusive run is going on.
    hold: u64,
    /// Outcomes that take effect when the keyed position is dispatched.
    due: BTreeMap<u64, Arc<Due<R>>>,
    outcomes: Vec<ChainReader<Arc<Due<R>>>>,
    /// Positions without a request directly before this one.
    quiet: u64,
    /// An exclusive request of this worker that waits until all others are resolved.
    staged: Option<Picked<R>>,
    /// What is staged or runs has no position ([`BETWEEN`]).
    is_between: bool,
    /// The running request, unless it is the request `current_open` of the open entry.
    current: Option<Box<Again<R>>>,
    current_open: usize,
    /// The locks that kinds of requests took, by the outcomes up to position - lag.
    predictor: Predictor,
    /// The footprint of what runs, if `is_predicted`; otherwise the request has it.
    forecast: Footprint,
    is_predicted: bool,
    /// The running request has a kind.
    teaches: bool,
    heat: Vec<Heat>,
}

/// An outcome or an entry was passed over: this worker has lost count of positions.
struct Skipped;

/// The sources of requests in the order of their precedence, but for retries.
pub(crate) struct Feed<R> {
    log: ChainReader<Arc<Entry<R>>>,
    pub seen: u64,
    pub entry: Option<Arc<Entry<R>>>,
    pub next_request: usize,
    pub entry_index: u64,
    pub time_us: u64,
    draining: bool,
    pub internal: VecDeque<Arc<Internal<R>>>,
    pub timers: PendingTimers<R>,
    /// Entries with a smaller index were handled, or are part of the transferred state.
    next_index: u64,
    /// Where a transferred state continues within an entry.
    begun: Option<(u64, usize)>,
}

/// A request that was chosen for a position.
pub(crate) enum Picked<R> {
    /// A request of the open entry.
    Open(usize),
    /// Any other; rare, and large.
    Stored(Box<Again<R>>),
}

/// The answer of the sources at a position.
pub(crate) enum Offer<R> {
    Run(Picked<R>),
    /// A request without a position, to run before the next entry.
    BetweenEntries(Box<Again<R>>),
    /// Draining: an empty position.
    Empty,
    /// The log has no further entry yet.
    Nothing,
}

/// How often requests begin with a lock: one that is hot is spread over the workers.
#[derive(Clone, Copy, Default)]
struct Heat {
    window: u64,
    count: u64,
    hot: bool,
}

impl<R> Dispatcher<R> {
    /// One dispatcher per worker, and the writing ends of the lists of outcomes.
    pub fn all(
        config: Config,
        workers: usize,
        log: &Writer<Arc<Entry<R>>>,
        state: DispatcherState<R>,
    ) -> Vec<Part<R>> {
        let writers: Vec<Writer<Arc<Due<R>>>> = (0..workers).map(|_| Writer::new()).collect();
        let make = |me| Dispatcher {
            me,
            workers,
            lag: config.lag,
            locks: config.locks,
            position: state.position,
            tickets: Tickets::new(if workers > 1 { config.locks } else { 0 }),
            feed: Feed::new(log.reader(), &state),
            resolved: state.position,
            hold: 0,
            due: state.due.iter().map(|due| (due.position, Arc::clone(due))).collect(),
            outcomes: writers.iter().map(Writer::reader).collect(),
            quiet: 0,
            staged: None,
            is_between: false,
            current: None,
            current_open: 0,
            predictor: state.predictor.clone(),
            forecast: Footprint::new(),
            is_predicted: false,
            teaches: false,
            heat: vec![Heat::default(); if workers > 1 { config.locks as usize } else { 0 }],
        };
        let dispatchers: Vec<_> = (0..workers).map(make).collect();
        debug_assert!(config.mode != LockRules::Locks, "ordinary locks dispatch by themselves");
        dispatchers.into_iter().zip(writers).collect()
    }

    /// Goes through the positions until one is this worker's, and fills `run` with it.
    pub fn find(&mut self, turns: &TurnState, run: &mut Run) -> Found {
        loop {
            if let Some(picked) = self.staged.take() {
                if !self.is_resolved(turns, self.position) {
                    self.staged = Some(picked);
                    return Found::Wait(Want::Resolved { below: self.position });
                }
                self.begin(run, picked, RunKind::Alone);
                return Found::Mine;
            }
            let below = self.hold.max((self.position + 1).saturating_sub(self.lag));
            if !self.is_resolved(turns, below) {
                return Found::Wait(Want::Resolved { below });
            }
            let Ok(again) = self.absorb() else { return Found::Corrupted };
            let closed = turns.is_closed();
            match self.feed.offer(again, self.quiet >= self.lag) {
                Offer::Run(picked) => {
                    self.quiet = 0;
                    match self.assign(run, picked) {
                        Ok(true) => return Found::Mine,
                        Ok(false) => {}
                        Err(Skipped) => return Found::Corrupted,
                    }
                }
                // One worker runs it; nothing is appended meanwhile, so the others only wait.
                Offer::BetweenEntries(again) if self.me == 0 => {
                    (self.is_between, self.is_predicted, self.teaches) = (true, false, false);
                    self.staged = Some(Picked::Stored(again));
                }
                Offer::BetweenEntries(_) => {}
                Offer::Empty => self.skip_empty(turns),
                Offer::Nothing if !closed => {
                    if self.me == 0 {
                        turns.note_deadline(self.feed.timers.first_deadline());
                    }
                    return Found::Wait(Want::Appended { seen: self.feed.seen });
                }
                Offer::Nothing if self.quiet >= self.lag => return Found::End,
                Offer::Nothing => self.skip_empty(turns),
            }
        }
    }

    /// The request that `find` has filled in.
    pub fn request(&self) -> &R {
        match (&self.current, &self.feed.entry) {
            (Some(again), _) => again.source.request(),
            (None, Some(entry)) => &entry.rows[self.current_open].request,
            // panics: a reference has to be returned; the worker catches it and is replaced
            (None, None) => unreachable!("a request runs"),
        }
    }

    /// The request that `find` has filled in, as a copy that can be kept.
    pub fn source(&self) -> Source<R> {
        match (&self.current, &self.feed.entry) {
            (Some(again), _) => again.source.clone(),
            (None, Some(entry)) => Source::Entry(Arc::clone(entry), self.current_open as u32),
            // panics: a reference has to be returned; the worker catches it and is replaced
            (None, None) => unreachable!("a request runs"),
        }
    }

    /// The locks forecast for the running attempt.
    pub fn footprint(&self) -> &Footprint {
        match (&self.current, &self.feed.entry) {
            _ if self.is_predicted => &self.forecast,
            (Some(again), _) => &again.footprint,
            (None, Some(entry)) => &entry.rows[self.current_open].footprint,
            // panics: a reference has to be returned; the worker catches it and is replaced
            (None, None) => unreachable!("a request runs"),
        }
    }

    /// The lesson of the running request, if it has a kind and is done.
    #[inline]
    pub fn lesson(&self, slots: &[Slot]) -> Option<Lesson> {
        if self.teaches { lesson(self.source().declared(), slots) } else { None }
    }

    /// Position at which an outcome of the running request takes effect.
    pub fn due_position(&self) -> u64 {
        self.position + self.lag
    }

    /// The running request is resolved.
    pub fn step_over(&mut self) {
        self.position += u64::from(!std::mem::take(&mut self.is_between));
    }

    /// The state after the running request, which runs alone.
    pub fn state(&self) -> DispatcherState<R> {
        let mut state = DispatcherState::genesis();
        state.position = self.position + u64::from(!self.is_between);
        state.due = self.due.values().cloned().collect();
        state.predictor = self.predictor.clone();
        self.feed.save(&mut state);
        state
    }

    /// Whether all positions below are resolved; reads the other workers' progress only when it has to.
    #[inline]
    fn is_resolved(&mut self, turns: &TurnState, below: u64) -> bool {
        self.resolved >= below || {
            self.collect(turns);
            self.resolved >= below
        }
    }

    /// Reads the progress of the others and collects the outcomes up to there.
    #[cold]
    fn collect(&mut self, turns: &TurnState) {
        let mut resolved = self.position; // Own positions below have run: this worker goes through them in order.
        for (worker, outcomes) in self.outcomes.iter_mut().enumerate() {
            if worker != self.me {
                // Before the list: the outcomes that the watermark covers are then in it.
                resolved = resolved.min(turns.watermark(worker));
            }
            while let Some(due) = outcomes.next() {
                self.due.insert(due.position, due);
            }
        }
        self.resolved = self.resolved.max(resolved);
    }

    /// The outcome of position p-lag takes effect at p: its lesson is known, spawned requests are queued, a missed
    /// forecast runs again now.
    #[inline]
    fn absorb(&mut self) -> Result<Option<Again<R>>, Skipped> {
        match self.due.first_key_value() {
            Some((&position, _)) if position == self.position => Ok(self.absorb_due()),
            Some((&position, _)) if position < self.position => Err(Skipped),
            _ => Ok(None),
        }
    }

    #[cold]
    fn absorb_due(&mut self) -> Option<Again<R>> {
        let (_, due) = self.due.pop_first()?;
        due.lesson.iter().for_each(|lesson| self.predictor.learn(lesson));
        self.feed.internal.extend(due.spawned.iter().cloned());
        self.feed.timers.set(&due.timers);
        due.again.clone()
    }

    /// Issues the tickets of a position and decides which worker has it. `true`: this worker, and `run` is filled.
    #[inline]
    fn assign(&mut self, run: &mut Run, picked: Picked<R>) -> Result<bool, Skipped> {
        let (footprint, attempt) = match (&picked, &self.feed.entry) {
            (Picked::Open(at), Some(entry)) => (&entry.rows[*at].footprint, 0),
            (Picked::Stored(again), _) => (&again.footprint, again.attempt),
            // Only an open entry offers its requests.
            (Picked::Open(_), None) => return Err(Skipped),
        };
        // A retry keeps its footprint, and the lock that it missed.
        self.teaches = footprint.kind().is_some();
        self.is_predicted = self.teaches && attempt == 0;
        if self.is_predicted {
            self.forecast = self.predictor.forecast(footprint);
        }
        let footprint = if self.is_predicted { &self.forecast } else { footprint };
        if attempt >= MAX_ATTEMPTS || !footprint.fits(self.locks) {
            if self.position as usize % self.workers == self.me {
                self.staged = Some(picked);
            } else {
                self.position += 1;
                self.hold = self.position;
            }
            return Ok(false);
        }
        let mine = match (self.workers, footprint.first()) {
            (1, _) => true,
            (workers, None) => self.position as usize % workers == self.me,
            (workers, Some(lock)) => {
                let spread = self.heat[lock as usize].note(self.position / self.lag, self.lag / HOT_SHARE);
                (if spread { self.position as usize } else { lock as usize }) % workers == self.me
            }
        };
        if !mine {
            footprint.iter().for_each(|(lock, shared)| {
                self.tickets.take(lock, shared);
            });
            self.position += 1;
            return Ok(false);
        }
        run.slots.clear();
        if self.workers == 1 {
            run.slots.extend(footprint.iter().map(|(lock, shared)| Slot::new(lock, shared, 0)));
            self.begin(run, picked, RunKind::Ready);
        } else {
            let tickets = &mut self.tickets;
            let slot = |(lock, shared)| Slot::new(lock, shared, tickets.take(lock, shared));
            run.slots.extend(footprint.iter().map(slot));
            self.begin(run, picked, RunKind::Ordered);
        }
        Ok(true)
    }

    fn begin(&mut self, run: &mut Run, picked: Picked<R>, kind: RunKind) {
        run.kind = kind;
        run.position = self.position;
        run.released.set(false);
        run.rng_calls.set(0);
        run.pass.set(Pass::Only);
        if kind == RunKind::Alone {
            run.slots.clear();
            run.slots.extend((0..self.locks).map(|lock| Slot::new(lock, false, 0)));
        }
        match picked {
            Picked::Open(at) => {
                self.current = None;
                self.current_open = at;
                self.feed.fill(run, at);
            }
            Picked::Stored(again) => {
                again.fill(run);
                self.current = Some(again);
            }
        }
    }

    /// Goes over empty positions, as many at once as are known to be empty.
    fn skip_empty(&mut self, turns: &TurnState) {
        let drained = self.position + (self.lag - self.quiet);
        self.is_resolved(turns, drained.saturating_sub(self.lag));
        let known = self.resolved + self.lag;
        let next_due = self.due.first_key_value().map_or(u64::MAX, |(&position, _)| position);
        let to = drained.min(known).min(next_due).max(self.position + 1);
        self.quiet += to - self.position;
        self.position = to;
    }
}

impl Heat {
    /// Counts a position that begins with the lock; returns whether the lock is hot. By the first lock a request goes
    /// to the worker that has its data in its cache; requests of a hot lock go to all workers in rotation. This is
    /// replica-local: no outcome depends on it, but all workers of the replica must agree.
    #[inline]
    fn note(&mut self, window: u64, limit: u64) -> bool {
        if self.window != window {
            self.hot = self.window + 1 == window && self.count > limit;
            (self.window, self.count) = (window, 0);
        }
        self.count += 1;
        self.hot
    }
}

/// A lock is hot when more than one in this many positions begin with it.
const HOT_SHARE: u64 = 16;

impl<R> Feed<R> {
    pub fn new(log: ChainReader<Arc<Entry<R>>>, state: &DispatcherState<R>) -> Self {
        Feed {
            log,
            seen: 0,
            entry: None,
            next_request: 0,
            entry_index: state.entry_index.saturating_sub(u64::from(!state.opened)),
            time_us: state.time_us,
            draining: state.draining,
            internal: state.internal.iter().cloned().collect(),
            timers: PendingTimers::of(&state.timers),
            next_index: state.entry_index,
            begun: state.opened.then_some((state.entry_index, state.request_index as usize)),
        }
    }

    /// The next request: a retry, then one that the service started itself, then one of the log; `drained` ends a
    /// drain.
    #[inline]
    pub fn offer(&mut self, again: Option<Again<R>>, drained: bool) -> Offer<R> {
        if let Some(again) = again {
            return Offer::Run(Picked::Stored(Box::new(again)));
        }
        loop {
            if let Some(internal) = self.internal.pop_front() {
                return Offer::Run(Picked::Stored(Box::new(self.first_attempt(internal))));
            }
            if let Some(entry) = &self.entry {
                let at = self.next_request;
                if at < entry.rows.len() {
                    self.next_request += 1;
                    return Offer::Run(Picked::Open(at));
                }
                self.draining |= entry.drain;
                self.entry = None;
            }
            if self.draining && !drained {
                return Offer::Empty;
            }
            self.draining = false;
            let Some(entry) = self.log.next() else { return Offer::Nothing };
            self.seen += 1;
            if entry.index == BETWEEN {
                return Offer::BetweenEntries(Box::new(self.between_entries(entry)));
            }
            self.open(entry);
        }
    }

    /// Fills in the `at`-th request of the open entry.
    #[inline]
    pub fn fill(&self, run: &mut Run, at: usize) {
        let Some(entry) = &self.entry else { return };
        run.attempt = 0;
        run.time_us = self.time_us;
        run.seed = Seed::of_entry(entry.seed, entry.index, at);
        run.origin = Origin::Entry { index: entry.index, request: at as u32 };
        run.entry_index = entry.index;
    }

    /// A new batch: its time takes effect and fires the timers that are due.
    fn open(&mut self, entry: Arc<Entry<R>>) {
        if entry.index < self.next_index {
            return;
        }
        self.next_index = entry.index + 1;
        self.entry_index = entry.index;
        self.next_request = 0;
        match self.begun.take() {
            Some((index, request)) if index == entry.index => self.next_request = request,
            _ => {
                self.time_us = entry.time_us.max(self.time_us.saturating_add(1));
                while let Some(timer) = self.timers.take_due(self.time_us) {
                    self.internal.push_back(timer);
                }
            }
        }
        self.entry = Some(entry);
    }

    /// The request of an entry that is not part of the log: it sees the time and the index of the entry before it.
    fn between_entries(&self, entry: Arc<Entry<R>>) -> Again<R> {
        Again {
            footprint: Footprint::new(),
            source: Source::Entry(entry, 0),
            attempt: 0,
            time_us: self.time_us,
            seed: 0,
            entry_index: self.entry_index,
        }
    }

    fn first_attempt(&self, internal: Arc<Internal<R>>) -> Again<R> {
        Again {
            footprint: internal.footprint,
            attempt: 0,
            time_us: self.time_us,
            seed: internal.seed,
            entry_index: self.entry_index,
            source: Source::Internal(internal),
        }
    }

    fn save(&self, state: &mut DispatcherState<R>) {
        state.time_us = self.time_us;
        state.draining = self.draining;
        state.internal = self.internal.iter().cloned().collect();
        state.timers = self.timers.save();
        (state.entry_index, state.request_index, state.opened) = match &self.entry {
            Some(entry) if self.next_request < entry.rows.len() => {
                (entry.index, self.next_request as u32, true)
            }
            Some(entry) => {
                state.draining |= entry.drain;
                (entry.index + 1, 0, false)
            }
            None => match self.begun {
                Some((index, request)) => (index, request as u32, true),
                None => (self.next_index, 0, false),
            },
        };
    }
}

impl<R> Again<R> {
    pub fn fill(&self, run: &mut Run) {
        run.attempt = self.attempt;
        run.time_us = self.time_us;
        run.seed = Seed::Is(self.seed);
        run.origin = self.source.origin();
        run.entry_index = self.entry_index;
    }
}

impl<R> Clone for Again<R> {
    fn clone(&self) -> Self {
        Again { source: self.source.clone(), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::Step;

    /// The state that a corrupted worker leaves: an outcome is due at a position that it has passed.
    #[test]
    fn a_worker_that_passed_an_outcome_over_ends_the_schedule() {
        let begun = |due| {
            let mut state = DispatcherState::<u64>::genesis();
            let due = Due { position: due, again: None, spawned: vec![], timers: vec![], lesson: None };
            (state.position, state.due) = (5, vec![Arc::new(due)]);
            crate::resume(Config::new(1, 4), |_, _| {}, state)
        };
        for due in [5, 6] {
            let (schedule, mut workers) = begun(due);
            assert!(matches!(workers[0].next(), Step::Idle) && !schedule.is_aborted(), "{due}");
        }
        let (schedule, mut workers) = begun(4);
        assert!(matches!(workers[0].next(), Step::Closed));
        assert!(schedule.is_aborted() && schedule.is_corrupted());
        let (schedule, _workers) = begun(6);
        schedule.abort();
        assert!(!schedule.is_corrupted(), "an abort for another reason");
    }
}
