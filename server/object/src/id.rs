//! Names that are equal on all replicas: objects are referred to by id, never by address.

use std::fmt;

/// Number of a lock of the schedule, and of the region of objects that it guards. Dense from 0.
pub type RegionId = u32;

/// Name of a protected object, equal on all replicas (docs/design.md, section 3).
///
/// It is the dispatch position of the request that created the object and a counter within that request, so that no
/// global generator is needed and nothing has to be coordinated. The objects a service is born with have positions that
/// no request reaches ([`ObjectId::GENESIS`]). An object may instead be named after its number in a table
/// ([`ObjectId::numbered`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectId(u64);

const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
/// Inverse of [`MIX`] modulo 2^64.
const UNMIX: u64 = 0xF1DE_83E1_9937_733D;
const _: () = assert!(MIX.wrapping_mul(UNMIX) == 1);

impl ObjectId {
    /// Bits of the counter within the creating request.
    pub const COUNTER_BITS: u32 = 16;
    /// No object has this name; members of type [`ObjectId`] use it for "refers to nothing".
    pub const NONE: ObjectId = ObjectId(u64::MAX);
    /// First position of the genesis: the objects that the region of lock `region_id` is born with have position
    /// `GENESIS + region_id`, so that ids are unique over all regions. Requests stay below, for two years at a million
    /// requests a second.
    pub const GENESIS: u64 = 1 << 46;
    /// Position of objects created outside of any request, which only tests do.
    pub const OUTSIDE: u64 = Self::GENESIS + (1 << 40);

    /// Set in the numbers of the second of two tables that one owner has, each in a store of its own: they tell its
    /// objects apart from those of the first one, and count from 0 beside this bit.
    pub const SECOND_TABLE: u32 = 1 << 31;

    /// Bits of a number of [`ObjectId::numbered`], and of the counter of the table's owner.
    const NUMBER_BITS: u32 = 32;
    const OWNER_BITS: u32 = 8;
    /// No other id has this bit.
    const NUMBERED: u64 = 1 << 63;

    /// The `counter`-th object created by the request at `position` (below 2^47).
    pub const fn new(position: u64, counter: u16) -> Self {
        ObjectId((position << Self::COUNTER_BITS) | counter as u64)
    }

    /// The object with this number in a table of the object `owner`, which a region was born with: one of its first 256
    /// objects, in one of the first 2^23 regions. A lookup by number needs no list of names.
    pub const fn numbered(owner: ObjectId, number: u32) -> Self {
        let region_id = owner.position().wrapping_sub(Self::GENESIS) << Self::OWNER_BITS;
        let owner = region_id | (owner.counter() as u64 & ((1 << Self::OWNER_BITS) - 1));
        ObjectId(Self::NUMBERED | (owner << Self::NUMBER_BITS) | number as u64)
    }

    /// The number in its table, with the id of the table's owner, of an object that has one.
    pub const fn as_numbered(self) -> Option<(ObjectId, u32)> {
        if self.0 & Self::NUMBERED == 0 || self.is_none() {
            return None;
        }
        let owner = (self.0 & !Self::NUMBERED) >> Self::NUMBER_BITS;
        let counter = (owner & ((1 << Self::OWNER_BITS) - 1)) as u16;
        Some((ObjectId::new(Self::GENESIS + (owner >> Self::OWNER_BITS), counter), self.0 as u32))
    }

    /// Position that the objects of a region are born with.
    pub const fn genesis_position(region_id: RegionId) -> u64 {
        Self::GENESIS + region_id as u64
    }

    /// The id as the 8 bytes that are summed and sent.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// An id from its 8 bytes; any value is an id, though perhaps of no object.
    pub const fn from_bits(bits: u64) -> Self {
        ObjectId(bits)
    }

    /// Dispatch position of the request that created the object.
    pub const fn position(self) -> u64 {
        self.0 >> Self::COUNTER_BITS
    }

    /// Which of the objects that request created.
    pub const fn counter(self) -> u16 {
        self.0 as u16
    }

    /// Spreads the id over 64 bits, reversibly: a single lost object can be named from the difference of two sums.
    pub const fn spread(self) -> u64 {
        let spread = self.0.wrapping_mul(MIX);
        (spread ^ (spread >> 32)).wrapping_mul(MIX)
    }

    /// Reverses [`ObjectId::spread`].
    pub const fn from_spread(spread: u64) -> Self {
        let mixed = spread.wrapping_mul(UNMIX);
        ObjectId((mixed ^ (mixed >> 32)).wrapping_mul(UNMIX))
    }

    /// Whether this is [`ObjectId::NONE`].
    pub const fn is_none(self) -> bool {
        self.0 == u64::MAX
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_numbered() {
            Some((owner, number)) if number & Self::SECOND_TABLE == 0 => {
                return write!(f, "{owner}[{number}]");
            }
            Some((owner, number)) => return write!(f, "{owner}[second {}]", number & !Self::SECOND_TABLE),
            None => {}
        }
        match self.position() {
            _ if self.is_none() => f.write_str("none"),
            Self::OUTSIDE => write!(f, "outside.{}", self.counter()),
            born @ Self::GENESIS..Self::OUTSIDE => write!(f, "g{}.{}", born - Self::GENESIS, self.counter()),
            position => write!(f, "{position}.{}", self.counter()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_objects_have_names_of_their_own() {
        let owner = ObjectId::new(ObjectId::genesis_position(77), 3);
        let named = ObjectId::numbered(owner, 1_000_000);
        assert_eq!(named.as_numbered(), Some((owner, 1_000_000)));
        assert_eq!(named.to_string(), "g77.3[1000000]");
        let second = ObjectId::numbered(owner, ObjectId::SECOND_TABLE | 1_000_000);
        assert_ne!(named, second);
        assert_eq!(second.to_string(), "g77.3[second 1000000]");
        for other in [owner, ObjectId::NONE, ObjectId::new(ObjectId::OUTSIDE, 9), ObjectId::new(4, 2)] {
            assert_eq!(other.as_numbered(), None);
        }
        assert_ne!(named, ObjectId::numbered(ObjectId::new(ObjectId::genesis_position(78), 3), 1_000_000));
    }

    #[test]
    fn spreading_is_reversible() {
        for bits in [0, 1, 77, u64::MAX - 1, 1 << 62] {
            let id = ObjectId::from_bits(bits);
            assert_eq!(ObjectId::from_spread(id.spread()), id);
        }
    }
}
