//! What a request did, kept beyond its end: it can be rolled back later, together with the requests behind it.
//!
//! Eve (OSDI 2012, sections 4.2 and 6.1) executes a batch before replicas have agreed on its result, and rolls it back
//! where they do not. Requests of all batches that may still be rolled back are kept, each with the before-images of
//! what it changed. They are rolled back newest first: [`crate::Region::roll_back`].

use smallvec::{SmallVec, smallvec};

use crate::checksum::UNSEALED;
use crate::delta::Change;
use crate::id::{ObjectId, RegionId};
use crate::ledger::{Entry, EntryState, Ledger, Opened, Undo};

/// As many objects as an ordinary request enters: notes on them need no memory of their own.
const FEW_OBJECTS: usize = 16;

/// An object's checksum before the request, and the region that it was in then.
type StateBefore = (u64, Option<RegionId>);

/// A finished request that can be rolled back.
#[derive(Debug)]
pub struct Kept {
    pub(crate) ledger: Ledger,
}

impl Kept {
    /// Of no request: its buffers are for [`crate::request::finish_keeping`].
    pub const fn new() -> Self {
        Kept { ledger: Ledger::new() }
    }

    /// Of no request any more: only its buffers are left.
    pub fn emptied(mut self) -> Kept {
        self.ledger.clear();
        self
    }

    /// The objects that the request changed, created or removed, sorted by (region id, object id). An object that it
    /// created and removed again is not among them.
    ///
    /// An object inside of another one that was moved to another region's store is said to be in its old region.
    pub fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        self.append_changes(&mut changes);
        changes
    }

    /// Appends [`Kept::changes`].
    pub fn append_changes(&self, changes: &mut Vec<Change>) {
        let Ledger { entries, undo, .. } = &self.ledger;
        let from = changes.len();
        // Each object's checksum before its first step, and the region that it was in then.
        let mut before: SmallVec<[Option<StateBefore>; FEW_OBJECTS]> = smallvec![None; entries.len()];
        for step in undo {
            let sum = match step {
                Undo::Changed { sum, .. } | Undo::Removed { sum, .. } => *sum,
                Undo::Inserted { .. } => UNSEALED,
            };
            if let Some(number) = self.ledger.position(step.id()) {
                before[number]
                    .get_or_insert((sum, step.place().and_then(|place| self.region_id_of(place.store))));
            }
        }
        for (entry, before) in entries.iter().zip(&before) {
            let region_id = entry.region_id.or(before.and_then(|(_, region_id)| region_id));
            let Some(region_id) = region_id.filter(|_| !self.is_gone(entry.id)) else { continue };
            let new = if entry.state == EntryState::Removed { Change::ABSENT } else { present(entry.sum) };
            let (old, old_region_id) = before.unwrap_or((entry.found, None));
            let (old, old_region_id) = (present(old), old_region_id.unwrap_or(region_id));
            if old_region_id == region_id {
                changes.push(Change { region_id, id: entry.id, old, new });
            } else {
                changes.push(Change { region_id: old_region_id, id: entry.id, old, new: Change::ABSENT });
                changes.push(Change { region_id, id: entry.id, old: Change::ABSENT, new });
            }
        }
        for gone in self.ledger.gone.iter().filter(|gone| !gone.is_back) {
            let Some(region_id) =
                self.ledger.position(gone.owner).and_then(|number| entries[number].region_id)
            else {
                continue;
            };
            let first = self.ledger.position(gone.id).and_then(|number| before[number]);
            let (old, old_region_id) = first.unwrap_or((gone.sum, None));
            let region_id = old_region_id.unwrap_or(region_id);
            changes.push(Change { region_id, id: gone.id, old: present(old), new: Change::ABSENT });
        }
        let mut kept = from;
        for at in from..changes.len() {
            if changes[at].old != changes[at].new {
                changes.swap(kept, at);
                kept += 1;
            }
        }
        changes.truncate(kept);
        changes[from..].sort_unstable();
    }

    /// Shows the objects that the request changed, created or removed, and the regions that they were or are in, some
    /// of them twice: those of [`crate::request::changed_objects`].
    pub fn each_changed(&self, visit: &mut dyn FnMut(RegionId, ObjectId)) {
        self.ledger.changed(&mut |region_id, object| visit(region_id, object.id));
    }

    /// Whether the request has changed nothing: there is nothing to roll back, and nothing for a tree.
    pub fn is_read_only(&self) -> bool {
        let Ledger { entries, undo, gone, .. } = &self.ledger;
        let has_read = |entry: &Entry| entry.state == EntryState::Read && entry.opened == Opened::No;
        undo.is_empty() && gone.is_empty() && entries.iter().all(has_read)
    }

    /// The regions that there is something to roll back in.
    pub fn region_ids(&self) -> Vec<RegionId> {
        let of_object = |id| self.ledger.entries[self.ledger.position(id)?].region_id;
        let of_step = |step: &Undo| match step.place() {
            Some(place) => self.region_id_of(place.store),
            None => of_object(step.id()),
        };
        let mut region_ids: Vec<RegionId> = self.ledger.undo.iter().filter_map(of_step).collect();
        region_ids.sort_unstable();
        region_ids.dedup();
        region_ids
    }

    /// Whether every effect was rolled back, or there was none.
    pub fn is_rolled_back(&self) -> bool {
        self.ledger.undo.is_empty()
    }

    /// Memory of its notes and before-images, in bytes, without room that is not used.
    pub fn bytes(&self) -> usize {
        let Ledger { entries, images, undo, gone, .. } = &self.ledger;
        size_of_val(entries.as_slice())
            + size_of_val(undo.as_slice())
            + size_of_val(gone.as_slice())
            + images.len()
    }

    /// Flips a bit, chosen by `seed`, of the before-images; false if there are none: an injected fault.
    #[cfg(feature = "inject")]
    pub fn damage(&mut self, seed: u64) -> bool {
        self.ledger.damage_images(seed)
    }

    /// Leaves out steps on objects that were in no region when they were made: not yet, as the request at `position`
    /// created them, or no longer. What brings their owners back, or lets them vanish, does the same for them.
    pub(crate) fn forget_outside(&mut self, position: u64) {
        let mut undo = std::mem::take(&mut self.ledger.undo);
        let mut outside: Vec<ObjectId> = Vec::new();
        undo.retain(|step| {
            match step {
                Undo::Removed { inside, .. } => {
                    let with_it = self.ledger.gone.get(inside.clone()).unwrap_or_default();
                    outside.extend(with_it.iter().map(|gone| gone.id));
                }
                Undo::Inserted { id, .. } => {
                    let with_it = self.ledger.gone.iter().filter(|gone| gone.owner == *id);
                    outside.retain(|other| other != id && !with_it.clone().any(|gone| gone.id == *other));
                }
                Undo::Changed { id, sum, .. } => {
                    let is_new = *sum == UNSEALED && id.position() == position;
                    if is_new || outside.contains(id) {
                        return false;
                    }
                }
            }
            step.place().is_none_or(|place| self.region_id_of(place.store).is_some())
        });
        self.ledger.undo = undo;
    }

    /// The region of a store: one in which objects of the request are, that they have left, or inside of an object that
    /// has left its own.
    fn region_id_of(&self, store: usize) -> Option<RegionId> {
        let Ledger { left, gone_stores, entries, .. } = &self.ledger;
        let are = entries.iter().filter(|entry| entry.place.is_some_and(|place| place.store == store));
        let were = left.iter().filter(|(place, _)| *place == store);
        let owners = gone_stores.iter().filter(|(place, _)| *place == store);
        are.filter_map(|entry| entry.region_id)
            .chain(were.filter_map(|(_, region_id)| *region_id))
            .chain(owners.filter_map(|(_, owner)| entries[self.ledger.position(*owner)?].region_id))
            .next()
    }

    /// Whether the object went with the one that it is inside of.
    fn is_gone(&self, id: ObjectId) -> bool {
        self.ledger.gone.iter().any(|gone| gone.id == id && !gone.is_back)
    }
}

impl Default for Kept {
    fn default() -> Self {
        Kept::new()
    }
}

/// A checksum of a sealed object; one that no request has sealed is in no tree.
fn present(sum: u64) -> u64 {
    if sum == UNSEALED { Change::ABSENT } else { sum }
}
