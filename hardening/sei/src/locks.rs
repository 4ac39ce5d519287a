//! Locks of a handler: taken in the first run, held until both runs agree, and checked at each release.
//!
//! NSDI'15, section 4.2, "Computation scalability": deferred release lets others read validated values only; validated
//! locking (R4, R9) shows that a critical section was entered without its lock. Where the program has no lock
//! hierarchy, a handler that holds a lock and does not get another one is undone and runs again (Retry); it then has
//! the only token with which a handler may wait while it holds locks, so one of the waiting handlers always ends.

use crate::fail::Reason;
use crate::limits;
use crate::mutate::{Protection, kept};
use crate::sync::{self, AtomicU64, Ordering};

/// Which thread holds which lock, in all threads: written behind the real lock, compared at every release.
pub struct Owners {
    /// Address shifted by 16, and the thread's number + 1. 0 is free.
    slots: Box<[AtomicU64]>,
}

/// The locks that one handler holds.
#[derive(Default)]
pub struct Held {
    locks: Vec<HeldLock>,
}

#[derive(Clone, Copy, Debug)]
struct HeldLock {
    mutex: usize,
    /// How often the program has taken and not released it. 0: released by the program, held until V.
    depth: u32,
    /// Its place in the table of owners; none if all its places were taken.
    slot: Option<u32>,
}

impl Owners {
    /// A table of this many places, a power of two.
    pub fn new(places: usize) -> Self {
        Self { slots: (0..places).map(|_| AtomicU64::new(0)).collect() }
    }

    fn entry(mutex: usize, thread: usize) -> u64 {
        (mutex as u64) << 16 | (thread as u64 + 1)
    }

    fn place(&self, mutex: usize, probe: usize) -> usize {
        // Locks in one array lie 40 or 64 bytes apart.
        ((mutex >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).wrapping_add(probe) & (self.slots.len() - 1)
    }

    /// This thread has the lock now. `None`: all places for it are taken, and it is not checked.
    ///
    /// # Errors
    /// Another thread has it too: a fault let both in.
    pub fn enter(&self, mutex: usize, thread: usize) -> Result<Option<u32>, Reason> {
        let probes = limits::OWNER_PROBES.min(self.slots.len());
        let places = || (0..probes).map(|probe| self.place(mutex, probe));
        let entry = Self::entry(mutex, thread);
        let taken = places().find(|&place| {
            self.slots[place].compare_exchange(0, entry, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        });
        sync::order_all();
        // An owner leaves before it unlocks, so whoever has the real lock finds no other one. Each of two threads that
        // have it writes before it looks, so at least one of them sees the other.
        let is_shared = places().any(|place| {
            Some(place) != taken && self.slots[place].load(Ordering::SeqCst) >> 16 == mutex as u64
        });
        if is_shared && kept(Protection::OwnerCheck) {
            return Err(Reason::LockNotOwned);
        }
        Ok(taken.map(|place| place as u32))
    }

    /// Whether the table says so.
    pub fn is_owner(&self, slot: u32, mutex: usize, thread: usize) -> bool {
        let entry = self.slots.get(slot as usize).map(|slot| slot.load(Ordering::Acquire));
        entry == Some(Self::entry(mutex, thread))
    }

    /// The lock is about to be released.
    ///
    /// # Errors
    /// It is another thread's.
    pub fn leave(&self, slot: u32, mutex: usize, thread: usize) -> Result<(), Reason> {
        let slot = self.slots.get(slot as usize).ok_or(Reason::LockNotOwned)?;
        slot.compare_exchange(Self::entry(mutex, thread), 0, Ordering::AcqRel, Ordering::Relaxed)
            .map_err(|_| Reason::LockNotOwned)?;
        Ok(())
    }
}

impl Held {
    /// Whether the handler holds any lock.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// Whether the handler holds it, released by the program or not.
    pub fn has(&self, mutex: usize) -> bool {
        self.locks.iter().any(|lock| lock.mutex == mutex)
    }

    /// Whether the program holds it now.
    pub fn is_locked(&self, mutex: usize) -> bool {
        self.locks.iter().any(|lock| lock.mutex == mutex && lock.depth > 0)
    }

    /// The handler got the real lock.
    ///
    /// # Errors
    /// Another thread has it too.
    pub fn add(&mut self, owners: &Owners, mutex: usize, thread: usize) -> Result<(), Reason> {
        let slot = owners.enter(mutex, thread)?;
        self.locks.push(HeldLock { mutex, depth: 1, slot });
        Ok(())
    }

    /// The program takes a lock that the handler holds.
    pub fn again(&mut self, mutex: usize) {
        if let Some(lock) = self.find(mutex) {
            lock.depth += 1;
        }
    }

    /// The program releases a lock (R4, R9): the real one stays locked.
    ///
    /// # Errors
    /// The handler does not hold it.
    pub fn release(&mut self, owners: &Owners, mutex: usize, thread: usize) -> Result<(), Reason> {
        let Some(lock) = self.find(mutex) else {
            return Err(Reason::LockNotHeld);
        };
        if lock.depth == 0 {
            return Err(Reason::LockNotHeld);
        }
        lock.depth -= 1;
        let slot = lock.slot;
        check_owner(owners, slot, mutex, thread)
    }

    /// Before the second run, which takes them in the same order: the program holds none.
    #[inline]
    pub fn begin_second(&mut self) {
        self.locks.iter_mut().for_each(|lock| lock.depth = 0);
    }

    /// V: all are this thread's.
    ///
    /// # Errors
    /// One is not.
    #[inline]
    pub fn validate(&self, owners: &Owners, thread: usize) -> Result<(), Reason> {
        self.locks.iter().try_for_each(|lock| check_owner(owners, lock.slot, lock.mutex, thread))
    }

    /// Takes out the last lock, which is then to be unlocked.
    ///
    /// # Errors
    /// It is another thread's.
    pub fn pop(&mut self, owners: &Owners, thread: usize) -> Result<Option<usize>, Reason> {
        let Some(lock) = self.locks.pop() else {
            return Ok(None);
        };
        if let Some(slot) = lock.slot {
            let left = owners.leave(slot, lock.mutex, thread);
            if kept(Protection::OwnerCheck) {
                left?;
            }
        }
        Ok(Some(lock.mutex))
    }

    fn find(&mut self, mutex: usize) -> Option<&mut HeldLock> {
        self.locks.iter_mut().find(|lock| lock.mutex == mutex)
    }
}

fn check_owner(owners: &Owners, slot: Option<u32>, mutex: usize, thread: usize) -> Result<(), Reason> {
    match slot {
        Some(slot) if !owners.is_owner(slot, mutex, thread) && kept(Protection::OwnerCheck) => {
            Err(Reason::LockNotOwned)
        }
        _ => Ok(()),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const A: usize = 0x7f00_1000;
    const B: usize = 0x7f00_1028;

    #[test]
    fn a_release_needs_the_lock() {
        let owners = Owners::new(64);
        let mut held = Held::default();
        assert_eq!(held.release(&owners, A, 3), Err(Reason::LockNotHeld));
        held.add(&owners, A, 3).unwrap();
        held.release(&owners, A, 3).unwrap();
        assert_eq!(held.release(&owners, A, 3), Err(Reason::LockNotHeld));
        assert!(held.has(A) && !held.is_locked(A));
        held.again(A);
        assert!(held.is_locked(A));
        held.release(&owners, A, 3).unwrap();
        held.validate(&owners, 3).unwrap();
        assert_eq!(held.pop(&owners, 3), Ok(Some(A)));
        assert_eq!(held.pop(&owners, 3), Ok(None));
    }

    #[test]
    fn two_threads_in_one_section_are_seen() {
        let owners = Owners::new(64);
        let (mut first, mut second) = (Held::default(), Held::default());
        first.add(&owners, A, 0).unwrap();
        second.add(&owners, B, 1).unwrap();
        assert_eq!(second.add(&owners, A, 1), Err(Reason::LockNotOwned));
        first.validate(&owners, 0).unwrap();
        // A handler whose own record says that it has a lock of another thread.
        second.locks.push(HeldLock { mutex: A, depth: 1, slot: first.locks[0].slot });
        assert_eq!(second.validate(&owners, 1), Err(Reason::LockNotOwned));
        assert_eq!(second.release(&owners, A, 1), Err(Reason::LockNotOwned));
        assert_eq!(second.pop(&owners, 1), Err(Reason::LockNotOwned));
    }

    #[cfg(feature = "mutate")]
    #[test]
    fn without_the_check_of_owners_they_are_not() {
        let release = std::thread::spawn(|| {
            crate::mutate::remove(Protection::OwnerCheck);
            let owners = Owners::new(64);
            let (mut first, mut second) = (Held::default(), Held::default());
            first.add(&owners, A, 0).unwrap();
            second.add(&owners, A, 1).unwrap();
            second.locks[0].slot = first.locks[0].slot;
            second.validate(&owners, 1).unwrap();
        });
        release.join().unwrap();
    }

    #[test]
    fn a_full_table_leaves_a_lock_unchecked() {
        let owners = Owners::new(1);
        let mut held = Held::default();
        held.add(&owners, A, 0).unwrap();
        held.add(&owners, B, 0).unwrap();
        held.validate(&owners, 0).unwrap();
        assert_eq!(held.pop(&owners, 0), Ok(Some(B)));
        assert_eq!(held.pop(&owners, 0), Ok(Some(A)));
    }
}
