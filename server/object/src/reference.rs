//! References between objects: by id, never by address, so that they are equal on all replicas and can be summed.

use crate::checksum::Summer;
use crate::id::ObjectId;
use crate::request;
use crate::summed::Summed;
use crate::type_name::TypeName;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use wire::{Malformed, Reader};

/// Refers to an object of a [`crate::Store`]`<T>`.
///
/// The id is summed and compared; the slot is a hint for this replica only: a wrong one (after a repair, or a flipped
/// bit) costs a search, never a wrong object.
// Packed to 12 bytes: tables consist of references, with a small number next to each.
#[repr(C, packed(4))]
pub struct Ref<T> {
    id: ObjectId,
    hint: u32,
    of: PhantomData<fn() -> T>,
}

const _: () = assert!(size_of::<Ref<()>>() == 12);

impl<T> Ref<T> {
    /// Refers to nothing.
    pub const NONE: Ref<T> = Ref { id: ObjectId::NONE, hint: u32::MAX, of: PhantomData };

    /// A reference to an object known by its id only; the first use searches.
    pub const fn to(id: ObjectId) -> Self {
        Ref { id, hint: u32::MAX, of: PhantomData }
    }

    /// Refers to the object that [`crate::Store::insert_numbered`] put into a table of `owner` under this number.
    ///
    /// Such a reference need not be stored: where no object leaves the store, the number is its slot.
    pub const fn numbered(owner: ObjectId, number: u32) -> Self {
        let slot = number & !ObjectId::SECOND_TABLE;
        Ref { id: ObjectId::numbered(owner, number), hint: slot, of: PhantomData }
    }

    pub(crate) const fn with_hint(id: ObjectId, hint: u32) -> Self {
        Ref { id, hint, of: PhantomData }
    }

    /// The object's id.
    pub const fn id(self) -> ObjectId {
        self.id
    }

    /// Whether this refers to nothing.
    pub const fn is_none(self) -> bool {
        self.id.is_none()
    }

    /// Whether this refers to something.
    pub const fn is_some(self) -> bool {
        !self.id.is_none()
    }

    /// The reference, or `None` if it refers to nothing.
    pub const fn some(self) -> Option<Self> {
        if self.is_none() { None } else { Some(self) }
    }

    pub(crate) const fn hint(self) -> u32 {
        self.hint
    }
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ref<T> {}

impl<T> Default for Ref<T> {
    fn default() -> Self {
        Ref::NONE
    }
}

impl<T> PartialEq for Ref<T> {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl<T> Eq for Ref<T> {}

impl<T> PartialOrd for Ref<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Ref<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.id().cmp(&other.id())
    }
}

impl<T> Hash for Ref<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl<T> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-> {}", self.id())
    }
}

impl<T: 'static> Summed for Ref<T> {
    const NAME: TypeName = TypeName::new("Ref");
    #[inline]
    fn sum(&self, summer: &mut Summer) {
        self.id().sum(summer);
    }
    #[inline]
    fn sum_all(all: &[Self], summer: &mut Summer) {
        summer.rows(all.iter().map(|one| one.id().to_bits().to_le_bytes()));
    }
    fn pack(&self, out: &mut Vec<u8>) {
        self.id().pack(out);
        if request::is_local() {
            self.hint().pack(out);
        }
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let id = ObjectId::unpack(from)?;
        let hint = if request::is_local() { u32::unpack(from)? } else { u32::MAX };
        Ok(Ref::with_hint(id, hint))
    }
    fn blank() -> Self {
        Ref::NONE
    }
    const FIXED: usize = ObjectId::FIXED;
    #[inline(always)]
    fn put(&self, place: &mut [u8]) {
        self.id().put(place);
    }
    #[cfg(feature = "inject")]
    fn damage(&mut self, damage: crate::inject::Damage) -> bool {
        // The id only: a wrong hint is no error.
        let mut id = self.id();
        let done = id.damage(damage);
        self.id = id;
        done
    }
}
