//! Ordinary locks in arrival order: the baseline without determinism (`R000`, `0000`).
//!
//! Every worker goes through the log and runs its own streams, as a thread of memcached runs its own connections: a
//! client that sends a `get` behind its `set` reads what it wrote. A
//! request's locks are acquired in ascending order, which cannot deadlock; the order of workers at a lock is left to
//! chance, on purpose.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::MAX_ATTEMPTS;
use crate::cell::{PlainLock, Slot};
use crate::chain::{ChainReader, Writer};
use crate::current::CurrentRequest;
use crate::cx::{Pass, Run, RunKind};
use crate::entry::{BETWEEN, Entry, Internal, Source};
use crate::footprint::Footprint;
use crate::log::{Config, FootprintOf, Worker};
use crate::start::Starts;
use crate::state::{Again, DispatcherState};
use crate::timers::PendingTimers;
use crate::turn::{Drive, EntryEnd, Outcome, Scheduler, Step, Turn};
use crate::turn_state::{TurnState, Want};

/// Positions of internal requests, which are not numbered by the log. Below 2^47, as object ids need it.
const UNNUMBERED: u64 = 1 << 46;

/// Shared by the workers.
struct Shared<R> {
    locks: Box<[PlainLock]>,
    unnumbered: AtomicU64,
    /// Length of `started.queue` and first deadline, to be read without the mutex.
    queued: AtomicU64,
    deadline: AtomicU64,
    started: Mutex<Started<R>>,
}

struct Started<R> {
    queue: VecDeque<Arc<Internal<R>>>,
    timers: PendingTimers<R>,
}

struct PlainWorker<R> {
    turns: Arc<TurnState>,
    shared: Arc<Shared<R>>,
    run: Run,
    starts: Starts<R>,
    footprint: FootprintOf<R>,
    log: ChainReader<Arc<Entry<R>>>,
    seen: u64,
    first_position: u64,
    entry: Option<Arc<Entry<R>>>,
    /// Number of the first request of `entry` in the log.
    entry_base: u64,
    entry_index: u64,
    /// Requests of `entry` that this worker has run or left to others.
    passed: usize,
    time_us: u64,
    again: Option<Again<R>>,
    current: CurrentRequest<R>,
    ended: bool,
}

/// The workers of a schedule of ordinary locks.
pub(crate) fn workers<R: Any + Send + Sync>(
    turns: &Arc<TurnState>,
    footprint: &FootprintOf<R>,
    config: Config,
    log: &Writer<Arc<Entry<R>>>,
    state: DispatcherState<R>,
) -> Vec<Worker<R>> {
    let timers = PendingTimers::of(&state.timers);
    turns.note_deadline(timers.first_deadline());
    let started = Started { queue: state.internal.into_iter().collect(), timers };
    let shared = Arc::new(Shared {
        locks: (0..config.locks).map(|_| PlainLock::new()).collect(),
        unnumbered: AtomicU64::new(UNNUMBERED),
        queued: AtomicU64::new(started.queue.len() as u64),
        deadline: AtomicU64::new(started.timers.first_deadline()),
        started: Mutex::new(started),
    });
    let make = |worker| {
        Box::new(PlainWorker {
            turns: Arc::clone(turns),
            shared: Arc::clone(&shared),
            run: Run::new(Arc::clone(turns), worker),
            starts: Starts::new(),
            footprint: Arc::clone(footprint),
            log: log.reader(),
            seen: 0,
            first_position: state.position,
            entry: None,
            entry_base: 0,
            entry_index: state.entry_index,
            passed: 0,
            time_us: state.time_us,
            again: None,
            current: CurrentRequest::new(state.predictor.clone()),
            ended: false,
        }) as Worker<R>
    };
    (0..turns.workers()).map(make).collect()
}

impl<R: Any + Send + Sync> PlainWorker<R> {
    /// Takes the next request and its locks; `false` if there is none.
    fn advance(&mut self) -> bool {
        if self.turns.is_aborted() {
            self.ended = true;
            return false;
        }
        let closed = self.turns.is_closed();
        let found = if let Some(again) = self.again.take() {
            // At the position of the attempt that was undone: a footprint that a fault has cut short shows in no reply.
            self.current.begin_stored(&mut self.run, again);
            true
        } else {
            self.take_started() || self.take_from_log() || self.take_started()
        };
        if found {
            self.acquire();
            self.turns.begin(self.run.worker, self.run.position);
        } else {
            self.ended |= closed;
        }
        found
    }

    /// A spawned request or a timer that is due.
    fn take_started(&mut self) -> bool {
        if self.shared.queued.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut started = self.shared.started.lock();
        let internal = started.queue.pop_front();
        self.shared.queued.store(started.queue.len() as u64, Ordering::Release);
        drop(started);
        let Some(internal) = internal else { return false };
        self.begin_stored(Again {
            footprint: internal.footprint,
            attempt: 0,
            time_us: self.time_us,
            seed: internal.seed,
            entry_index: self.entry_index,
            source: Source::Internal(internal),
        });
        true
    }

    /// The next request of the log whose stream is this worker's, or what is due before it.
    fn take_from_log(&mut self) -> bool {
        loop {
            if let Some(entry) = &self.entry {
                while let Some(work) = entry.rows.get(self.passed) {
                    let (at, number) = (self.passed, self.entry_base + self.passed as u64);
                    self.passed += 1;
                    if work.stream.unwrap_or(number) % self.turns.workers() as u64 == self.run.worker as u64 {
                        self.begin_open(number, at);
                        return true;
                    }
                }
            }
            let Some(entry) = self.log.next() else { return false };
            if entry.index == BETWEEN {
                // Nothing has the state alone here.
                self.seen += 1;
                continue;
            }
            self.open(entry);
            // A timer that is due runs before the requests that came after it was. Other workers may have their
            // requests run beside it: their order at a lock is left to chance.
            if self.take_started() {
                return true;
            }
        }
    }

    fn open(&mut self, entry: Arc<Entry<R>>) {
        self.seen += 1;
        self.entry_base += self.entry.as_ref().map_or(0, |old| old.rows.len() as u64);
        self.passed = 0;
        self.entry_index = entry.index;
        self.time_us = entry.time_us.max(self.time_us.saturating_add(1));
        self.entry = Some(entry);
        if self.time_us >= self.shared.deadline.load(Ordering::Acquire) {
            let mut started = self.shared.started.lock();
            while let Some(timer) = started.timers.take_due(self.time_us) {
                started.queue.push_back(timer);
            }
            self.publish(&started);
        }
    }

    /// Publishes the values that are read without the mutex.
    fn publish(&self, started: &Started<R>) {
        let deadline = started.timers.first_deadline();
        self.shared.queued.store(started.queue.len() as u64, Ordering::Release);
        self.shared.deadline.store(deadline, Ordering::Release);
        self.turns.note_deadline(deadline);
    }

    fn begin_open(&mut self, number: u64, at: usize) {
        let Some(entry) = &self.entry else { return };
        self.run.position = self.first_position + number;
        self.current.begin_open(&mut self.run, entry, at, self.time_us);
    }

    fn begin_stored(&mut self, again: Again<R>) {
        self.run.position = self.shared.unnumbered.fetch_add(1, Ordering::Relaxed);
        self.current.begin_stored(&mut self.run, again);
    }

    /// Waits for the locks of the footprint, in ascending order.
    fn acquire(&mut self) {
        let footprint = self.current.forecast(self.entry.as_ref(), self.run.attempt);
        let (run, locks) = (&mut self.run, &self.shared.locks);
        run.released.set(false);
        run.rng_calls.set(0);
        run.pass.set(Pass::Only);
        run.slots.clear();
        if run.attempt >= MAX_ATTEMPTS || !footprint.fits(locks.len() as u32) {
            run.kind = RunKind::Alone;
            run.slots.extend((0..locks.len() as u32).map(|lock| Slot::new(lock, false, 0)));
        } else {
            run.kind = RunKind::Ready;
            run.slots.extend(footprint.iter().map(|(lock, shared)| Slot::new(lock, shared, 0)));
        }
        run.slots.iter().for_each(|slot| locks[slot.lock as usize].acquire(slot));
    }

    fn keep(&mut self, outcome: Outcome) {
        if outcome == Outcome::Done {
            self.current.learn(self.entry.as_ref(), &self.run.slots);
        }
        match outcome {
            Outcome::Done if self.starts.is_empty() => {}
            Outcome::Done => {
                let (spawned, timers) = self.starts.take(&self.run, &*self.footprint);
                let mut started = self.shared.started.lock();
                started.queue.extend(spawned);
                started.timers.set(&timers);
                self.publish(&started);
            }
            Outcome::Mispredicted(retry) if self.run.kind != RunKind::Alone => {
                self.again = self.current.next_attempt(self.entry.as_ref(), &self.run, retry);
            }
            Outcome::Mispredicted(_) | Outcome::Abandoned => {}
        }
    }
}

impl<R: Any + Send + Sync> Scheduler<R> for PlainWorker<R> {
    fn next(&mut self) -> Step<'_, R> {
        if self.advance() {
            Step::Run(Turn::new(self))
        } else if self.ended {
            Step::Closed
        } else {
            Step::Idle
        }
    }

    fn wait(&mut self) {
        self.turns.wait(self.run.worker, Want::Appended { seen: self.seen });
    }

    fn next_blocking(&mut self) -> Option<Turn<'_, R>> {
        while !self.advance() {
            if self.ended {
                return None;
            }
            self.wait();
        }
        Some(Turn::new(self))
    }
}

impl<R: Any + Send + Sync> Drive<R> for PlainWorker<R> {
    /// Positions of ordinary locks are each replica's own: nothing depends on them.
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
        self.current.request(self.entry.as_ref())
    }

    fn footprint(&self) -> &Footprint {
        self.current.footprint(self.entry.as_ref())
    }

    fn resolve(&mut self, outcome: Outcome) -> Option<EntryEnd> {
        let locks = &self.shared.locks;
        self.run.slots.iter().for_each(|slot| locks[slot.lock as usize].release(slot));
        self.keep(outcome);
        self.starts.forget();
        self.turns.end(self.run.worker);
        None
    }

    fn state(&self) -> Option<DispatcherState<R>> {
        None
    }
}
