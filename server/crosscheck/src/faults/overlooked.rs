//! Keys that a service misses on purpose, for simulations of mode `R0GV`: requests run beside each other that conflict.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use vote::Place;
use wire::mix;

/// Batches in which the mixer does not know the keys of some requests: a service whose keys are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlookedKeys {
    /// The first batch.
    pub from: u64,
    /// The last one.
    pub to: u64,
    /// Chooses the requests, at all replicas alike.
    pub seed: u64,
}

/// Those of one replica. While there are none, a request costs one relaxed load.
#[derive(Default)]
pub(crate) struct Overlooked {
    is_set: AtomicBool,
    keys: Mutex<Option<OverlookedKeys>>,
}

impl Overlooked {
    pub fn set(&self, keys: OverlookedKeys) {
        *self.keys.lock() = Some(keys);
        self.is_set.store(true, Ordering::Release);
    }

    /// Whether the mixer misses the keys of this request: seven of eight.
    pub fn has(&self, place: Place) -> bool {
        if !self.is_set.load(Ordering::Acquire) {
            return false;
        }
        let Some(keys) = *self.keys.lock() else { return false };
        let number = place.batch << 16 | u64::from(place.request);
        (keys.from..=keys.to).contains(&place.batch) && !mix(keys.seed ^ number).is_multiple_of(8)
    }
}
