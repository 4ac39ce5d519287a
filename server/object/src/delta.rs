//! The objects that one request touched: the value that replicas compare before a reply leaves.

use crate::id::{ObjectId, RegionId};
use crate::ledger::Entry;
use smallvec::SmallVec;

/// One line of a state delta: an object and its latest checksum (EDCC'16 section IV-B, the pair p = (C, I)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// Region the object lives in.
    pub region_id: RegionId,
    /// The object.
    pub id: ObjectId,
    /// Its checksum when the request left it, or [`Pair::REMOVED`].
    pub sum: u64,
}

impl Pair {
    /// Sum of an object that the request removed.
    pub const REMOVED: u64 = 0;
}

/// An object that a request changed, created or removed: its checksums before and behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Change {
    /// Region the object lives in.
    pub region_id: RegionId,
    /// The object.
    pub id: ObjectId,
    /// Its checksum before the request; [`Change::ABSENT`] if the request created it.
    pub old: u64,
    /// Its checksum behind the request; [`Change::ABSENT`] if the request removed it.
    pub new: u64,
}

impl Change {
    /// Sum of an object that is not there.
    pub const ABSENT: u64 = Pair::REMOVED;

    /// What takes it back.
    pub fn inverse(self) -> Change {
        Change { old: self.new, new: self.old, ..self }
    }
}

/// A request's state delta: one pair for each object it read, wrote, created or removed, sorted by (region id, object
/// id), without the reply's pair (EDCC'16 section IV-A: only the latest checksum of an object counts).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    pairs: SmallVec<[Pair; Touched::INLINE]>,
    unclaimed: u32,
}

impl Touched {
    /// Pairs that fit without an allocation. All of them, used or not, are copied whenever the delta is passed on.
    pub const INLINE: usize = 4;

    /// Makes it the delta of a request that has entered the objects of `entries`.
    pub(crate) fn fill(&mut self, entries: &[Entry]) {
        let claimed = entries.iter().filter_map(|entry| {
            let region_id = entry.region_id?;
            Some(Pair { region_id, id: entry.id, sum: entry.sum })
        });
        if entries.len() <= Self::INLINE {
            let mut few = [Pair { region_id: 0, id: ObjectId::NONE, sum: Pair::REMOVED }; Self::INLINE];
            let mut count = 0;
            for pair in claimed {
                // Mostly they are in order or nearly so.
                let mut at = count;
                while at > 0 && few[at - 1] > pair {
                    few[at] = few[at - 1];
                    at -= 1;
                }
                few[at] = pair;
                count += 1;
            }
            self.pairs = SmallVec::from_buf_and_len(few, count);
        } else {
            self.pairs.extend(claimed);
            if !self.pairs.is_sorted() {
                self.pairs.sort_unstable();
            }
        }
        self.unclaimed = (entries.len() - self.pairs.len()) as u32;
    }

    /// The pairs, sorted.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// The number of touched objects that no region claimed: objects created and dropped within the request, or objects
    /// of a region that was neither sealed nor noted, which is an error of the caller.
    pub fn unclaimed(&self) -> u32 {
        self.unclaimed
    }

    /// The pairs by value, without a copy of those that do not fit inline.
    pub fn into_pairs(self) -> SmallVec<[Pair; Touched::INLINE]> {
        self.pairs
    }
}

impl std::ops::Deref for Touched {
    type Target = [Pair];

    fn deref(&self) -> &[Pair] {
        &self.pairs
    }
}
