//! Who may begin: counts the requests that run, and keeps others out for a boundary, which has the state alone.

use crate::sync::{AtomicU64, Ordering};

/// No request begins: the boundary comes as soon as what runs has ended.
const AT_ONCE: u64 = 1 << 63;
/// No batch begins: the boundary comes between two batches.
const BETWEEN: u64 = 1 << 62;
/// The low bits count what runs.
const RUNNING: u64 = BETWEEN - 1;

/// When a boundary is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// As soon as the requests that run have ended.
    pub at_once: bool,
    /// When the batch that has begun has ended.
    pub between: bool,
}

impl Wanted {
    fn bits(self) -> u64 {
        (u64::from(self.at_once) * AT_ONCE) | (u64::from(self.between) * BETWEEN)
    }
}

/// What a worker wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entering {
    /// Run a request of a batch that has begun.
    Request,
    /// Begin a batch.
    Batch,
}

/// One word: who runs, and whether a boundary is wanted.
pub(super) struct Gate(AtomicU64);

impl Gate {
    pub fn new() -> Self {
        Gate(AtomicU64::new(0))
    }

    /// Counts the caller among those that run; false if a boundary comes first.
    pub fn enter(&self, entering: Entering) -> bool {
        let closed = match entering {
            Entering::Request => AT_ONCE,
            Entering::Batch => AT_ONCE | BETWEEN,
        };
        let mut word = self.0.load(Ordering::Relaxed);
        while word & closed == 0 {
            match self.0.compare_exchange(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// The caller does not run any more. Returns whether a boundary may have waited for it.
    pub fn leave(&self) -> bool {
        let word = self.0.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(word & RUNNING > 0, "who leaves has entered");
        word & RUNNING == 1 && word & !RUNNING != 0
    }

    /// What is wanted now, if nothing runs.
    pub fn wanted_alone(&self) -> Option<Wanted> {
        let word = self.0.load(Ordering::Acquire);
        let wanted = Wanted { at_once: word & AT_ONCE != 0, between: word & BETWEEN != 0 };
        (word & RUNNING == 0 && wanted != Wanted::default()).then_some(wanted)
    }

    /// Counts the caller among those that run, as the only one, while the same boundary is wanted.
    pub fn enter_alone(&self, wanted: Wanted) -> bool {
        let word = wanted.bits();
        self.0.compare_exchange(word, word + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// A boundary is wanted, besides those that are wanted already.
    pub fn want(&self, wanted: Wanted) {
        self.0.fetch_or(wanted.bits(), Ordering::AcqRel);
    }

    /// Only these boundaries are wanted from now on. The caller has entered alone and keeps others from wanting one.
    pub fn still_wanted(&self, wanted: Wanted) {
        self.0.fetch_and(RUNNING | wanted.bits(), Ordering::AcqRel);
    }
}
