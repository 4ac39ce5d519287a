//! A copy of a region that is made in parts while requests change it. No before-images are kept and nothing waits: an
//! object that changes after it was packed is packed again in a later round, and a last part with all that is left
//! makes the copy exact.
//!
//! Live migration of memory copies pages in the same way (Clark et al., NSDI 2005, section 3.2). What is added here:
//! the parts are made at ordered positions, and what a part contains is a function of the requests before it. So all
//! replicas make the same parts, and a receiver compares them.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::ObjectId;
use crate::parts::{Located, Location, put_absent};
use crate::region::Region;

/// How far a region has been copied, and what has changed since.
#[derive(Debug, Default)]
pub struct RegionCopy {
    /// The objects of this round, in the order of ids.
    listed: Vec<Located>,
    /// Those before this one are packed.
    next: usize,
    /// Objects that have changed since they were packed, or were created.
    dirty: BTreeMap<ObjectId, Location>,
    /// Objects that are gone since requests were rolled back. Others may have got their ids since.
    vanished: BTreeSet<ObjectId>,
    /// Rounds that have begun. The first one is over all objects.
    rounds: u32,
}

/// A part of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiedPart {
    /// The objects, packed ([`Region::install_part`]).
    pub bytes: Vec<u8>,
    /// How many objects these are; those that do not exist any more count.
    pub objects: usize,
    /// It belongs to the first round: none of its objects is in an earlier part.
    pub is_first: bool,
    /// Objects in it that do not fit their checksums here.
    pub damaged: Vec<ObjectId>,
}

impl RegionCopy {
    /// A copy that is the region as it is now: its parts have only what changes from here on.
    pub fn of_kept() -> Self {
        RegionCopy { rounds: 1, ..RegionCopy::default() }
    }

    /// A request has changed, created or removed an object of the region. Every object that it has must be named here,
    /// in any order, before the next part is packed; others may be.
    pub fn on_changed(&mut self, object: Located) {
        if self.rounds == 0 {
            return;
        }
        // No position behind the end: a fault may have hit it, and then every object counts as changed.
        let left = self.listed.get_mut(self.next..).unwrap_or_default();
        match left.binary_search_by_key(&object.id, |listed| listed.id) {
            Ok(at) => left[at].location = object.location,
            Err(_) => {
                self.dirty.insert(object.id, object.location);
            }
        }
    }

    /// Requests were rolled back that had changed, created or removed an object of the region, or had moved it there:
    /// what they had left may have been packed. `is_there` tells whether the object is in the region now.
    pub fn on_rolled_back(&mut self, id: ObjectId, is_there: bool) {
        self.on_changed(Located { id, location: Location::UNKNOWN });
        if !is_there && self.rounds > 0 {
            self.vanished.insert(id);
        }
    }

    /// Packs the next objects until there are `limit` bytes (and at least one object). A part may be empty: then none
    /// has changed.
    pub fn pack(&mut self, region: &dyn Region, limit: usize) -> CopiedPart {
        if self.is_round_over() {
            self.begin_round(region);
        }
        let mut part = CopiedPart { is_first: self.rounds == 1, ..CopiedPart::default() };
        // They are gone before anything comes that lies inside of one with the same id.
        std::mem::take(&mut self.vanished).into_iter().for_each(|id| put_absent(id, &mut part.bytes));
        let listed = &self.listed[self.next..];
        part.objects = region.pack_listed(listed, limit, &mut part.bytes, &mut part.damaged);
        self.next += part.objects;
        part
    }

    /// Packs all that is left: with this part, the copy is the region as it is now.
    pub fn pack_rest(&mut self, region: &dyn Region) -> CopiedPart {
        let mut rest = self.pack(region, usize::MAX);
        if !self.dirty.is_empty() {
            let last = self.pack(region, usize::MAX);
            rest.is_first = false;
            rest.objects += last.objects;
            rest.bytes.extend_from_slice(&last.bytes);
            rest.damaged.extend(last.damaged);
        }
        rest
    }

    /// Objects that [`RegionCopy::pack_rest`] would pack; none before the first part: then it would pack all.
    pub fn left(&self) -> Option<usize> {
        (self.rounds > 0).then(|| self.listed.len().saturating_sub(self.next) + self.dirty.len())
    }

    /// Whether the next part begins another round.
    pub fn is_round_over(&self) -> bool {
        self.next >= self.listed.len()
    }

    /// Forgets that an object has changed: an injected fault. False if none has.
    #[cfg(feature = "inject")]
    pub fn forget_changed(&mut self, seed: u64) -> bool {
        let forgotten = self.dirty.keys().nth(seed as usize % self.dirty.len().max(1)).copied();
        forgotten.is_some_and(|id| self.dirty.remove(&id).is_some())
    }

    /// Flips a bit of the position that the round has come to: an injected fault. False before the first part.
    #[cfg(feature = "inject")]
    pub fn corrupt_cursor(&mut self, bit: u32) -> bool {
        if self.rounds > 0 {
            self.next ^= 1 << (bit % usize::BITS);
        }
        self.rounds > 0
    }

    fn begin_round(&mut self, region: &dyn Region) {
        self.listed = match self.rounds {
            0 => region.locate_all(),
            _ => {
                let dirty = std::mem::take(&mut self.dirty).into_iter();
                dirty.map(|(id, location)| Located { id, location }).collect()
            }
        };
        self.next = 0;
        self.rounds += 1;
    }
}
