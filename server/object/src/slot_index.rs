//! Finds objects whose references carry no hint, or a wrong one: after a repair or a state transfer.

use crate::id::ObjectId;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Searches before every object of the store is indexed, once: after a state transfer no reference has a hint, and
/// a scan for each would take quadratic time.
const SCANS_MAX: u32 = 8;

/// Objects that may be added or removed without a search before the index is dropped: this many times the objects
/// known.
const IDLE_FACTOR: usize = 4;

/// A replica-local index of the locations of objects without a usable hint. Empty, and never searched, in the steady
/// state.
#[derive(Debug)]
pub(crate) struct SlotIndex {
    used: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    slots: BTreeMap<ObjectId, u32>,
    scans: u32,
    /// Objects that were added or removed since the last search.
    idle: usize,
}

impl SlotIndex {
    pub(crate) const fn new() -> Self {
        SlotIndex {
            used: AtomicBool::new(false),
            known: Mutex::new(Known { slots: BTreeMap::new(), scans: 0, idle: 0 }),
        }
    }

    /// The slot of `id` in a store that has `held` objects. `here` tests whether a slot holds it; `all` lists every
    /// object with its slot.
    ///
    /// That there is no such object is believed only of an index that is complete and right as far as it is known: a
    /// fault leaves one that is not. Of an object that was doubled, for instance, one entry remains, and it goes with
    /// the twin that it names. A request that finds an object missing which is there would blame its replica, much
    /// later than the fault, when another replica may be faulty.
    pub(crate) fn find<A: Iterator<Item = (ObjectId, u32)>>(
        &self,
        id: ObjectId,
        held: usize,
        here: impl Fn(u32) -> bool,
        all: impl Fn() -> A,
    ) -> Option<u32> {
        let mut known = match self.known.lock() {
            Ok(known) => known,
            // Nothing in here can be half done: entries are verified before use.
            Err(poisoned) => poisoned.into_inner(),
        };
        known.idle = 0;
        let entry = known.slots.get(&id).copied();
        if let Some(slot) = entry
            && here(slot)
        {
            return Some(slot);
        }
        if known.scans >= SCANS_MAX && entry.is_none() && known.slots.len() == held {
            return None;
        }
        known.scans = SCANS_MAX.min(known.scans + 1);
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
            self.age();
        }
    }

    /// The object leaves its slot.
    #[inline]
    pub(crate) fn forget(&mut self, id: ObjectId, slot: u32) {
        if *self.used.get_mut() {
            let slots = &mut self.known().slots;
            if slots.get(&id) == Some(&slot) {
                slots.remove(&id);
            }
            self.age();
        }
    }

    /// Drops the index after a long time without a search: a few repairs must not cost an index for ever.
    #[cold]
    fn age(&mut self) {
        let known = self.known();
        known.idle += 1;
        if known.idle > (known.slots.len() + 256) * IDLE_FACTOR {
            known.slots.clear();
            known.scans = 0;
            *self.used.get_mut() = false;
        }
    }

    fn known(&mut self) -> &mut Known {
        match self.known.get_mut() {
            Ok(known) => known,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> ObjectId {
        ObjectId::from_bits(number)
    }

    #[test]
    fn many_searches_build_an_index_that_is_kept_up_and_given_up() {
        let mut slot_index = SlotIndex::new();
        let all = || (0..100u32).map(|slot| (id(u64::from(slot)), slot));
        for number in 0..100 {
            assert_eq!(slot_index.find(id(number), 100, |_| true, all), Some(number as u32));
        }
        // Indexed now: a search that finds nothing does not check every slot.
        let nothing = || -> std::iter::Empty<_> { unreachable!() };
        assert_eq!(slot_index.find(id(100), 100, |_| true, nothing), None);
        slot_index.learn(id(100), 100);
        slot_index.forget(id(7), 7);
        assert_eq!(slot_index.find(id(100), 100, |_| true, nothing), Some(100));
        assert_eq!(slot_index.find(id(7), 100, |_| true, nothing), None);
        for _ in 0..2000 {
            slot_index.learn(id(200), 0);
            slot_index.forget(id(200), 0);
        }
        assert!(!*slot_index.used.get_mut() && slot_index.known().slots.is_empty());
    }

    #[test]
    fn what_an_entry_says_is_verified() {
        let slot_index = SlotIndex::new();
        let all = || [(id(1), 5u32), (id(2), 6)].into_iter();
        assert_eq!(slot_index.find(id(1), 2, |_| true, all), Some(5));
        // The object has a damaged id now: slot 5 does not hold it any more.
        let moved = || [(id(1), 9u32), (id(2), 6)].into_iter();
        assert_eq!(slot_index.find(id(1), 2, |slot| slot != 5, moved), Some(9));
        assert_eq!(slot_index.find(id(3), 2, |_| true, all), None);
    }
}
