//! The locks of a service, as its members have them: what the derive [`Locks`](object::Locks) lists.

use object::Region;

use crate::{DetMutex, DetRwLock, Lock};

pub use object::Locks;

/// A lock, or several of them in the order of their numbers. `#[derive(Locks)]` writes it for a service, from its
/// members.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no lock, and no list of locks",
    label = "a member of a service with `#[derive(Locks)]`",
    note = "write `#[locks(skip)]` above a member that is no lock; state has to be behind a `DetMutex` or `DetRwLock`"
)]
pub trait Locks {
    /// Adds them to a list.
    fn add<'locks>(&'locks self, to: &mut Vec<&'locks dyn Lock>);

    /// The same, while no other thread can reach them.
    fn add_mut<'locks>(&'locks mut self, to: &mut Vec<&'locks mut dyn Lock>);
}

/// The locks of a service, in the order of their numbers.
pub fn locks_of(service: &impl Locks) -> Vec<&dyn Lock> {
    let mut locks = Vec::new();
    service.add(&mut locks);
    locks
}

/// The same, while no other thread can reach them.
pub fn locks_of_mut(service: &mut impl Locks) -> Vec<&mut dyn Lock> {
    let mut locks = Vec::new();
    service.add_mut(&mut locks);
    locks
}

impl<T: Region> Locks for DetMutex<T> {
    fn add<'locks>(&'locks self, to: &mut Vec<&'locks dyn Lock>) {
        to.push(self);
    }

    fn add_mut<'locks>(&'locks mut self, to: &mut Vec<&'locks mut dyn Lock>) {
        to.push(self);
    }
}

impl<T: Region + Sync> Locks for DetRwLock<T> {
    fn add<'locks>(&'locks self, to: &mut Vec<&'locks dyn Lock>) {
        to.push(self);
    }

    fn add_mut<'locks>(&'locks mut self, to: &mut Vec<&'locks mut dyn Lock>) {
        to.push(self);
    }
}

impl<L: Locks> Locks for [L] {
    fn add<'locks>(&'locks self, to: &mut Vec<&'locks dyn Lock>) {
        self.iter().for_each(|locks| locks.add(to));
    }

    fn add_mut<'locks>(&'locks mut self, to: &mut Vec<&'locks mut dyn Lock>) {
        self.iter_mut().for_each(|locks| locks.add_mut(to));
    }
}

impl<L: Locks> Locks for Vec<L> {
    fn add<'locks>(&'locks self, to: &mut Vec<&'locks dyn Lock>) {
        self.as_slice().add(to);
    }

    fn add_mut<'locks>(&'locks mut self, to: &mut Vec<&'locks mut dyn Lock>) {
        self.as_mut_slice().add_mut(to);
    }
}

impl<L: Locks + ?Sized> Locks for Box<L> {
    fn add<'locks>(&'locks self, to: &mut Vec<&'locks dyn Lock>) {
        (**self).add(to);
    }

    fn add_mut<'locks>(&'locks mut self, to: &mut Vec<&'locks mut dyn Lock>) {
        (**self).add_mut(to);
    }
}

impl<L: Locks, const N: usize> Locks for [L; N] {
    fn add<'locks>(&'locks self, to: &mut Vec<&'locks dyn Lock>) {
        self.as_slice().add(to);
    }

    fn add_mut<'locks>(&'locks mut self, to: &mut Vec<&'locks mut dyn Lock>) {
        self.as_mut_slice().add_mut(to);
    }
}
