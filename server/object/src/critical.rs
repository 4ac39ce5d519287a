//! The interface of a critical type: what `#[critical]` generates for a struct, and what this crate requires of it.

use crate::checksum::Summer;
use crate::class::Class;
use crate::header::{Header, VersionedHeader};
use crate::id::ObjectId;
use crate::member::{Child, ChildMut};
use crate::pack::Packer;
use crate::protected::{Protected, Redundancy};
use wire::{Malformed, Reader};

/// A type with `#[critical]`. Implemented by the macro only.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not critical",
    label = "no checksum, no check",
    note = "if `{Self}` is a struct of yours, put `#[critical]` on it; anything else is made a member of such a struct"
)]
pub trait Critical: Sized + Send + 'static {
    /// The hidden struct with the members.
    #[doc(hidden)]
    type Members: Members;
    /// Whether the type keeps a local copy.
    #[doc(hidden)]
    type Redundancy: Redundancy<Self::Members>;
    #[doc(hidden)]
    fn protected(&self) -> &Protected<Self::Members, Self::Redundancy>;
    #[doc(hidden)]
    fn protected_mut(&mut self) -> &mut Protected<Self::Members, Self::Redundancy>;
    #[doc(hidden)]
    fn from_protected(protected: Protected<Self::Members, Self::Redundancy>) -> Self;
}

/// The hidden struct with the members of a critical type. Its fields are private to the author's module, and the only
/// ways to one that is in use are [`Protected::read`] and [`Protected::write`], which check.
pub trait Members: Sized + 'static {
    /// Name of the type and its tracked members.
    const CLASS: &'static Class;
    /// Whether objects can be of a version before the newest one.
    const HAS_OLDER: bool = !Self::CLASS.older.is_empty();
    /// Whether a member is critical or a store.
    const HAS_CHILDREN: bool;
    /// Whether no member is critical, and no object in a store that is a member has children.
    const IS_FLAT: bool;
    /// Id and checksum.
    fn header(&self) -> &Header;
    /// The same, to change it.
    fn header_mut(&mut self) -> &mut Header;
    /// The version in which the object was written last.
    #[inline]
    fn version(&self) -> u16 {
        Self::CLASS.version
    }
    /// The header, where the class has several versions.
    #[inline]
    fn versioned(&self) -> Option<&VersionedHeader> {
        None
    }
    /// The same, to change it.
    #[inline]
    fn versioned_mut(&mut self) -> Option<&mut VersionedHeader> {
        None
    }
    /// Gives members that came behind the object's version the values that follow from the others, and leaves those
    /// blank that its version has no more.
    #[inline]
    fn settle(&mut self) {}
    /// Adds the tracked members of a version to the checksum; of the newest one, if a fault has changed the number.
    fn sum(&self, version: u16, summer: &mut Summer);
    /// The hot members as one word of 64 bits; 0 without any.
    #[inline]
    fn hot(&self) -> u64 {
        0
    }
    /// Puts the hot members back.
    #[inline]
    fn set_hot(&mut self, _words: u64) {}
    /// Appends the tracked members of the object's version.
    fn pack(&self, packer: &mut Packer<'_>);
    /// Puts the packed members of a version back; on an error nothing has changed.
    fn replace(&mut self, version: u16, reader: &mut Reader<'_>) -> Result<(), Malformed>;
    /// An object with this id that is about to be replaced.
    fn blank(id: ObjectId) -> Self;
    /// Whether parts with checksums of their own fit them.
    fn is_intact(&self) -> bool;
    /// Shows the protected things inside, with the number of the member they are in.
    fn children<'a>(&'a self, visit: &mut dyn FnMut(u8, Child<'a>));
    /// Shows the protected things inside, to change them.
    fn children_mut<'a>(&'a mut self, visit: &mut dyn FnMut(u8, ChildMut<'a>));
    /// Shows the class and those of the protected things that can be inside.
    fn classes(visit: &mut dyn FnMut(&'static Class) -> bool);
    /// Damages one member in memory.
    #[cfg(feature = "inject")]
    fn damage(&mut self, member: usize, damage: crate::inject::Damage) -> bool;
}

/// Id of a critical member, for its owner's checksum: the owner reads the name only, which is no entry.
pub fn child_id<T: Critical>(child: &T) -> ObjectId {
    child.protected().header().id()
}

/// Gives a critical member the name that its owner's packed bytes have for it.
pub fn rename_child<T: Critical>(child: &mut T, id: ObjectId) {
    let header = child.protected_mut().header_mut();
    if header.id() != id {
        header.rename(id);
    }
}

/// An object that is about to be replaced from packed bytes.
pub fn blank<T: Critical>(id: ObjectId) -> T {
    T::from_protected(Protected::new(T::Members::blank(id)))
}
