//! Counters as critical objects, and a region that tells the database when the framework has put back what is in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crosscheck::Malformed;
use crosscheck::object::hidden::Class;
use crosscheck::object::{
    Health, Kept, Large, Listed, Located, MemberDifference, Members, ObjectBefore, ObjectId, Orphans, Region,
    RegionDigest, RegionId, ScrubFinding, critical,
};

/// A counter as the replicas compare it: a copy of a row of the database.
#[critical]
pub struct RowCopy {
    value: u64,
}

#[critical]
impl RowCopy {
    /// Of a row that is 0.
    #[allow(clippy::new_without_default, reason = "it is made once, at the genesis")]
    pub fn new() -> Self {
        Self { value: 0 }
    }

    /// The row's value.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// Takes the row's value over.
    pub fn set(&mut self, value: u64) {
        self.value = value;
    }
}

/// How often the framework has changed objects by itself. A database that was filled before does not have their values.
#[derive(Clone, Debug, Default)]
pub struct Restored(Arc<AtomicU64>);

impl Restored {
    /// How often.
    pub fn times(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Once more.
    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// A [`RowCopy`] whose changes by rollback, repair and state transfer are counted. The database is no object: nothing
/// of it is rolled back, so it has to be told.
pub struct CopiedRow {
    /// The object.
    pub row: RowCopy,
    restored: Restored,
}

impl CopiedRow {
    /// Reports to `restored`.
    pub fn new(restored: &Restored) -> Self {
        CopiedRow { row: RowCopy::new(), restored: restored.clone() }
    }
}

/// All but the methods that change the object pass the call on.
impl Region for CopiedRow {
    fn roll_back(&mut self, kept: &mut Kept) {
        self.restored.note();
        self.row.roll_back(kept);
    }
    fn replace(&mut self, id: ObjectId, packed: Option<&[u8]>) -> Result<(), Malformed> {
        self.restored.note();
        self.row.replace(id, packed)
    }
    fn load_all(&mut self, packed: &[u8]) -> Result<(), Malformed> {
        self.restored.note();
        self.row.load_all(packed)
    }
    fn empty(&mut self) {
        self.restored.note();
        self.row.empty();
    }
    fn install_part(&mut self, part: &[u8], is_first: bool, orphans: &mut Orphans) -> Result<(), Malformed> {
        self.restored.note();
        self.row.install_part(part, is_first, orphans)
    }
    fn seal_unsealed(&mut self) {
        self.row.seal_unsealed();
    }
    fn seal(&mut self, region_id: RegionId) {
        self.row.seal(region_id);
    }
    fn note(&self, region_id: RegionId) {
        self.row.note(region_id);
    }
    fn undo(&mut self) {
        self.row.undo();
    }
    fn pack_before(&mut self, kept: &Kept, id: ObjectId) -> ObjectBefore {
        self.row.pack_before(kept, id)
    }
    fn blame(&self) -> Vec<ObjectId> {
        self.row.blame()
    }
    fn root(&self) -> ObjectId {
        self.row.root()
    }
    fn classes(visit: &mut dyn FnMut(&'static Class) -> bool) {
        RowCopy::classes(visit);
    }
    fn check(&self, id: ObjectId) -> Health {
        self.row.check(id)
    }
    fn pack(&self, id: ObjectId) -> Option<Vec<u8>> {
        self.row.pack(id)
    }
    fn objects(&self, visit: &mut dyn FnMut(&Listed)) {
        self.row.objects(visit);
    }
    fn digest_and_count(&self) -> RegionDigest {
        self.row.digest_and_count()
    }
    fn digest_of_intact(&self) -> u128 {
        self.row.digest_of_intact()
    }
    fn scrub_sizes(&self, limit: usize, large: &mut dyn FnMut(Large)) -> Vec<ScrubFinding> {
        self.row.scrub_sizes(limit, large)
    }
    fn pack_all_into(&self, out: &mut Vec<u8>) {
        self.row.pack_all_into(out);
    }
    fn locate_all(&self) -> Vec<Located> {
        self.row.locate_all()
    }
    fn pack_listed(
        &self,
        objects: &[Located],
        limit: usize,
        out: &mut Vec<u8>,
        damaged: &mut Vec<ObjectId>,
    ) -> usize {
        self.row.pack_listed(objects, limit, out, damaged)
    }
    fn difference(&self, left: &[u8], right: &[u8]) -> Result<Vec<MemberDifference>, Malformed> {
        self.row.difference(left, right)
    }
    fn members<'a>(&self, packed: &'a [u8]) -> Result<Members<'a>, Malformed> {
        self.row.members(packed)
    }
}
