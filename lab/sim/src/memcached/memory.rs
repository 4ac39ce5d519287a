//! Which items may be missing where memory is short: the service chooses the item to evict, but one that has just been
//! written stays, and one that is gone stays gone.

use std::collections::BTreeMap;

/// Short memory of the whole service in bytes: far less than the clients' keys need.
pub const SHORT: u64 = 256 << 10;
/// Longest item there, in bytes.
pub const ITEM_BYTES: usize = 8 << 10;
/// Bytes that are written, the item's own among them, before it may be evicted: the queue of new items has a tenth of a
/// shard's memory (S3-FIFO).
const FRESH: u64 = SHORT / super::SHARDS as u64 / 16;
/// What the service charges for an item besides key and value, in bytes.
const OVERHEAD: u64 = 160;
/// Versions that are remembered.
const KEPT: usize = 50_000;

/// When an item was written, last seen, and first found missing.
#[derive(Clone, Copy, Debug, Default)]
struct Sightings {
    seen: Option<vote::Place>,
    missed: Option<vote::Place>,
}

/// Observations of items that may be evicted, by the version that [`super::model`] gave them.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    written: u64,
    begun: BTreeMap<u64, u64>,
    sightings: BTreeMap<u64, Sightings>,
    evicted: u64,
}

impl Memory {
    /// An item with this many bytes of key and value is written as `version`.
    pub fn write(&mut self, version: u64, bytes: usize) {
        self.begun.insert(version, self.written);
        self.written += bytes as u64 + OVERHEAD;
        while self.begun.len() > KEPT {
            self.begun.pop_first();
        }
    }

    /// Whether the item may be missing by now.
    pub fn may_miss(&self, version: u64) -> bool {
        self.begun.get(&version).is_none_or(|begun| self.written - begun > FRESH)
    }

    /// The item was there at `place`, or it was not.
    ///
    /// # Errors
    /// When it is present again after it was gone.
    pub fn look(&mut self, version: u64, place: vote::Place, there: bool) -> Result<(), String> {
        let sightings = self.sightings.entry(version).or_default();
        if there {
            sightings.seen = sightings.seen.max(Some(place));
        } else {
            self.evicted += u64::from(sightings.missed.is_none());
            sightings.missed = Some(sightings.missed.map_or(place, |missed| missed.min(place)));
        }
        let sightings = *sightings;
        while self.sightings.len() > KEPT {
            self.sightings.pop_first();
        }
        match (sightings.seen, sightings.missed) {
            (Some(seen), Some(missed)) if seen > missed => {
                Err(format!("an item that was gone at {missed} is back at {seen}"))
            }
            _ => Ok(()),
        }
    }

    /// Items that were seen to be gone.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fresh_stays_and_what_is_gone_stays_gone() {
        let mut memory = Memory::default();
        let at = |batch| vote::Place::new(batch, 0);
        memory.write(1, 100);
        assert!(!memory.may_miss(1));
        memory.write(2, 3000);
        assert!(!memory.may_miss(1) && !memory.may_miss(2));
        // Short ones take memory as well.
        (3..8).for_each(|version| memory.write(version, 20));
        assert!(memory.may_miss(1) && !memory.may_miss(2));
        memory.write(8, 20);
        assert!(memory.may_miss(2) && !memory.may_miss(8));
        memory.look(1, at(5), true).unwrap();
        memory.look(1, at(7), false).unwrap();
        memory.look(1, at(6), true).unwrap();
        assert_eq!(memory.evicted(), 1);
        assert!(memory.look(1, at(8), true).is_err());
    }
}
