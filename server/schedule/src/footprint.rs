//! The locks that a request may take: declared or predicted before it runs, an over-estimate is allowed.

/// Number of a lock, dense from 0; also the number of the region it guards.
pub type LockId = object::RegionId;

/// Set of locks a request may take, each for reading or for writing.
///
/// Sorted and without duplicates. More than [`Footprint::INLINE`] locks become [`Footprint::all`]: the request then
/// runs alone. Locks that do not follow from the request are left to [`Footprint::predict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    ids: [LockId; Footprint::INLINE],
    /// The locks that the latest request of this kind took are added.
    kind: Option<u32>,
    /// Bit i: `ids[i]` is taken for reading only.
    shared: u16,
    len: u8,
    all: bool,
}

impl Footprint {
    /// Locks that fit; one more makes the footprint exclusive.
    pub const INLINE: usize = 16;

    /// No lock at all.
    pub const fn new() -> Self {
        Footprint { ids: [0; Self::INLINE], kind: None, shared: 0, len: 0, all: false }
    }

    /// Every lock: the request runs alone.
    pub const fn all() -> Self {
        Footprint { ids: [0; Self::INLINE], kind: None, shared: 0, len: 0, all: true }
    }

    /// One lock, taken for writing (the usual case).
    pub fn one(lock: LockId) -> Self {
        let mut footprint = Self::new();
        footprint.write(lock);
        footprint
    }

    /// Adds a lock that the request may change.
    pub fn write(&mut self, lock: LockId) {
        self.add(lock, false);
    }

    /// Adds a lock (a [`DetRwLock`](crate::DetRwLock)) that the request only reads.
    pub fn read(&mut self, lock: LockId) {
        self.add(lock, true);
    }

    /// Forecasts the rest. Besides the declared locks, the request may take those that the latest request of the same
    /// kind took beyond its own declared part, among those that were done at least `lag` positions earlier. At first
    /// there are none; each miss is a [retry](crate::Retry), and a lesson. The service defines the kind, as a function
    /// of the request: requests that take the same locks have one kind, and
    /// [`PREDICTED_KINDS`](crate::PREDICTED_KINDS) bounds how many are remembered.
    pub fn predict(&mut self, kind: u32) {
        self.kind = Some(kind);
    }

    /// The kind by which the rest is forecast, if it is.
    pub const fn kind(&self) -> Option<u32> {
        self.kind
    }

    /// Makes the request run alone.
    pub fn make_all(&mut self) {
        *self = Footprint { kind: self.kind, ..Self::all() };
    }

    /// Forgets every lock and the kind, so that the value can be filled again.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Whether the request runs alone.
    pub const fn is_all(&self) -> bool {
        self.all
    }

    /// Number of locks; 0 for [`Footprint::all`].
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no lock is named (and the request does not run alone).
    pub const fn is_empty(&self) -> bool {
        self.len == 0 && !self.all
    }

    /// The locks in ascending order, each with `true` if it is taken for reading only.
    pub fn iter(&self) -> impl Iterator<Item = (LockId, bool)> + '_ {
        let shared = self.shared;
        self.ids().iter().enumerate().map(move |(i, &id)| (id, shared >> i & 1 == 1))
    }

    /// Whether the footprint allows `lock`, for writing or (`shared`) for reading.
    pub fn allows(&self, lock: LockId, shared: bool) -> bool {
        self.all || self.iter().any(|(id, only_read)| id == lock && (shared || !only_read))
    }

    /// The smallest lock.
    pub fn first(&self) -> Option<LockId> {
        self.ids().first().copied()
    }

    /// Whether the lock of the largest number is below `locks`; a footprint that fails this runs alone.
    pub(crate) fn fits(&self, locks: u32) -> bool {
        !self.all && self.ids().last().is_none_or(|&id| id < locks)
    }

    fn ids(&self) -> &[LockId] {
        &self.ids[..self.len as usize]
    }

    pub(crate) fn add(&mut self, lock: LockId, shared: bool) {
        if self.all {
            return;
        }
        let at = match self.ids().binary_search(&lock) {
            Ok(at) => {
                // Writing includes reading; the stronger wish stays.
                self.shared &= !(u16::from(!shared) << at);
                return;
            }
            Err(at) => at,
        };
        let len = self.len as usize;
        if len == Self::INLINE {
            self.make_all();
            return;
        }
        self.ids.copy_within(at..len, at + 1);
        self.ids[at] = lock;
        let below = self.shared & ((1 << at) - 1);
        let above = (self.shared & !((1 << at) - 1)) << 1;
        self.shared = above | u16::from(shared) << at | below;
        self.len += 1;
    }
}

impl Default for Footprint {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<LockId> for Footprint {
    /// Locks taken for writing.
    fn from_iter<I: IntoIterator<Item = LockId>>(locks: I) -> Self {
        let mut footprint = Self::new();
        locks.into_iter().for_each(|lock| footprint.write(lock));
        footprint
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sorts_and_keeps_the_stronger_wish() {
        let mut footprint = Footprint::new();
        for lock in [7, 3, 9] {
            footprint.read(lock);
        }
        footprint.write(3);
        footprint.read(3);
        footprint.write(5);
        footprint.read(1);
        let listed: Vec<_> = footprint.iter().collect();
        assert_eq!(listed, [(1, true), (3, false), (5, false), (7, true), (9, true)]);
        assert!(footprint.allows(3, true) && footprint.allows(3, false));
        assert!(footprint.allows(7, true) && !footprint.allows(7, false));
        assert!(!footprint.allows(2, true));
    }

    #[test]
    fn sixteen_fit_and_the_seventeenth_makes_it_exclusive() {
        let mut footprint: Footprint = (0..16).rev().collect();
        assert_eq!(footprint.len(), 16);
        assert!(!footprint.is_all());
        footprint.write(15);
        assert!(!footprint.is_all(), "a duplicate takes no room");
        footprint.read(16);
        assert!(footprint.is_all() && footprint.allows(1_000, false));
        assert!(!footprint.is_empty(), "every lock is not no lock");
        assert_eq!(footprint.iter().count(), 0);
    }

    #[test]
    fn a_kind_stays_until_everything_is_forgotten() {
        let mut footprint = Footprint::one(3);
        footprint.predict(77);
        footprint.write(4);
        assert_eq!((footprint.kind(), footprint.len()), (Some(77), 2));
        (0..17).for_each(|lock| footprint.write(lock));
        assert!(footprint.is_all() && footprint.kind() == Some(77));
        footprint.clear();
        assert_eq!(footprint, Footprint::new());
        footprint.predict(1);
        assert!(footprint.is_empty(), "a kind is no lock");
    }

    #[test]
    fn locks_beyond_the_schedule_do_not_fit() {
        assert!(Footprint::new().fits(0));
        assert!(Footprint::one(3).fits(4) && !Footprint::one(4).fits(4));
        assert!(!Footprint::all().fits(4));
    }
}
