//! The objects of a store without the store: what a method that passes through the store's owner may change.

use std::fmt;

use crate::critical::Critical;
use crate::reference::Ref;
use crate::store::Store;

/// The objects of a [`Store`], to change them, but not which ones there are: that would change the owner.
///
/// A method marked `#[through]` has its stores in this form (see [`crate::critical`]).
pub struct Inside<'s, T>(&'s mut Store<T>);

impl<'s, T: Critical> Inside<'s, T> {
    /// The object, checked; `None` if there is none of this name.
    #[inline]
    pub fn get(&self, to: Ref<T>) -> Option<&T> {
        self.0.get(to)
    }

    /// Like [`Store::expect`].
    #[inline]
    pub fn expect(&self, to: Ref<T>) -> &T {
        self.0.expect(to)
    }

    /// Like [`Store::get_mut`].
    #[inline]
    pub fn get_mut(self, to: Ref<T>) -> Option<&'s mut T> {
        self.0.get_mut(to)
    }

    /// Like [`Store::expect_mut`].
    #[inline]
    pub fn expect_mut(self, to: Ref<T>) -> &'s mut T {
        self.0.expect_mut(to)
    }
}

impl<T: Critical> fmt::Debug for Inside<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A member whose objects can be changed without changing it; for the code that `#[critical]` writes.
pub trait Through {
    /// Its objects.
    type Inside<'s>
    where
        Self: 's;
    /// Gives them out.
    fn inside(&mut self) -> Self::Inside<'_>;
}

impl<T: 'static> Through for Store<T> {
    type Inside<'s> = Inside<'s, T>;

    #[inline]
    fn inside(&mut self) -> Inside<'_, T> {
        Inside(self)
    }
}
