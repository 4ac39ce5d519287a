//! Batches that have run and on whose results the replicas have not agreed yet: the newest can be rolled back.
//!
//! Eve (OSDI 2012, sections 4.1, 5.2 and 6.1): replicas execute a batch first and compare a token afterwards, a hash of
//! the state, of the outputs and of the token before. Where they do not agree, the batch is rolled back. The paper
//! keeps versions of its state by copy-on-write; here each request keeps its before-images ([`Kept`]), and a batch is
//! rolled back request by request, newest first.

use std::collections::{BTreeSet, VecDeque};

use object::{Change, Health, Kept, ObjectBefore, ObjectId, Region, RegionId};
use tree::Tree;
use verify::{StateToken, Version};

/// Versions of the definition of [`StateToken`]: replicas of different ones never agree by accident.
const TOKEN_SEED: u64 = 0x544f_4b45_4e00_0001;
/// Changes that an ordinary request makes at most.
const CHANGES: usize = 4;
/// Kept requests whose buffers wait to be used again.
const ROOMS: usize = 1_024;
/// Stable batches whose before-images are kept, for replicas that ask for an object as it was, and their bytes. A
/// replica that has diverged asks within some batches.
const PAST_BATCHES: usize = 256;
const PAST_BYTES: usize = 4 << 20;

/// A request of a batch, after its end.
#[derive(Debug)]
pub struct KeptRequest {
    /// Ascending in an order in which the requests may have run: drawn while all of a request's locks were held.
    pub stamp: u64,
    /// Digest of its answer.
    pub answer: u128,
    /// What takes it back.
    pub kept: Kept,
}

/// What the token of a version is computed from, beside its number and the root of the tree over the objects. Whoever
/// knows the token can check with it a state that comes from one replica alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenParts {
    /// Digest of the answers of the version's batch.
    pub outputs: u128,
    /// Digest of what else belongs to the version.
    pub context: u128,
    /// Token of the version before.
    pub before: StateToken,
}

impl TokenParts {
    /// The token of version `number`, whose tree has this root.
    pub fn token(&self, number: u64, root: u64) -> StateToken {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..16].copy_from_slice(&root.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.outputs.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.context.to_le_bytes());
        bytes[48..].copy_from_slice(&self.before.0.to_le_bytes());
        StateToken(xxhash_rust::xxh3::xxh3_128_with_seed(&bytes, TOKEN_SEED))
    }
}

/// The regions of a service while no request runs.
pub trait Regions {
    /// Shows one of them; none if there is no such lock.
    fn visit(&mut self, region_id: RegionId, work: &mut dyn FnMut(&mut dyn Region));
}

/// Why a batch is not rolled back. The state cannot be trusted any more: it has to come from another replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRolledBack {
    /// What takes it back was given up when the batch became stable.
    #[error("batch {} is stable", .0.number)]
    Stable(Version),
    /// A step failed, of a request in this batch: a before-image or a store is corrupted.
    #[error("an effect of a request of batch {0} is left")]
    Step(u64),
    /// After the steps the state is not the one that followed this batch.
    #[error("the state is not the one after batch {0}")]
    State(u64),
}

/// The batches beyond the stable one, with what takes them back.
pub struct Speculation {
    tree: Tree,
    stable: Version,
    stable_root: u64,
    stable_parts: TokenParts,
    /// Oldest first.
    batches: VecDeque<Folded>,
    /// Batches up to the stable one, oldest first, and their bytes.
    past: VecDeque<Folded>,
    past_bytes: usize,
    rooms: Vec<Kept>,
    /// Room for the answers of a batch.
    scratch: Vec<u8>,
}

/// A batch that has run.
struct Folded {
    version: Version,
    root: u64,
    parts: TokenParts,
    /// By stamp.
    kept: Vec<Kept>,
    changes: Vec<Change>,
    /// Memory of both.
    bytes: usize,
}

impl Speculation {
    /// Of a state whose objects are all in `tree`, and what its token is computed from.
    pub fn new(mut tree: Tree, stable: Version, stable_parts: TokenParts) -> Speculation {
        let stable_root = tree.root();
        Speculation {
            tree,
            stable,
            stable_root,
            stable_parts,
            batches: VecDeque::new(),
            past: VecDeque::new(),
            past_bytes: 0,
            rooms: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// The newest version.
    pub fn version(&self) -> Version {
        self.batches.back().map_or(self.stable, |batch| batch.version)
    }

    /// The newest version that stays.
    pub fn stable(&self) -> Version {
        self.stable
    }

    /// What the token of the newest version is computed from.
    pub fn parts(&self) -> TokenParts {
        self.batches.back().map_or(self.stable_parts, |batch| batch.parts)
    }

    /// Whether the tree over the objects is the one that the token of the newest version stands for.
    pub fn fits_token(&mut self) -> bool {
        let Version { number, token } = self.version();
        self.parts().token(number, self.tree.root()) == token
    }

    /// Memory of what is kept, in bytes.
    pub fn bytes(&self) -> usize {
        self.batches.iter().map(|batch| batch.bytes).sum()
    }

    /// Buffers of requests that are no longer kept, for so many of the next ones; fewer if there are no more.
    pub fn rooms(&mut self, requests: usize) -> Vec<Kept> {
        self.rooms.split_off(self.rooms.len().saturating_sub(requests))
    }

    /// Buffers that were not needed, or that no request needs any more.
    pub fn take_rooms_back(&mut self, rooms: impl IntoIterator<Item = Kept>) {
        let free = ROOMS.saturating_sub(self.rooms.len());
        self.rooms.extend(rooms.into_iter().take(free).map(Kept::emptied));
    }

    /// The end of the next batch: `executed` are its requests in the batch's order, and `context` is a digest of what
    /// else belongs to the version (the state of the order, requests that were started). Returns the version's token.
    pub fn fold(&mut self, mut executed: Vec<KeptRequest>, context: u128) -> StateToken {
        let before = self.version();
        let answers = executed.iter().map(|request| request.answer);
        let outputs = vote::digest::batch(before.number + 1, answers, &mut self.scratch);
        executed.sort_by_key(|request| request.stamp);
        let mut changes = Vec::with_capacity(executed.len() * CHANGES);
        executed.iter().for_each(|request| request.kept.append_changes(&mut changes));
        changes.iter().for_each(|change| self.tree.apply(*change));
        let root = self.tree.root();
        let parts = TokenParts { outputs, context, before: before.token };
        let token = parts.token(before.number + 1, root);
        let version = Version { number: before.number + 1, token };
        let kept: Vec<Kept> = executed.into_iter().map(|request| request.kept).collect();
        let bytes = kept.iter().map(Kept::bytes).sum::<usize>() + size_of_val(changes.as_slice());
        self.batches.push_back(Folded { version, root, parts, kept, changes, bytes });
        token
    }

    /// Replicas have agreed on the state after this batch: it and those before stay.
    pub fn agree(&mut self, number: u64) {
        while let Some(batch) = self.batches.pop_front_if(|batch| batch.version.number <= number) {
            (self.stable, self.stable_root, self.stable_parts) = (batch.version, batch.root, batch.parts);
            self.past_bytes += batch.bytes;
            self.past.push_back(batch);
        }
        while self.past.len() > PAST_BATCHES || self.past_bytes > PAST_BYTES {
            let Some(batch) = self.past.pop_front() else { return };
            self.past_bytes -= batch.bytes;
            self.take_rooms_back(batch.kept);
        }
    }

    /// An object after batch `number`, packed; within, none if it did not exist then. None if that is not known any
    /// more, or not yet, or the object is corrupted here. `running` are the requests of later batches that were not
    /// folded, as they were stamped.
    pub fn object_after(
        &self,
        number: u64,
        (region_id, id): (RegionId, ObjectId),
        running: &[&Kept],
        regions: &mut dyn Regions,
    ) -> Option<Option<Vec<u8>>> {
        if !self.knows(number) {
            return None;
        }
        let later = self.kept_after(number, running);
        let mut object = None;
        regions.visit(region_id, &mut |region| {
            let has_changed = || self.changed_after(number, region_id, running).any(|changed| changed == id);
            if region.check(id) == Health::Absent && !has_changed() {
                // Later requests may have changed one with this name in another region.
                object = Some(None);
                return;
            }
            let changed = later.iter().find_map(|kept| match region.pack_before(kept, id) {
                ObjectBefore::Same => None,
                before => Some(before),
            });
            object = match changed {
                Some(ObjectBefore::Was(packed)) => Some(Some(packed)),
                Some(ObjectBefore::Absent) => Some(None),
                Some(ObjectBefore::Unknown | ObjectBefore::Same) => None,
                None => match region.check(id) {
                    Health::Intact => region.pack(id).map(Some),
                    Health::Absent => Some(None),
                    Health::Damaged | Health::Unsealed => None,
                },
            };
        });
        object
    }

    /// The objects of a region that batches after `number` have changed; see [`Speculation::object_after`].
    pub fn changed_after<'s>(
        &'s self,
        number: u64,
        region_id: RegionId,
        running: &'s [&Kept],
    ) -> impl Iterator<Item = ObjectId> + 's {
        let of_batches = self.after(number).flat_map(|batch| batch.changes.iter().copied());
        let changes = of_batches.chain(running.iter().flat_map(|kept| kept.changes()));
        changes.filter(move |change| change.region_id == region_id).map(|change| change.id)
    }

    /// Shows the objects that batches after `number` have changed, and the regions that they were or are in; some of
    /// them twice ([`Kept::each_changed`]).
    pub fn each_changed_after(&self, number: u64, visit: &mut dyn FnMut(RegionId, ObjectId)) {
        self.after(number).flat_map(|batch| &batch.kept).for_each(|kept| kept.each_changed(visit));
    }

    /// What takes the batches after `number` back, oldest first, and then the running requests.
    fn kept_after<'s>(&'s self, number: u64, running: &[&'s Kept]) -> Vec<&'s Kept> {
        let of_batches = self.after(number).flat_map(|batch| &batch.kept);
        of_batches.chain(running.iter().copied()).collect()
    }

    /// Whether everything is kept that takes the batches after `number` back, and this one has ended.
    fn knows(&self, number: u64) -> bool {
        let oldest = self.past.front().map_or(self.stable.number, |batch| batch.version.number - 1);
        (oldest..=self.version().number).contains(&number)
    }

    /// The batches after `number`, as far as they are kept.
    fn after(&self, number: u64) -> impl Iterator<Item = &Folded> {
        self.past.iter().chain(&self.batches).filter(move |batch| batch.version.number > number)
    }

    /// Whether these objects are those of the newest version: they fit their checksums, and their leaves the tree. It
    /// does not matter whether others are corrupted, except that of a common leaf no checksum may be.
    pub fn are_right(&self, objects: &[(RegionId, ObjectId)], regions: &mut dyn Regions) -> bool {
        let region_ids: BTreeSet<RegionId> = objects.iter().map(|(region_id, _)| *region_id).collect();
        region_ids.into_iter().all(|region_id| {
            let mut are_intact = true;
            let ids = || objects.iter().filter(|(of, _)| *of == region_id).map(|(_, id)| *id);
            regions.visit(region_id, &mut |region| {
                are_intact &= ids().all(|id| matches!(region.check(id), Health::Intact | Health::Absent));
            });
            let differing = self.tree.differing(region_id, checksums(region_id, regions), []);
            let leaf = |id| self.tree.shape().leaf(region_id, id);
            are_intact && ids().all(|id| leaf(id).is_some_and(|leaf| !differing.contains(&leaf)))
        })
    }

    /// The objects of a region that are not those of the newest version by its tree, although they may fit their
    /// checksums: all that share a leaf with a wrong one, and [`ObjectId::NONE`] for a leaf without objects. `later`
    /// are the changes of later batches that were not folded, of any region and in any order.
    pub fn unlike_the_tree(
        &self,
        region_id: RegionId,
        later: &[Change],
        regions: &mut dyn Regions,
    ) -> BTreeSet<ObjectId> {
        let listed = checksums(region_id, regions);
        let differing = self.tree.differing(region_id, listed.iter().copied(), later.iter().copied());
        let of_leaf = |leaf: u32| {
            let is_there = |id: &ObjectId| self.tree.shape().leaf(region_id, *id) == Some(leaf);
            let there: Vec<_> = listed.iter().map(|(id, _)| *id).filter(is_there).collect();
            if there.is_empty() { vec![ObjectId::NONE] } else { there }
        };
        differing.into_iter().flat_map(of_leaf).collect()
    }

    /// Takes back every batch after `number`, newest first, and returns the version that is left.
    ///
    /// # Errors
    /// If the state is then not that of the version.
    pub fn roll_back(&mut self, number: u64, regions: &mut dyn Regions) -> Result<Version, NotRolledBack> {
        if number < self.stable.number {
            return Err(NotRolledBack::Stable(self.stable));
        }
        while let Some(mut batch) = self.batches.pop_back_if(|batch| batch.version.number > number) {
            if !are_rolled_back(batch.kept.iter_mut().rev(), regions) {
                return Err(NotRolledBack::Step(batch.version.number));
            }
            batch.changes.iter().rev().for_each(|change| self.tree.apply(change.inverse()));
        }
        let root = self.batches.back().map_or(self.stable_root, |batch| batch.root);
        if self.tree.root() != root {
            return Err(NotRolledBack::State(self.version().number));
        }
        Ok(self.version())
    }

    /// Takes back requests of a batch that has not ended.
    ///
    /// # Errors
    /// If a step fails.
    pub fn roll_back_running(
        &mut self,
        mut executed: Vec<KeptRequest>,
        regions: &mut dyn Regions,
    ) -> Result<(), NotRolledBack> {
        executed.sort_by_key(|request| request.stamp);
        if are_rolled_back(executed.iter_mut().rev().map(|request| &mut request.kept), regions) {
            Ok(())
        } else {
            Err(NotRolledBack::Step(self.version().number + 1))
        }
    }

    /// The tree over the state's objects.
    pub fn tree(&mut self) -> &mut Tree {
        &mut self.tree
    }
}

/// The objects of a region, with their checksums.
pub fn checksums(region_id: RegionId, regions: &mut dyn Regions) -> Vec<(ObjectId, u64)> {
    let mut sums = Vec::new();
    regions.visit(region_id, &mut |region| region.objects(&mut |object| sums.push((object.id, object.sum))));
    sums
}

/// Takes back requests, and returns whether all of them are. What fails is tried once more, since a fault in the
/// reading does not hit it twice.
fn are_rolled_back<'a>(newest_first: impl Iterator<Item = &'a mut Kept>, regions: &mut dyn Regions) -> bool {
    let mut are_all = true;
    for kept in newest_first {
        for _ in 0..2 {
            for region_id in kept.region_ids() {
                regions.visit(region_id, &mut |region| region.roll_back(kept));
            }
        }
        are_all &= kept.is_rolled_back();
    }
    are_all
}
