//! One object as bytes that any replica can put in place: for repair, state transfer and evidence.

use crate::any::{AnyObject, AnyStore};
use crate::checksum::UNSEALED;
use crate::id::ObjectId;
use crate::member::{Child, ChildMut};
use crate::request::Taken;
use crate::walk;
use wire::{Malformed, Put, Reader};

/// Version of the packed form.
const VERSION: u8 = 1;

/// An object in its region: itself, and the owner and member in which it lies.
pub(crate) struct Found<'a> {
    pub(crate) object: &'a dyn AnyObject,
    pub(crate) owner: ObjectId,
    pub(crate) member: u8,
}

impl<'a> Found<'a> {
    /// The root of a region.
    pub(crate) fn root(object: &'a dyn AnyObject) -> Self {
        Found { object, owner: ObjectId::NONE, member: 0 }
    }

    /// Whether it lies where the packed object belongs.
    pub(crate) fn lies_as(&self, package: &Package<'_>) -> bool {
        (self.owner, self.member) == (package.owner, package.member)
    }
}

/// A packed object, parsed but not trusted.
#[derive(Clone, Debug)]
pub(crate) struct Package<'a> {
    pub(crate) class: u32,
    pub(crate) id: ObjectId,
    /// The owner's id, [`ObjectId::NONE`] for the root.
    pub(crate) owner: ObjectId,
    /// Number of the owner's member in which the object lies.
    pub(crate) member: u8,
    /// The tracked members, each behind its length.
    pub(crate) body: &'a [u8],
}

impl<'a> Package<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        if from.u8()? != VERSION {
            return Err(Malformed("an unknown version"));
        }
        Ok(Package {
            class: from.u32()?,
            id: ObjectId::from_bits(from.u64()?),
            owner: ObjectId::from_bits(from.u64()?),
            member: from.u8()?,
            body: from.rest(),
        })
    }
}

fn write(object: &dyn AnyObject, owner: ObjectId, member: u8, out: &mut Vec<u8>) {
    out.put8(VERSION).put32(object.class().tag_of(object.version())).put64(object.header().id().to_bits());
    out.put64(owner.to_bits()).put8(member);
    object.pack_body(out);
}

/// Appends an object with the place that it has in its region.
pub(crate) fn write_found(found: &Found<'_>, out: &mut Vec<u8>) {
    write(found.object, found.owner, found.member, out);
}

pub(crate) fn pack(root: &dyn AnyObject, id: ObjectId) -> Option<Vec<u8>> {
    let _taken = Taken::new();
    pack_taken(root, id)
}

/// [`pack`] for a caller that has taken the ledger.
pub(crate) fn pack_taken(root: &dyn AnyObject, id: ObjectId) -> Option<Vec<u8>> {
    let found = find(root, id)?;
    let mut out = Vec::new();
    write_found(&found, &mut out);
    Some(out)
}

pub(crate) fn find(root: &dyn AnyObject, id: ObjectId) -> Option<Found<'_>> {
    find_in(Found::root(root), id)
}

pub(crate) fn find_in(found: Found<'_>, id: ObjectId) -> Option<Found<'_>> {
    let owner = found.object.header().id();
    if owner == id {
        return Some(found);
    }
    let mut result = None;
    found.object.children(&mut |member, child| match child {
        _ if result.is_some() => {}
        Child::Object(object) => result = find_in(Found { object, owner, member }, id),
        Child::Store(store) => {
            result = match store.find(id).and_then(|slot| store.slot(slot)) {
                Some(object) => Some(Found { object, owner, member }),
                None if store.nested() => (0..store.slots())
                    .filter_map(|slot| store.slot(slot))
                    .find_map(|object| find_in(Found { object, owner, member }, id)),
                None => None,
            };
        }
    });
    result
}

/// The same, to change it; false if there is no such object.
pub(crate) fn with_object(
    object: &mut dyn AnyObject,
    id: ObjectId,
    work: &mut dyn FnMut(&mut dyn AnyObject),
) -> bool {
    if object.header().id() == id {
        work(object);
        return true;
    }
    let mut found = false;
    object.children_mut(&mut |_, child| match child {
        _ if found => {}
        ChildMut::Object(object) => found = with_object(object, id, work),
        ChildMut::Store(store) => {
            if let Some(slot) = store.find(id) {
                if let Some(object) = store.slot_mut(slot) {
                    work(object);
                    found = true;
                }
            } else if store.nested() {
                for slot in 0..store.slots() {
                    if !found && let Some(object) = store.slot_mut(slot) {
                        found = with_object(object, id, work);
                    }
                }
            }
        }
    });
    found
}

pub(crate) fn replace(
    root: &mut dyn AnyObject,
    id: ObjectId,
    packed: Option<&[u8]>,
) -> Result<(), Malformed> {
    let _taken = Taken::new();
    match packed {
        None => drop_object(root, id),
        Some(bytes) => {
            let package = Package::parse(bytes)?;
            if package.id != id {
                return Err(Malformed("another id than it was asked for"));
            }
            install(root, &package, true)
        }
    }
}

/// Puts a package in place. `known` means that the object may be there already; otherwise no search for it is made.
fn install(root: &mut dyn AnyObject, package: &Package<'_>, known: bool) -> Result<(), Malformed> {
    if package.owner.is_none() {
        return put(root, package);
    }
    let mut outcome = Err(Malformed("an owner that does not exist"));
    with_object(root, package.owner, &mut |owner| outcome = put_inside(owner, package, known, known));
    outcome
}

/// Puts a package in its place in its owner. `tidies` drops the leftovers of a fault from the store that it is in.
pub(crate) fn put_inside(
    owner: &mut dyn AnyObject,
    package: &Package<'_>,
    known: bool,
    tidies: bool,
) -> Result<(), Malformed> {
    let mut outcome = Err(Malformed("a place in a member that holds no objects"));
    owner.children_mut(&mut |member, child| match child {
        _ if member != package.member => {}
        ChildMut::Object(object) => outcome = put(object, package),
        // A collection may have several stores, each with a class of its own.
        ChildMut::Store(store) => match store.class().of_tag(package.class) {
            Some(_) => outcome = put_into(store, package, known, tidies),
            None if outcome.is_err() => outcome = Err(Malformed(store.class().unknown)),
            None => {}
        },
    });
    outcome
}

pub(crate) fn put(object: &mut dyn AnyObject, package: &Package<'_>) -> Result<(), Malformed> {
    let class = object.class();
    let version = class.of_tag(package.class).ok_or(Malformed(class.unknown))?.version;
    object.replace_body(version, package.body)?;
    object.header_mut().rename(package.id);
    walk::reseal(object);
    Ok(())
}

fn put_into(
    store: &mut dyn AnyStore,
    package: &Package<'_>,
    known: bool,
    tidies: bool,
) -> Result<(), Malformed> {
    let own = if known { store.find(package.id) } else { None };
    let slot = match own {
        Some(slot) => {
            store.slot_mut(slot).map_or(Ok(()), |object| put(object, package))?;
            slot
        }
        None => store.create(None, package.id, &mut |object| put(object, package))?,
    };
    if tidies {
        tidy(store, package.id, slot, own.is_none());
    }
    Ok(())
}

/// Drops the leftovers of a fault: further objects of the same name; and, where an object had to be created because
/// its own id was damaged, the damaged one, which no reference reaches any more.
fn tidy(store: &mut dyn AnyStore, id: ObjectId, kept: u32, created: bool) {
    let mut excess = store.held().saturating_sub(store.population().count);
    for slot in 0..store.slots() {
        if excess == 0 {
            return;
        }
        let Some(object) = store.slot(slot) else { continue };
        let twin = object.header().id() == id && slot != kept;
        if twin || (created && slot != kept && object.header().is_sealed() && !walk::sums_up(object)) {
            store.discard(slot);
            excess -= 1;
        }
    }
}

fn drop_object(root: &mut dyn AnyObject, id: ObjectId) -> Result<(), Malformed> {
    // Also the twins, if a fault has doubled it.
    while find(root, id).is_some() {
        if !drop_from_store(root, id) {
            return Err(Malformed(
                "a name that belongs to a part of another object, which cannot be dropped",
            ));
        }
    }
    Ok(())
}

/// Drops an object, if it is there and in a store; a part of another object stays.
pub(crate) fn drop_from_store(root: &mut dyn AnyObject, id: ObjectId) -> bool {
    let Some((owner, member)) = find(root, id).map(|found| (found.owner, found.member)) else { return false };
    let mut dropped = false;
    with_object(root, owner, &mut |owner| {
        owner.children_mut(&mut |number, child| {
            if number == member
                && let ChildMut::Store(store) = child
                && let Some(slot) = store.find(id)
            {
                store.discard(slot);
                dropped = true;
            }
        });
    });
    dropped
}

/// Appends every object in the order of ids, each behind its length.
pub(crate) fn pack_all(root: &dyn AnyObject, out: &mut Vec<u8>) {
    let _taken = Taken::new();
    for found in collected(root) {
        out.put_sized(|out| write_found(&found, out));
    }
}

/// Every object, in the order of ids.
fn collected(root: &dyn AnyObject) -> Vec<Found<'_>> {
    let mut all = Vec::new();
    collect(Found::root(root), &mut all);
    all.sort_by_key(|found| found.object.header().id());
    all
}

fn collect<'a>(found: Found<'a>, all: &mut Vec<Found<'a>>) {
    let owner = found.object.header().id();
    found.object.children(&mut |member, child| match child {
        Child::Object(object) => collect(Found { object, owner, member }, all),
        Child::Store(store) => (0..store.slots())
            .filter_map(|slot| store.slot(slot))
            .for_each(|object| collect(Found { object, owner, member }, all)),
    });
    all.push(found);
}

/// Packs the objects inside of an object, owners before what they own: id, checksum and bytes of each.
pub(crate) fn pack_inside(object: &dyn AnyObject) -> Vec<(ObjectId, u64, Vec<u8>)> {
    let mut inside = Vec::new();
    pack_children(object, &mut inside);
    inside
}

fn pack_children(owner: &dyn AnyObject, inside: &mut Vec<(ObjectId, u64, Vec<u8>)>) {
    let id = owner.header().id();
    let mut pack = |object: &dyn AnyObject, member: u8| {
        let mut bytes = Vec::new();
        let header = object.header();
        write(object, id, member, &mut bytes);
        inside.push((header.id(), header.sum(), bytes));
        pack_children(object, inside);
    };
    owner.children(&mut |member, child| match child {
        Child::Object(object) => pack(object, member),
        Child::Store(store) => {
            (0..store.slots()).filter_map(|slot| store.slot(slot)).for_each(|object| pack(object, member));
        }
    });
}

/// Puts a packed object back into an object that it was inside of, with this checksum.
pub(crate) fn put_back_inside(
    object: &mut dyn AnyObject,
    id: ObjectId,
    sum: u64,
    packed: &[u8],
) -> Result<(), Malformed> {
    install(object, &Package::parse(packed)?, false)?;
    // One that was not sealed stays as `install` seals it.
    if sum != UNSEALED {
        with_object(object, id, &mut |object| object.header_mut().seal(sum));
    }
    Ok(())
}

pub(crate) fn load_all(root: &mut dyn AnyObject, packed: &[u8]) -> Result<(), Malformed> {
    let _taken = Taken::new();
    let mut waiting = Vec::new();
    let mut from = Reader::new(packed);
    while from.remaining() > 0 {
        let length = from.length32()?;
        waiting.push(Package::parse(from.take(length)?)?);
    }
    empty(root);
    // Owners come before what they own, whatever the order of their ids: each round places at least one level.
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut last = Ok(());
        waiting.retain(|package| {
            let outcome = install(root, package, false);
            let placed = outcome.is_ok();
            last = last.and(outcome);
            !placed
        });
        if waiting.len() == before {
            return last;
        }
    }
    Ok(())
}

pub(crate) fn empty(object: &mut dyn AnyObject) {
    object.children_mut(&mut |_, child| match child {
        ChildMut::Object(object) => empty(object),
        ChildMut::Store(store) => (0..store.slots()).for_each(|slot| store.discard(slot)),
    });
}
