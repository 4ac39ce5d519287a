//! The state that the workers of one replica share: the turn at each lock, the progress and the sleep of each worker.

use std::sync::Arc;

use crate::brand::Brand;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, Parker, fence, spin_loop};
use crate::yield_point::YieldPoint;

/// Own cache line: a word is written by one worker and polled by others.
#[repr(align(64))]
struct CacheLine<T>(T);

/// One turn word counts the turns that were passed: writers in the low half, readers in the high half.
const READER: u64 = 1 << 32;

/// The next ticket of each lock; private to a worker, the same in all.
pub(crate) struct Tickets(Vec<u64>);

impl Tickets {
    pub fn new(locks: u32) -> Self {
        Tickets(vec![0; locks as usize])
    }

    /// Takes the next ticket: (writers before, readers before).
    #[inline]
    pub fn take(&mut self, lock: u32, shared: bool) -> u64 {
        let next = &mut self.0[lock as usize];
        let ticket = *next;
        *next = passed(ticket, shared);
        ticket
    }
}

/// The word after one more turn was passed; each half wraps on its own.
#[inline]
fn passed(word: u64, shared: bool) -> u64 {
    if shared {
        word.wrapping_add(READER)
    } else {
        (word & !(READER - 1)) | u64::from((word as u32).wrapping_add(1))
    }
}

/// The condition that a sleeping worker waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want {
    /// Its turn at a lock.
    Turn { lock: u32, ticket: u64, shared: bool },
    /// All positions below are resolved.
    Resolved { below: u64 },
    /// More than `seen` entries were appended, or the log was closed.
    Appended { seen: u64 },
    /// A lock of mixed batches.
    Lock { lock: u32, shared: bool },
    /// Others have taken more than `seen` steps.
    Step { seen: u64 },
}

/// How far one worker has come: for a watchdog, which owns the clock, to notice a turn that does not end, and for the
/// checking barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerProgress {
    /// All positions of this worker below are resolved.
    pub watermark: u64,
    /// Position being run; 0 between two requests.
    pub running: u64,
    /// Requests this worker has resolved; grows for ever.
    pub resolved: u64,
}

impl WorkerProgress {
    /// Whether the request that ran then has ended by `now`. It may have ended while this was read: then `resolved`
    /// counts it already, and only the other position, or none, tells.
    pub fn has_ended(&self, now: &WorkerProgress) -> bool {
        self.running == 0 || now.running != self.running || now.resolved != self.resolved
    }
}

struct WorkerState {
    watermark: AtomicU64,
    running: AtomicU64,
    resolved: AtomicU64,
    parker: Parker,
    want: Mutex<Option<Want>>,
}

/// Shared by all workers of a schedule.
pub(crate) struct TurnState {
    pub brand: Brand,
    serving: Box<[CacheLine<AtomicU64>]>,
    seats: Box<[CacheLine<WorkerState>]>,
    appended: CacheLine<AtomicU64>,
    /// Of mixed batches: changes that a worker without work may wait for.
    steps: CacheLine<AtomicU64>,
    /// Drawn by requests while they hold their locks.
    stamps: CacheLine<AtomicU64>,
    closed: AtomicBool,
    aborted: AtomicBool,
    /// A worker found that its part of the schedule was corrupted.
    corrupted: AtomicBool,
    /// The first deadline of the timers, but for mixed batches; the end of time without any.
    deadline: AtomicU64,
    /// Bit per worker that sleeps until entries arrive.
    sleeping_for_log: CacheLine<AtomicU64>,
    /// Bit per worker that sleeps until another worker passes a turn or resolves a position.
    sleeping_for_turn: CacheLine<AtomicU64>,
    /// Checks before a wait becomes a sleep.
    spins: u32,
    /// Decides which worker runs, in place of the operating system.
    yield_point: Option<Arc<dyn YieldPoint>>,
}

impl TurnState {
    pub fn new(locks: u32, workers: usize, first: u64, spins: u32) -> Self {
        let seat = |_| {
            CacheLine(WorkerState {
                watermark: AtomicU64::new(first),
                running: AtomicU64::new(0),
                resolved: AtomicU64::new(0),
                parker: Parker::new(),
                want: Mutex::new(None),
            })
        };
        TurnState {
            brand: Brand::new(),
            serving: (0..locks).map(|_| CacheLine(AtomicU64::new(0))).collect(),
            seats: (0..workers).map(seat).collect(),
            appended: CacheLine(AtomicU64::new(0)),
            steps: CacheLine(AtomicU64::new(0)),
            stamps: CacheLine(AtomicU64::new(0)),
            closed: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            corrupted: AtomicBool::new(false),
            deadline: AtomicU64::new(u64::MAX),
            sleeping_for_log: CacheLine(AtomicU64::new(0)),
            sleeping_for_turn: CacheLine(AtomicU64::new(0)),
            spins,
            yield_point: None,
        }
    }

    /// From now on `yield_point` decides which worker runs.
    pub fn set_yield_point(&mut self, yield_point: Arc<dyn YieldPoint>) {
        self.yield_point = Some(yield_point);
    }

    /// A point where another worker may overtake this one.
    #[inline]
    pub fn may_pause(&self, worker: usize) {
        if let Some(yield_point) = &self.yield_point {
            yield_point.pause(worker, false);
        }
    }

    pub fn workers(&self) -> usize {
        self.seats.len()
    }

    /// A thread that has read what the worker's request wrote finds it running here, or ended. What it had checked when
    /// it ended is visible to the caller.
    pub fn progress(&self, worker: usize) -> WorkerProgress {
        // Behind all reads of the requests whose results the caller has.
        fence(Ordering::Acquire);
        let seat = &self.seats[worker].0;
        WorkerProgress {
            watermark: seat.watermark.load(Ordering::Acquire),
            running: seat.running.load(Ordering::Acquire),
            resolved: seat.resolved.load(Ordering::Acquire),
        }
    }

    /// All positions of `worker` below the result are resolved, and their effects visible to the caller.
    #[inline]
    pub fn watermark(&self, worker: usize) -> u64 {
        self.seats[worker].0.watermark.load(Ordering::Acquire)
    }

    /// Publishes that `worker` has resolved all its positions below `position`.
    #[inline]
    pub fn publish(&self, worker: usize, position: u64) {
        self.seats[worker].0.watermark.store(position, Ordering::Release);
    }

    /// Notes that `worker` runs `position`, before the request writes anything.
    #[inline]
    pub fn begin(&self, worker: usize, position: u64) {
        // With what the request before had checked.
        self.seats[worker].0.running.store(position, Ordering::Release);
        fence(Ordering::Release);
    }

    /// Notes that `worker` runs nothing: the request has compared its runs.
    #[inline]
    pub fn end(&self, worker: usize) {
        let seat = &self.seats[worker].0;
        seat.running.store(0, Ordering::Release);
        seat.resolved.store(seat.resolved.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Whether the turn has come: no earlier owner holds the lock (readers: no earlier writer).
    #[inline]
    pub fn is_turn(&self, lock: u32, ticket: u64, shared: bool) -> bool {
        let word = self.serving[lock as usize].0.load(Ordering::Acquire);
        if shared { word as u32 == ticket as u32 } else { word == ticket }
    }

    /// Passes the turn; only its holder may. Sleepers are woken by [`TurnState::wake`], once per request.
    #[inline]
    pub fn pass(&self, lock: u32, ticket: u64, shared: bool) {
        let word = &self.serving[lock as usize].0;
        if shared {
            // Other readers pass at the same time; writers wait for all of them.
            word.fetch_add(READER, Ordering::Release);
        } else {
            word.store(passed(ticket, false), Ordering::Release);
        }
    }

    /// Wakes the workers whose wish is fulfilled. One fence and one load when no worker sleeps.
    #[inline]
    pub fn wake(&self) {
        if self.seats.len() > 1 {
            // Pairs with the fence in `wait`: either this load sees the sleeper, or the sleeper sees the stored value.
            fence(Ordering::SeqCst);
            self.wake_noticed();
        }
    }

    /// As [`TurnState::wake`] without the fence: may miss a worker that is just falling asleep.
    #[inline]
    pub fn wake_noticed(&self) {
        let sleeping = self.sleeping_for_turn.0.load(Ordering::Relaxed);
        if sleeping != 0 {
            self.wake_ready(sleeping);
        }
    }

    /// The producer has appended one more entry.
    pub fn count_append(&self) {
        let appended = self.appended.0.load(Ordering::Relaxed) + 1;
        self.appended.0.store(appended, Ordering::Release);
        fence(Ordering::SeqCst);
        let sleeping = self.sleeping_for_log.0.load(Ordering::Relaxed);
        if sleeping != 0 {
            self.wake_ready(sleeping);
        }
    }

    /// Takes a free lock of mixed batches: for these, the word of a lock is 1 with a writer, and counts its readers in
    /// the high half.
    #[inline]
    pub fn try_lock(&self, lock: u32, shared: bool) -> bool {
        let word = &self.serving[lock as usize].0;
        if !shared {
            return word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        }
        let mut now = word.load(Ordering::Relaxed);
        while now & 1 == 0 {
            match word.compare_exchange(now, now + READER, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// Gives back a lock that [`TurnState::try_lock`] took. Sleepers are woken by [`TurnState::wake`].
    #[inline]
    pub fn unlock(&self, lock: u32, shared: bool) {
        self.serving[lock as usize].0.fetch_sub(if shared { READER } else { 1 }, Ordering::Release);
    }

    /// Something changed that a worker without work may wait for.
    pub fn step(&self) {
        self.steps.0.fetch_add(1, Ordering::Release);
        // As in `wake`; the caller may be the producer, and the only worker asleep.
        fence(Ordering::SeqCst);
        self.wake_noticed();
    }

    /// Changes so far.
    pub fn steps(&self) -> u64 {
        self.steps.0.load(Ordering::Acquire)
    }

    /// The next stamp; a worker that draws a later one on a common lock sees what was written before.
    #[inline]
    pub fn stamp(&self) -> u64 {
        self.stamps.0.fetch_add(1, Ordering::Relaxed)
    }

    /// Entries appended so far.
    pub fn appended(&self) -> u64 {
        self.appended.0.load(Ordering::Acquire)
    }

    /// No entry follows.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.steps.0.fetch_add(1, Ordering::SeqCst);
        self.wake_all();
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Gives up: every wait ends.
    pub fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Gives up because a worker's part of the schedule was corrupted.
    #[cold]
    pub fn abort_corrupted(&self) {
        self.corrupted.store(true, Ordering::SeqCst);
        self.abort();
    }

    pub fn is_corrupted(&self) -> bool {
        self.corrupted.load(Ordering::SeqCst)
    }

    pub fn note_deadline(&self, deadline_us: u64) {
        self.deadline.store(deadline_us, Ordering::Release);
    }

    pub fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Acquire)
    }

    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    /// Returns when the wish is fulfilled, or `false` after an abort. Spins for a moment, then sleeps.
    #[cold]
    pub fn wait(&self, worker: usize, want: Want) -> bool {
        if let Some(yield_point) = &self.yield_point {
            return self.wait_at_yield_point(worker, want, &**yield_point);
        }
        for _ in 0..self.spins {
            if self.ready(want) {
                return !self.is_aborted();
            }
            spin_loop();
        }
        let (seat, bit) = (&self.seats[worker].0, 1u64 << worker);
        let sleeping = match want {
            Want::Appended { .. } => &self.sleeping_for_log.0,
            Want::Turn { .. } | Want::Resolved { .. } | Want::Lock { .. } | Want::Step { .. } => {
                &self.sleeping_for_turn.0
            }
        };
        *seat.want.lock() = Some(want);
        sleeping.fetch_or(bit, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while !self.ready(want) {
            seat.parker.park();
        }
        sleeping.fetch_and(!bit, Ordering::SeqCst);
        *seat.want.lock() = None;
        !self.is_aborted()
    }

    fn wait_at_yield_point(&self, worker: usize, want: Want, yield_point: &dyn YieldPoint) -> bool {
        let seat = &self.seats[worker].0;
        *seat.want.lock() = Some(want);
        while !self.ready(want) {
            yield_point.pause(worker, true);
        }
        *seat.want.lock() = None;
        !self.is_aborted()
    }

    /// Whether a worker waits for something that has not happened.
    pub fn is_waiting(&self, worker: usize) -> bool {
        let want = *self.seats[worker].0.want.lock();
        want.is_some_and(|want| !self.ready(want))
    }

    fn ready(&self, want: Want) -> bool {
        let fulfilled = match want {
            Want::Turn { lock, ticket, shared } => self.is_turn(lock, ticket, shared),
            Want::Resolved { below } => (0..self.seats.len()).all(|worker| self.watermark(worker) >= below),
            Want::Appended { seen } => self.appended() > seen || self.is_closed(),
            Want::Lock { lock, shared } => {
                let word = self.serving[lock as usize].0.load(Ordering::Acquire);
                if shared { word & 1 == 0 } else { word == 0 }
            }
            Want::Step { seen } => self.steps() != seen,
        };
        fulfilled || self.is_aborted()
    }

    #[cold]
    fn wake_ready(&self, sleeping: u64) {
        for (worker, CacheLine(seat)) in self.seats.iter().enumerate() {
            if sleeping >> worker & 1 == 1 {
                let want = *seat.want.lock();
                if want.is_some_and(|want| self.ready(want)) {
                    seat.parker.unpark();
                }
            }
        }
    }

    fn wake_all(&self) {
        fence(Ordering::SeqCst);
        self.seats.iter().for_each(|CacheLine(seat)| seat.parker.unpark());
    }
}
