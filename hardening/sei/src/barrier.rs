//! The checking barrier: a thread sends nothing until every thread that ran a handler beside it has checked its locks.
//!
//! NSDI'15, section 4.2: of two threads that a fault let into one critical section, the one without the lock finds it
//! out, perhaps after the other has already sent a wrong message. Each thread has a counter, odd while it runs a
//! handler. Behind V a thread takes a snapshot, and sends when each counter is even or higher than in the snapshot.

use crate::sync::{AtomicU64, Ordering, fence};

/// One counter per thread, each in its own cache line.
pub struct Counters {
    counters: Box<[Padded]>,
}

#[repr(align(64))]
struct Padded(AtomicU64);

/// The threads that were in a handler, with their counters.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    running: Vec<(u16, u64)>,
}

impl Counters {
    /// All even.
    pub fn new(threads: usize) -> Self {
        Self { counters: (0..threads).map(|_| Padded(AtomicU64::new(0))).collect() }
    }

    /// Phase I of this thread. Who reads a value that this handler writes also reads this counter, or a later one.
    pub fn enter(&self, thread: usize) {
        let counter = &self.counters[thread].0;
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// This thread has checked its run and released its locks.
    pub fn leave(&self, thread: usize) {
        let counter = &self.counters[thread].0;
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// A thread that has ended: its counter is even.
    pub fn end(&self, thread: usize) {
        let counter = &self.counters[thread].0;
        let value = counter.load(Ordering::Relaxed);
        counter.store(value + (value & 1), Ordering::Release);
    }

    /// The first `threads` threads that are in a handler now, but this one.
    pub fn snapshot(&self, thread: usize, threads: usize, into: &mut Snapshot) {
        into.running.clear();
        // Behind all reads of this handler.
        fence(Ordering::Acquire);
        for (number, counter) in self.counters.iter().take(threads).enumerate() {
            let value = counter.0.load(Ordering::Acquire);
            if number != thread && value & 1 == 1 {
                into.running.push((number as u16, value));
            }
        }
    }

    /// Whether all of them have checked their runs since.
    pub fn has_passed(&self, snapshot: &mut Snapshot) -> bool {
        snapshot
            .running
            .retain(|&(number, value)| self.counters[number as usize].0.load(Ordering::Acquire) == value);
        snapshot.running.is_empty()
    }
}

impl Snapshot {
    /// No thread to wait for.
    pub const fn new() -> Self {
        Self { running: Vec::new() }
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.running.clear();
    }
}
