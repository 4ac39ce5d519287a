//! The standard library's containers as members: arrays, options, vectors, boxed slices, strings.

use crate::checksum::Summer;
#[cfg(feature = "inject")]
use crate::inject::{self, Damage};
use crate::shape::Shape;
use crate::summed::Summed;
use crate::type_name::TypeName;
use std::collections::VecDeque;
use wire::{Malformed, Reader};

impl<T: Summed, const N: usize> Summed for [T; N] {
    const NAME: TypeName = TypeName::slice(T::NAME);
    #[inline]
    fn sum(&self, summer: &mut Summer) {
        T::sum_all(self, summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        T::pack_all(self, out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        T::unpack_all(from, N)?.try_into().map_err(|_| Malformed("an array of another length"))
    }
    fn shape(shape: &mut Shape) {
        shape.text(&format!("array of {N}"));
        T::shape(shape);
    }
    fn blank() -> Self {
        std::array::from_fn(|_| T::blank())
    }
    // A long array is not copied twice.
    const FIXED: usize = if N * T::FIXED <= 64 { N * T::FIXED } else { 0 };
    #[inline(always)]
    fn put(&self, place: &mut [u8]) {
        place.chunks_exact_mut(T::FIXED.max(1)).zip(self).for_each(|(place, value)| value.put(place));
    }
    fn is_intact(&self) -> bool {
        self.iter().all(T::is_intact)
    }
    #[cfg(feature = "inject")]
    fn damage(&mut self, damage: Damage) -> bool {
        match damage {
            Damage::Flip(bit) => inject::damage_elements(self.iter_mut(), bit),
            Damage::Length { .. } => false,
        }
    }
}

impl<T: Summed> Summed for Option<T> {
    const NAME: TypeName = TypeName::new("Option").of(&[T::NAME]);
    #[inline]
    fn sum(&self, summer: &mut Summer) {
        self.is_some().sum(summer);
        if let Some(value) = self {
            value.sum(summer);
        }
    }
    fn pack(&self, out: &mut Vec<u8>) {
        self.is_some().pack(out);
        if let Some(value) = self {
            value.pack(out);
        }
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        if bool::unpack(from)? { T::unpack(from).map(Some) } else { Ok(None) }
    }
    fn shape(shape: &mut Shape) {
        shape.text("Option");
        T::shape(shape);
    }
    fn blank() -> Self {
        None
    }
    fn is_intact(&self) -> bool {
        self.as_ref().is_none_or(T::is_intact)
    }
    #[cfg(feature = "inject")]
    fn damage(&mut self, damage: Damage) -> bool {
        match (self, damage) {
            (Some(value), Damage::Flip(bit)) if bit >= 8 => value.damage(Damage::Flip(bit - 8)),
            (this, Damage::Flip(0)) => {
                // The mark of presence itself: `Some` becomes `None`, or `None` becomes `Some`.
                *this = if this.is_some() { None } else { Some(T::blank()) };
                true
            }
            _ => false,
        }
    }
}

impl<T: Summed> Summed for Vec<T> {
    const NAME: TypeName = TypeName::new("Vec").of(&[T::NAME]);
    #[inline]
    fn sum(&self, summer: &mut Summer) {
        summer.length(self.len());
        T::sum_all(self, summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        (self.len() as u32).pack(out);
        T::pack_all(self, out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = from.length32()?;
        T::unpack_all(from, count)
    }
    fn shape(shape: &mut Shape) {
        shape.text("Vec");
        T::shape(shape);
    }
    fn blank() -> Self {
        Vec::new()
    }
    fn is_intact(&self) -> bool {
        self.iter().all(T::is_intact)
    }
    #[cfg(feature = "inject")]
    fn damage(&mut self, damage: Damage) -> bool {
        inject::damage_vector(self, damage)
    }
}

impl<T: Summed> Summed for VecDeque<T> {
    const NAME: TypeName = TypeName::new("VecDeque").of(&[T::NAME]);
    fn sum(&self, summer: &mut Summer) {
        summer.length(self.len());
        let (front, back) = self.as_slices();
        T::sum_all(front, summer);
        T::sum_all(back, summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        (self.len() as u32).pack(out);
        let (front, back) = self.as_slices();
        T::pack_all(front, out);
        T::pack_all(back, out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Vec::<T>::unpack(from)?.into())
    }
    fn shape(shape: &mut Shape) {
        shape.text("VecDeque");
        T::shape(shape);
    }
    fn blank() -> Self {
        VecDeque::new()
    }
    fn is_intact(&self) -> bool {
        self.iter().all(T::is_intact)
    }
    #[cfg(feature = "inject")]
    fn damage(&mut self, damage: Damage) -> bool {
        inject::damage_vector_like(self, damage)
    }
}

impl<T: Summed> Summed for Box<[T]> {
    const NAME: TypeName = TypeName::new("Box").of(&[TypeName::slice(T::NAME)]);
    #[inline]
    fn sum(&self, summer: &mut Summer) {
        summer.length(self.len());
        T::sum_all(self, summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        (self.len() as u32).pack(out);
        T::pack_all(self, out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Vec::<T>::unpack(from)?.into_boxed_slice())
    }
    fn shape(shape: &mut Shape) {
        shape.text("slice");
        T::shape(shape);
    }
    fn blank() -> Self {
        Box::default()
    }
    fn is_intact(&self) -> bool {
        self.iter().all(T::is_intact)
    }
    #[cfg(feature = "inject")]
    fn damage(&mut self, damage: Damage) -> bool {
        inject::damage_vector_like(self, damage)
    }
}

impl Summed for String {
    const NAME: TypeName = TypeName::new("String");
    fn sum(&self, summer: &mut Summer) {
        summer.length(self.len());
        summer.bytes(self.as_bytes());
    }
    fn pack(&self, out: &mut Vec<u8>) {
        (self.len() as u32).pack(out);
        out.extend_from_slice(self.as_bytes());
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        String::from_utf8(Vec::<u8>::unpack(from)?).map_err(|_| Malformed("a string that is not UTF-8"))
    }
    fn blank() -> Self {
        String::new()
    }
    #[cfg(feature = "inject")]
    fn damage(&mut self, damage: Damage) -> bool {
        match damage {
            Damage::Flip(bit) if bit >= 32 => inject::damage_packed(self, damage),
            Damage::Length { longer: true } => {
                self.push('?');
                true
            }
            _ => self.pop().is_some(),
        }
    }
}
