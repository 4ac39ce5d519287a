//! The cell behind a lock and the guards on it: the only unsafe code of the crate.
//!
//! Why exclusive access is exclusive. A [`Slot`] is *owned* when the schedule has granted its lock to the
//! running request, and only `Slot::grant` marks it so. The callers of `grant` are three: ordered turns,
//! after `serving[lock] == ticket` (tickets are unique per lock, `serving` moves only from the holder's
//! ticket to the next one, and it moves when the turn is passed, after which the slot is no longer owned);
//! exclusive runs, while every other position is either resolved or not begun; ordinary locks, while the real
//! lock's guard is held. `Bound` (brand.rs) makes sure that one schedule alone grants a lock. For readers the same
//! holds with "no writer" in place of "no other request". Within the one request, which is one thread ([`Slot`] is
//! not `Sync`), `borrows` counts the guards as `RefCell` does. A guard's lifetime is that of a borrow of the
//! request's [`Cx`](crate::Cx), and passing the turns consumes what `Cx` borrows from; `release_early`
//! refuses while a guard exists.

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};

use parking_lot::RwLock;

use crate::footprint::LockId;

/// The running request's hold on one lock.
pub struct Slot {
    pub lock: LockId,
    /// Reading only.
    pub shared: bool,
    /// Ticket in ordered turns; otherwise unused.
    pub ticket: u64,
    owned: Cell<bool>,
    /// An ordinary lock is held.
    plain: Cell<bool>,
    passed: Cell<bool>,
    used: Cell<Use>,
    /// Guards alive: readers counted up, one writer as -1.
    borrows: Cell<i32>,
}

/// How the handler itself has taken a lock; neither the footprint nor the runtime changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    None,
    Read,
    Write,
}

impl Slot {
    #[inline]
    pub fn new(lock: LockId, shared: bool, ticket: u64) -> Self {
        Slot {
            lock,
            shared,
            ticket,
            owned: Cell::new(false),
            plain: Cell::new(false),
            passed: Cell::new(false),
            used: Cell::new(Use::None),
            borrows: Cell::new(0),
        }
    }

    /// Marks the lock as granted; see the top of the file for the permitted callers.
    #[inline]
    pub fn grant(&self) {
        debug_assert!(!self.passed.get(), "lock {} is granted after it was passed", self.lock);
        self.owned.set(true);
    }

    #[inline]
    pub fn is_owned(&self) -> bool {
        self.owned.get()
    }

    #[inline]
    pub fn is_passed(&self) -> bool {
        self.passed.get()
    }

    /// Gives the grant up; the caller passes the turn afterwards.
    ///
    /// # Panics
    /// If a guard on the lock is alive.
    pub fn give_up(&self) {
        // panics: a handler that breaks the rules of locks; its worker catches it
        assert!(self.borrows.get() == 0, "lock {} is released while a guard on it is alive", self.lock);
        self.set_passed();
    }

    /// The request has ended and its turn is passed: never again, even if what follows panics.
    #[inline]
    pub fn set_passed(&self) {
        self.owned.set(false);
        self.passed.set(true);
    }

    /// The handler takes the lock.
    #[inline]
    pub fn note_use(&self, shared: bool) {
        if !shared {
            self.used.set(Use::Write);
        } else if self.used.get() == Use::None {
            self.used.set(Use::Read);
        }
    }

    #[inline]
    pub fn used(&self) -> Use {
        self.used.get()
    }

    /// The handler is run once more.
    pub fn forget_use(&self) {
        self.used.set(Use::None);
    }

    #[inline]
    fn borrow(&self) -> Borrow<'_> {
        // panics: a handler that breaks the rules of locks; its worker catches it
        assert!(self.owned.get(), "lock {} is not owned", self.lock);
        let borrows = self.borrows.get();
        // panics: a handler that breaks the rules of locks; its worker catches it
        assert!(borrows >= 0, "lock {} is read while a guard for writing is alive", self.lock);
        self.borrows.set(borrows + 1);
        Borrow(self)
    }

    #[inline]
    fn borrow_mut(&self) -> BorrowMut<'_> {
        // panics: a handler that breaks the rules of locks; its worker catches it
        assert!(self.owned.get() && !self.shared, "lock {} is not owned for writing", self.lock);
        assert!(self.borrows.get() == 0, "lock {} is taken while another guard on it is alive", self.lock);
        self.borrows.set(-1);
        BorrowMut(self)
    }
}

/// Proof of a counted reading borrow.
struct Borrow<'c>(&'c Slot);
/// Proof of the single writing borrow.
struct BorrowMut<'c>(&'c Slot);

impl Drop for Borrow<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.borrows.set(self.0.borrows.get() - 1);
    }
}

impl Drop for BorrowMut<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.borrows.set(0);
    }
}

/// A value reachable only through an owned [`Slot`].
pub(crate) struct TurnCell<T>(UnsafeCell<T>);

// SAFETY: a shared TurnCell gives `&mut T` to one request at a time (top of the file), on changing threads, which needs
// T: Send. `&T` on several threads at once is given only by `read`, whose callers require T: Sync themselves
// (DetRwLock); the reading guard of a DetMutex does not exist.
unsafe impl<T: Send> Sync for TurnCell<T> {}

impl<T> TurnCell<T> {
    pub const fn new(value: T) -> Self {
        TurnCell(UnsafeCell::new(value))
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }

    #[inline]
    pub fn lock<'c>(&'c self, slot: &'c Slot) -> DetGuard<'c, T> {
        DetGuard { cell: &self.0, _borrow: slot.borrow_mut() }
    }

    #[inline]
    pub fn write<'c>(&'c self, slot: &'c Slot) -> WriteGuard<'c, T> {
        self.lock(slot)
    }

    #[inline]
    pub fn read<'c>(&'c self, slot: &'c Slot) -> ReadGuard<'c, T>
    where
        T: Sync,
    {
        ReadGuard { cell: &self.0, _borrow: slot.borrow() }
    }
}

/// Access to the value of a [`DetMutex`](crate::DetMutex), or for writing to that of a
/// [`DetRwLock`](crate::DetRwLock). Dropping it does not pass the turn: the request may take the lock again at no cost.
pub struct DetGuard<'c, T> {
    cell: &'c UnsafeCell<T>,
    _borrow: BorrowMut<'c>,
}

/// Access for writing to the value of a [`DetRwLock`](crate::DetRwLock).
pub type WriteGuard<'c, T> = DetGuard<'c, T>;

/// Access for reading to the value of a [`DetRwLock`](crate::DetRwLock).
pub struct ReadGuard<'c, T> {
    cell: &'c UnsafeCell<T>,
    _borrow: Borrow<'c>,
}

/// Access to the values of two locks, or of one that was requested twice ([`Cx::lock_two`](crate::Cx::lock_two)).
pub struct TwoGuards<'c, T> {
    first: DetGuard<'c, T>,
    /// None if it is the same lock.
    second: Option<DetGuard<'c, T>>,
}

impl<'c, T> TwoGuards<'c, T> {
    /// Takes the lock with the smaller number first.
    pub(crate) fn take<E>(
        ids: (LockId, LockId),
        first: impl FnOnce() -> Result<DetGuard<'c, T>, E>,
        second: impl FnOnce() -> Result<DetGuard<'c, T>, E>,
    ) -> Result<Self, E> {
        if ids.0 == ids.1 {
            return Ok(TwoGuards { first: first()?, second: None });
        }
        if ids.0 < ids.1 {
            let first = first()?;
            return Ok(TwoGuards { first, second: Some(second()?) });
        }
        let second = second()?;
        Ok(TwoGuards { first: first()?, second: Some(second) })
    }

    /// The value of the first lock.
    pub fn first(&mut self) -> &mut T {
        &mut self.first
    }

    /// The value of the second lock, which may be the first one.
    pub fn second(&mut self) -> &mut T {
        self.second.as_mut().unwrap_or(&mut self.first)
    }
}

/// An ordinary lock that is held from one call to another, as requests in
/// [`LockRules::Locks`](crate::LockRules::Locks) need it.
pub(crate) struct PlainLock(RwLock<()>);

impl PlainLock {
    pub const fn new() -> Self {
        PlainLock(RwLock::new(()))
    }

    /// Waits for the lock and holds it until [`PlainLock::release`] with the same slot.
    pub fn acquire(&self, slot: &Slot) {
        if slot.shared {
            std::mem::forget(self.0.read());
        } else {
            std::mem::forget(self.0.write());
        }
        slot.plain.set(true);
    }

    /// Gives the lock back, if `slot` is what it was acquired with.
    pub fn release(&self, slot: &Slot) {
        if !slot.plain.replace(false) {
            return;
        }
        if slot.shared {
            // SAFETY: `plain` records that `acquire` took the lock for reading, and it was not released for this slot;
            // the caller passes the slot's own lock (`locks[slot.lock]`, as for acquire).
            unsafe { self.0.force_unlock_read() }
        } else {
            // SAFETY: as above, for writing.
            unsafe { self.0.force_unlock_write() }
        }
    }
}

impl<T> Deref for DetGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the slot is owned for writing and this is its only guard (BorrowMut), so no `&mut T` exists.
        unsafe { &*self.cell.get() }
    }
}

impl<T> DerefMut for DetGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `&mut self` excludes a `&T` from this very guard.
        unsafe { &mut *self.cell.get() }
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the slot is owned and counts this guard (Borrow): no writer here, and none elsewhere by the turn.
        unsafe { &*self.cell.get() }
    }
}
