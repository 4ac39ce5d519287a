//! The list of objects that a request has entered, with its undo log; its buffers are kept from request to request.

use crate::checksum::UNSEALED;
use crate::id::{ObjectId, RegionId};
use crate::parts::{At, Located, Location};
use crate::place::StorePlace;
use std::collections::BTreeSet;
use std::ops::Range;

/// Entries up to this number are searched one by one; more get an index.
const SCAN_MAX: usize = 16;

/// The use of an object by a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryState {
    /// Entered and checked; its checksum stands.
    Read,
    /// Its hot members have changed since these words: its checksum is continued when the request ends.
    Hot(u64),
    /// Created or changed (or never sealed): it is summed when the request ends.
    Open,
    /// Taken out of its store.
    Removed,
}

impl EntryState {
    /// Whether the object's checksum is out of date.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, EntryState::Open | EntryState::Hot(_))
    }
}

/// What of an object a request may change, having kept it as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Opened {
    /// Nothing.
    No,
    /// Its hot members.
    Hot,
    /// All of it.
    Whole,
}

/// One object that the request has entered.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: ObjectId,
    /// The address of its header, when it was entered last.
    pub(crate) address: usize,
    /// Where it lies, if in a store.
    pub(crate) place: Option<StorePlace>,
    /// Region that claimed it, when it was sealed or noted.
    pub(crate) region_id: Option<RegionId>,
    pub(crate) sum: u64,
    /// Its checksum when the request found it; [`UNSEALED`](crate::checksum::UNSEALED) if the request created it.
    pub(crate) found: u64,
    pub(crate) state: EntryState,
    /// Which methods that change it were entered: what they change has been kept as it was.
    pub(crate) opened: Opened,
}

impl Entry {
    /// What of the object may be changed now without asking the ledger again.
    pub(crate) fn may_change(&self) -> Opened {
        match self.state {
            EntryState::Read => Opened::No,
            EntryState::Hot(_) => Opened::Hot,
            EntryState::Open | EntryState::Removed => self.opened,
        }
    }
}

/// One step to roll back, newest first.
#[derive(Clone, Debug)]
pub(crate) enum Undo {
    /// The object was changed.
    Changed { id: ObjectId, place: Option<StorePlace>, before: UndoImage, sum: u64 },
    /// The object was put into a store.
    Inserted { id: ObjectId, place: StorePlace },
    /// The object was taken out of a store; `inside` are the places of what went with it in the list of these.
    Removed { id: ObjectId, place: StorePlace, image: Range<usize>, sum: u64, inside: Range<usize> },
}

/// What a request changed, as it was.
#[derive(Clone, Debug)]
pub(crate) enum UndoImage {
    /// All members: where their image lies.
    Members(Range<usize>),
    /// The hot members as words.
    Hot(u64),
}

impl Undo {
    /// The object.
    pub(crate) fn id(&self) -> ObjectId {
        match self {
            Undo::Changed { id, .. } | Undo::Inserted { id, .. } | Undo::Removed { id, .. } => *id,
        }
    }

    /// Where the object was put, taken out or changed, if in a store.
    pub(crate) fn place(&self) -> Option<StorePlace> {
        match self {
            Undo::Changed { place, .. } => *place,
            Undo::Inserted { place, .. } | Undo::Removed { place, .. } => Some(*place),
        }
    }
}

/// An object that left inside of another one, which was taken out of its store.
#[derive(Clone, Debug)]
pub(crate) struct Gone {
    pub(crate) id: ObjectId,
    /// Its checksum then: that of before the request if the request had not changed it.
    pub(crate) sum: u64,
    /// The object that was taken out of its store.
    pub(crate) owner: ObjectId,
    /// The packed object, with its own owner.
    pub(crate) image: Range<usize>,
    /// It is in a store again, or in an object that is.
    pub(crate) is_back: bool,
}

/// All notes of one request.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) entries: Vec<Entry>,
    pub(crate) images: Vec<u8>,
    pub(crate) undo: Vec<Undo>,
    pub(crate) gone: Vec<Gone>,
    /// Stores that objects have left for another one, with their regions: known once these are sealed.
    pub(crate) left: Vec<(usize, Option<RegionId>)>,
    /// Stores inside of objects that were taken out of theirs.
    pub(crate) gone_stores: Vec<(usize, ObjectId)>,
    /// Open addressing, slots hold 1 + number of the entry; a fixed hash, so that no run differs from another.
    index: Vec<u32>,
}

impl Ledger {
    pub(crate) const fn new() -> Self {
        Ledger {
            entries: Vec::new(),
            images: Vec::new(),
            undo: Vec::new(),
            gone: Vec::new(),
            left: Vec::new(),
            gone_stores: Vec::new(),
            index: Vec::new(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.images.clear();
        self.undo.clear();
        self.gone.clear();
        self.left.clear();
        self.gone_stores.clear();
        self.index.clear();
    }

    #[inline]
    pub(crate) fn position(&self, id: ObjectId) -> Option<usize> {
        if self.index.is_empty() {
            return self.entries.iter().position(|entry| entry.id == id);
        }
        let mask = self.index.len() - 1;
        let mut slot = hash(id) & mask;
        loop {
            let number = self.index[slot].checked_sub(1)? as usize;
            if self.entries[number].id == id {
                return Some(number);
            }
            slot = (slot + 1) & mask;
        }
    }

    pub(crate) fn find_mut(&mut self, id: ObjectId) -> Option<&mut Entry> {
        self.position(id).map(|number| &mut self.entries[number])
    }

    /// The object's entry; a new one is marked as created.
    pub(crate) fn find_or_insert(&mut self, id: ObjectId) -> &mut Entry {
        let number = self.position(id).unwrap_or_else(|| self.insert(id));
        &mut self.entries[number]
    }

    /// An object that had gone with another one is part of a region again.
    pub(crate) fn bring_back(&mut self, id: ObjectId) {
        self.gone.iter_mut().filter(|gone| gone.id == id).for_each(|gone| gone.is_back = true);
    }

    /// Shows the objects that the request has changed, created or removed, and the regions that they were or are in,
    /// once these are sealed; some of them twice, and of an object that was moved between stores every region that the
    /// request has changed something in. Equal at all replicas.
    pub(crate) fn changed(&self, visit: &mut dyn FnMut(RegionId, Located)) {
        let is_changed = |entry: &&Entry| {
            entry.opened != Opened::No || entry.state == EntryState::Removed || entry.found == UNSEALED
        };
        let changed = self.entries.iter().filter(is_changed);
        let all = || {
            let left = self.left.iter().filter_map(|(_, region_id)| *region_id);
            let regions = self.entries.iter().filter_map(|entry| entry.region_id).chain(left);
            regions.collect::<BTreeSet<RegionId>>()
        };
        let have_moved = !self.left.is_empty();
        for entry in changed {
            let at = match (entry.state, entry.place) {
                (EntryState::Removed, _) => At::Removed,
                (_, Some(place)) => At::Slot(place),
                (_, None) => At::Root,
            };
            match entry.region_id.filter(|_| !have_moved) {
                Some(region_id) => visit(region_id, Located { id: entry.id, location: Location(at) }),
                None => {
                    let at = if at == At::Removed { at } else { At::Unknown };
                    let object = Located { id: entry.id, location: Location(at) };
                    all().into_iter().for_each(|region_id| visit(region_id, object));
                }
            }
        }
        for gone in &self.gone {
            let at = if gone.is_back { At::Unknown } else { At::Removed };
            let object = Located { id: gone.id, location: Location(at) };
            all().into_iter().for_each(|region_id| visit(region_id, object));
        }
    }

    /// Keeps a before-image.
    pub(crate) fn keep(&mut self, image: &[u8]) -> Range<usize> {
        let start = self.images.len();
        self.images.extend_from_slice(image);
        start..self.images.len()
    }

    /// Keeps the before-image of a whole object, which `pack` appends.
    pub(crate) fn pack_image(&mut self, pack: impl FnOnce(&mut Vec<u8>)) -> UndoImage {
        let start = self.images.len();
        pack(&mut self.images);
        UndoImage::Members(start..self.images.len())
    }

    /// Flips a bit, chosen by `seed`, of the before-images; false if there are none: an injected fault.
    #[cfg(feature = "inject")]
    pub(crate) fn damage_images(&mut self, seed: u64) -> bool {
        let hot = |step| match step {
            &mut Undo::Changed { before: UndoImage::Hot(ref mut words), .. } => Some(words),
            _ => None,
        };
        let mut hot: Vec<&mut u64> = self.undo.iter_mut().filter_map(hot).collect();
        let packed = self.images.len() as u64 * 8;
        let Some(bit) = seed.checked_rem(packed + hot.len() as u64 * 64) else { return false };
        match bit.checked_sub(packed) {
            None => self.images[(bit / 8) as usize] ^= 1 << (bit % 8),
            Some(bit) => *hot[(bit / 64) as usize] ^= 1 << (bit % 64),
        }
        true
    }

    /// Adds the entry of an object that the request created, and that has none; returns its number.
    pub(crate) fn insert(&mut self, id: ObjectId) -> usize {
        self.add(Entry {
            id,
            address: 0,
            place: None,
            region_id: None,
            sum: crate::checksum::UNSEALED,
            found: crate::checksum::UNSEALED,
            state: EntryState::Open,
            opened: Opened::No,
        });
        self.entries.len() - 1
    }

    /// Adds the entry of an object that has none.
    pub(crate) fn add(&mut self, entry: Entry) {
        let number = self.entries.len();
        self.entries.push(entry);
        if self.entries.len() > SCAN_MAX {
            if self.entries.len() * 2 > self.index.len() {
                self.rebuild_index();
            } else {
                self.index_entry(number);
            }
        }
    }

    /// Gives the entry of an object, if it has one, to its new name.
    pub(crate) fn rename(&mut self, from: ObjectId, to: ObjectId) {
        let Some(number) = self.position(from) else { return };
        self.entries[number].id = to;
        if !self.index.is_empty() {
            self.rebuild_index();
        }
    }

    fn rebuild_index(&mut self) {
        let slots = (self.entries.len() * 4).next_power_of_two();
        self.index.clear();
        self.index.resize(slots, 0);
        for number in 0..self.entries.len() {
            self.index_entry(number);
        }
    }

    fn index_entry(&mut self, number: usize) {
        let mask = self.index.len() - 1;
        let mut slot = hash(self.entries[number].id) & mask;
        while self.index[slot] != 0 {
            slot = (slot + 1) & mask;
        }
        self.index[slot] = number as u32 + 1;
    }
}

fn hash(id: ObjectId) -> usize {
    (id.spread() >> 32) as usize
}
