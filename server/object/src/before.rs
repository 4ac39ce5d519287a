//! An object as it was before a finished request: what a replica sends that is asked for an earlier version.
//!
//! Before-images stay on their replica: their references carry hints, and they lack the owner and the member in which
//! the object lies. So the object is put back for a moment, packed as for any replica, and the present one is put in
//! its place again. The caller has the region alone.

use crate::any::AnyObject;
use crate::checksum::UNSEALED;
use crate::id::ObjectId;
use crate::kept::Kept;
use crate::ledger::{Ledger, Undo, UndoImage};
use crate::package;
use crate::request::{self, Taken};
use crate::walk::{self, Places};

/// An object before a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectBefore {
    /// The request did not change, create or remove it.
    Same,
    /// It did not exist.
    Absent,
    /// It was this, packed.
    Was(Vec<u8>),
    /// Its place is gone too, or its before-image cannot be read.
    Unknown,
}

pub(crate) fn pack_before(root: &mut dyn AnyObject, kept: &Kept, id: ObjectId) -> ObjectBefore {
    let ledger = &kept.ledger;
    let Some(first) = ledger.undo.iter().find(|step| step.id() == id) else {
        // It came or went inside of another one, and has no step of its own.
        let is_gone = ledger.gone.iter().any(|gone| gone.id == id);
        let is_new = ledger.position(id).is_some_and(|number| ledger.entries[number].found == UNSEALED);
        return match (is_gone, is_new) {
            (true, _) => ObjectBefore::Unknown,
            (false, true) => ObjectBefore::Absent,
            (false, false) => ObjectBefore::Same,
        };
    };
    let (image, sum) = match first {
        Undo::Inserted { .. } => return ObjectBefore::Absent,
        Undo::Changed { before: UndoImage::Members(image), sum, .. } | Undo::Removed { image, sum, .. } => {
            (image.clone(), *sum)
        }
        // Requests that are kept keep whole objects (`request::begin_with_whole_images`).
        Undo::Changed { before: UndoImage::Hot(_), .. } => return ObjectBefore::Unknown,
    };
    let Some(body) = ledger.images.get(image) else { return ObjectBefore::Unknown };
    let packed = {
        let _taken = Taken::new();
        match package::find(root, id).is_some() {
            true if is_where_it_was(root, ledger, first) => swapped(root, id, (body, sum)),
            true => None,
            false => created(root, ledger, first, (body, sum)),
        }
    };
    packed.map_or(ObjectBefore::Unknown, ObjectBefore::Was)
}

/// Whether the object is in the store that it was in. One that has moved would be packed with its present owner.
fn is_where_it_was(root: &mut dyn AnyObject, ledger: &Ledger, step: &Undo) -> bool {
    let Some(place) = step.place() else { return true };
    let places = Places { entries: &ledger.entries, undo: &ledger.undo };
    let mut is_there = false;
    walk::with_store(root, place.store, places, &mut |store| is_there = store.find(step.id()).is_some());
    is_there
}

/// Whether an object that was put back fits the checksum that it had: a before-image may have been corrupted.
fn fits(object: &mut dyn AnyObject, sum: u64) -> bool {
    object.header_mut().seal(sum);
    sum == UNSEALED || walk::sums_up(object)
}

/// Packs an object that exists with another body and its checksum. None if it does not exist, or does not fit.
fn swapped(root: &mut dyn AnyObject, id: ObjectId, (body, before): (&[u8], u64)) -> Option<Vec<u8>> {
    let mut present = Vec::new();
    let (mut sum, mut is_right) = (None, false);
    package::with_object(root, id, &mut |object| {
        request::locally(|| object.pack_image(&mut present));
        let is_put_back = request::locally(|| object.replace_image(body)).is_ok();
        sum = is_put_back.then(|| object.header().sum());
        is_right = is_put_back && fits(object, before);
    });
    let sum = sum?;
    let packed = package::pack_taken(root, id).filter(|_| is_right);
    package::with_object(root, id, &mut |object| {
        // What was just packed can be unpacked; if a fault prevents that, the object does not fit its checksum.
        let _ = request::locally(|| object.replace_image(&present));
        object.header_mut().seal(sum);
        object.sealed();
    });
    packed
}

/// Packs an object that does not exist any more. None if the store that it was in is gone too, or it does not fit.
fn created(
    root: &mut dyn AnyObject,
    ledger: &Ledger,
    step: &Undo,
    (body, before): (&[u8], u64),
) -> Option<Vec<u8>> {
    let store = step.place()?.store;
    let places = Places { entries: &ledger.entries, undo: &ledger.undo };
    let (mut slot, mut is_right) = (None, false);
    walk::with_store(root, store, places, &mut |store| {
        slot =
            request::locally(|| store.create(None, step.id(), &mut |object| object.replace_image(body))).ok();
        is_right = slot.and_then(|slot| store.slot_mut(slot)).is_some_and(|object| fits(object, before));
    });
    let slot = slot?;
    let packed = package::pack_taken(root, step.id()).filter(|_| is_right);
    walk::with_store(root, store, places, &mut |store| store.discard(slot));
    packed
}
