//! Critical objects and stores without their types: the interface that walks over a region use, written once.

use crate::class::Class;
use crate::header::Header;
use crate::id::ObjectId;
use crate::member::{Child, ChildMut};
use std::ops::Range;
use wire::Malformed;

/// One critical object.
pub trait AnyObject {
    /// Its class.
    fn class(&self) -> &'static Class;
    /// The version of its class in which it was written last.
    fn version(&self) -> u16;
    /// Its id and stored checksum.
    fn header(&self) -> &Header;
    /// The same, to change it.
    fn header_mut(&mut self) -> &mut Header;
    /// The checksum that its members have now.
    fn recompute(&self) -> u64;
    /// The same of members that have changed; those that do not belong to its version are put in order first.
    fn resum(&mut self) -> u64;
    /// Whether the members that came behind its version are as its own members give them.
    fn later_fits(&self) -> bool;
    /// Whether nothing protected is inside of it but stores, and nothing inside of the objects in these.
    fn is_flat(&self) -> bool;
    /// Its memory, without what it refers to: the stores that are members lie in here.
    fn extent(&self) -> Range<usize>;
    /// Its hot members as one word of 64 bits.
    fn hot(&self) -> u64;
    /// Puts its hot members back.
    fn set_hot(&mut self, words: u64);
    /// Whether parts with checksums of their own fit them.
    fn is_intact(&self) -> bool;
    /// Appends the tracked members of its version.
    fn pack_body(&self, out: &mut Vec<u8>);
    /// Puts the packed members of a version back; on an error nothing has changed.
    fn replace_body(&mut self, version: u16, body: &[u8]) -> Result<(), Malformed>;
    /// Appends its tracked members, with their version, for [`AnyObject::replace_image`] at this replica.
    fn pack_image(&self, out: &mut Vec<u8>);
    /// Puts the members of an image back; on an error nothing has changed.
    fn replace_image(&mut self, image: &[u8]) -> Result<(), Malformed>;
    /// Renews the local copy, if there is one; called after each seal.
    fn sealed(&mut self);
    /// Shows the protected things inside, with the number of the member they are in.
    fn children<'a>(&'a self, visit: &mut dyn FnMut(u8, Child<'a>));
    /// Shows the protected things inside, to change them.
    fn children_mut<'a>(&'a mut self, visit: &mut dyn FnMut(u8, ChildMut<'a>));
    /// Damages one member in memory.
    #[cfg(feature = "inject")]
    fn damage(&mut self, member: usize, damage: crate::inject::Damage) -> bool;
    /// Changes its version and nothing else; false if its class has one only.
    #[cfg(feature = "inject")]
    fn damage_version(&mut self, version: u16) -> bool;
}

/// One store of critical objects.
pub trait AnyStore {
    /// Identifies this store during one request: it does not move while a request holds its region.
    fn place(&self) -> usize;
    /// The class of its objects.
    fn class(&self) -> &'static Class;
    /// How many objects it should hold, and the sum of their mixed ids; both are in its owner's checksum.
    fn population(&self) -> Population;
    /// How many objects it really holds, counted without its owner.
    fn held(&self) -> u64;
    /// How many slots it has, free ones included.
    fn slots(&self) -> u32;
    /// The object in a slot.
    fn slot(&self, slot: u32) -> Option<&dyn AnyObject>;
    /// The object in a slot, to change it.
    fn slot_mut(&mut self, slot: u32) -> Option<&mut dyn AnyObject>;
    /// The slot of an object; scans if it must.
    fn find(&self, id: ObjectId) -> Option<u32>;
    /// Puts an object, which `fill` gives its members, into `slot`, or into any free one, without counting it: the
    /// population is part of the owner, and is repaired with the owner.
    fn create(&mut self, slot: Option<u32>, id: ObjectId, fill: &mut Fill<'_>) -> Result<u32, Malformed>;
    /// Empties a slot, without counting.
    fn discard(&mut self, slot: u32);
    /// Whether its objects have protected things inside.
    fn nested(&self) -> bool;
    /// Puts a second object with the same id and content into the store: a damaged structure.
    #[cfg(feature = "inject")]
    fn duplicate(&mut self, slot: u32) -> bool;
}

/// Gives a blank object its members.
pub type Fill<'a> = dyn FnMut(&mut dyn AnyObject) -> Result<(), Malformed> + 'a;

/// The expected population of a store: part of its owner's checksum, so that a lost or doubled object is detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Population {
    /// Number of objects.
    pub count: u64,
    /// Wrapping sum of [`ObjectId::spread`] over their ids.
    pub fold: u64,
}

impl Population {
    /// With one more object.
    pub fn with(self, id: ObjectId) -> Self {
        Population { count: self.count.wrapping_add(1), fold: self.fold.wrapping_add(id.spread()) }
    }

    /// With one object less.
    pub fn without(self, id: ObjectId) -> Self {
        Population { count: self.count.wrapping_sub(1), fold: self.fold.wrapping_sub(id.spread()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn populations_are_distinguished() {
        let of = |ids: &[u64]| {
            ids.iter().fold(Population::default(), |sum, id| sum.with(ObjectId::from_bits(*id)))
        };
        assert_eq!(of(&[1, 2, 3]), of(&[3, 1, 2]));
        assert_ne!(of(&[1, 4]), of(&[2, 3]));
        assert_eq!(of(&[1, 2]).without(ObjectId::from_bits(2)), of(&[1]));
    }
}
