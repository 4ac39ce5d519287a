//! The schedule as a handler sees it: its locks, its time, its random numbers, and the requests it starts.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use wire::{SplitMix64, derive};

use crate::cell::{DetGuard, ReadGuard, Slot, TwoGuards, WriteGuard};
use crate::entry::Origin;
use crate::footprint::LockId;
use crate::lock::{Access, DetMutex, DetRwLock, Lock};
use crate::start::{Spawn, Starts};
use crate::turn_state::{TurnState, Want};

/// The handler wants a lock outside its footprint: pass it up with `?`. The request is undone and runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the request must end with this error; it is undone and runs again"]
pub struct Retry {
    pub(crate) lock: LockId,
    pub(crate) shared: bool,
}

impl Retry {
    /// The lock that was missing.
    pub const fn lock(&self) -> LockId {
        self.lock
    }
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock {} is outside the footprint of the request", self.lock)
    }
}

impl std::error::Error for Retry {}

/// The schedule of requests of type `R` as the running request sees it. Everything it returns is a function of the
/// ordered log.
pub struct Cx<'a, R> {
    run: &'a Run,
    starts: &'a Starts<R>,
}

impl<R> Clone for Cx<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Cx<'_, R> {}

impl<'a, R> Cx<'a, R> {
    pub(crate) fn new(run: &'a Run, starts: &'a Starts<R>) -> Self {
        Cx { run, starts }
    }

    /// Takes a lock, waiting for the request's turn the first time. Any order of locks is free of deadlock.
    ///
    /// # Errors
    /// [`Retry`] if the lock is outside the footprint; end the request with it.
    /// # Panics
    /// If a guard on the same lock is alive, or after `release_early`; unwinds silently when the schedule is aborted.
    #[inline]
    pub fn lock<'c, T>(&'c self, mutex: &'c DetMutex<T>) -> Result<DetGuard<'c, T>, Retry> {
        mutex.bound.claim(&self.run.turns.brand);
        Ok(mutex.cell.lock(self.run.acquire(mutex.id(), false)?))
    }

    /// Takes a lock for writing; as [`Cx::lock`].
    ///
    /// # Errors
    /// [`Retry`] if the lock is outside the footprint, or in it for reading only.
    #[inline]
    pub fn write<'c, T>(&'c self, lock: &'c DetRwLock<T>) -> Result<WriteGuard<'c, T>, Retry> {
        lock.bound.claim(&self.run.turns.brand);
        Ok(lock.cell.write(self.run.acquire(lock.id(), false)?))
    }

    /// Takes a lock for reading; as [`Cx::lock`]. Readers between two writers run at the same time.
    ///
    /// # Errors
    /// [`Retry`] if the lock is outside the footprint.
    #[inline]
    pub fn read<'c, T: Sync>(&'c self, lock: &'c DetRwLock<T>) -> Result<ReadGuard<'c, T>, Retry> {
        lock.bound.claim(&self.run.turns.brand);
        Ok(lock.cell.read(self.run.acquire(lock.id(), true)?))
    }

    /// Takes two locks, the one with the smaller number first. `first` and `second` may be one and the same lock, as in
    /// a transfer between two accounts of one branch: it is then taken once.
    ///
    /// # Errors
    /// [`Retry`] if one of them is outside the footprint.
    /// # Panics
    /// As [`Cx::lock`].
    pub fn lock_two<'c, T>(
        &'c self,
        first: &'c DetMutex<T>,
        second: &'c DetMutex<T>,
    ) -> Result<TwoGuards<'c, T>, Retry> {
        TwoGuards::take((first.id(), second.id()), || self.lock(first), || self.lock(second))
    }

    /// Passes the turn at `lock` before the request ends (shrinking phase of two-phase locking): its objects are
    /// sealed now. From here on the request must succeed, because its effects there can no longer be undone. (A request
    /// that is run more than once keeps its turns to the end: see [`Turn::repeat`](crate::Turn::repeat).)
    ///
    /// # Panics
    /// If a guard on the lock is alive.
    pub fn release_early(&self, lock: &dyn Lock) {
        let run = self.run;
        let Some(slot) = run.slot(lock.id()) else { return };
        if slot.is_passed() || run.pass.get() != Pass::Only {
            return;
        }
        run.await_turn(slot);
        lock.show(&run.turns.brand, slot, &mut |access| match access {
            Access::Exclusive(region) => region.seal(slot.lock),
            Access::Shared(region) => region.note(slot.lock),
        });
        // An exclusive run and ordinary locks keep the real lock until the end; no request can observe the difference.
        slot.give_up();
        if run.kind == RunKind::Ordered {
            run.turns.pass(slot.lock, slot.ticket, slot.shared);
            run.turns.wake();
        }
        run.released.set(true);
    }

    /// Time of the batch in microseconds; strictly grows from batch to batch. The same on a retry.
    pub fn now_us(&self) -> u64 {
        self.run.time_us
    }

    /// A generator seeded by the batch and the request: the same on a retry, another one at each call.
    pub fn rng(&self) -> SplitMix64 {
        let call = self.run.rng_calls.get();
        self.run.rng_calls.set(call + 1);
        SplitMix64::new(derive(self.run.seed.get(), call))
    }

    /// Dispatch position, from 1; the first part of the ids of the objects that this request creates.
    pub fn position(&self) -> u64 {
        self.run.position
    }

    /// Index of the entry in which the request runs: the number of the batch, which operators see as a position.
    pub fn entry_index(&self) -> u64 {
        self.run.entry_index
    }

    /// Where the request came from.
    pub fn origin(&self) -> Origin {
        self.run.origin
    }

    /// How often the request has run before (forecasts that missed).
    pub fn attempt(&self) -> u32 {
        self.run.attempt
    }

    /// Whether this run counts. A request may be run several times in its turn, and one of these runs counts, not
    /// necessarily the one whose effects stay ([`Turn::repeat`](crate::Turn::repeat)). For effects outside of protected
    /// objects that cannot be undone, such as counters for operators; state and reply must not depend on it.
    pub fn is_counted(&self) -> bool {
        self.run.pass.get() != Pass::Uncounted
    }

    /// Starts a request when this one has succeeded; it runs `lag` positions later, or soon after that.
    pub fn spawn(&self, request: R) {
        self.starts.spawn(request);
    }

    /// Starts a request with the first batch whose time is at least `time_us`, if this one succeeds.
    pub fn at(&self, time_us: u64, request: R) {
        self.starts.at(time_us, request);
    }
}

impl<R> Spawn<R> for Cx<'_, R> {
    fn spawn(&self, request: R) {
        Cx::spawn(self, request);
    }
}

/// Which run of the handler this is, within one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// The only one.
    Only,
    /// One of several, and the one that counts.
    Counted,
    /// Another one of several; its effects may stay or be undone.
    Uncounted,
}

/// How the running request came to its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// By tickets; the first use of each lock waits for its turn.
    Ordered,
    /// It has the locks of its footprint already (one worker, or ordinary locks).
    Ready,
    /// It runs alone and has every lock.
    Alone,
}

/// The request that a worker runs; reused from request to request.
pub(crate) struct Run {
    pub turns: Arc<TurnState>,
    pub worker: usize,
    pub kind: RunKind,
    pub position: u64,
    pub attempt: u32,
    pub time_us: u64,
    pub seed: Seed,
    pub origin: Origin,
    pub entry_index: u64,
    /// Locks of the footprint; of an exclusive run all locks, `slots[id]`.
    pub slots: Vec<Slot>,
    pub released: Cell<bool>,
    pub rng_calls: Cell<u64>,
    pub pass: Cell<Pass>,
}

/// A request's seed, computed when it is first needed.
#[derive(Clone, Copy)]
pub(crate) enum Seed {
    /// Of the `at`-th request of an entry, whose seed and index are mixed in `entry`.
    Entry { entry: u64, at: u64 },
    /// The seed itself.
    Is(u64),
}

impl Seed {
    pub fn of_entry(seed: u64, index: u64, at: usize) -> Self {
        Seed::Entry { entry: seed ^ index.rotate_left(32), at: at as u64 }
    }

    pub fn get(self) -> u64 {
        match self {
            Seed::Entry { entry, at } => derive(entry, at),
            Seed::Is(seed) => seed,
        }
    }
}

/// Payload of the unwinding out of a wait that an abort ended; no panic message is printed for it.
pub(crate) struct Aborted;

impl Run {
    #[inline]
    fn acquire(&self, lock: LockId, shared: bool) -> Result<&Slot, Retry> {
        let slot = self.slot(lock).filter(|slot| shared || !slot.shared);
        let Some(slot) = slot else { return Err(self.miss(lock, shared)) };
        if !slot.is_owned() {
            self.await_turn(slot);
        }
        slot.note_use(shared);
        Ok(slot)
    }

    #[inline]
    fn slot(&self, lock: LockId) -> Option<&Slot> {
        if self.kind == RunKind::Alone {
            let slot = self.slots.get(lock as usize);
            // panics: a handler that breaks the rules of locks; its worker catches it
            assert!(slot.is_some(), "lock {lock} is beyond Config::locks");
            slot
        } else {
            self.slots.iter().find(|slot| slot.lock == lock)
        }
    }

    /// Waits until the lock is granted.
    #[inline]
    pub fn await_turn(&self, slot: &Slot) {
        // panics: a handler that breaks the rules of locks; its worker catches it
        assert!(!slot.is_passed(), "lock {} is taken again after release_early", slot.lock);
        self.turns.may_pause(self.worker);
        if self.kind == RunKind::Ordered && !self.turns.is_turn(slot.lock, slot.ticket, slot.shared) {
            let want = Want::Turn { lock: slot.lock, ticket: slot.ticket, shared: slot.shared };
            if !self.turns.wait(self.worker, want) {
                std::panic::resume_unwind(Box::new(Aborted));
            }
        }
        slot.grant();
    }

    #[cold]
    fn miss(&self, lock: LockId, shared: bool) -> Retry {
        // panics: a handler that breaks the rules of locks; its worker catches it
        assert!(!self.released.get(), "lock {lock} is outside the footprint after release_early");
        Retry { lock, shared }
    }
}
