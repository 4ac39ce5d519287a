//! The kinds of members of a critical type: a summed value, a critical type of its own, or a store of them.

use crate::any::{AnyObject, AnyStore};
use crate::checksum::Summer;
use crate::class::Class;
use crate::summed::Summed;
use wire::{Malformed, Reader};

/// A protected thing inside another protected thing.
#[allow(missing_debug_implementations)]
pub enum Child<'a> {
    /// A critical member, for life part of its owner.
    Object(&'a dyn AnyObject),
    /// A store of critical objects.
    Store(&'a dyn AnyStore),
}

/// The same, to change it.
#[allow(missing_debug_implementations)]
pub enum ChildMut<'a> {
    /// A critical member, for life part of its owner.
    Object(&'a mut dyn AnyObject),
    /// A store of critical objects.
    Store(&'a mut dyn AnyStore),
}

/// A tracked member. Implemented for every [`Summed`] value, by `#[critical]` for the type it stands on, and for
/// [`crate::Store`].
///
/// A value adds all its bytes to its owner's checksum. A critical member adds only its id, a store its population: what
/// is in them has checksums of its own (EDCC'16 section IV-A).
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
pub trait Member: Sized + 'static {
    /// The member's part of the owner's packed bytes.
    type Packed;
    /// Adds the member to its owner's checksum.
    fn sum(&self, summer: &mut Summer);
    /// Appends what the owner's packed bytes hold of the member.
    fn pack(&self, out: &mut Vec<u8>);
    /// Reads that back.
    fn unpack(from: &mut Reader<'_>) -> Result<Self::Packed, Malformed>;
    /// Puts it in place.
    fn install(&mut self, packed: Self::Packed);
    /// Any cheap value, for an object that is about to be replaced.
    fn blank() -> Self;
    /// Whether parts with checksums of their own fit them.
    fn is_intact(&self) -> bool {
        true
    }
    /// Shows the protected things inside.
    fn children<'a>(&'a self, _visit: &mut dyn FnMut(Child<'a>)) {}
    /// Shows the protected things inside, to change them.
    fn children_mut<'a>(&'a mut self, _visit: &mut dyn FnMut(ChildMut<'a>)) {}
    /// Shows the classes of the protected things that can be inside; a class shown before answers false.
    fn classes(_visit: &mut dyn FnMut(&'static Class) -> bool) {}
    /// Whether it is a critical type or a store of them.
    const IS_CHILD: bool = false;
    /// Whether it is a value, or a store of objects that have nothing protected inside.
    const IS_FLAT: bool = true;
    /// As [`Summed::FIXED`].
    const FIXED: usize = 0;
    /// As [`Summed::put`].
    #[inline(always)]
    fn put(&self, _place: &mut [u8]) {}
    /// Damages the member in memory.
    #[cfg(feature = "inject")]
    fn damage(&mut self, damage: crate::inject::Damage) -> bool;
}

impl<T: Summed> Member for T {
    type Packed = T;
    const FIXED: usize = <T as Summed>::FIXED;
    #[inline(always)]
    fn put(&self, place: &mut [u8]) {
        Summed::put(self, place);
    }
    #[inline]
    fn sum(&self, summer: &mut Summer) {
        Summed::sum(self, summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        Summed::pack(self, out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<T, Malformed> {
        Summed::unpack(from)
    }
    fn install(&mut self, packed: T) {
        *self = packed;
    }
    fn blank() -> Self {
        Summed::blank()
    }
    fn is_intact(&self) -> bool {
        Summed::is_intact(self)
    }
    #[cfg(feature = "inject")]
    fn damage(&mut self, damage: crate::inject::Damage) -> bool {
        Summed::damage(self, damage)
    }
}

/// Makes a critical type a member of other critical types; written by `#[critical]`.
#[doc(hidden)]
#[macro_export]
macro_rules! critical_member {
    ($name:ident) => {
        #[automatically_derived]
        impl $crate::hidden::Member for $name {
            type Packed = $crate::ObjectId;
            const IS_CHILD: bool = true;
            const IS_FLAT: bool = false;
            const FIXED: usize = <$crate::ObjectId as $crate::Summed>::FIXED;
            #[inline(always)]
            fn put(&self, place: &mut [u8]) {
                $crate::Summed::put(&$crate::hidden::child_id(self), place);
            }
            #[inline]
            fn sum(&self, summer: &mut $crate::Summer) {
                $crate::Summed::sum(&$crate::hidden::child_id(self), summer);
            }
            fn pack(&self, out: &mut ::std::vec::Vec<u8>) {
                $crate::Summed::pack(&$crate::hidden::child_id(self), out);
            }
            fn unpack(
                from: &mut $crate::Reader<'_>,
            ) -> ::core::result::Result<$crate::ObjectId, $crate::Malformed> {
                $crate::Summed::unpack(from)
            }
            fn install(&mut self, packed: $crate::ObjectId) {
                $crate::hidden::rename_child(self, packed);
            }
            fn blank() -> Self {
                $crate::hidden::blank($crate::ObjectId::NONE)
            }
            fn children<'a>(&'a self, visit: &mut dyn ::core::ops::FnMut($crate::hidden::Child<'a>)) {
                visit($crate::hidden::Child::Object($crate::Critical::protected(self)));
            }
            fn children_mut<'a>(
                &'a mut self,
                visit: &mut dyn ::core::ops::FnMut($crate::hidden::ChildMut<'a>),
            ) {
                visit($crate::hidden::ChildMut::Object($crate::Critical::protected_mut(self)));
            }
            fn classes(visit: &mut dyn ::core::ops::FnMut(&'static $crate::hidden::Class) -> bool) {
                <<$name as $crate::Critical>::Members as $crate::hidden::Members>::classes(visit);
            }
            $crate::inject_only! {
                fn damage(&mut self, _damage: $crate::hidden::Damage) -> bool {
                    false
                }
            }
        }
    };
}

#[cfg(feature = "inject")]
#[doc(hidden)]
#[macro_export]
macro_rules! inject_only {
    ($($item:tt)*) => { $($item)* };
}

/// Nothing: the faults of `inject` are not compiled in.
#[cfg(not(feature = "inject"))]
#[doc(hidden)]
#[macro_export]
macro_rules! inject_only {
    ($($item:tt)*) => {};
}
