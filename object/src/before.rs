//! An object as it was before a finished request: what a replica sends that is asked for an earlier version.
//!
//! Before-images stay on their replica: their references carry hints, and they lack the owner and the member in which
//! the object lies. So the object is put back for a moment, packed as for any replica, and the present one is put in
//! its place again. The caller has the region alone.

use crate::any::AnyObject;
use crate::id::ObjectId;
use crate::kept::Kept;
use crate::ledger::{Ledger, Undo};
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
        // It went inside of another one, and has no step of its own.
        let is_gone = ledger.gone.iter().any(|gone| gone.id == id);
        return if is_gone { ObjectBefore::Unknown } else { ObjectBefore::Same };
    };
    let image = match first {
        Undo::Inserted { .. } => return ObjectBefore::Absent,
        Undo::Changed { image, .. } | Undo::Removed { image, .. } => image.clone(),
    };
    let Some(body) = ledger.images.get(image) else { return ObjectBefore::Unknown };
    let packed = {
        let _taken = Taken::new();
        swapped(root, id, body).or_else(|| created(root, ledger, first, body))
    };
    packed.map_or(ObjectBefore::Unknown, ObjectBefore::Was)
}

/// Packs an object that exists with another body. None if it does not exist.
fn swapped(root: &mut dyn AnyObject, id: ObjectId, body: &[u8]) -> Option<Vec<u8>> {
    let mut present = Vec::new();
    let mut sum = None;
    package::with_object(root, id, &mut |object| {
        request::locally(|| object.pack_body(&mut present));
        let is_put_back = request::locally(|| object.replace_body(body)).is_ok();
        sum = is_put_back.then(|| object.header().sum());
    });
    let sum = sum?;
    let packed = package::pack_taken(root, id);
    package::with_object(root, id, &mut |object| {
        // What was just packed can be unpacked; if a fault prevents that, the object does not fit its checksum.
        let _ = request::locally(|| object.replace_body(&present));
        object.header_mut().seal(sum);
        object.sealed();
    });
    packed
}

/// Packs an object that does not exist any more. None if the store that it was in is gone too.
fn created(root: &mut dyn AnyObject, ledger: &Ledger, step: &Undo, body: &[u8]) -> Option<Vec<u8>> {
    let store = step.place()?.store;
    let places = Places { entries: &ledger.entries, undo: &ledger.undo };
    let mut slot = None;
    walk::with_store(root, store, places, &mut |store| {
        slot = request::locally(|| store.create(None, step.id(), body)).ok();
    });
    let slot = slot?;
    let packed = package::pack_taken(root, step.id());
    walk::with_store(root, store, places, &mut |store| store.discard(slot));
    packed
}
