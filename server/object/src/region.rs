//! The state behind one lock: a critical root object and everything inside of it, as the scheduler and the repair see
//! it.

use crate::any::AnyObject;
use crate::before::{self, ObjectBefore};
use crate::class::Class;
use crate::corrupted::Corrupted;
use crate::critical::Critical;
use crate::difference::{self, MemberDifference, Members};
use crate::id::{ObjectId, RegionId};
use crate::kept::Kept;
use crate::parts::{self, Located, Orphans};
use crate::request::Taken;
use crate::{package, walk};
use wire::Malformed;

/// One object of a region, as [`Region::objects`] shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The object.
    pub id: ObjectId,
    /// Path of its type.
    pub class: &'static str,
    /// The checksum stored with it.
    pub sum: u64,
    /// The checksum that its members have now.
    pub recomputed: u64,
}

/// A region as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionDigest {
    /// As [`Region::digest`] computes it.
    pub digest: u128,
    /// Number of objects.
    pub objects: u64,
    /// Those that do not fit their checksums.
    pub damaged: u64,
}

/// Outcome of checking one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Its members, all pieces included, fit its checksum.
    Intact,
    /// They do not.
    Damaged,
    /// It was created or changed and no request has sealed it: only outside of requests, or during one.
    Unsealed,
    /// There is no such object.
    Absent,
}

/// A finding of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubFinding {
    /// The object does not fit its checksum.
    Damaged(ObjectId),
    /// A store lacks an object that its owner's checksum covers.
    Lost(ObjectId),
    /// A store has an object that it should not have, or has it twice.
    Extra(ObjectId),
    /// A store does not have the population that its owner (named here) records; more than one object differs.
    Population(ObjectId),
}

impl ScrubFinding {
    /// The object to replace. None if objects are missing or too many and it is unknown which: then the whole region
    /// has to be replaced. A surplus object may be a duplicate in a place that its owner does not refer to: if it were
    /// replaced by its id, the duplicate would stay, and every scrub would find it.
    pub fn object(&self) -> Option<ObjectId> {
        match self {
            ScrubFinding::Damaged(id) | ScrubFinding::Lost(id) => Some(*id),
            ScrubFinding::Extra(_) | ScrubFinding::Population(_) => None,
        }
    }
}

/// An object that is larger than [`Large::FROM_BYTES`]: every request that enters it sums all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Large {
    /// The object.
    pub id: ObjectId,
    /// Name of its type, without the path.
    pub class: &'static str,
    /// Bytes that are summed for its checksum. Of [`crate::Pieces`] these are the pieces' checksums only.
    pub bytes: usize,
}

impl Large {
    /// An object with more bytes is large: summing it takes about as long as the rest of a small request.
    pub const FROM_BYTES: usize = 16 << 10;
}

/// A root object with everything inside of it: the state behind one lock. Every critical type is one.
///
/// The executor holds a region for a request and, at the end of the request and before it gives up the turn, calls
/// [`Region::seal`] (or [`Region::note`] if it holds it shared with other readers), or [`Region::undo`] to take
/// everything back. The other methods serve repair, state transfer, scrubbing and evidence, between requests.
pub trait Region: Send {
    /// Sums every object that was created or changed outside of a request that seals, as in a region just constructed.
    /// [`crate::genesis`] calls it.
    fn seal_unsealed(&mut self);
    /// Sums the objects that the request changed, and claims all it touched for `region_id` in its state delta. Without
    /// an open scope nothing happens.
    fn seal(&mut self, region_id: RegionId);
    /// Claims the objects that the request touched, where it holds the region shared and so cannot have changed any.
    fn note(&self, region_id: RegionId);
    /// Takes back what the request did to this region, newest first. Needs [`crate::ScopeOptions::keep_before_images`].
    /// Checksums are restored too, so an object that was damaged before is still detected.
    ///
    /// Members marked `#[uncritical]` are not rolled back. A critical member must not have been replaced as a whole by
    /// assignment: it is part of its owner for life.
    fn undo(&mut self);
    /// Takes back what a finished request did to this region, as [`Region::undo`] does for the one that is running.
    /// Every later request that touched the region must have been rolled back before.
    fn roll_back(&mut self, kept: &mut Kept);
    /// An object as it was before a finished request. Every later request may still stand: the object is put back for a
    /// moment only.
    fn pack_before(&mut self, kept: &Kept, id: ObjectId) -> ObjectBefore;
    /// After a request of this thread unwound with [`Corrupted`] and before it is abandoned: all objects it touched in
    /// this region that do not fit their checksums.
    fn blame(&self) -> Vec<ObjectId>;
    /// Id of the root object.
    fn root(&self) -> ObjectId;
    /// Shows the classes of the objects that can be in it; a class shown before answers false.
    fn classes(visit: &mut dyn FnMut(&'static Class) -> bool)
    where
        Self: Sized;
    /// Checks one object, all pieces of large members included.
    fn check(&self, id: ObjectId) -> Health;
    /// The tracked members of one object, with its class and where it belongs; equal bytes on all replicas. `None` if
    /// there is no such object.
    fn pack(&self, id: ObjectId) -> Option<Vec<u8>>;
    /// Replaces this replica's object by a packed one and seals it; creates it if it is missing, drops it if `packed`
    /// is `None`. On an error nothing has changed.
    fn replace(&mut self, id: ObjectId, packed: Option<&[u8]>) -> Result<(), Malformed>;
    /// Shows every object in the order of ids.
    fn objects(&self, visit: &mut dyn FnMut(&Listed));
    /// XXH3-128 over id, class and recomputed checksum of every object, in the order of ids. A function of the objects'
    /// contents, not of their layout in memory.
    fn digest(&self) -> u128 {
        self.digest_and_count().digest
    }
    /// The same, with the number of objects, in one walk.
    fn digest_and_count(&self) -> RegionDigest;
    /// [`Region::digest`] of a region in which a scrub has just found nothing: then the stored checksums are
    /// the recomputed ones, and nothing has to be summed again.
    fn digest_of_intact(&self) -> u128;
    /// Checks every object and every population; returns at most `limit` findings.
    fn scrub(&self, limit: usize) -> Vec<ScrubFinding> {
        self.scrub_sizes(limit, &mut |_| {})
    }
    /// [`Region::scrub`], which also shows the objects that are large.
    fn scrub_sizes(&self, limit: usize, large: &mut dyn FnMut(Large)) -> Vec<ScrubFinding>;
    /// Every object in the order of ids, packed: what [`Region::load_all`] takes.
    fn pack_all(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.pack_all_into(&mut out);
        out
    }
    /// The same, appended to `out`.
    fn pack_all_into(&self, out: &mut Vec<u8>);
    /// Replaces the whole region by what [`Region::pack_all`] returned elsewhere: extra objects are dropped, missing
    /// ones created, all others replaced. On an error the region is partly replaced and must be loaded again.
    fn load_all(&mut self, packed: &[u8]) -> Result<(), Malformed>;
    /// Every object, in the order of ids: to be packed some at a time.
    fn locate_all(&self) -> Vec<Located>;
    /// Packs these objects in their order, or that they do not exist, until `out` has grown by `limit` bytes (and at
    /// least one). Returns how many, and adds those to `damaged` that do not fit their checksums.
    fn pack_listed(
        &self,
        objects: &[Located],
        limit: usize,
        out: &mut Vec<u8>,
        damaged: &mut Vec<ObjectId>,
    ) -> usize;
    /// Drops every object but the root and its parts: the beginning of a copy.
    fn empty(&mut self);
    /// Puts the objects of a part in place that [`Region::pack_listed`] has packed elsewhere, and drops those that do
    /// not exist. `is_first` tells that none of them can be there already. `orphans` keeps those whose owners have not
    /// come yet. On an error the region is partly replaced.
    fn install_part(&mut self, part: &[u8], is_first: bool, orphans: &mut Orphans) -> Result<(), Malformed>;
    /// Which members differ between two packed objects of one class, and in which bits: for evidence.
    fn difference(&self, left: &[u8], right: &[u8]) -> Result<Vec<MemberDifference>, Malformed>;
    /// Class of a packed object, and its members as packed bytes: for its name in evidence.
    fn members<'a>(&self, packed: &'a [u8]) -> Result<Members<'a>, Malformed>;
    /// Damages the region in memory as a fault would, leaving every checksum as it is; `None` if the injection does not
    /// fit the object. Demonstrations and tests only.
    #[cfg(feature = "inject")]
    fn inject(&mut self, id: ObjectId, injection: &crate::Injection) -> Option<crate::Injected>;
}

impl<T: Critical> Region for T {
    fn seal_unsealed(&mut self) {
        walk::seal_unsealed(self.protected_mut());
    }
    fn seal(&mut self, region_id: RegionId) {
        walk::seal(self.protected_mut(), region_id);
    }
    fn note(&self, region_id: RegionId) {
        walk::note(self.protected(), region_id);
    }
    fn undo(&mut self) {
        walk::undo(self.protected_mut());
    }
    fn roll_back(&mut self, kept: &mut Kept) {
        walk::roll_back(self.protected_mut(), kept);
    }
    fn blame(&self) -> Vec<ObjectId> {
        walk::blame(self.protected())
    }
    fn root(&self) -> ObjectId {
        AnyObject::header(self.protected()).id()
    }
    fn check(&self, id: ObjectId) -> Health {
        walk::check(self.protected(), id)
    }
    fn pack_before(&mut self, kept: &Kept, id: ObjectId) -> ObjectBefore {
        before::pack_before(self.protected_mut(), kept, id)
    }
    fn pack(&self, id: ObjectId) -> Option<Vec<u8>> {
        package::pack(self.protected(), id)
    }
    fn replace(&mut self, id: ObjectId, packed: Option<&[u8]>) -> Result<(), Malformed> {
        package::replace(self.protected_mut(), id, packed)
    }
    fn objects(&self, visit: &mut dyn FnMut(&Listed)) {
        walk::list(self.protected()).iter().for_each(visit);
    }
    fn digest_and_count(&self) -> RegionDigest {
        walk::digest(self.protected())
    }
    fn digest_of_intact(&self) -> u128 {
        walk::digest_of_intact(self.protected())
    }
    fn scrub_sizes(&self, limit: usize, large: &mut dyn FnMut(Large)) -> Vec<ScrubFinding> {
        walk::scrub(self.protected(), limit, large)
    }
    fn pack_all_into(&self, out: &mut Vec<u8>) {
        package::pack_all(self.protected(), out);
    }
    fn classes(visit: &mut dyn FnMut(&'static Class) -> bool) {
        <T::Members as crate::critical::Members>::classes(visit);
    }
    fn load_all(&mut self, packed: &[u8]) -> Result<(), Malformed> {
        package::load_all(self.protected_mut(), packed)
    }
    fn locate_all(&self) -> Vec<Located> {
        parts::locate_all(self.protected())
    }
    fn pack_listed(
        &self,
        objects: &[Located],
        limit: usize,
        out: &mut Vec<u8>,
        damaged: &mut Vec<ObjectId>,
    ) -> usize {
        parts::pack_listed(self.protected(), objects, limit, out, damaged)
    }
    fn empty(&mut self) {
        let _taken = Taken::new();
        package::empty(self.protected_mut());
    }
    fn install_part(&mut self, part: &[u8], is_first: bool, orphans: &mut Orphans) -> Result<(), Malformed> {
        parts::install_part(self.protected_mut(), part, is_first, orphans)
    }
    fn difference(&self, left: &[u8], right: &[u8]) -> Result<Vec<MemberDifference>, Malformed> {
        difference::between(|visit| <T::Members as crate::critical::Members>::classes(visit), left, right)
    }
    fn members<'a>(&self, packed: &'a [u8]) -> Result<Members<'a>, Malformed> {
        difference::members(|visit| <T::Members as crate::critical::Members>::classes(visit), packed)
    }
    #[cfg(feature = "inject")]
    fn inject(&mut self, id: ObjectId, injection: &crate::Injection) -> Option<crate::Injected> {
        crate::inject::inject(self.protected_mut(), id, injection)
    }
}

/// Whether a panic's payload reports a corrupted object.
pub fn corrupted(payload: &(dyn std::any::Any + Send)) -> Option<&Corrupted> {
    payload.downcast_ref()
}
