//! The batches that a replica holds: those it still has to deliver, those that others may ask for, and those of views
//! that have not begun here.

use std::collections::BTreeMap;

use crate::limits;
use crate::primary::message::PrimaryBatch;

/// Batches by their numbers, with the memory that they take.
#[derive(Debug)]
pub(crate) struct HeldBatches {
    batches: BTreeMap<u64, PrimaryBatch>,
    bytes: usize,
    /// [`limits::HELD_BYTES`].
    bound: usize,
}

impl Default for HeldBatches {
    fn default() -> Self {
        HeldBatches { batches: BTreeMap::new(), bytes: 0, bound: limits::HELD_BYTES }
    }
}

impl HeldBatches {
    /// With another bound of memory, in bytes.
    pub fn set_bound(&mut self, bound: usize) {
        self.bound = bound;
    }

    /// Holds a batch, unless there is one with its number.
    pub fn insert(&mut self, batch: PrimaryBatch) {
        let bytes = batch.message.len();
        if let std::collections::btree_map::Entry::Vacant(place) = self.batches.entry(batch.number) {
            place.insert(batch);
            self.bytes += bytes;
        }
    }

    /// The batch with this number.
    pub fn get(&self, number: u64) -> Option<&PrimaryBatch> {
        self.batches.get(&number)
    }

    /// Number of the first batch.
    pub fn first_number(&self) -> Option<u64> {
        self.batches.keys().next().copied()
    }

    /// Bytes of all batches.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is room only for what is due next.
    pub fn is_full(&self) -> bool {
        self.bytes > self.bound
    }

    /// Forgets all batches after this one.
    pub fn cut_after(&mut self, number: u64) {
        let dropped = self.batches.split_off(&(number + 1));
        self.bytes -= dropped.values().map(|batch| batch.message.len()).sum::<usize>();
    }

    /// Forgets the batches up to `unneeded`; and, while all take too much memory, the oldest up to `stable`.
    pub fn forget(&mut self, unneeded: u64, stable: u64) {
        while let Some(first) = self.batches.first_entry() {
            let number = *first.key();
            if number > unneeded && (number > stable || self.bytes <= self.bound) {
                break;
            }
            self.bytes -= first.remove().message.len();
        }
    }
}

/// Batches of views that have not begun here yet: per peer those of the latest view it spoke of. They spare the
/// requests for them, and nothing is lost without them.
#[derive(Debug, Default)]
pub(crate) struct EarlyBatches {
    of: BTreeMap<u8, Early>,
}

#[derive(Debug, Default)]
struct Early {
    view: u64,
    batches: Vec<PrimaryBatch>,
    bytes: usize,
}

impl EarlyBatches {
    /// Keeps a batch of a later view, if there is room.
    pub fn keep(&mut self, from: u8, batch: PrimaryBatch) {
        let early = self.of.entry(from).or_default();
        if batch.view > early.view {
            *early = Early { view: batch.view, ..Early::default() };
        }
        let bytes = early.bytes + batch.message.len();
        let has_room = early.batches.len() < limits::PRIMARY_WINDOW as usize;
        let is_short = early.batches.is_empty() || bytes <= limits::EARLY_BYTES;
        if batch.view == early.view && has_room && is_short {
            early.bytes = bytes;
            early.batches.push(batch);
        }
    }

    /// The kept batches of this view from its primary; those of earlier views are forgotten.
    pub fn take(&mut self, view: u64, primary: u8) -> Vec<PrimaryBatch> {
        let taken = match self.of.get_mut(&primary) {
            Some(early) if early.view == view => std::mem::take(&mut early.batches),
            _ => Vec::new(),
        };
        self.of.retain(|_, early| early.view > view);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Encoded;
    use crate::primary::tests::part;
    use bytes::Bytes;

    fn batch(view: u64, number: u64, len: usize) -> PrimaryBatch {
        let part = Encoded { body: Bytes::from(vec![0; len]), ..part(0, 1) };
        PrimaryBatch::new(view, number, false, &[part]).unwrap()
    }

    #[test]
    fn only_stable_batches_make_room() {
        let mut held = HeldBatches::default();
        (1..=20).for_each(|number| held.insert(batch(1, number, 4 << 20)));
        held.insert(batch(1, 20, 4 << 20));
        assert!(held.is_full());
        held.forget(0, 3);
        assert_eq!(held.first_number(), Some(4), "the rest is not stable, so others may need it");
        held.forget(0, 20);
        assert!(held.bytes() <= limits::HELD_BYTES && held.first_number() == Some(6));
        held.forget(9, 20);
        assert_eq!(held.first_number(), Some(10), "the others are not needed");
        held.cut_after(12);
        assert!(held.get(12).is_some() && held.get(13).is_none());
        held.cut_after(0);
        assert_eq!((held.bytes(), held.first_number()), (0, None));
    }

    #[test]
    fn a_peer_fills_no_memory_with_batches_of_later_views() {
        let mut early = EarlyBatches::default();
        (1..100).for_each(|number| early.keep(1, batch(9, number, 10)));
        (1..100).for_each(|number| early.keep(2, batch(9, number, 1 << 20)));
        early.keep(2, batch(8, 1, 10));
        assert_eq!(early.of[&1].batches.len(), limits::PRIMARY_WINDOW as usize);
        assert_eq!(early.of[&2].batches.len(), 3);
        early.keep(2, batch(10, 5, 8 << 20));
        assert_eq!(early.of[&2].batches.len(), 1, "the earlier view is over");
        assert_eq!(early.take(9, 1).len(), limits::PRIMARY_WINDOW as usize);
        assert_eq!(early.take(9, 2).len(), 0, "not in this view");
        assert_eq!(early.take(10, 2).len(), 1);
        assert!(early.of.is_empty());
    }
}
