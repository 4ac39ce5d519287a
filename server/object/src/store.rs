//! A container for critical objects that are created and removed: slots behind references by id.

use crate::any::{AnyObject, AnyStore, Fill, Population};
use crate::checksum::Summer;
use crate::class::Class;
use crate::corrupted::{Corrupted, How};
use crate::critical::{Critical, Members, blank};
use crate::exempt;
use crate::header::Header;
use crate::id::ObjectId;
use crate::member::{Child, ChildMut, Member};
use crate::place::StorePlace;
use crate::reference::Ref;
use crate::request;
use crate::slot_index::SlotIndex;
use crate::summed::Summed;
use std::fmt;
use wire::{Malformed, Reader};

/// A chunk of slots has at most so many bytes: growing moves no object and never holds twice the memory.
///
/// Allocators have this size, and so a chunk fills it but for less than a slot. With a round number of slots instead,
/// up to a fifth of what the allocator gives would lie behind the last one, in huge pages as real memory.
const CHUNK_BYTES: usize = 16 << 10;

/// A member that holds critical objects of type `T`.
///
/// A reference carries the slot as a hint, so that a lookup is one comparison of ids; there is no index to corrupt and
/// none to pay for. Slots are local to this replica: they are not summed, packed or compared. The owner's checksum
/// covers the population (number of objects, sum of their mixed ids), so that a scrub finds a lost or doubled object,
/// and which one it is.
///
/// Getting an object enters it: it is checked, if the request has not done so. Objects that are found by a key are in a
/// [`crate::Table`].
pub struct Store<T> {
    chunks: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
    slots: u32,
    population: Population,
    slot_index: SlotIndex,
}

impl<T> Store<T> {
    /// Slots per chunk.
    const CHUNK: u32 = {
        let fit = CHUNK_BYTES / size_of::<Option<T>>();
        if fit == 0 { 1 } else { fit as u32 }
    };

    /// The chunk of a slot, and which of its slots that is. Divided as 32 bits, by a constant: a few instructions.
    #[inline]
    fn place_of(slot: u32) -> (usize, usize) {
        ((slot / Self::CHUNK) as usize, (slot % Self::CHUNK) as usize)
    }
}

impl<T: Critical> Store<T> {
    /// An empty store.
    pub const fn new() -> Self {
        Store {
            chunks: Vec::new(),
            free: Vec::new(),
            slots: 0,
            population: Population { count: 0, fold: 0 },
            slot_index: SlotIndex::new(),
        }
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.population.count as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.population.count == 0
    }

    /// Puts an object in and returns the reference to it. The object is named after the request that created it.
    pub fn insert(&mut self, object: T) -> Ref<T> {
        let id = header(&object).id();
        let slot = self.put(None, object);
        self.population = self.population.with(id);
        if let Some(object) = self.at(slot).filter(|_| !exempt::is_exempt(T::Members::CLASS)) {
            request::inserted(object.protected(), self.here(slot));
        }
        Ref::with_hint(id, slot)
    }

    /// Puts a new object in under its number in a table of `owner`, the object that the store is a member of: others
    /// find it by [`Ref::numbered`]. A store has one such table, without gaps, and no object under another name. Of two
    /// stores with tables in one owner, one has numbers with the bit [`ObjectId::SECOND_TABLE`].
    ///
    /// # Panics
    ///
    /// If the owner is not one of those that [`ObjectId::numbered`] tells apart; all replicas do so alike.
    pub fn insert_numbered(&mut self, owner: ObjectId, number: u32, mut object: T) -> Ref<T> {
        let to = ObjectId::numbered(owner, number);
        let is_distinguished = to.as_numbered() == Some((owner, number));
        assert!(is_distinguished, "objects of {owner} have no numbers: no region was born with it");
        let header = object.protected_mut().header_mut();
        let from = header.id();
        header.rename(to);
        request::renamed(from, to);
        self.insert(object)
    }

    /// The object, checked; `None` if there is none of this name.
    #[inline]
    pub fn get(&self, to: Ref<T>) -> Option<&T> {
        let slot = self.slot_of(to)?;
        let object = self.at(slot)?;
        if !request::known(header(object)) {
            object.protected().enter(Some(self.here(slot)));
        }
        Some(object)
    }

    /// The object, checked, to change it. It counts as changed only once a method with `&mut self` enters it.
    #[inline]
    pub fn get_mut(&mut self, to: Ref<T>) -> Option<&mut T> {
        let slot = self.slot_of(to)?;
        let place = self.here(slot);
        let object = self.at_mut(slot)?;
        if !request::known_placed(header(object)) {
            object.protected_mut().enter_mut(Some(place));
        }
        Some(object)
    }

    /// The object, where the structure requires that it exists: if it does not, the structure or the store is
    /// corrupted, and the request leaves this replica by unwinding with [`Corrupted`].
    #[inline]
    pub fn expect(&self, to: Ref<T>) -> &T {
        match self.get(to) {
            Some(object) => object,
            None => missing::<T>(to.id()),
        }
    }

    /// Like [`Store::expect`], to change the object.
    #[inline]
    pub fn expect_mut(&mut self, to: Ref<T>) -> &mut T {
        match self.get_mut(to) {
            Some(object) => object,
            None => missing::<T>(to.id()),
        }
    }

    /// Whether there is an object of this name. No entry: nothing is checked or noted.
    pub fn contains(&self, to: Ref<T>) -> bool {
        self.slot_of(to).is_some()
    }

    /// Takes the object out, checked; the request's delta records the removal.
    pub fn remove(&mut self, to: Ref<T>) -> Option<T> {
        let slot = self.slot_of(to)?;
        let place = self.here(slot);
        let object = self.at_mut(slot)?;
        if !request::known_placed(header(object)) {
            object.protected_mut().enter_mut(Some(place));
        }
        let object = self.at(slot)?;
        if !exempt::is_exempt(T::Members::CLASS) {
            request::removed(object.protected(), place);
        }
        let object = self.take(slot)?;
        self.population = self.population.without(header(&object).id());
        Some(object)
    }

    /// Like [`Store::remove`], where the structure requires that the object exists.
    pub fn expect_remove(&mut self, to: Ref<T>) -> T {
        match self.remove(to) {
            Some(object) => object,
            None => missing::<T>(to.id()),
        }
    }

    /// References to all objects in the order of their ids, the same on every replica. Allocates; for rare work such as
    /// emptying a store, not for every request.
    pub fn all(&self) -> Vec<Ref<T>> {
        let mut all: Vec<Ref<T>> = (0..self.slots)
            .filter_map(|slot| self.at(slot).map(|object| Ref::with_hint(header(object).id(), slot)))
            .collect();
        all.sort_unstable();
        all
    }

    /// All objects in the order of their ids, the same on every replica. Each is entered: checked, and part of the
    /// request's state delta, so that a request pays for the whole store. As for [`Store::all`], for rare work.
    pub fn iter(&self) -> impl Iterator<Item = (Ref<T>, &T)> {
        self.all().into_iter().map(|to| (to, self.expect(to)))
    }

    /// Removes the objects for which `keep` returns false. It enters all of them, as [`Store::iter`] does.
    pub fn retain(&mut self, mut keep: impl FnMut(Ref<T>, &T) -> bool) {
        for to in self.all() {
            if !keep(to, self.expect(to)) {
                self.remove(to);
            }
        }
    }

    #[inline]
    fn at(&self, slot: u32) -> Option<&T> {
        let (chunk, at) = Self::place_of(slot);
        self.chunks.get(chunk)?.get(at)?.as_ref()
    }

    #[inline]
    fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        let (chunk, at) = Self::place_of(slot);
        self.chunks.get_mut(chunk)?.get_mut(at)?.as_mut()
    }

    #[inline]
    fn slot_of(&self, to: Ref<T>) -> Option<u32> {
        if let Some(object) = self.at(to.hint())
            && header(object).id() == to.id()
        {
            return Some(to.hint());
        }
        if to.is_none() { None } else { self.search(to.id()) }
    }

    /// The hint was wrong: asks the index, then checks every slot.
    #[cold]
    fn search(&self, id: ObjectId) -> Option<u32> {
        let here = |slot: u32| self.at(slot).is_some_and(|object| header(object).id() == id);
        let all =
            || (0..self.slots).filter_map(|slot| self.at(slot).map(|object| (header(object).id(), slot)));
        let held = self.slots as usize - self.free.len().min(self.slots as usize);
        self.slot_index.find(id, held, here, all)
    }

    #[inline]
    fn here(&self, slot: u32) -> StorePlace {
        StorePlace { store: std::ptr::from_ref(self).addr(), slot }
    }

    fn put(&mut self, slot: Option<u32>, object: T) -> u32 {
        let slot = match slot {
            Some(slot) if slot < self.slots && self.at(slot).is_none() => {
                self.free.retain(|&free| free != slot);
                slot
            }
            _ => self.free.pop().unwrap_or_else(|| self.grow()),
        };
        self.slot_index.learn(header(&object).id(), slot);
        let (chunk, at) = Self::place_of(slot);
        self.chunks[chunk][at] = Some(object);
        slot
    }

    fn grow(&mut self) -> u32 {
        let slot = self.slots;
        let (chunk, at) = Self::place_of(slot);
        if at == 0 {
            self.chunks.push(Vec::with_capacity(Self::CHUNK as usize));
        }
        self.chunks[chunk].push(None);
        self.slots += 1;
        slot
    }

    fn take(&mut self, slot: u32) -> Option<T> {
        let (chunk, at) = Self::place_of(slot);
        let object = self.chunks.get_mut(chunk)?.get_mut(at)?.take()?;
        self.free.push(slot);
        self.slot_index.forget(header(&object).id(), slot);
        Some(object)
    }
}

fn header<T: Critical>(object: &T) -> &Header {
    object.protected().header()
}

#[cold]
fn missing<T: Critical>(id: ObjectId) -> ! {
    request::fail(Corrupted { object: id, class: T::Members::CLASS.name, how: How::Missing })
}

impl<T: Critical> Default for Store<T> {
    fn default() -> Self {
        Store::new()
    }
}

impl<T: Critical> fmt::Debug for Store<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects of {}", self.len(), T::Members::CLASS.short_name())
    }
}

impl<T: Critical> Member for Store<T> {
    type Packed = Population;
    const IS_CHILD: bool = true;
    const IS_FLAT: bool = !T::Members::HAS_CHILDREN;
    const FIXED: usize = 2 * size_of::<u64>();
    #[inline(always)]
    fn put(&self, place: &mut [u8]) {
        let (count, fold) = place.split_at_mut(size_of::<u64>());
        Summed::put(&self.population.count, count);
        Summed::put(&self.population.fold, fold);
    }
    fn sum(&self, summer: &mut Summer) {
        Summed::sum(&self.population.count, summer);
        Summed::sum(&self.population.fold, summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        Summed::pack(&self.population.count, out);
        Summed::pack(&self.population.fold, out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Population, Malformed> {
        Ok(Population { count: Summed::unpack(from)?, fold: Summed::unpack(from)? })
    }
    fn install(&mut self, packed: Population) {
        self.population = packed;
    }
    fn blank() -> Self {
        Store::new()
    }
    fn children<'a>(&'a self, visit: &mut dyn FnMut(Child<'a>)) {
        visit(Child::Store(self));
    }
    fn children_mut<'a>(&'a mut self, visit: &mut dyn FnMut(ChildMut<'a>)) {
        visit(ChildMut::Store(self));
    }
    fn classes(visit: &mut dyn FnMut(&'static Class) -> bool) {
        T::Members::classes(visit);
    }
    #[cfg(feature = "inject")]
    fn damage(&mut self, damage: crate::inject::Damage) -> bool {
        crate::inject::damage_population(&mut self.population, damage)
    }
}

impl<T: Critical> AnyStore for Store<T> {
    fn place(&self) -> usize {
        self.here(0).store
    }
    fn class(&self) -> &'static Class {
        T::Members::CLASS
    }
    fn population(&self) -> Population {
        self.population
    }
    fn held(&self) -> u64 {
        u64::from(self.slots) - self.free.len() as u64
    }
    fn slots(&self) -> u32 {
        self.slots
    }
    fn slot(&self, slot: u32) -> Option<&dyn AnyObject> {
        self.at(slot).map(|object| object.protected() as &dyn AnyObject)
    }
    fn slot_mut(&mut self, slot: u32) -> Option<&mut dyn AnyObject> {
        self.at_mut(slot).map(|object| object.protected_mut() as &mut dyn AnyObject)
    }
    fn find(&self, id: ObjectId) -> Option<u32> {
        self.search(id)
    }
    fn create(&mut self, slot: Option<u32>, id: ObjectId, fill: &mut Fill<'_>) -> Result<u32, Malformed> {
        let mut object: T = blank(id);
        fill(object.protected_mut())?;
        Ok(self.put(slot, object))
    }
    fn discard(&mut self, slot: u32) {
        self.take(slot);
    }
    fn nested(&self) -> bool {
        let mut classes = 0;
        T::Members::classes(&mut |_| {
            classes += 1;
            classes == 1
        });
        classes > 1
    }
    #[cfg(feature = "inject")]
    fn duplicate(&mut self, slot: u32) -> bool {
        let Some(object) = self.slot(slot) else { return false };
        let (id, sum, mut body) = (object.header().id(), object.header().sum(), Vec::new());
        object.pack_image(&mut body);
        let Ok(twin) = self.create(None, id, &mut |object| object.replace_image(&body)) else { return false };
        if let Some(twin) = self.slot_mut(twin) {
            twin.header_mut().seal(sum);
        }
        true
    }
}
