//! Critical objects and stores without their types: the interface that walks over a region use, written once.

use crate::header::Header;
use crate::id::ObjectId;
use crate::member::{Child, ChildMut};
use crate::shape::Shape;
use std::ops::Range;
use wire::Malformed;

/// A critical type: its name, and the names of its tracked members in the order in which they are summed and packed.
#[derive(Debug)]
pub struct Class {
    /// Path of the type.
    pub name: &'static str,
    /// Names of the tracked members.
    pub members: &'static [&'static str],
    /// Stands for the name in checksums and packed bytes. It covers the member names too, so that two builds whose
    /// types differ do not agree by accident.
    pub tag: u32,
    /// Describes the members: their names and types.
    pub shape: fn(&mut Shape),
}

impl Class {
    /// A class; written by `#[critical]`.
    pub const fn new(name: &'static str, members: &'static [&'static str], shape: fn(&mut Shape)) -> Self {
        // FNV-1a: usable at compile time, and sufficient to distinguish a handful of names.
        let mut tag = fnv(0x811C_9DC5, name.as_bytes());
        let mut index = 0;
        while index < members.len() {
            tag = fnv(fnv(tag, b"."), members[index].as_bytes());
            index += 1;
        }
        Class { name, members, tag, shape }
    }

    /// The name without its path.
    pub fn short_name(&self) -> &'static str {
        self.name.rsplit("::").next().unwrap_or(self.name)
    }
}

const fn fnv(mut hash: u32, bytes: &[u8]) -> u32 {
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u32).wrapping_mul(0x0100_0193);
        index += 1;
    }
    hash
}

/// One critical object.
pub trait AnyObject {
    /// Its class.
    fn class(&self) -> &'static Class;
    /// Its id and stored checksum.
    fn header(&self) -> &Header;
    /// The same, to change it.
    fn header_mut(&mut self) -> &mut Header;
    /// The checksum that its members have now.
    fn recompute(&self) -> u64;
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
    /// Appends its tracked members.
    fn pack_body(&self, out: &mut Vec<u8>);
    /// Puts packed members back; on an error nothing has changed.
    fn replace_body(&mut self, body: &[u8]) -> Result<(), Malformed>;
    /// Renews the local copy, if there is one; called after each seal.
    fn sealed(&mut self);
    /// Shows the protected things inside, with the number of the member they are in.
    fn children<'a>(&'a self, visit: &mut dyn FnMut(u8, Child<'a>));
    /// Shows the protected things inside, to change them.
    fn children_mut<'a>(&'a mut self, visit: &mut dyn FnMut(u8, ChildMut<'a>));
    /// Damages one member in memory.
    #[cfg(feature = "inject")]
    fn damage(&mut self, member: usize, damage: crate::inject::Damage) -> bool;
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
    /// Puts an unpacked object into `slot`, or into any free one, without counting it: the population is part of the
    /// owner, and is repaired with the owner.
    fn create(&mut self, slot: Option<u32>, id: ObjectId, body: &[u8]) -> Result<u32, Malformed>;
    /// Empties a slot, without counting.
    fn discard(&mut self, slot: u32);
    /// Whether its objects have protected things inside.
    fn nested(&self) -> bool;
    /// Puts a second object with the same id and content into the store: a damaged structure.
    #[cfg(feature = "inject")]
    fn duplicate(&mut self, slot: u32) -> bool;
}

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

    #[test]
    fn classes_of_equal_name_and_other_members_differ() {
        let (one, two) = (Class::new("a::B", &["x", "y"], |_| ()), Class::new("a::B", &["y", "x"], |_| ()));
        assert_ne!(one.tag, two.tag);
        assert_eq!(one.short_name(), "B");
    }
}
