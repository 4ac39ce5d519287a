//! Further types of the standard library as members: ordered maps and sets, boxes, times, results, markers.

use crate::checksum::Summer;
#[cfg(feature = "inject")]
use crate::inject::Damage;
use crate::shape::Shape;
use crate::summed::Summed;
use crate::type_name::TypeName;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::num::NonZero;
use std::ops::Range;
use std::time::Duration;
use wire::{Malformed, Reader};

/// The entries in ascending order of their keys. `K`'s order must be a function of the summed part of a key.
///
/// All of it is part of one object, so a request that touches the object pays for every entry.
impl<K: Summed + Ord, V: Summed> Summed for BTreeMap<K, V> {
    const NAME: TypeName = TypeName::new("BTreeMap").of(&[K::NAME, V::NAME]);
    fn sum(&self, summer: &mut Summer) {
        summer.length(self.len());
        for (key, value) in self {
            key.sum(summer);
            value.sum(summer);
        }
    }
    fn pack(&self, out: &mut Vec<u8>) {
        (self.len() as u32).pack(out);
        for (key, value) in self {
            key.pack(out);
            value.pack(out);
        }
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut map = BTreeMap::new();
        for _ in 0..from.length32()? {
            let key = K::unpack(from)?;
            if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(Malformed("keys of a map that do not ascend"));
            }
            map.insert(key, V::unpack(from)?);
        }
        Ok(map)
    }
    fn shape(shape: &mut Shape) {
        shape.text("BTreeMap");
        K::shape(shape);
        V::shape(shape);
    }
    fn blank() -> Self {
        BTreeMap::new()
    }
    fn is_intact(&self) -> bool {
        self.iter().all(|(key, value)| key.is_intact() && value.is_intact())
    }
}

/// The values in ascending order; as a map's keys.
impl<T: Summed + Ord> Summed for BTreeSet<T> {
    const NAME: TypeName = TypeName::new("BTreeSet").of(&[T::NAME]);
    fn sum(&self, summer: &mut Summer) {
        summer.length(self.len());
        self.iter().for_each(|value| value.sum(summer));
    }
    fn pack(&self, out: &mut Vec<u8>) {
        (self.len() as u32).pack(out);
        self.iter().for_each(|value| value.pack(out));
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut set = BTreeSet::new();
        for _ in 0..from.length32()? {
            let value = T::unpack(from)?;
            if set.last().is_some_and(|last| *last >= value) {
                return Err(Malformed("values of a set that do not ascend"));
            }
            set.insert(value);
        }
        Ok(set)
    }
    fn shape(shape: &mut Shape) {
        shape.text("BTreeSet");
        T::shape(shape);
    }
    fn blank() -> Self {
        BTreeSet::new()
    }
    fn is_intact(&self) -> bool {
        self.iter().all(T::is_intact)
    }
}

impl<T: Summed> Summed for Box<T> {
    const NAME: TypeName = TypeName::new("Box").of(&[T::NAME]);
    #[inline]
    fn sum(&self, summer: &mut Summer) {
        T::sum(self, summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        T::pack(self, out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        T::unpack(from).map(Box::new)
    }
    fn shape(shape: &mut Shape) {
        shape.text("Box");
        T::shape(shape);
    }
    fn blank() -> Self {
        Box::new(T::blank())
    }
    fn is_intact(&self) -> bool {
        T::is_intact(self)
    }
    #[cfg(feature = "inject")]
    fn damage(&mut self, damage: Damage) -> bool {
        T::damage(self, damage)
    }
}

impl Summed for Box<str> {
    const NAME: TypeName = TypeName::new("Box").of(&[TypeName::new("str")]);
    fn sum(&self, summer: &mut Summer) {
        summer.length(self.len());
        summer.bytes(self.as_bytes());
    }
    fn pack(&self, out: &mut Vec<u8>) {
        (self.len() as u32).pack(out);
        out.extend_from_slice(self.as_bytes());
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        String::unpack(from).map(String::into_boxed_str)
    }
    fn blank() -> Self {
        Box::default()
    }
}

/// Whole seconds, then the nanoseconds of the last one.
impl Summed for Duration {
    const NAME: TypeName = TypeName::new("Duration");
    fn sum(&self, summer: &mut Summer) {
        self.as_secs().sum(summer);
        self.subsec_nanos().sum(summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        self.as_secs().pack(out);
        self.subsec_nanos().pack(out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (seconds, nanos) = (u64::unpack(from)?, u32::unpack(from)?);
        if nanos >= 1_000_000_000 {
            return Err(Malformed("a duration with a second's nanoseconds or more"));
        }
        Ok(Duration::new(seconds, nanos))
    }
    fn blank() -> Self {
        Duration::ZERO
    }
}

macro_rules! nonzero {
    ($($integer:ty)*) => { $(
        impl Summed for NonZero<$integer> {
            const NAME: TypeName = TypeName::new("NonZero").of(&[<$integer>::NAME]);
            #[inline]
            fn sum(&self, summer: &mut Summer) {
                self.get().sum(summer);
            }
            fn pack(&self, out: &mut Vec<u8>) {
                self.get().pack(out);
            }
            fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                NonZero::new(<$integer>::unpack(from)?).ok_or(Malformed("a zero where none can be"))
            }
            fn blank() -> Self {
                Self::MIN
            }
            const FIXED: usize = <$integer>::FIXED;
            #[inline(always)]
            fn put(&self, place: &mut [u8]) {
                self.get().put(place);
            }
        }
    )* };
}
nonzero!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

impl<T: Summed, E: Summed> Summed for Result<T, E> {
    const NAME: TypeName = TypeName::new("Result").of(&[T::NAME, E::NAME]);
    fn sum(&self, summer: &mut Summer) {
        self.is_ok().sum(summer);
        match self {
            Ok(value) => value.sum(summer),
            Err(error) => error.sum(summer),
        }
    }
    fn pack(&self, out: &mut Vec<u8>) {
        self.is_ok().pack(out);
        match self {
            Ok(value) => value.pack(out),
            Err(error) => error.pack(out),
        }
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        if bool::unpack(from)? { T::unpack(from).map(Ok) } else { E::unpack(from).map(Err) }
    }
    fn shape(shape: &mut Shape) {
        shape.text("Result");
        T::shape(shape);
        E::shape(shape);
    }
    fn blank() -> Self {
        Ok(T::blank())
    }
    fn is_intact(&self) -> bool {
        match self {
            Ok(value) => value.is_intact(),
            Err(error) => error.is_intact(),
        }
    }
}

impl<T: Summed> Summed for Reverse<T> {
    const NAME: TypeName = TypeName::new("Reverse").of(&[T::NAME]);
    fn sum(&self, summer: &mut Summer) {
        self.0.sum(summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        self.0.pack(out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        T::unpack(from).map(Reverse)
    }
    fn shape(shape: &mut Shape) {
        shape.text("Reverse");
        T::shape(shape);
    }
    fn blank() -> Self {
        Reverse(T::blank())
    }
    fn is_intact(&self) -> bool {
        self.0.is_intact()
    }
}

impl<T: Summed> Summed for Range<T> {
    const NAME: TypeName = TypeName::new("Range").of(&[T::NAME]);
    fn sum(&self, summer: &mut Summer) {
        self.start.sum(summer);
        self.end.sum(summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        self.start.pack(out);
        self.end.pack(out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(T::unpack(from)?..T::unpack(from)?)
    }
    fn shape(shape: &mut Shape) {
        shape.text("Range");
        T::shape(shape);
    }
    fn blank() -> Self {
        T::blank()..T::blank()
    }
    fn is_intact(&self) -> bool {
        self.start.is_intact() && self.end.is_intact()
    }
}

/// One byte, so that the length of a `Vec<()>` can be compared with the bytes behind it.
impl Summed for () {
    const NAME: TypeName = TypeName::tuple(&[]);
    fn sum(&self, summer: &mut Summer) {
        summer.bytes(&[0]);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        out.push(0);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        if from.u8()? == 0 { Ok(()) } else { Err(Malformed("a unit value that is none")) }
    }
    fn blank() -> Self {}
}

/// As `()`.
impl<T: ?Sized + Send + Sync + 'static> Summed for PhantomData<T> {
    const NAME: TypeName = TypeName::new("PhantomData");
    fn sum(&self, summer: &mut Summer) {
        ().sum(summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        ().pack(out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        <()>::unpack(from).map(|()| PhantomData)
    }
    fn blank() -> Self {
        PhantomData
    }
}
