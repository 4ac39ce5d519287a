//! How generated code reaches a member. For a type that is no member there is a stand-in, so that the build fails once
//! for it and not at every use, with a message that names the member and the remedy.

use crate::checksum::Summer;
use crate::class::Class;
use crate::critical::Critical;
use crate::member::{Child, ChildMut, Member};
use crate::pack::{Packer, unpack_member};
use crate::shape::{Shape, Shaped};
use crate::summed::Summed;
use std::marker::PhantomData;
use wire::{Malformed, Reader};

/// The type of a member. Its own functions are those of [`Member`] and [`Summed`]; where the type is neither, the
/// compiler takes those of [`Neither`].
#[derive(Debug)]
pub struct Of<T: ?Sized>(PhantomData<T>);

#[allow(missing_docs, clippy::missing_errors_doc)]
impl<T: Member> Of<T> {
    pub const IS_MEMBER: bool = true;
    pub const IS_CHILD: bool = <T as Member>::IS_CHILD;
    pub const IS_FLAT: bool = <T as Member>::IS_FLAT;
    pub const FIXED: usize = <T as Member>::FIXED;

    #[inline(always)]
    pub fn put(member: &T, place: &mut [u8]) {
        Member::put(member, place);
    }
    #[inline(always)]
    pub fn sum(member: &T, summer: &mut Summer) {
        member.sum(summer);
    }
    #[inline(always)]
    pub fn pack(member: &T, packer: &mut Packer<'_>) {
        packer.member(member);
    }
    #[inline(always)]
    pub fn unpack(reader: &mut Reader<'_>) -> Result<T::Packed, Malformed> {
        unpack_member::<T>(reader)
    }
    #[inline(always)]
    pub fn install(member: &mut T, packed: T::Packed) {
        member.install(packed);
    }
    #[inline(always)]
    pub fn blank() -> T {
        T::blank()
    }
    #[inline(always)]
    pub fn is_intact(member: &T) -> bool {
        member.is_intact()
    }
    #[inline(always)]
    pub fn children<'a>(member: &'a T, visit: &mut dyn FnMut(Child<'a>)) {
        member.children(visit);
    }
    #[inline(always)]
    pub fn children_mut<'a>(member: &'a mut T, visit: &mut dyn FnMut(ChildMut<'a>)) {
        member.children_mut(visit);
    }
    #[inline(always)]
    pub fn classes(visit: &mut dyn FnMut(&'static Class) -> bool) {
        T::classes(visit);
    }
    #[cfg(feature = "inject")]
    #[inline(always)]
    pub fn damage(member: &mut T, damage: crate::inject::Damage) -> bool {
        member.damage(damage)
    }
}

#[allow(missing_docs, clippy::missing_errors_doc)]
impl<T: Summed> Of<T> {
    pub const IS_SUMMED: bool = true;
    pub const FIXED_VALUE: usize = <T as Summed>::FIXED;

    #[inline(always)]
    pub fn put_value(value: &T, place: &mut [u8]) {
        Summed::put(value, place);
    }
    #[inline(always)]
    pub fn sum_value(value: &T, summer: &mut Summer) {
        value.sum(summer);
    }
    #[inline(always)]
    pub fn pack_value(value: &T, out: &mut Vec<u8>) {
        value.pack(out);
    }
    #[inline(always)]
    pub fn unpack_value(from: &mut Reader<'_>) -> Result<T, Malformed> {
        T::unpack(from)
    }
    #[inline(always)]
    pub fn blank_value() -> T {
        T::blank()
    }
    #[inline(always)]
    pub fn is_intact_value(value: &T) -> bool {
        value.is_intact()
    }
}

#[allow(missing_docs)]
impl<T: Shaped> Of<T> {
    pub fn shape(shape: &mut Shape) {
        T::describe(shape);
    }
}

#[allow(missing_docs)]
impl<T: Critical> Of<T> {
    pub const IS_CRITICAL: bool = true;
}

/// The stand-in: compiled where the build fails anyway, never run.
#[allow(missing_docs, clippy::missing_errors_doc, unused_variables)]
pub trait Neither<T: ?Sized> {
    const IS_MEMBER: bool = false;
    const IS_SUMMED: bool = false;
    const IS_CRITICAL: bool = false;
    const IS_CHILD: bool = false;
    const IS_FLAT: bool = true;
    const FIXED: usize = 0;
    const FIXED_VALUE: usize = 0;

    fn put(member: &T, place: &mut [u8]) {}
    fn put_value(value: &T, place: &mut [u8]) {}
    fn sum(member: &T, summer: &mut Summer) {}
    fn pack(member: &T, packer: &mut Packer<'_>) {}
    fn unpack(reader: &mut Reader<'_>) -> Result<(), Malformed> {
        no_member()
    }
    fn install(member: &mut T, packed: ()) {}
    fn blank() -> T
    where
        T: Sized,
    {
        no_member()
    }
    fn is_intact(member: &T) -> bool {
        no_member()
    }
    fn children<'a>(member: &'a T, visit: &mut dyn FnMut(Child<'a>)) {}
    fn children_mut<'a>(member: &'a mut T, visit: &mut dyn FnMut(ChildMut<'a>)) {}
    fn classes(visit: &mut dyn FnMut(&'static Class) -> bool) {}
    fn shape(shape: &mut Shape) {}
    #[cfg(feature = "inject")]
    fn damage(member: &mut T, damage: crate::inject::Damage) -> bool {
        no_member()
    }

    fn sum_value(value: &T, summer: &mut Summer) {}
    fn pack_value(value: &T, out: &mut Vec<u8>) {}
    fn unpack_value(from: &mut Reader<'_>) -> Result<T, Malformed>
    where
        T: Sized,
    {
        no_member()
    }
    fn blank_value() -> T
    where
        T: Sized,
    {
        no_member()
    }
    fn is_intact_value(value: &T) -> bool {
        no_member()
    }
}

impl<T: ?Sized> Neither<T> for Of<T> {}

fn no_member() -> ! {
    unreachable!("a type that cannot be summed fails the build")
}
