//! In verified mode: work that has the whole state alone, between two batches or to roll back behind one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use execute::{KeptRequest, NotRolledBack, Regions, Speculation};
use object::{Health, Kept, ObjectId, Region, RegionId};
use parking_lot::MutexGuard;
use schedule::{Access, Lock, Turn};
use tree::{Tree, TreeShape};
use verify::Version;
use vote::{Content, Packed};

use crate::copying::CurrentCopy;
use crate::limits;
use crate::naming::Words;
use crate::overwrite::overwrite;
use crate::reads::{ReadsDone, RunningReads};
use crate::running::RunningBatch;
use crate::state::{PackedRegions, StateProof};

/// Leaves of the tree over all objects (docs/design.md): 512 KiB, and a few nodes.
const LEAVES: u32 = 65_536;

/// What is to be done.
pub(crate) enum BoundaryWork {
    /// Take back every batch after a version.
    RollBack(Box<RollingBack>),
    /// Pack objects as they were after a batch, for a replica where they are corrupted.
    Pack(Box<PackingObjects>),
    /// Replace corrupted objects of the newest version.
    Replace(Box<ReplacingObjects>),
    /// Check all objects, and the tree over them.
    Check(Box<Speculation>),
    /// Put the whole state of other replicas in the place of this one.
    Install(Box<InstallingState>),
    /// Find the corrupted objects of a region, or of all: those too that no request touches.
    Scrub(Box<Scrubbing>),
    /// Run reads that take no batch: a worker does so, which has the service.
    Read(RunningReads),
}

/// What has been done.
pub(crate) enum BoundaryDone {
    /// The state is that of a version, unless a step failed.
    TookBack {
        /// The batches that are left.
        speculation: Box<Speculation>,
        /// The version.
        version: Result<Version, NotRolledBack>,
        /// Whether the tree is the one of the objects; computed in builds with fault injection only.
        is_right: Option<bool>,
    },
    /// Objects are packed.
    Packed {
        /// As it was lent.
        speculation: Box<Speculation>,
        /// The replica that asked.
        to: u8,
        /// After this batch.
        batch: u64,
        /// None of them if one is not known.
        objects: Vec<Packed>,
    },
    /// Objects are replaced.
    Replaced {
        /// As it was lent.
        speculation: Box<Speculation>,
        /// Whether they are those of the version now.
        are_right: bool,
        /// If not: those that are others now than before.
        misplaced: Vec<(RegionId, ObjectId)>,
        /// Regions with a part of an object that has a wrong id: only a whole region has the right one.
        misnamed: Vec<RegionId>,
        /// The errors of each object that was wrong.
        notes: Vec<String>,
    },
    /// All objects and the tree were checked.
    Checked {
        /// As it was lent.
        speculation: Box<Speculation>,
        /// The corrupted objects, as many as may be asked for.
        objects: Vec<(RegionId, ObjectId)>,
        /// Whether the tree is the one of the objects.
        fits_tree: bool,
    },
    /// The state of other replicas is in place.
    Installed {
        /// It, before any batch has run on it; otherwise what went wrong, and the state is of no use.
        state: Result<Box<Speculation>, String>,
    },
    /// A region was checked, or all were.
    Scrubbed {
        /// As it was lent.
        speculation: Box<Speculation>,
        /// The region; none for all.
        region_id: Option<RegionId>,
        /// What is wrong.
        found: Scrubbed,
        /// How long it took.
        took: Duration,
    },
    /// Reads have run.
    Read(ReadsDone),
}

/// Objects are to be packed as they were after a batch.
pub(crate) struct PackingObjects {
    /// The batches that have ended.
    pub speculation: Speculation,
    /// Scheduled batches that were not folded into it, oldest first.
    pub running: Vec<Arc<RunningBatch>>,
    /// Number of the batch.
    pub batch: u64,
    /// The objects.
    pub objects: Vec<(RegionId, ObjectId)>,
    /// The replica that asks.
    pub to: u8,
}

/// A region or all are to be checked, object by object and against the tree.
pub(crate) struct Scrubbing {
    /// The batches that have ended.
    pub speculation: Speculation,
    /// Scheduled batches that were not folded into it, oldest first.
    pub running: Vec<Arc<RunningBatch>>,
    /// The region; none for all.
    pub region_id: Option<RegionId>,
}

/// What a scrub has found.
pub(crate) struct Scrubbed {
    /// The corrupted objects, as many as may be asked for.
    pub objects: Vec<(RegionId, ObjectId)>,
    /// They fit their checksums, and not the tree.
    pub fit: bool,
}

/// Corrupted objects are to be replaced.
pub(crate) struct ReplacingObjects {
    /// The batches up to the version that they belong to.
    pub speculation: Speculation,
    /// The objects, from another replica.
    pub objects: Vec<Packed>,
    /// Regions of which these are all objects.
    pub whole: Vec<RegionId>,
}

/// The whole state of other replicas is to be put in the place of this one.
pub(crate) struct InstallingState {
    /// The batch after which it is the state.
    pub batch: u64,
    /// What proves that it is the agreed one.
    pub proof: StateProof,
    /// Its packed regions.
    pub regions: PackedRegions,
}

/// Every batch after a version is to be rolled back.
pub(crate) struct RollingBack {
    /// The batches that have ended.
    pub speculation: Speculation,
    /// Scheduled batches that were not folded into it, oldest first: most of them have not begun.
    pub running: Vec<Arc<RunningBatch>>,
    /// Number of the batch of the version.
    pub to: u64,
}

impl BoundaryWork {
    /// Does it, in a turn that has every lock. A copy of the state that is being made learns what that changes.
    pub fn perform<R>(
        self,
        turn: &mut Turn<'_, R>,
        locks: &[&dyn Lock],
        words: &Words,
        copy: &CurrentCopy,
    ) -> BoundaryDone {
        turn.take_all();
        let region_ids = locks.len() as RegionId;
        match self {
            BoundaryWork::Replace(replacing) => replacing.perform(turn, locks, words, copy),
            BoundaryWork::RollBack(rolling_back) => {
                let changed = if copy.is_active() { rolling_back.changed() } else { BTreeSet::new() };
                let done = rolling_back.perform(region_ids, &mut HeldRegions { turn, locks });
                copy.on_rolled_back(&changed, &mut HeldRegions { turn, locks });
                done
            }
            BoundaryWork::Check(mut speculation) => {
                let objects = corrupted(0..region_ids, turn, locks);
                let fits = || is_tree_of(&mut speculation, region_ids, &mut HeldRegions { turn, locks });
                let fits_tree = catch_unwind(AssertUnwindSafe(fits)).unwrap_or(false);
                BoundaryDone::Checked { speculation, objects, fits_tree }
            }
            BoundaryWork::Install(installing) => {
                installing.perform(region_ids, &mut HeldRegions { turn, locks })
            }
            BoundaryWork::Pack(packing) => packing.perform(&mut HeldRegions { turn, locks }),
            BoundaryWork::Read(RunningReads { epoch, requests, .. }) => {
                let replies = requests.iter().map(|_| None).collect();
                BoundaryDone::Read(ReadsDone { epoch, batch: turn.entry_index(), replies })
            }
            BoundaryWork::Scrub(scrubbing) => scrubbing.perform(turn, locks),
        }
    }
}

impl ReplacingObjects {
    fn perform<R>(
        self,
        turn: &mut Turn<'_, R>,
        locks: &[&dyn Lock],
        words: &Words,
        copy: &CurrentCopy,
    ) -> BoundaryDone {
        let ReplacingObjects { speculation, mut objects, whole } = self;
        // What is in a region here and not in the answer should not exist.
        let answered: BTreeSet<(RegionId, ObjectId)> =
            objects.iter().map(|object| (object.region_id, object.id)).collect();
        for region_id in whole {
            HeldRegions { turn, locks }.visit(region_id, &mut |region| {
                region.objects(&mut |listed| {
                    if !answered.contains(&(region_id, listed.id)) {
                        objects.push(Packed { region_id, id: listed.id, content: Content::Absent });
                    }
                });
            });
        }
        objects.iter().for_each(|object| copy.on_repaired(object.region_id, object.id));
        // What is corrupted may show as a panic: then the objects are not right.
        let replaced = catch_unwind(AssertUnwindSafe(|| overwrite(turn, locks, &objects, words)));
        let ids: Vec<(RegionId, ObjectId)> =
            objects.iter().map(|object| (object.region_id, object.id)).collect();
        let mut regions = HeldRegions { turn, locks };
        let twins = catch_unwind(AssertUnwindSafe(|| drop_twins(&objects, &mut regions)));
        let are_right = catch_unwind(AssertUnwindSafe(|| speculation.are_right(&ids, &mut regions)));
        let are_right = replaced.is_ok() && are_right.unwrap_or(false);
        let misnamed = if are_right { Vec::new() } else { with_misnamed(&objects, &mut regions) };
        let has_replaced = replaced.as_ref().map_or(true, |overwritten| !overwritten.is_empty());
        let misplaced = if are_right || !has_replaced { Vec::new() } else { ids };
        let notes = [replaced.unwrap_or_default().into_notes(), twins.unwrap_or_default()].concat();
        let speculation = Box::new(speculation);
        BoundaryDone::Replaced { speculation, are_right, misplaced, misnamed, notes }
    }
}

/// The regions that have an object under a name that no object should have, and that cannot be dropped: a part of
/// another object, such as the root, with a wrong id. The peer has it under its right name, which is unknown here.
fn with_misnamed(objects: &[Packed], regions: &mut dyn Regions) -> Vec<RegionId> {
    let mut region_ids = Vec::new();
    for Packed { region_id, id, .. } in objects.iter().filter(|object| object.content == Content::Absent) {
        let check = AssertUnwindSafe(|| {
            let mut is_there = false;
            regions.visit(*region_id, &mut |region| is_there = region.check(*id) != Health::Absent);
            is_there
        });
        if catch_unwind(check).unwrap_or(true) {
            region_ids.push(*region_id);
        }
    }
    region_ids.dedup();
    region_ids
}

/// These objects, and for each that stands for a whole region all that are in it or were after a batch.
fn with_whole_regions(
    objects: &[(RegionId, ObjectId)],
    batch: u64,
    speculation: &Speculation,
    later: &[&Kept],
    regions: &mut dyn Regions,
) -> Vec<(RegionId, ObjectId)> {
    let (whole, single): (Vec<_>, Vec<_>) = objects.iter().partition(|(_, id)| id.is_none());
    let mut all: Vec<(RegionId, ObjectId)> = single;
    for (region_id, _) in whole {
        regions
            .visit(region_id, &mut |region| region.objects(&mut |listed| all.push((region_id, listed.id))));
        all.extend(speculation.changed_after(batch, region_id, later).map(|id| (region_id, id)));
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Replaces objects that are right, but twice in their store. Returns a note on each.
fn drop_twins(objects: &[Packed], regions: &mut dyn Regions) -> Vec<String> {
    let mut notes = Vec::new();
    let region_ids: BTreeSet<RegionId> = objects.iter().map(|object| object.region_id).collect();
    for region_id in region_ids {
        regions.visit(region_id, &mut |region| {
            let mut copies: BTreeMap<ObjectId, u32> = BTreeMap::new();
            region.objects(&mut |listed| *copies.entry(listed.id).or_default() += 1);
            copies.retain(|_, copies| *copies > 1);
            for Packed { id, content, .. } in objects.iter().filter(|object| object.region_id == region_id) {
                let (Some(copies), Content::Present(bytes)) = (copies.get(id), content) else { continue };
                if region.replace(*id, Some(bytes)).is_ok() {
                    notes.push(format!("object {region_id}:{id}: it was in its store {copies} times"));
                }
            }
        });
    }
    notes
}

/// Requests of a batch that was not folded, while they are read.
type KeptOfBatch<'b> = MutexGuard<'b, Vec<(Option<u16>, KeptRequest)>>;

/// What rolls back requests of batches that were not folded, as they were stamped.
fn in_order<'g>(guards: &'g [KeptOfBatch<'_>]) -> Vec<&'g Kept> {
    let mut later: Vec<&Kept> = Vec::new();
    for guard in guards {
        let mut of_batch: Vec<_> = guard.iter().map(|(_, one)| one).collect();
        of_batch.sort_by_key(|one| one.stamp);
        later.extend(of_batch.into_iter().map(|one| &one.kept));
    }
    later
}

impl PackingObjects {
    fn perform(self, regions: &mut dyn Regions) -> BoundaryDone {
        let PackingObjects { speculation, running, batch, objects, to } = self;
        let guards: Vec<_> = running.iter().map(|batch| batch.kept()).collect();
        let later = in_order(&guards);
        // Corruption here may show as a panic: then another replica is asked.
        let packed = catch_unwind(AssertUnwindSafe(|| {
            let mut bytes = 0;
            let objects = with_whole_regions(&objects, batch, &speculation, &later, regions);
            let pack = |&(region_id, id): &(RegionId, ObjectId)| {
                let object = speculation.object_after(batch, (region_id, id), &later, regions)?;
                bytes += object.as_ref().map_or(0, Vec::len);
                let content = object.map_or(Content::Absent, |packed| Content::Present(packed.into()));
                (bytes <= limits::ANSWERED_BYTES).then_some(Packed { region_id, id, content })
            };
            objects.iter().map(pack).collect::<Option<Vec<_>>>()
        }));
        drop(guards);
        let objects = packed.ok().flatten().unwrap_or_default();
        BoundaryDone::Packed { speculation: Box::new(speculation), to, batch, objects }
    }
}

impl Scrubbing {
    fn perform<R>(self, turn: &mut Turn<'_, R>, locks: &[&dyn Lock]) -> BoundaryDone {
        let Scrubbing { speculation, running, region_id } = self;
        let begun = Instant::now();
        let region_ids = region_id.map_or(0..locks.len() as RegionId, |region_id| region_id..region_id + 1);
        let (mut objects, mut fit) = (corrupted(region_ids.clone(), turn, locks), false);
        // An object that is another one than the batches have left fits its checksum.
        if objects.is_empty() {
            let mut later = Vec::new();
            for batch in &running {
                batch.kept().iter().for_each(|(_, one)| one.kept.append_changes(&mut later));
            }
            let mut regions = HeldRegions { turn, locks };
            for region_id in region_ids {
                let unlike = || speculation.unlike_the_tree(region_id, &later, &mut regions);
                let unlike = catch_unwind(AssertUnwindSafe(unlike)).unwrap_or_default();
                objects.extend(unlike.into_iter().map(|id| (region_id, id)));
            }
            objects.truncate(limits::ASKED_OBJECTS);
            fit = !objects.is_empty();
        }
        let (speculation, found) = (Box::new(speculation), Scrubbed { objects, fit });
        BoundaryDone::Scrubbed { speculation, region_id, found, took: begun.elapsed() }
    }
}

impl RollingBack {
    /// The objects that the batches have changed, and the regions that they were or are in.
    fn changed(&self) -> BTreeSet<(RegionId, ObjectId)> {
        let mut changed = BTreeSet::new();
        let mut add = |region_id, id| _ = changed.insert((region_id, id));
        self.speculation.each_changed_after(self.to, &mut add);
        for batch in &self.running {
            batch.kept().iter().for_each(|(_, one)| one.kept.each_changed(&mut add));
        }
        changed
    }

    fn perform(self, region_ids: RegionId, regions: &mut dyn Regions) -> BoundaryDone {
        let RollingBack { mut speculation, running, to } = self;
        let mut version = Ok(speculation.version());
        for batch in running.iter().rev() {
            let kept = batch.take_kept().into_iter().map(|(_, kept)| kept).collect();
            version = version.and_then(|version| {
                speculation.roll_back_running(kept, regions)?;
                Ok(version)
            });
        }
        let version = version.and_then(|_| speculation.roll_back(to, regions));
        let is_right = cfg!(feature = "inject").then(|| is_tree_of(&mut speculation, region_ids, regions));
        BoundaryDone::TookBack { speculation: Box::new(speculation), version, is_right }
    }
}

impl InstallingState {
    fn perform(self, region_ids: RegionId, regions: &mut dyn Regions) -> BoundaryDone {
        let InstallingState { batch, proof, regions: packed } = self;
        // What was corrupted here may show as a panic.
        let mut install = || {
            packed.clone().install(region_ids, regions)?;
            speculation_of(region_ids, regions, batch, proof).map(Box::new)
        };
        let mut attempt = || catch_unwind(AssertUnwindSafe(&mut install));
        // Nothing of a corrupted structure may be left. What the first attempt leaves the second may remove.
        let state = match attempt() {
            Ok(Ok(state)) => Ok(Ok(state)),
            _ => attempt(),
        };
        BoundaryDone::Installed { state: state.unwrap_or_else(|_| Err("a region is corrupted".into())) }
    }
}

/// The objects of these regions that do not fit their checksums or are missing, and [`ObjectId::NONE`] for a region
/// with objects too many or too few. The caller holds every lock.
pub(crate) fn corrupted<R>(
    region_ids: Range<RegionId>,
    turn: &mut Turn<'_, R>,
    locks: &[&dyn Lock],
) -> Vec<(RegionId, ObjectId)> {
    let mut objects = Vec::new();
    let mut regions = HeldRegions { turn, locks };
    for region_id in region_ids {
        // Damage of a structure may show only as a panic: then it is the region's root that is wrong.
        let mut root = None;
        let scrub = AssertUnwindSafe(|| {
            regions.visit(region_id, &mut |region| {
                root = Some(region.root());
                let findings = region.scrub(limits::ASKED_OBJECTS - objects.len());
                let ids = findings.iter().map(|finding| finding.object().unwrap_or(ObjectId::NONE));
                objects.extend(ids.map(|id| (region_id, id)));
            });
        });
        if catch_unwind(scrub).is_err() && objects.len() < limits::ASKED_OBJECTS {
            objects.extend(root.map(|root| (region_id, root)));
        }
    }
    objects.sort_unstable();
    objects.dedup();
    objects
}

/// Whether the tree is the one that the checksums of all objects give.
fn is_tree_of(speculation: &mut Speculation, region_ids: RegionId, regions: &mut dyn Regions) -> bool {
    tree_of(region_ids, regions).root() == speculation.tree().root()
}

/// The batches of a state that nothing has run on since `batch`. Its objects have to be those that the token stands
/// for; the state before the first batch has none.
///
/// # Errors
/// When they are not.
pub(crate) fn speculation_of(
    region_ids: RegionId,
    regions: &mut dyn Regions,
    batch: u64,
    proof: StateProof,
) -> Result<Speculation, String> {
    let mut speculation = Speculation::new(tree_of(region_ids, regions), proof.version(batch), proof.parts);
    if batch > 0 && !speculation.fits_token() {
        return Err(format!("its objects are not those that were agreed on after batch {batch}"));
    }
    Ok(speculation)
}

/// The tree over all objects, by their checksums.
pub(crate) fn tree_of(region_ids: RegionId, regions: &mut dyn Regions) -> Tree {
    let mut tree = Tree::new(TreeShape::even(region_ids, LEAVES));
    for region_id in 0..region_ids {
        tree.recompute(region_id, execute::checksums(region_id, regions));
    }
    tree
}

/// The regions of a service that no other thread can reach.
pub(crate) struct OwnedRegions<'s>(pub Vec<&'s mut dyn Lock>);

impl Regions for OwnedRegions<'_> {
    fn visit(&mut self, region_id: RegionId, work: &mut dyn FnMut(&mut dyn Region)) {
        if let Some(lock) = self.0.get_mut(region_id as usize) {
            work(lock.region_mut());
        }
    }
}

/// The regions of a service, of which one request holds all locks.
struct HeldRegions<'h, 'w, R> {
    turn: &'h mut Turn<'w, R>,
    locks: &'h [&'h dyn Lock],
}

impl<R> Regions for HeldRegions<'_, '_, R> {
    fn visit(&mut self, region_id: RegionId, work: &mut dyn FnMut(&mut dyn Region)) {
        self.turn.visit_region(self.locks, region_id, |access| {
            if let Access::Exclusive(region) = access {
                work(region);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use execute::TokenParts;

    use super::*;

    /// Locks without objects.
    struct NoObjects;

    impl Regions for NoObjects {
        fn visit(&mut self, _region_id: RegionId, _work: &mut dyn FnMut(&mut dyn Region)) {}
    }

    #[test]
    fn only_a_state_whose_objects_its_token_stands_for_is_gone_on_from() {
        let parts = TokenParts { outputs: 1, context: 2, ..TokenParts::default() };
        let root = tree_of(2, &mut NoObjects).root();
        let right = StateProof { token: parts.token(9, root), parts };
        assert!(speculation_of(2, &mut NoObjects, 9, right).is_ok());
        assert!(speculation_of(2, &mut NoObjects, 8, right).is_err(), "another batch");
        let wrong = StateProof { token: parts.token(9, root ^ 1), parts };
        assert!(speculation_of(2, &mut NoObjects, 9, wrong).is_err(), "other objects");
        assert!(speculation_of(2, &mut NoObjects, 0, StateProof::default()).is_ok(), "nothing has run");
    }
}
