//! A copy of the whole state that is made in parts while requests run: what the workers share of it. Each region has a
//! [`RegionCopy`], which its lock's holder alone uses; requests name in it what they have changed.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use execute::{Regions, SealHook};
use object::{CopiedPart, Health, Located, Location, ObjectId, Region, RegionCopy, RegionId, request};
use parking_lot::Mutex;
use schedule::{Access, LockId};

/// In the number of a copy's session: it has only what has changed since the last checkpoint on disk.
const CHANGES: u64 = 1 << 62;

/// The session that begins after this entry of the log and has only changes.
pub(crate) fn session_of_changes(index: u64) -> u64 {
    index | CHANGES
}

/// Whether a copy with this session has only what has changed since the last checkpoint on disk, and is written there.
pub(crate) fn is_of_changes(session: u64) -> bool {
    session & CHANGES != 0
}

/// One copy of the state.
#[derive(Debug)]
pub(crate) struct StateCopy {
    session: AtomicU64,
    regions: Box<[Mutex<RegionCopy>]>,
}

/// What is left to be packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// Objects that have changed since they were packed, or have not been packed.
    pub objects: usize,
    /// Whether every region was listed; before, there are objects that `objects` does not count.
    pub are_all_listed: bool,
}

impl StateCopy {
    /// A copy of so many regions, by the number of its session.
    pub fn new(session: u64, regions: u32) -> Self {
        StateCopy { session: session.into(), regions: (0..regions).map(|_| Mutex::default()).collect() }
    }

    /// A copy that is on disk as the state is now: from here on it has what changes.
    pub fn of_kept(regions: u32) -> Self {
        let regions = (0..regions).map(|_| Mutex::new(RegionCopy::of_kept())).collect();
        StateCopy { session: CHANGES.into(), regions }
    }

    /// It goes on in another session.
    pub fn go_on_in(&self, session: u64) {
        self.session.store(session, Ordering::Relaxed);
    }

    /// The number of its session.
    pub fn session(&self) -> u64 {
        self.session.load(Ordering::Relaxed)
    }

    /// Packs the next objects of a region, up to `limit` bytes (and at least one).
    pub fn pack(&self, region_id: RegionId, region: &dyn Region, limit: usize) -> CopiedPart {
        self.regions
            .get(region_id as usize)
            .map_or_else(CopiedPart::default, |copy| copy.lock().pack(region, limit))
    }

    /// Packs all that is left of a region; none if nothing is.
    pub fn pack_rest(&self, region_id: RegionId, region: &dyn Region) -> Option<CopiedPart> {
        let mut copy = self.regions.get(region_id as usize)?.lock();
        (copy.left() != Some(0)).then(|| copy.pack_rest(region))
    }

    /// Whether nothing is left of a region in its present round.
    pub fn is_round_over(&self, region_id: RegionId) -> bool {
        self.regions.get(region_id as usize).is_none_or(|copy| copy.lock().is_round_over())
    }

    /// What is left.
    pub fn left(&self) -> Left {
        let mut left = Left { objects: 0, are_all_listed: true };
        for copy in &self.regions {
            match copy.lock().left() {
                Some(objects) => left.objects += objects,
                None => left.are_all_listed = false,
            }
        }
        left
    }

    /// The copy of a region, for an injected fault.
    #[cfg(feature = "inject")]
    pub fn region(&self, region_id: RegionId) -> Option<&Mutex<RegionCopy>> {
        self.regions.get(region_id as usize)
    }

    fn on_changed(&self, region_id: RegionId, object: Located) {
        if let Some(copy) = self.regions.get(region_id as usize) {
            copy.lock().on_changed(object);
        }
    }

    fn on_rolled_back(&self, region_id: RegionId, id: ObjectId, is_there: bool) {
        if let Some(copy) = self.regions.get(region_id as usize) {
            copy.lock().on_rolled_back(id, is_there);
        }
    }
}

/// The copy that is being made, for the workers; mostly there is none.
#[derive(Debug, Default)]
pub(crate) struct CurrentCopy {
    is_active: AtomicBool,
    copy: Mutex<Option<Arc<StateCopy>>>,
}

impl CurrentCopy {
    /// From the next delivered request on, requests name what they change in `copy`; in none, to end it.
    pub fn set(&self, copy: Option<Arc<StateCopy>>) {
        self.is_active.store(copy.is_some(), Ordering::Relaxed);
        *self.copy.lock() = copy;
    }

    /// Whether there is one. Who holds a lock that a part of the copy has held before sees that.
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// The request of this thread was sealed, and still holds its locks. The copy learns what it has changed if
    /// `names_changes`, so always without fault injection.
    pub fn on_sealed(&self, names_changes: bool) {
        let mut copy = None;
        request::changed_objects(&mut |region_id, object| {
            // Most requests change nothing.
            let copy = copy.get_or_insert_with(|| self.copy.lock().clone().filter(|_| names_changes));
            copy.iter().for_each(|copy| copy.on_changed(region_id, object));
        });
    }

    /// In verified mode: requests were rolled back that had changed these objects, which were or are in these regions.
    pub fn on_rolled_back(&self, objects: &BTreeSet<(RegionId, ObjectId)>, regions: &mut dyn Regions) {
        let copy = self.copy.lock().clone();
        let Some(copy) = copy else { return };
        for &(region_id, id) in objects {
            // What is corrupted may show as a panic; then it is found by others, too.
            let mut is_there = false;
            let look =
                || regions.visit(region_id, &mut |region| is_there = region.check(id) != Health::Absent);
            let looked = catch_unwind(AssertUnwindSafe(look));
            copy.on_rolled_back(region_id, id, is_there || looked.is_err());
        }
    }

    /// An object is to be overwritten at some replicas.
    pub fn on_repaired(&self, region_id: RegionId, id: ObjectId) {
        if self.is_active()
            && let Some(copy) = &*self.copy.lock()
        {
            copy.on_changed(region_id, Located { id, location: Location::UNKNOWN });
        }
    }
}

/// Between a request's handler and the end of its turn: first `hook`, then what it has changed is named in the copy.
pub(crate) struct CopySeal<'a, H> {
    pub hook: H,
    pub copy: &'a CurrentCopy,
    /// False only with fault injection.
    pub names_changes: bool,
}

impl<H: SealHook> SealHook for CopySeal<'_, H> {
    fn before_seal(&self, lock: LockId, access: &mut Access<'_>) {
        self.hook.before_seal(lock, access);
    }

    fn after_seal(&self) {
        if self.copy.is_active() {
            self.copy.on_sealed(self.names_changes);
        }
    }
}

#[cfg(test)]
mod tests {
    use object::{Kept, ScopeOptions, critical, genesis};

    use super::*;

    #[critical]
    struct Counter {
        value: u64,
    }

    #[critical]
    impl Counter {
        fn new() -> Self {
            Self { value: 0 }
        }
        fn add(&mut self) {
            self.value += 1;
        }
    }

    struct One<'c>(&'c mut Counter);

    impl Regions for One<'_> {
        fn visit(&mut self, _region_id: RegionId, work: &mut dyn FnMut(&mut dyn Region)) {
            work(self.0);
        }
    }

    #[test]
    fn what_is_rolled_back_is_packed_again() {
        let mut counter = genesis(0, Counter::new);
        let (copy, current) = (Arc::new(StateCopy::new(1, 1)), CurrentCopy::default());
        current.set(Some(copy.clone()));
        copy.pack(0, &counter, usize::MAX);
        let protect = request::Protect::Check;
        request::begin_with_whole_images(ScopeOptions { position: 1, protect, keep_before_images: true });
        counter.add();
        counter.seal(0);
        current.on_sealed(true);
        let (_, mut kept) = request::finish_keeping(Kept::new());
        let left = |objects| Left { objects, are_all_listed: true };
        assert_eq!(copy.left(), left(1));
        let changed = copy.pack(0, &counter, usize::MAX);
        assert_eq!(copy.left(), left(0));
        let mut objects = BTreeSet::new();
        kept.each_changed(&mut |region_id, id| _ = objects.insert((region_id, id)));
        counter.roll_back(&mut kept);
        assert!(kept.is_rolled_back() && objects.len() == 1);
        current.on_rolled_back(&objects, &mut One(&mut counter));
        assert_eq!(copy.left(), left(1));
        assert_ne!(copy.pack(0, &counter, usize::MAX).bytes, changed.bytes);
        current.set(None);
        current.on_rolled_back(&objects, &mut One(&mut counter));
        assert_eq!(copy.left(), left(0));
    }
}
