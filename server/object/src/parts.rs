//! Parts of a region: its objects are listed once, and then packed some at a time, so that no request waits for a whole
//! region; a receiver installs them as they come. An object may be packed several times, as it changes; the last
//! version counts.

use std::collections::BTreeMap;

use crate::any::AnyObject;
use crate::id::ObjectId;
use crate::member::Child;
use crate::package::{self, Found, Package};
use crate::place::StorePlace;
use crate::request::Taken;
use crate::walk;
use wire::{Malformed, Put, Reader};

/// Bytes that stand for an object that does not exist: its id. A packed object has more.
const ABSENT_BYTES: usize = 8;

/// An object, and where it was when it was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// The object.
    pub id: ObjectId,
    /// A hint: it stays on this replica, and a wrong one costs a search.
    pub location: Location,
}

/// Where an object was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location(pub(crate) At);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// In no store: the root, or an object that is a member of it.
    Root,
    /// In this slot, or in the object in it.
    Slot(StorePlace),
    /// Nowhere: it was removed. This is no hint.
    Removed,
    /// Not known.
    Unknown,
}

impl Location {
    /// Nowhere: the object was removed, and is not searched for.
    pub const REMOVED: Location = Location(At::Removed);
    /// The object has to be searched for.
    pub const UNKNOWN: Location = Location(At::Unknown);
}

/// Every object of the region, in the order of ids.
pub(crate) fn locate_all(root: &dyn AnyObject) -> Vec<Located> {
    let _taken = Taken::new();
    let mut all = Vec::new();
    locate(root, At::Root, &mut all);
    all.sort_unstable_by_key(|located| located.id);
    all
}

fn locate(object: &dyn AnyObject, at: At, all: &mut Vec<Located>) {
    all.push(Located { id: object.header().id(), location: Location(at) });
    object.children(&mut |_, child| match child {
        Child::Object(child) => locate(child, at, all),
        Child::Store(store) => {
            for slot in 0..store.slots() {
                if let Some(object) = store.slot(slot) {
                    // Inside of an object in a store, that one's slot counts.
                    let here = At::Slot(StorePlace { store: store.place(), slot });
                    locate(object, if at == At::Root { here } else { at }, all);
                }
            }
        }
    });
}

/// Packs these objects in their order, each behind its length, until `out` has grown by `limit` bytes (and at least
/// one). Returns how many, and adds those to `damaged` that do not fit their checksums.
pub(crate) fn pack_listed(
    root: &dyn AnyObject,
    objects: &[Located],
    limit: usize,
    out: &mut Vec<u8>,
    damaged: &mut Vec<ObjectId>,
) -> usize {
    let _taken = Taken::new();
    let start = out.len();
    // Made for the first object that is not where it was.
    let mut all: Option<Vec<Located>> = None;
    for (number, Located { id, location }) in objects.iter().enumerate() {
        if number > 0 && out.len() - start >= limit {
            return number;
        }
        let found = find_at(root, *id, location.0).or_else(|| {
            if location.0 == At::Removed {
                return None;
            }
            let all = all.get_or_insert_with(|| locate_all(root));
            let at = all.binary_search_by_key(id, |located| located.id).ok()?;
            find_at(root, *id, all[at].location.0)
        });
        match found {
            Some(found) => {
                let is_sealed = found.object.header().is_sealed();
                if !found.object.is_intact() || (is_sealed && !walk::sums_up(found.object)) {
                    damaged.push(*id);
                }
                out.put_sized(|out| package::write_found(&found, out));
            }
            None => put_absent(*id, out),
        }
    }
    objects.len()
}

/// Packs that an object does not exist.
pub(crate) fn put_absent(id: ObjectId, out: &mut Vec<u8>) {
    out.put_sized(|out| {
        out.put64(id.to_bits());
    });
}

/// The object, if it is there.
fn find_at(root: &dyn AnyObject, id: ObjectId, at: At) -> Option<Found<'_>> {
    match at {
        At::Root => find_outside_stores(Found::root(root), id),
        At::Slot(place) => find_in_slot(root, id, place),
        At::Removed | At::Unknown => None,
    }
}

fn find_outside_stores(found: Found<'_>, id: ObjectId) -> Option<Found<'_>> {
    let owner = found.object.header().id();
    if owner == id {
        return Some(found);
    }
    let mut result = None;
    found.object.children(&mut |member, child| {
        if let (None, Child::Object(object)) = (&result, child) {
            result = find_outside_stores(Found { object, owner, member }, id);
        }
    });
    result
}

fn find_in_slot(object: &dyn AnyObject, id: ObjectId, place: StorePlace) -> Option<Found<'_>> {
    let owner = object.header().id();
    let mut result = None;
    object.children(&mut |member, child| match child {
        _ if result.is_some() => {}
        Child::Object(object) => result = find_in_slot(object, id, place),
        Child::Store(store) => {
            if store.place() == place.store
                && let Some(object) = store.slot(place.slot)
            {
                result = package::find_in(Found { object, owner, member }, id);
            }
        }
    });
    result
}

/// Objects that have come before the ones that they are inside of.
#[derive(Debug, Default)]
pub struct Orphans {
    by_owner: BTreeMap<ObjectId, BTreeMap<ObjectId, Vec<u8>>>,
    owners: BTreeMap<ObjectId, ObjectId>,
    bytes: usize,
}

impl Orphans {
    /// Their memory, in bytes, without that of the lists.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there are none: then all that has come is in place.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    fn put(&mut self, package: &Package<'_>, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.owners.insert(package.id, package.owner);
        self.by_owner.entry(package.owner).or_default().insert(package.id, bytes.to_vec());
    }

    /// Forgets the earlier version of an object.
    fn forget(&mut self, id: ObjectId) {
        let Some(owner) = self.owners.remove(&id) else { return };
        if let Some(waiting) = self.by_owner.get_mut(&owner) {
            self.bytes -= waiting.remove(&id).map_or(0, |bytes| bytes.len());
            if waiting.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
    }

    /// Those that are inside of `owner`.
    fn take(&mut self, owner: ObjectId) -> BTreeMap<ObjectId, Vec<u8>> {
        let taken = self.by_owner.remove(&owner).unwrap_or_default();
        for (id, bytes) in &taken {
            self.owners.remove(id);
            self.bytes -= bytes.len();
        }
        taken
    }
}

/// Puts the objects of a part in place. `is_first` tells that none of them can be there already.
pub(crate) fn install_part(
    root: &mut dyn AnyObject,
    part: &[u8],
    is_first: bool,
    orphans: &mut Orphans,
) -> Result<(), Malformed> {
    let _taken = Taken::new();
    let mut from = Reader::new(part);
    while from.remaining() > 0 {
        let length = from.length32()?;
        let block = from.take(length)?;
        if length == ABSENT_BYTES {
            let id = ObjectId::from_bits(Reader::new(block).u64()?);
            orphans.forget(id);
            // They come again: another object may get this id.
            drop(orphans.take(id));
            // A part of another object vanishes with that one, which is among the absent ones too.
            package::drop_from_store(root, id);
        } else {
            install_one(root, block, is_first, orphans)?;
        }
    }
    Ok(())
}

/// Puts an object in place, and those that have waited for it.
fn install_one(
    root: &mut dyn AnyObject,
    block: &[u8],
    is_first: bool,
    orphans: &mut Orphans,
) -> Result<(), Malformed> {
    let package = Package::parse(block)?;
    if !is_first {
        orphans.forget(package.id);
        // One that has another owner now would be there twice.
        if package::find(root, package.id).is_some_and(|found| !found.lies_as(&package)) {
            package::drop_from_store(root, package.id);
        }
    }
    let mut outcome = None;
    if package.owner.is_none() {
        outcome = Some(package::put(root, &package));
    } else {
        package::with_object(root, package.owner, &mut |owner| {
            outcome = Some(package::put_inside(owner, &package, !is_first, false))
        });
    }
    match outcome {
        Some(outcome) => outcome?,
        None => {
            orphans.put(&package, block);
            return Ok(());
        }
    }
    for (_, block) in orphans.take(package.id) {
        install_one(root, &block, is_first, orphans)?;
    }
    Ok(())
}
