//! Plain values that can be summed, packed and restored: the building blocks of members of critical types.

use crate::checksum::Summer;
use crate::id::ObjectId;
use crate::shape::Shape;
use crate::type_name::TypeName;
use wire::{Malformed, Reader};

/// A value with a checksum: equal on two replicas exactly if it sums and packs to the same bytes.
///
/// Implemented for integers, `NonZero`, `bool`, `char`, `()`, arrays, tuples up to 12, `Option`, `Result`, `Box<T>`,
/// `Box<[T]>`, `Box<str>`, `String`, `Vec`, `VecDeque`, `BTreeMap`, `BTreeSet`, `Duration`, `Range`, `Reverse`,
/// `PhantomData`, [`ObjectId`], [`crate::Ref`] and [`crate::Pieces`]. `#[derive(Summed)]` covers structs and enums of
/// those, also generic ones.
///
/// There is deliberately no implementation for
/// - hash maps and sets: their order differs between replicas. A handler that iterates over one behaves differently at
///   each replica, whatever the order in which the entries were summed. A map that sorts its entries for the checksum
///   still hides this;
/// - floats: NaN has many bit patterns, of which two machines may compute different ones, and `0.0 == -0.0` although
///   their bits differ. Use integers of the smallest unit (cents, micrograms), or keep `to_bits()`;
/// - references, pointers and boxed traits: an address differs from replica to replica;
/// - cells, locks and atomics: they change behind `&self`, past the checksum.
///
/// # A type of another crate
///
/// Wrap it in a struct of your own and implement the four functions. The law: two values are equal exactly if they sum
/// alike and exactly if they pack alike, and an unpacked value *behaves* as the original. A repaired replica continues
/// with the unpacked value: if that is a heap which pops ties in another order, the replica is wrong from then on.
/// [`crate::testing::check_summed`] checks the law on examples.
///
/// ```
/// use object::{Malformed, Reader, Summed, Summer};
/// use std::net::Ipv4Addr;
///
/// #[derive(Clone, Copy, Debug, PartialEq, Eq)]
/// struct Address(Ipv4Addr);
///
/// impl Summed for Address {
///     fn sum(&self, summer: &mut Summer) {
///         summer.bytes(&self.0.octets());
///     }
///     fn pack(&self, out: &mut Vec<u8>) {
///         out.extend_from_slice(&self.0.octets());
///     }
///     fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
///         Ok(Address(Ipv4Addr::from(from.array::<4>()?)))
///     }
///     fn blank() -> Self {
///         Address(Ipv4Addr::UNSPECIFIED)
///     }
/// }
///
/// let addresses = [[127, 0, 0, 1], [0, 0, 0, 0], [1, 0, 0, 127]].map(|octets| Address(octets.into()));
/// object::testing::check_summed(addresses.to_vec(), |address| address.0.to_string());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be summed, so it cannot be part of a critical type",
    label = "no checksum for `{Self}`",
    note = "if `{Self}` is a value type of yours, write `#[derive(Summed)]` on it; if it is of another crate, wrap it \
            in a struct of yours and implement `object::Summed` for that (its documentation has an example)",
    note = "if `{Self}` is critical, it cannot be inside of another value: keep the objects in a member \
            `Store<{Self}>`, and write `Ref<{Self}>` here",
    note = "hash maps, floats, references and pointers are never summed: use `BTreeMap`, integers, `Ref<T>` or \
            `ObjectId`"
)]
pub trait Summed: Sized + Send + Sync + 'static {
    /// Adds the value to the checksum of its object.
    fn sum(&self, summer: &mut Summer);
    /// Appends the value.
    fn pack(&self, out: &mut Vec<u8>);
    /// Reads a value that [`Summed::pack`] wrote; fails on anything else, and never allocates more than the available
    /// bytes justify.
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed>;
    /// Any cheap value, for an object that is about to be replaced.
    fn blank() -> Self;
    /// Whether parts with checksums of their own (the pieces of a large value) fit them.
    fn is_intact(&self) -> bool {
        true
    }
    /// The type's name in the names of a collection's objects, such as `MapNode<u64, Job>`; [`TypeName::UNKNOWN`], `_`,
    /// unless given. `#[derive(Summed)]` gives it.
    const NAME: TypeName = TypeName::UNKNOWN;
    /// Describes the type; by default by its name. A container describes the types in it too.
    fn shape(shape: &mut Shape) {
        shape.text(std::any::type_name::<Self>());
    }
    /// How many bytes every value adds to the checksum; 0 where that differs, and where none are added.
    #[doc(hidden)]
    const FIXED: usize = 0;
    /// Where [`Summed::FIXED`] is not 0: writes the bytes that [`Summed::sum`] would add, exactly so many.
    /// `#[critical]` adds such members that stand side by side in one call.
    #[doc(hidden)]
    #[inline(always)]
    fn put(&self, _place: &mut [u8]) {}
    /// Adds many values; a type whose memory layout equals the summed bytes does it in one call.
    #[doc(hidden)]
    fn sum_all(all: &[Self], summer: &mut Summer) {
        if Self::FIXED > 0
            && let Some(room) = summer.room(all.len() * Self::FIXED)
        {
            return room.chunks_exact_mut(Self::FIXED).zip(all).for_each(|(place, one)| one.put(place));
        }
        all.iter().for_each(|one| one.sum(summer));
    }
    /// Appends many values.
    #[doc(hidden)]
    fn pack_all(all: &[Self], out: &mut Vec<u8>) {
        all.iter().for_each(|one| one.pack(out));
    }
    /// Reads `count` values.
    #[doc(hidden)]
    fn unpack_all(from: &mut Reader<'_>, count: usize) -> Result<Vec<Self>, Malformed> {
        // The reservation is bounded by the available bytes, whatever a value takes in memory.
        let mut all = Vec::with_capacity(count.min(from.remaining() / std::mem::size_of::<Self>().max(1)));
        for _ in 0..count {
            all.push(Self::unpack(from)?);
        }
        Ok(all)
    }
    /// Damages the value in memory, leaving every checksum as it is.
    #[cfg(feature = "inject")]
    #[doc(hidden)]
    fn damage(&mut self, damage: crate::inject::Damage) -> bool {
        crate::inject::damage_packed(self, damage)
    }
}

/// The value as bytes, as [`Summed::pack`] writes it: a codec for requests. An enum begins with the number of its
/// variant, as a little-endian `u16`.
pub fn to_bytes<T: Summed>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.pack(&mut bytes);
    bytes
}

/// The value whose bytes [`to_bytes`] wrote.
///
/// # Errors
/// [`Malformed`] if the bytes are of no such value, or go on behind it.
pub fn from_bytes<T: Summed>(bytes: &[u8]) -> Result<T, Malformed> {
    let mut reader = Reader::new(bytes);
    let value = T::unpack(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// A member that can be hot: a value of 32 bits.
///
/// `#[hot]` members of a critical type are kept and summed apart from the others. The law is that of [`Summed`]: two
/// values are equal exactly if their words are, and `from_word` returns the value that a word was made of.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be `#[hot]`",
    label = "no word of 32 bits",
    note = "hot members are kept and summed as words: implement `object::HotWord` for a value type of yours that has \
            32 bits at most, or leave the mark out"
)]
pub trait HotWord: Summed + Copy {
    /// The value as a word.
    fn to_word(self) -> u32;
    /// The value of a word.
    fn from_word(word: u32) -> Self;
}

impl HotWord for u32 {
    #[inline]
    fn to_word(self) -> u32 {
        self
    }
    #[inline]
    fn from_word(word: u32) -> Self {
        word
    }
}

macro_rules! integers {
    ($($integer:ty)*) => { $(
        impl Summed for $integer {
            #[inline]
            fn sum(&self, summer: &mut Summer) {
                summer.bytes(&self.to_le_bytes());
            }
            fn pack(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(Self::from_le_bytes(from.array()?))
            }
            fn blank() -> Self {
                0
            }
            const NAME: TypeName = TypeName::new(stringify!($integer));
            const FIXED: usize = size_of::<Self>();
            #[inline(always)]
            fn put(&self, place: &mut [u8]) {
                place.copy_from_slice(&self.to_le_bytes());
            }
        }
    )* };
}
integers!(u16 u32 u64 u128 i8 i16 i32 i64 i128);

impl Summed for u8 {
    const NAME: TypeName = TypeName::new("u8");
    #[inline]
    fn sum(&self, summer: &mut Summer) {
        summer.bytes(&[*self]);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        from.u8()
    }
    fn blank() -> Self {
        0
    }
    const FIXED: usize = 1;
    #[inline(always)]
    fn put(&self, place: &mut [u8]) {
        place[0] = *self;
    }
    #[inline]
    fn sum_all(all: &[Self], summer: &mut Summer) {
        summer.bytes(all);
    }
    fn pack_all(all: &[Self], out: &mut Vec<u8>) {
        out.extend_from_slice(all);
    }
    fn unpack_all(from: &mut Reader<'_>, count: usize) -> Result<Vec<Self>, Malformed> {
        Ok(from.take(count)?.to_vec())
    }
}

/// `usize` and `isize` are encoded as 64 bits, so that machines of different word size agree.
macro_rules! sizes {
    ($($size:ty as $wide:ty),*) => { $(
        impl Summed for $size {
            #[inline]
            fn sum(&self, summer: &mut Summer) {
                summer.bytes(&(*self as $wide).to_le_bytes());
            }
            fn pack(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&(*self as $wide).to_le_bytes());
            }
            fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                <$size>::try_from(<$wide>::from_le_bytes(from.array()?))
                    .map_err(|_| Malformed("a size that this machine cannot hold"))
            }
            fn blank() -> Self {
                0
            }
            const NAME: TypeName = TypeName::new(stringify!($size));
            const FIXED: usize = size_of::<$wide>();
            #[inline(always)]
            fn put(&self, place: &mut [u8]) {
                place.copy_from_slice(&(*self as $wide).to_le_bytes());
            }
        }
    )* };
}
sizes!(usize as u64, isize as i64);

impl Summed for bool {
    const NAME: TypeName = TypeName::new("bool");
    #[inline]
    fn sum(&self, summer: &mut Summer) {
        summer.bytes(&[u8::from(*self)]);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        from.flag()
    }
    fn blank() -> Self {
        false
    }
    const FIXED: usize = 1;
    #[inline(always)]
    fn put(&self, place: &mut [u8]) {
        place[0] = u8::from(*self);
    }
}

impl Summed for char {
    const NAME: TypeName = TypeName::new("char");
    #[inline]
    fn sum(&self, summer: &mut Summer) {
        u32::from(*self).sum(summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        u32::from(*self).pack(out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        char::from_u32(u32::unpack(from)?).ok_or(Malformed("a char that is none"))
    }
    fn blank() -> Self {
        '\0'
    }
}

impl Summed for ObjectId {
    const NAME: TypeName = TypeName::new("ObjectId");
    #[inline]
    fn sum(&self, summer: &mut Summer) {
        self.to_bits().sum(summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        self.to_bits().pack(out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(ObjectId::from_bits(u64::unpack(from)?))
    }
    fn blank() -> Self {
        ObjectId::NONE
    }
    const FIXED: usize = 8;
    #[inline(always)]
    fn put(&self, place: &mut [u8]) {
        self.to_bits().put(place);
    }
}

macro_rules! tuples {
    ($(($($part:ident $index:tt)*))*) => { $(
        impl<$($part: Summed),*> Summed for ($($part,)*) {
            const NAME: TypeName = TypeName::tuple(&[$($part::NAME),*]);
            #[inline]
            fn sum(&self, _summer: &mut Summer) {
                $(self.$index.sum(_summer);)*
            }
            fn pack(&self, _out: &mut Vec<u8>) {
                $(self.$index.pack(_out);)*
            }
            fn unpack(_from: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(($($part::unpack(_from)?,)*))
            }
            fn blank() -> Self {
                ($($part::blank(),)*)
            }
            fn is_intact(&self) -> bool {
                true $(&& self.$index.is_intact())*
            }
            fn shape(_shape: &mut Shape) {
                _shape.text("tuple");
                $($part::shape(_shape);)*
            }
            const FIXED: usize = if true $(&& $part::FIXED > 0)* { 0 $(+ $part::FIXED)* } else { 0 };
            #[inline(always)]
            #[allow(unused_assignments, unused_mut)]
            fn put(&self, _place: &mut [u8]) {
                let mut at = 0;
                $(
                    self.$index.put(&mut _place[at..at + $part::FIXED]);
                    at += $part::FIXED;
                )*
            }
        }
    )* };
}
tuples!((A 0) (A 0 B 1) (A 0 B 1 C 2) (A 0 B 1 C 2 D 3) (A 0 B 1 C 2 D 3 E 4) (A 0 B 1 C 2 D 3 E 4 F 5));
tuples!((A 0 B 1 C 2 D 3 E 4 F 5 G 6) (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7) (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8));
tuples!((A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9) (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10));
tuples!((A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11));
