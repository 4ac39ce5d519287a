//! Finds objects whose references carry no hint, or a wrong one: after a repair or a state transfer.

use crate::id::ObjectId;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Searches before every object of the store is indexed, once: after a state transfer no reference has a hint, and
/// a scan for each would take quadratic time.
const SCANS_MAX: u32 = 8;

/// Replica-local memory of where objects without a usable hint lie. Empty, and never asked, in the steady state.
#[derive(Debug)]
pub(crate) struct Strays {
    used: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    slots: BTreeMap<ObjectId, u32>,
    scans: u32,
}

impl Strays {
    pub(crate) const fn new() -> Self {
        Strays { used: AtomicBool::new(false), known: Mutex::new(Known { slots: BTreeMap::new(), scans: 0 }) }
    }

    /// The slot of `id`. `here` says whether a slot holds it; `all` lists every object with its slot.
    pub(crate) fn find<A: Iterator<Item = (ObjectId, u32)>>(
        &self,
        id: ObjectId,
        here: impl Fn(u32) -> bool,
        all: impl Fn() -> A,
    ) -> Option<u32> {
        let mut known = match self.known.lock() {
            Ok(known) => known,
            // Nothing in here can be half done: entries are verified before use.
            Err(poisoned) => poisoned.into_inner(),
        };
        if let Some(&slot) = known.slots.get(&id)
            && here(slot)
        {
            return Some(slot);
        }
        if known.scans >= SCANS_MAX {
            return None;
        }
        known.scans += 1;
        self.used.store(true, Ordering::Relaxed);
        if known.scans == SCANS_MAX {
            // The first of two objects with the same (damaged) id wins, as in a scan.
            known.slots.clear();
            all().for_each(|(id, slot)| {
                known.slots.entry(id).or_insert(slot);
            });
            return known.slots.get(&id).copied();
        }
        let slot = all().find(|&(other, _)| other == id).map(|(_, slot)| slot)?;
        known.slots.insert(id, slot);
        Some(slot)
    }

    /// The object enters a slot.
    #[inline]
    pub(crate) fn learn(&mut self, id: ObjectId, slot: u32) {
        if *self.used.get_mut() {
            self.known().slots.insert(id, slot);
        }
    }

    /// The object leaves its slot.
    #[inline]
    pub(crate) fn forget(&mut self, id: ObjectId, slot: u32) {
        if *self.used.get_mut() && self.known().slots.get(&id) == Some(&slot) {
            self.known().slots.remove(&id);
        }
    }

    fn known(&mut self) -> &mut Known {
        match self.known.get_mut() {
            Ok(known) => known,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}
