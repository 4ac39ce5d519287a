//! The objects that collections consist of: critical types with type parameters, which `#[critical]` refuses.
//!
//! Their class follows from the type parameters when the program is compiled, so an author's type in a collection is
//! part of the class's name and tag. They have one version: an author who changes a type of values gives it another
//! name, and with it another collection.

use crate::checksum::Summer;
use crate::class::Class;
use crate::critical::{Critical, Members};
use crate::header::Header;
use crate::id::ObjectId;
use crate::member::{Child, ChildMut};
use crate::pack::Packer;
use crate::protected::{NoCopy, Protected};
use crate::request;
use std::fmt;
use wire::{Malformed, Reader};

/// One object of a collection.
pub struct CollectionPart<B> {
    protected: Protected<PartMembers<B>, NoCopy>,
}

/// What is in it, behind its header.
pub struct PartMembers<B> {
    header: Header,
    body: B,
}

/// The members of an object of a collection. [`body`] writes it.
pub trait Body: Sized + Send + 'static {
    /// The class for these type parameters.
    const CLASS: &'static Class;
    /// As [`Members::sum`].
    fn sum(&self, summer: &mut Summer);
    /// As [`Members::pack`].
    fn pack(&self, packer: &mut Packer<'_>);
    /// Reads that back.
    fn unpack(reader: &mut Reader<'_>) -> Result<Self, Malformed>;
    /// Without contents, for an object that is about to be replaced.
    fn blank() -> Self;
    /// As [`Members::is_intact`].
    fn is_intact(&self) -> bool;
    /// As [`Members::damage`].
    #[cfg(feature = "inject")]
    fn damage(&mut self, member: usize, damage: crate::inject::Damage) -> bool;
}

/// Said of a packed object that is none of this class.
pub(crate) const UNKNOWN: &str = "an object of another class than this one of a collection: the release of the program \
                                  that wrote it has other types of keys or values in it";

impl<B: Body> CollectionPart<B> {
    /// A new object. It is named after the request that creates it.
    pub(crate) fn new(body: B) -> Self {
        CollectionPart {
            protected: Protected::new(PartMembers { header: Header::unsealed(request::new_id()), body }),
        }
    }

    /// The members, checked.
    #[inline]
    pub(crate) fn read(&self) -> &B {
        &self.protected.read().body
    }

    /// The members, checked, to change them.
    #[inline]
    pub(crate) fn write(&mut self) -> &mut B {
        &mut self.protected.write().body
    }

    /// The members of an object that has left its store.
    pub(crate) fn take(self) -> B {
        self.protected.take().body
    }
}

// An author whose type is not critical is not to be referred to this one.
#[diagnostic::do_not_recommend]
impl<B: Body> Critical for CollectionPart<B> {
    type Members = PartMembers<B>;
    type Redundancy = NoCopy;
    #[inline]
    fn protected(&self) -> &Protected<PartMembers<B>, NoCopy> {
        &self.protected
    }
    #[inline]
    fn protected_mut(&mut self) -> &mut Protected<PartMembers<B>, NoCopy> {
        &mut self.protected
    }
    fn from_protected(protected: Protected<PartMembers<B>, NoCopy>) -> Self {
        CollectionPart { protected }
    }
}

impl<B: Body> Members for PartMembers<B> {
    const CLASS: &'static Class = B::CLASS;
    const HAS_CHILDREN: bool = false;
    const IS_FLAT: bool = true;
    #[inline]
    fn header(&self) -> &Header {
        &self.header
    }
    #[inline]
    fn header_mut(&mut self) -> &mut Header {
        &mut self.header
    }
    #[inline]
    fn sum(&self, _version: u16, summer: &mut Summer) {
        self.body.sum(summer);
    }
    fn pack(&self, packer: &mut Packer<'_>) {
        self.body.pack(packer);
    }
    fn replace(&mut self, _version: u16, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        let body = B::unpack(reader)?;
        reader.end()?;
        self.body = body;
        Ok(())
    }
    fn blank(id: ObjectId) -> Self {
        PartMembers { header: Header::blank(id), body: B::blank() }
    }
    fn is_intact(&self) -> bool {
        self.body.is_intact()
    }
    fn children<'a>(&'a self, _visit: &mut dyn FnMut(u8, Child<'a>)) {}
    fn children_mut<'a>(&'a mut self, _visit: &mut dyn FnMut(u8, ChildMut<'a>)) {}
    fn classes(visit: &mut dyn FnMut(&'static Class) -> bool) {
        visit(Self::CLASS);
    }
    #[cfg(feature = "inject")]
    fn damage(&mut self, member: usize, damage: crate::inject::Damage) -> bool {
        self.body.damage(member, damage)
    }
}

impl<B: Body> fmt::Debug for CollectionPart<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.protected.fmt(f)
    }
}

/// Writes [`Body`] for a struct with these members, all of them values, in this order.
macro_rules! body {
    ($body:ident<$($of:ident),*> { $($index:tt $member:ident: $ty:ty),* $(,)? }) => {
        impl<$($of: $crate::Summed),*> $body<$($of),*> {
            const NAME: &'static $crate::TypeName =
                &$crate::TypeName::new(stringify!($body)).of(&[$(<$of as $crate::Summed>::NAME),*]);
        }

        impl<$($of: $crate::Summed),*> $crate::collections::part::Body for $body<$($of),*> {
            const CLASS: &'static $crate::class::Class = &$crate::class::Class::of_instance(
                Self::NAME,
                &[$(stringify!($member)),*],
                |shape| { $(shape.member(stringify!($member), ""); <$ty as $crate::Summed>::shape(shape);)* },
                $crate::collections::part::UNKNOWN,
            );
            #[inline]
            fn sum(&self, summer: &mut $crate::Summer) {
                $($crate::Summed::sum(&self.$member, summer);)*
            }
            fn pack(&self, packer: &mut $crate::pack::Packer<'_>) {
                $(packer.member(&self.$member);)*
            }
            fn unpack(reader: &mut $crate::Reader<'_>) -> Result<Self, $crate::Malformed> {
                Ok($body { $($member: $crate::pack::unpack_member::<$ty>(reader)?),* })
            }
            fn blank() -> Self {
                $body { $($member: $crate::Summed::blank()),* }
            }
            fn is_intact(&self) -> bool {
                true $(&& $crate::Summed::is_intact(&self.$member))*
            }
            #[cfg(feature = "inject")]
            fn damage(&mut self, member: usize, damage: $crate::inject::Damage) -> bool {
                match member {
                    $($index => $crate::Summed::damage(&mut self.$member, damage),)*
                    _ => false,
                }
            }
        }
    };
}
pub(crate) use body;
