//! Opens a schedule: the appending side for the producer, and one worker per thread.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::chain::Writer;
use crate::dispatch::Dispatcher;
use crate::entry::{BETWEEN, BatchRow, Entry};
use crate::footprint::Footprint;
use crate::mixed::{self, Plans};
use crate::mixer::ParallelBatches;
use crate::ordinary;
use crate::state::DispatcherState;
use crate::turn::Scheduler;
use crate::turn_state::{TurnState, WorkerProgress};
use crate::worker::TurnWorker;
use crate::yield_point::YieldPoint;

/// The rules by which requests get their locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRules {
    /// Lagged ordered turns: deterministic, any number of workers (`RD..`).
    Turns,
    /// The same order with one worker and no tickets: the oracle.
    Sequential,
    /// Ordinary locks in arrival order: **not** deterministic (`R000`, `0000`).
    Locks,
    /// Parallel batches, and a retry at its own position: deterministic as far as the plans miss no conflict, and what
    /// has run can be rolled back (`R0GV`, `R00V`).
    Mixed,
}

/// Shape of a schedule. `lag` and `locks` must be equal on all replicas; the rest is each replica's own choice.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Rules.
    pub mode: LockRules,
    /// Worker threads, 1 to 64; taken as 1 by [`LockRules::Sequential`].
    pub workers: usize,
    /// Positions after which an outcome takes effect, at least 1.
    pub lag: u64,
    /// Number of locks: their numbers are below.
    pub locks: u32,
    /// Checks before a wait becomes a sleep (each some 20 ns): a few microseconds at most.
    pub spins: u32,
}

impl Config {
    /// Lagged ordered turns with the measured defaults (docs/determinism.md, section 11).
    pub const fn new(workers: usize, locks: u32) -> Self {
        Config { mode: LockRules::Turns, workers, lag: crate::LAG, locks, spins: 100 }
    }
}

/// One worker of a schedule, to be moved to its thread.
pub type Worker<R> = Box<dyn Scheduler<R>>;

/// The locks a spawned request may take; a pure function.
pub(crate) type FootprintOf<R> = Arc<dyn Fn(&R, &mut Footprint) + Send + Sync>;

/// The appending side of the ordered log, and the view from outside.
pub struct Schedule<R> {
    turns: Arc<TurnState>,
    log: Mutex<Log<R>>,
}

/// What the producer writes to.
enum Log<R> {
    Entries(Writer<Arc<Entry<R>>>),
    Plans(Plans<R>),
}

/// Opens a schedule at its genesis. `footprint` computes the footprints of spawned requests; entries contain theirs.
///
/// # Panics
/// If `config` is out of its bounds.
pub fn open<R: Any + Send + Sync>(
    config: Config,
    footprint: impl Fn(&R, &mut Footprint) + Send + Sync + 'static,
) -> (Schedule<R>, Vec<Worker<R>>) {
    resume(config, footprint, DispatcherState::genesis())
}

/// Opens a schedule at a given state, after a state transfer: entries before the state's are skipped.
///
/// # Panics
/// If `config` is out of its bounds.
pub fn resume<R: Any + Send + Sync>(
    config: Config,
    footprint: impl Fn(&R, &mut Footprint) + Send + Sync + 'static,
    state: DispatcherState<R>,
) -> (Schedule<R>, Vec<Worker<R>>) {
    resume_paced(config, footprint, state, None)
}

/// As [`resume`]; if there is a `yield_point`, it decides which worker runs.
///
/// # Panics
/// If `config` is out of its bounds.
pub fn resume_paced<R: Any + Send + Sync>(
    config: Config,
    footprint: impl Fn(&R, &mut Footprint) + Send + Sync + 'static,
    state: DispatcherState<R>,
    yield_point: Option<Arc<dyn YieldPoint>>,
) -> (Schedule<R>, Vec<Worker<R>>) {
    let workers = if config.mode == LockRules::Sequential { 1 } else { config.workers };
    // panics: the configuration at the start, which the operator chose
    assert!((1..=64).contains(&workers), "workers: {workers} is not in 1..=64");
    assert!(config.lag >= 1, "lag: must be at least 1");
    let footprint: FootprintOf<R> = Arc::new(footprint);
    let mut turns = TurnState::new(config.locks, workers, state.position, config.spins);
    yield_point.into_iter().for_each(|yield_point| turns.set_yield_point(yield_point));
    let turns = Arc::new(turns);
    let entries = Writer::new();
    let (log, made) = match config.mode {
        LockRules::Turns | LockRules::Sequential => {
            let dispatchers = Dispatcher::all(config, workers, &entries, state);
            (Log::Entries(entries), TurnWorker::all(&turns, &footprint, dispatchers))
        }
        LockRules::Locks => {
            let made = ordinary::workers(&turns, &footprint, config, &entries, state);
            (Log::Entries(entries), made)
        }
        LockRules::Mixed => {
            let plans = Plans::new(&state);
            let made = mixed::workers(&turns, &footprint, config.locks, &plans, &state.predictor);
            (Log::Plans(plans), made)
        }
    };
    (Schedule { turns, log: Mutex::new(log) }, made)
}

impl<R> Schedule<R> {
    /// Appends an entry; wakes sleeping workers. Called by one thread, the producer, in log order.
    pub fn append(&self, entry: Arc<Entry<R>>) {
        let mut log = self.log.lock();
        match &mut *log {
            Log::Entries(entries) => {
                entries.push(entry);
                self.turns.count_append();
            }
            Log::Plans(plans) => {
                let plan = ParallelBatches::in_arrival_order(entry.rows.len());
                plans.push(entry, plan);
                self.turns.count_append();
                self.turns.step();
            }
        }
    }

    /// As [`Schedule::append`] in mixed batches; requests run beside each other as in `plan`, which other rules ignore.
    /// With a plan of another number of requests they run one at a time, in the order of arrival. Returns the number of
    /// entries that were appended before.
    pub fn append_mixed(&self, entry: Arc<Entry<R>>, plan: ParallelBatches) -> u64 {
        let mut log = self.log.lock();
        if let Log::Plans(plans) = &mut *log {
            let number = plans.push(entry, plan);
            self.turns.count_append();
            self.turns.step();
            return number;
        }
        drop(log);
        self.append(entry);
        self.appended() - 1
    }

    /// `request` runs between two batches, alone and with every lock. It has no position of its own, so that the later
    /// requests have the same ones as at other replicas; its entry index and its time are those of the entry before it,
    /// all of which it sees.
    ///
    /// In ordered turns the caller appends nothing until `request` has run: other workers do not wait for it.
    pub fn between_batches(&self, request: R) {
        if let Log::Entries(entries) = &mut *self.log.lock() {
            let row = BatchRow { request, footprint: Footprint::new(), stream: None };
            let rows = vec![row];
            entries.push(Arc::new(Entry { index: BETWEEN, time_us: 0, seed: 0, drain: false, rows }));
            return self.turns.count_append();
        }
        self.want(request, None);
    }

    /// Mixed batches: the schedule continues as after entry `index`. All requests of later entries that were appended
    /// so far end, or do not run. As soon as none runs, `request` runs alone and with every lock: to roll back what
    /// later entries did. Entries that are appended from now on run behind it.
    ///
    /// The index is one that was not forgotten ([`Schedule::forget`]); otherwise the schedule is aborted as corrupted.
    pub fn roll_back(&self, index: u64, request: R) {
        self.want(request, Some(index));
    }

    /// Mixed batches: the schedule continues at `state`, which comes from elsewhere. All requests of entries that were
    /// appended so far end, or do not run. As soon as none runs, `request` runs alone and with every lock: to put the
    /// state behind the locks in place.
    pub fn continue_at(&self, state: &DispatcherState<R>, request: R) {
        if let Log::Plans(plans) = &*self.log.lock() {
            plans.want_state(request, state);
            self.turns.step();
        }
    }

    /// Mixed batches: the schedule does not go back before entry `index` any more.
    pub fn forget(&self, index: u64) {
        if let Log::Plans(plans) = &*self.log.lock() {
            plans.forget(index);
        }
    }

    fn want(&self, request: R, back_to: Option<u64>) {
        if let Log::Plans(plans) = &*self.log.lock() {
            plans.want(request, back_to);
            self.turns.step();
        }
    }

    /// No entry follows: workers finish what is there and see [`Step::Closed`](crate::Step::Closed).
    pub fn close(&self) {
        self.turns.close();
    }

    /// Stops at once: waits unwind silently, workers see [`Step::Closed`](crate::Step::Closed). The state behind the
    /// locks is then of no use.
    pub fn abort(&self) {
        self.turns.abort();
    }

    /// Whether the schedule was aborted, by [`Schedule::abort`], because a worker was dropped before its end, or
    /// because it was corrupted ([`Schedule::is_corrupted`]).
    pub fn is_aborted(&self) -> bool {
        self.turns.is_aborted()
    }

    /// Whether it was aborted because a worker's part of it was corrupted: an outcome was passed over.
    pub fn is_corrupted(&self) -> bool {
        self.turns.is_corrupted()
    }

    /// The ordered time at which the first timer is due, in microseconds; the end of time if none is set. An entry at
    /// that time or later fires it. While requests run it may be that of a moment ago. In mixed batches what requests
    /// have spawned runs with the next entry, so it is due at once.
    pub fn first_deadline_us(&self) -> u64 {
        match &*self.log.lock() {
            Log::Plans(plans) => plans.first_deadline(),
            Log::Entries(_) => self.turns.deadline(),
        }
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.turns.workers()
    }

    /// How far a worker has come. A watchdog compares two readings: the same `running` position (not 0) and the same
    /// `resolved` for too long is a turn that does not end.
    pub fn progress(&self, worker: usize) -> WorkerProgress {
        self.turns.progress(worker)
    }

    /// Whether a worker waits for something that has not happened: for the code that decides which worker runs.
    pub fn is_waiting(&self, worker: usize) -> bool {
        self.turns.is_waiting(worker)
    }

    /// Entries appended so far.
    pub fn appended(&self) -> u64 {
        self.turns.appended()
    }
}
