//! Binds a lock to one schedule at a time: if two schedules granted it, it would have two owners.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Brands in use and the last one given. Bookkeeping only: no decision and no state depends on a brand's value.
static LIVE: Mutex<(BTreeSet<u64>, u64)> = Mutex::new((BTreeSet::new(), 0));

/// Identity of one schedule, alive until its last worker and handle are gone.
pub struct Brand(u64);

impl Brand {
    pub fn new() -> Self {
        let mut live = LIVE.lock();
        live.1 += 1;
        let brand = live.1;
        live.0.insert(brand);
        Brand(brand)
    }
}

impl Drop for Brand {
    fn drop(&mut self) {
        LIVE.lock().0.remove(&self.0);
    }
}

/// The schedule that a lock belongs to (0: none yet).
pub(crate) struct Bound(AtomicU64);

impl Bound {
    pub const fn new() -> Self {
        Bound(AtomicU64::new(0))
    }

    /// Binds to `brand` at the first use, and again when the earlier schedule has ended.
    ///
    /// # Panics
    /// If another living schedule has the lock: granting it twice would give two owners.
    #[inline]
    pub fn claim(&self, brand: &Brand) {
        if self.0.load(Ordering::Relaxed) != brand.0 {
            self.claim_slowly(brand);
        }
    }

    #[cold]
    fn claim_slowly(&self, brand: &Brand) {
        // The registry's mutex orders the end of the old schedule before this claim.
        let live = LIVE.lock();
        let old = self.0.load(Ordering::Relaxed);
        // panics: a service that gives its locks to two schedules
        assert!(old == brand.0 || !live.0.contains(&old), "a lock is used by two schedules at once");
        self.0.store(brand.0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lock_changes_hands_only_after_its_schedule_ended() {
        let (first, second) = (Brand::new(), Brand::new());
        let bound = Bound::new();
        bound.claim(&first);
        bound.claim(&first);
        let both = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bound.claim(&second)));
        assert!(both.is_err(), "two living schedules");
        drop(first);
        bound.claim(&second);
    }
}
