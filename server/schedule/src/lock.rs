//! The locks a service declares; each guards one region of objects.

use object::Region;
use object::hidden::Class;

use crate::brand::{Bound, Brand};
use crate::cell::{Slot, TurnCell};
use crate::footprint::LockId;

/// A lock whose owners follow the ordered log. Take it with [`Cx::lock`](crate::Cx::lock).
pub struct DetMutex<T> {
    id: LockId,
    pub(crate) bound: Bound,
    pub(crate) cell: TurnCell<T>,
}

/// As [`DetMutex`], and readers between two writers run at the same time.
/// Take it with [`Cx::read`](crate::Cx::read) or [`Cx::write`](crate::Cx::write).
pub struct DetRwLock<T> {
    id: LockId,
    pub(crate) bound: Bound,
    pub(crate) cell: TurnCell<T>,
}

/// A request's access to a region, as [`Turn::visit_regions`](crate::Turn::visit_regions) shows it.
pub enum Access<'a> {
    /// The lock is held for reading.
    Shared(&'a dyn Region),
    /// The lock is held for writing.
    Exclusive(&'a mut dyn Region),
}

/// Either kind of lock, for the runtime: its number, and the region behind it while a request holds it.
pub trait Lock: Sync + sealed::Sealed {
    /// The lock's number.
    fn id(&self) -> LockId;

    /// The region behind the lock, for an owner without guards: initial load, inspection, shutdown.
    fn region_mut(&mut self) -> &mut dyn Region;

    /// Shows the classes of the objects that can be behind it; a class shown before answers false.
    fn classes(&self, visit: &mut dyn FnMut(&'static Class) -> bool);
}

impl<T: Region> DetMutex<T> {
    /// A lock with a number that is unique in the service, dense from 0. `value` is a critical type, made in
    /// [`object::genesis`]: what else a lock guards would have no checksum.
    pub const fn new(id: LockId, value: T) -> Self {
        Self::bare(id, value)
    }
}

impl<T> DetMutex<T> {
    /// A lock whose value need not be critical, and which is no [`Lock`] then: for tests of the schedule alone.
    #[doc(hidden)]
    pub const fn bare(id: LockId, value: T) -> Self {
        DetMutex { id, bound: Bound::new(), cell: TurnCell::new(value) }
    }

    /// The lock's number.
    pub const fn id(&self) -> LockId {
        self.id
    }

    /// The value, while no other thread can reach the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.cell.get_mut()
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.cell.into_inner()
    }
}

impl<T: Region + Sync> DetRwLock<T> {
    /// A lock with a number that is unique in the service, dense from 0. `value` is a critical type, made in
    /// [`object::genesis`]: what else a lock guards would have no checksum.
    pub const fn new(id: LockId, value: T) -> Self {
        Self::bare(id, value)
    }
}

impl<T> DetRwLock<T> {
    /// A lock whose value need not be critical, and which is no [`Lock`] then: for tests of the schedule alone.
    #[doc(hidden)]
    pub const fn bare(id: LockId, value: T) -> Self {
        DetRwLock { id, bound: Bound::new(), cell: TurnCell::new(value) }
    }

    /// The lock's number.
    pub const fn id(&self) -> LockId {
        self.id
    }

    /// The value, while no other thread can reach the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.cell.get_mut()
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.cell.into_inner()
    }
}

impl<T: Region> Lock for DetMutex<T> {
    fn id(&self) -> LockId {
        self.id
    }

    fn region_mut(&mut self) -> &mut dyn Region {
        self.cell.get_mut()
    }

    fn classes(&self, visit: &mut dyn FnMut(&'static Class) -> bool) {
        T::classes(visit);
    }
}

impl<T: Region + Sync> Lock for DetRwLock<T> {
    fn id(&self) -> LockId {
        self.id
    }

    fn region_mut(&mut self) -> &mut dyn Region {
        self.cell.get_mut()
    }

    fn classes(&self, visit: &mut dyn FnMut(&'static Class) -> bool) {
        T::classes(visit);
    }
}

pub(crate) mod sealed {
    use super::{Access, Brand, Slot};

    /// Excludes other implementations of [`Lock`](super::Lock): ownership is proved inside this crate.
    pub trait Sealed {
        /// Shows the region to the owner of `slot`.
        #[doc(hidden)]
        fn show(&self, brand: &Brand, slot: &Slot, visit: &mut dyn FnMut(Access<'_>));
    }
}

impl<T: Region> sealed::Sealed for DetMutex<T> {
    fn show(&self, brand: &Brand, slot: &Slot, visit: &mut dyn FnMut(Access<'_>)) {
        self.bound.claim(brand);
        visit(Access::Exclusive(&mut *self.cell.lock(slot)));
    }
}

impl<T: Region + Sync> sealed::Sealed for DetRwLock<T> {
    fn show(&self, brand: &Brand, slot: &Slot, visit: &mut dyn FnMut(Access<'_>)) {
        self.bound.claim(brand);
        if slot.shared {
            visit(Access::Shared(&*self.cell.read(slot)));
        } else {
            visit(Access::Exclusive(&mut *self.cell.lock(slot)));
        }
    }
}
