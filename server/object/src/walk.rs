//! Walks over a region: seal, note, undo, blame, check, list, digest and scrub, written once for all types.

use crate::any::{AnyObject, AnyStore, Population};
use crate::checksum;
use crate::delta::Pair;
use crate::exempt;
use crate::id::{ObjectId, RegionId};
use crate::kept::Kept;
use crate::ledger::{Entry, EntryState, Gone, Ledger, Undo, UndoImage};
use crate::member::{Child, ChildMut};
use crate::place::StorePlace;
use crate::region::{Health, Large, Listed, RegionDigest, ScrubFinding};
use crate::request::{self, Taken};

/// Version of the input of [`digest`].
const DIGEST_SEED: u64 = 0x6372_6F73_7363_6B01;

pub(crate) fn seal(root: &mut dyn AnyObject, region_id: RegionId) {
    request::with_open_ledger(|ledger| {
        if root.is_flat() {
            seal_flat(root, region_id, ledger);
        } else {
            seal_object(root, region_id, ledger);
        }
    });
}

/// Seals a region whose objects are its root and those in the root's stores: by the list of what was entered. Only
/// where one of these has changed is it looked up in its store.
fn seal_flat(root: &mut dyn AnyObject, region_id: RegionId, ledger: &mut Ledger) {
    if let Some(number) = number_of(root, ledger) {
        seal_one(root, region_id, &mut ledger.entries[number]);
    }
    let extent = root.extent();
    for (_, region) in ledger.left.iter_mut().filter(|(store, _)| extent.contains(store)) {
        *region = Some(region_id);
    }
    let mut has_changed = false;
    for entry in &mut ledger.entries {
        if entry.place.is_none_or(|place| !extent.contains(&place.store)) {
            continue;
        }
        if entry.state.is_open() {
            has_changed = true;
        } else {
            entry.region_id = Some(region_id);
        }
    }
    if !has_changed {
        return;
    }
    root.children_mut(&mut |_, child| {
        let ChildMut::Store(store) = child else { return };
        let here = store.place();
        for entry in ledger.entries.iter_mut().filter(|entry| entry.state.is_open()) {
            if let Some(place) = entry.place.filter(|place| place.store == here)
                && let Some(object) = store.slot_mut(place.slot)
                && object.header().id() == entry.id
            {
                seal_one(object, region_id, entry);
            }
        }
    });
}

/// The number of the object's entry. One that no request has sealed gets an entry.
fn number_of(object: &dyn AnyObject, ledger: &mut Ledger) -> Option<usize> {
    let id = object.header().id();
    ledger.position(id).or_else(|| {
        let is_new = !object.header().is_sealed() && !exempt::is_exempt(object.class());
        is_new.then(|| ledger.insert(id))
    })
}

/// Seals the object of an entry, if it has changed, and claims it.
fn seal_one(object: &mut dyn AnyObject, region_id: RegionId, entry: &mut Entry) {
    match entry.state {
        EntryState::Hot(words) => reseal_hot(object, words),
        EntryState::Open => reseal(object),
        EntryState::Read | EntryState::Removed => {}
    }
    (entry.state, entry.region_id, entry.sum) = (EntryState::Read, Some(region_id), object.header().sum());
}

fn seal_object(object: &mut dyn AnyObject, region_id: RegionId, ledger: &mut Ledger) {
    let number = number_of(object, ledger);
    seal_noted(object, number, region_id, ledger);
}

/// Seals an object, which has the entry `number` if the request touched it, and what is inside of it.
fn seal_noted(object: &mut dyn AnyObject, number: Option<usize>, region_id: RegionId, ledger: &mut Ledger) {
    if let Some(number) = number {
        seal_one(object, region_id, &mut ledger.entries[number]);
    }
    object.children_mut(&mut |_, child| match child {
        ChildMut::Object(child) => seal_object(child, region_id, ledger),
        ChildMut::Store(store) => seal_store(store, region_id, ledger),
    });
}

/// Seals the objects of a store that the request touched; the others are not visited.
fn seal_store(store: &mut dyn AnyStore, region_id: RegionId, ledger: &mut Ledger) {
    let here = store.place();
    ledger
        .left
        .iter_mut()
        .filter(|(store, _)| *store == here)
        .for_each(|(_, region)| *region = Some(region_id));
    for number in 0..ledger.entries.len() {
        let entry = &mut ledger.entries[number];
        let Some(place) = entry.place.filter(|place| place.store == here) else { continue };
        if entry.state == EntryState::Removed {
            entry.region_id = Some(region_id);
            continue;
        }
        let id = entry.id;
        if let Some(object) = store.slot_mut(place.slot)
            && object.header().id() == id
        {
            seal_noted(object, Some(number), region_id, ledger);
        }
    }
}

pub(crate) fn seal_unsealed(root: &mut dyn AnyObject) {
    let _taken = Taken::new();
    seal_unsealed_object(root);
}

fn seal_unsealed_object(object: &mut dyn AnyObject) {
    if !object.header().is_sealed() {
        reseal(object);
    }
    object.children_mut(&mut |_, child| match child {
        ChildMut::Object(child) => seal_unsealed_object(child),
        ChildMut::Store(store) => {
            for slot in 0..store.slots() {
                if let Some(object) = store.slot_mut(slot) {
                    seal_unsealed_object(object);
                }
            }
        }
    });
}

/// Sums the members again.
pub(crate) fn reseal(object: &mut dyn AnyObject) {
    let sum = object.resum();
    object.header_mut().seal(sum);
    object.sealed();
}

/// Continues the checksum of an object whose hot members were `words` when it was entered.
fn reseal_hot(object: &mut dyn AnyObject, words: u64) {
    match checksum::resummed(object.header().sum(), words, object.hot()) {
        Some(sum) => {
            object.header_mut().seal(sum);
            object.sealed();
        }
        None => reseal(object),
    }
}

pub(crate) fn note(root: &dyn AnyObject, region_id: RegionId) {
    let mut taken = Taken::new();
    if !taken.seals {
        return;
    }
    let mut claims: Vec<(usize, u64)> = Vec::new();
    touched(root, &taken.ledger, &mut |object, number| {
        let open = taken.ledger.entries[number].state.is_open();
        let sum = if open { object.recompute() } else { object.header().sum() };
        claims.push((number, sum));
    });
    for (number, sum) in claims {
        taken.ledger.entries[number].region_id = Some(region_id);
        taken.ledger.entries[number].sum = sum;
    }
}

/// Shows the objects of this region that the request has entered.
fn touched(object: &dyn AnyObject, ledger: &Ledger, visit: &mut dyn FnMut(&dyn AnyObject, usize)) {
    if let Some(number) = ledger.position(object.header().id()) {
        visit(object, number);
    }
    object.children(&mut |_, child| match child {
        Child::Object(child) => touched(child, ledger, visit),
        Child::Store(store) => {
            for entry in &ledger.entries {
                if let Some(place) = entry.place
                    && place.store == store.place()
                    && let Some(object) = store.slot(place.slot)
                    && object.header().id() == entry.id
                {
                    touched(object, ledger, visit);
                }
            }
        }
    });
}

pub(crate) fn blame(root: &dyn AnyObject) -> Vec<ObjectId> {
    let taken = Taken::new();
    let mut damaged = Vec::new();
    touched(root, &taken.ledger, &mut |object, number| {
        let fits = match taken.ledger.entries[number].state {
            EntryState::Read => sums_up(object),
            EntryState::Hot(words) => {
                let continued = checksum::resummed(object.header().sum(), words, object.hot());
                continued.is_none_or(|sum| object.recompute() == sum)
            }
            EntryState::Open | EntryState::Removed => true,
        };
        if !fits || !object.is_intact() {
            damaged.push(object.header().id());
        }
    });
    damaged.sort_unstable();
    damaged
}

pub(crate) fn undo(root: &mut dyn AnyObject) {
    let mut taken = Taken::new();
    undo_of(root, &mut taken.ledger);
}

pub(crate) fn roll_back(root: &mut dyn AnyObject, kept: &mut Kept) {
    let _taken = Taken::new();
    undo_of(root, &mut kept.ledger);
}

/// Where the objects of a request are and were: what is inside of them is found through both.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) entries: &'a [Entry],
    pub(crate) undo: &'a [Undo],
}

impl Places<'_> {
    /// Those in one store.
    fn of(&self, store: usize) -> impl Iterator<Item = StorePlace> {
        let are = self.entries.iter().filter_map(|entry| entry.place);
        are.chain(self.undo.iter().filter_map(Undo::place)).filter(move |place| place.store == store)
    }
}

fn undo_of(root: &mut dyn AnyObject, ledger: &mut Ledger) {
    let Ledger { entries, images, undo, gone, .. } = ledger;
    // Read where it lies: a step that fails because of a fault in a copy succeeds when it is tried again.
    let mut is_done = vec![false; undo.len()];
    for (step, is_done) in undo.iter().zip(&mut is_done).rev() {
        let places = Places { entries, undo };
        *is_done = request::locally(|| undo_step(root, step, places, images, gone));
    }
    // A step belongs to one region; steps of other regions stay in the log.
    let mut done = is_done.into_iter();
    undo.retain(|_| !done.next().unwrap_or(false));
}

/// Takes back one step; false if its object is of another region, or if it could not be rolled back.
fn undo_step(
    root: &mut dyn AnyObject,
    step: &Undo,
    places: Places<'_>,
    images: &[u8],
    gone: &[Gone],
) -> bool {
    let mut is_done = false;
    match step {
        Undo::Inserted { id, place } => {
            with_store(root, place.store, places, &mut |store| {
                if let Some(slot) = slot_of(store, place.slot, *id) {
                    store.discard(slot);
                    is_done = true;
                }
            });
        }
        Undo::Removed { id, place, image, sum, inside } => {
            with_store(root, place.store, places, &mut |store| {
                let body = images.get(image.clone()).unwrap_or_default();
                if let Ok(slot) =
                    store.create(Some(place.slot), *id, &mut |object| object.replace_image(body))
                    && let Some(object) = store.slot_mut(slot)
                {
                    object.header_mut().seal(*sum);
                    object.sealed();
                    is_done = gone.get(inside.clone()).unwrap_or_default().iter().all(|gone| {
                        let packed = images.get(gone.image.clone()).unwrap_or_default();
                        crate::package::put_back_inside(object, gone.id, gone.sum, packed).is_ok()
                    });
                }
            });
        }
        Undo::Changed { id, place, before, sum } => {
            let mut put_back = |object: &mut dyn AnyObject| {
                let is_put_back = match before {
                    UndoImage::Hot(words) => {
                        object.set_hot(*words);
                        true
                    }
                    UndoImage::Members(image) => {
                        let body = images.get(image.clone()).unwrap_or_default();
                        // Once more, because a fault may have hit the reading and not the image.
                        object.replace_image(body).is_ok() || object.replace_image(body).is_ok()
                    }
                };
                // With a damaged image the object does not fit this checksum: each request that enters it finds that.
                object.header_mut().seal(*sum);
                if is_put_back {
                    object.sealed();
                }
                is_done = true;
            };
            match place {
                Some(place) => {
                    with_store(root, place.store, places, &mut |store| {
                        let slot = slot_of(store, place.slot, *id);
                        if let Some(object) = slot.and_then(|slot| store.slot_mut(slot)) {
                            put_back(object);
                        }
                    });
                }
                None => {
                    with_embedded(root, *id, places, &mut put_back);
                }
            }
        }
    }
    is_done
}

/// The slot of an object that was in `slot`. A store that came back inside of an object has its objects in other slots.
fn slot_of(store: &dyn AnyStore, slot: u32, id: ObjectId) -> Option<u32> {
    let is_there = store.slot(slot).is_some_and(|object| object.header().id() == id);
    if is_there { Some(slot) } else { store.find(id) }
}

/// Shows where the objects lie that are in stores inside of an object.
pub(crate) fn places_inside(object: &dyn AnyObject, visit: &mut dyn FnMut(ObjectId, StorePlace)) {
    object.children(&mut |_, child| match child {
        Child::Object(child) => places_inside(child, visit),
        Child::Store(store) => {
            for slot in 0..store.slots() {
                if let Some(object) = store.slot(slot) {
                    visit(object.header().id(), StorePlace { store: store.place(), slot });
                    places_inside(object, visit);
                }
            }
        }
    });
}

/// Shows the stores inside of an object.
pub(crate) fn stores_inside(object: &dyn AnyObject, visit: &mut dyn FnMut(usize)) {
    every(object, &mut |_| {}, &mut |_, store| visit(store.place()));
}

/// Finds a store of the region; stores inside of a store's objects only in objects that the request has entered.
pub(crate) fn with_store(
    object: &mut dyn AnyObject,
    wanted: usize,
    places: Places<'_>,
    work: &mut dyn FnMut(&mut dyn AnyStore),
) -> bool {
    let mut found = false;
    object.children_mut(&mut |_, child| match child {
        _ if found => {}
        ChildMut::Object(child) => found = with_store(child, wanted, places, work),
        ChildMut::Store(store) if store.place() == wanted => {
            work(store);
            found = true;
        }
        ChildMut::Store(store) => {
            found = entered(store, places, &mut |object| with_store(object, wanted, places, work));
        }
    });
    found
}

/// Finds an object of the region that is in no store, or part of an object that is.
fn with_embedded(
    object: &mut dyn AnyObject,
    id: ObjectId,
    places: Places<'_>,
    work: &mut dyn FnMut(&mut dyn AnyObject),
) -> bool {
    if object.header().id() == id {
        work(object);
        return true;
    }
    let mut found = false;
    object.children_mut(&mut |_, child| match child {
        _ if found => {}
        ChildMut::Object(child) => found = with_embedded(child, id, places, work),
        ChildMut::Store(store) => {
            found = entered(store, places, &mut |object| with_embedded(object, id, places, work));
        }
    });
    found
}

fn entered(
    store: &mut dyn AnyStore,
    places: Places<'_>,
    visit: &mut dyn FnMut(&mut dyn AnyObject) -> bool,
) -> bool {
    if !store.nested() {
        return false;
    }
    let here = store.place();
    places.of(here).any(|place| match store.slot_mut(place.slot) {
        Some(object) => visit(object),
        None => false,
    })
}

pub(crate) fn check(root: &dyn AnyObject, id: ObjectId) -> Health {
    let _taken = Taken::new();
    match crate::package::find(root, id) {
        None => Health::Absent,
        Some(found) if !found.object.is_intact() => Health::Damaged,
        Some(found) if !found.object.header().is_sealed() => Health::Unsealed,
        Some(found) if sums_up(found.object) => Health::Intact,
        Some(_) => Health::Damaged,
    }
}

pub(crate) fn sums_up(object: &dyn AnyObject) -> bool {
    object.recompute() == object.header().sum() && object.later_fits()
}

/// Shows every object of the region, and every store with its owner.
pub(crate) fn every<'a>(
    object: &'a dyn AnyObject,
    visit: &mut dyn FnMut(&'a dyn AnyObject),
    visit_store: &mut dyn FnMut(&'a dyn AnyObject, &'a dyn AnyStore),
) {
    visit(object);
    object.children(&mut |_, child| match child {
        Child::Object(child) => every(child, visit, visit_store),
        Child::Store(store) => {
            visit_store(object, store);
            for slot in 0..store.slots() {
                if let Some(object) = store.slot(slot) {
                    every(object, visit, visit_store);
                }
            }
        }
    });
}

pub(crate) fn list(root: &dyn AnyObject) -> Vec<Listed> {
    let _taken = Taken::new();
    let mut all = Vec::new();
    every(
        root,
        &mut |object| {
            let recomputed = object.recompute();
            let header = object.header();
            all.push(Listed { id: header.id(), class: object.class().name, sum: header.sum(), recomputed });
        },
        &mut |_, _| {},
    );
    all.sort_by_key(|listed| (listed.id, listed.recomputed));
    all
}

pub(crate) fn digest(root: &dyn AnyObject) -> RegionDigest {
    let all = list(root);
    // The class is part of the checksum.
    let digest = fold(all.iter().map(|listed| (listed.id, listed.recomputed)));
    let is_damaged = |listed: &&Listed| listed.sum != listed.recomputed;
    RegionDigest { digest, objects: all.len() as u64, damaged: all.iter().filter(is_damaged).count() as u64 }
}

pub(crate) fn digest_of_intact(root: &dyn AnyObject) -> u128 {
    let _taken = Taken::new();
    let mut all = Vec::new();
    every(
        root,
        &mut |object| {
            let header = object.header();
            let sum = if header.is_sealed() { header.sum() } else { object.recompute() };
            all.push((header.id(), sum));
        },
        &mut |_, _| {},
    );
    all.sort_unstable();
    fold(all.into_iter())
}

fn fold(sums: impl Iterator<Item = (ObjectId, u64)>) -> u128 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::with_seed(DIGEST_SEED);
    for (id, sum) in sums {
        hasher.update(&id.to_bits().to_le_bytes());
        hasher.update(&sum.to_le_bytes());
    }
    hasher.digest128()
}

pub(crate) fn scrub(root: &dyn AnyObject, limit: usize, large: &mut dyn FnMut(Large)) -> Vec<ScrubFinding> {
    let _taken = Taken::new();
    let findings = std::cell::RefCell::new(Vec::new());
    let report = |finding| {
        let mut findings = findings.borrow_mut();
        if findings.len() < limit {
            findings.push(finding);
        }
    };
    every(
        root,
        &mut |object| {
            let header = object.header();
            checksum::forget_long();
            let sum = object.recompute();
            let bytes = checksum::bytes_of_last();
            if bytes > Large::FROM_BYTES {
                large(Large { id: header.id(), class: object.class().short_name(), bytes });
            }
            let fits = || sum == header.sum() && object.later_fits();
            if !object.is_intact() || (header.is_sealed() && !fits()) {
                report(ScrubFinding::Damaged(header.id()));
            }
        },
        &mut |owner, store| {
            let actual = actual_population(store);
            if let Some(finding) = compare(owner.header().id(), store.population(), actual) {
                report(finding);
            }
        },
    );
    findings.into_inner()
}

/// The objects that are really in the store, found without its owner.
pub(crate) fn actual_population(store: &dyn AnyStore) -> Population {
    (0..store.slots())
        .filter_map(|slot| store.slot(slot))
        .fold(Population::default(), |sum, object| sum.with(object.header().id()))
}

fn compare(owner: ObjectId, should: Population, is: Population) -> Option<ScrubFinding> {
    if should == is {
        None
    } else if should.count == is.count.wrapping_add(1) {
        Some(ScrubFinding::Lost(ObjectId::from_spread(should.fold.wrapping_sub(is.fold))))
    } else if is.count == should.count.wrapping_add(1) {
        Some(ScrubFinding::Extra(ObjectId::from_spread(is.fold.wrapping_sub(should.fold))))
    } else {
        Some(ScrubFinding::Population(owner))
    }
}

const _: () = assert!(Pair::REMOVED == 0, "no sealed object has this sum: see Summer::finish");
