//! Requests that are rolled back after their end, newest first, and the changes that they report (OSDI 2012, 4.2 and
//! 5.2).

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Leaf, PROTECTED, REVERSIBLE, at};
use object::{
    Change, Injection, Kept, ObjectBefore, ObjectId, Protect, Ref, Region, RegionId, ScopeOptions, Store,
    critical, genesis, request,
};
use proptest::prelude::*;
use wire::SplitMix64;

/// Objects inside of objects: a store in a store's objects, and a member that is an object.
#[critical]
struct Forest {
    groves: Store<Grove>,
    order: Vec<Ref<Grove>>,
    record: Record,
}

#[critical]
struct Grove {
    name: String,
    record: Record,
    leaves: Store<Leaf>,
    order: Vec<Ref<Leaf>>,
}

#[critical]
struct Record {
    entries: u64,
}

#[critical]
impl Record {
    fn new() -> Self {
        Self { entries: 0 }
    }
    fn add(&mut self) {
        self.entries += 1;
    }
}

#[critical]
impl Grove {
    fn new(name: String) -> Self {
        Self { name, record: Record::new(), leaves: Store::new(), order: Vec::new() }
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn grow(&mut self, leaf: Leaf) {
        let leaf = self.leaves.insert(leaf);
        self.order.push(leaf);
    }
    fn shed(&mut self, at: usize) -> Option<Leaf> {
        let at = at.checked_rem(self.order.len())?;
        let leaf = self.order.remove(at);
        Some(self.leaves.expect_remove(leaf))
    }
    fn paint(&mut self, at: usize, flags: u32) {
        if let Some(at) = at.checked_rem(self.order.len()) {
            let leaf = self.order[at];
            self.leaves.expect_mut(leaf).set_flags(flags);
        }
    }
    fn write(&mut self) {
        self.record.add();
    }
}

#[critical]
impl Forest {
    fn new() -> Self {
        Self { groves: Store::new(), order: Vec::new(), record: Record::new() }
    }
    fn plant(&mut self, grove: Grove) {
        let grove = self.groves.insert(grove);
        self.order.push(grove);
        self.record.add();
    }
    fn fell(&mut self, at: usize) -> Option<Grove> {
        let at = at.checked_rem(self.order.len())?;
        let grove = self.order.remove(at);
        Some(self.groves.expect_remove(grove))
    }
    fn name(&self, at: usize) -> Option<&str> {
        Some(self.groves.expect(*self.order.get(at)?).name())
    }
    fn len(&self) -> usize {
        self.order.len()
    }
    fn grove(&mut self, at: usize) -> Option<&mut Grove> {
        let at = at.checked_rem(self.order.len())?;
        Some(self.groves.expect_mut(self.order[at]))
    }
}

const REGION_IDS: [RegionId; 2] = [3, 4];

/// Two regions, as behind two locks.
struct World {
    regions: [Forest; 2],
    position: u64,
    protect: Protect,
}

/// Checksums of all objects, as a tree over them would know them.
type Sums = BTreeMap<(RegionId, ObjectId), u64>;

impl World {
    fn new(protect: Protect) -> World {
        World { regions: REGION_IDS.map(|region_id| genesis(region_id, Forest::new)), position: 1, protect }
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::new();
        for (region_id, region) in REGION_IDS.iter().zip(&self.regions) {
            region.objects(&mut |listed| {
                assert_eq!(listed.sum, listed.recomputed, "{region_id} {}: sealed", listed.id);
                sums.insert((*region_id, listed.id), listed.sum);
            });
        }
        sums
    }

    fn packed(&self) -> [Vec<u8>; 2] {
        [0, 1].map(|region| self.regions[region].pack_all())
    }

    /// Runs a request of random steps on both regions, and keeps it.
    fn run(&mut self, random: &mut SplitMix64) -> Kept {
        request::begin_with_whole_images(at(
            self.position,
            ScopeOptions { protect: self.protect, ..REVERSIBLE },
        ));
        self.position += 1;
        for _ in 0..random.below(7) {
            self.step(random);
        }
        REGION_IDS.iter().zip(&mut self.regions).for_each(|(region_id, region)| region.seal(*region_id));
        let (touched, kept) = request::finish_keeping(Kept::new());
        for change in kept.changes() {
            // What the other replicas compare is the same.
            let pair = touched.iter().find(|pair| (pair.region_id, pair.id) == (change.region_id, change.id));
            assert!(pair.is_none_or(|pair| pair.sum == change.new), "{change:?} {pair:?}");
        }
        kept
    }

    fn step(&mut self, random: &mut SplitMix64) {
        let [one, other] = &mut self.regions;
        let (region, other) = if random.below(2) == 0 { (one, other) } else { (other, one) };
        let [first, second] = [random.below(50) as usize, random.below(50) as usize];
        match random.below(10) {
            0 | 1 => {
                let mut grove = Grove::new(format!("{first}"));
                grove.grow(Leaf::new(b"born with it", &[3; 20]));
                grove.write();
                region.plant(grove);
            }
            2 => drop(region.fell(first)),
            // Comes back with everything inside of it, and some of that changed meanwhile.
            3 => {
                if let Some(mut grove) = region.fell(first) {
                    match second % 5 {
                        0 => grove.write(),
                        1 => grove.paint(second, 8),
                        2 => grove.grow(Leaf::new(b"another", b"")),
                        3 => drop(grove.shed(second)),
                        _ => {}
                    }
                    region.plant(grove);
                }
            }
            4 => {
                if let Some(grove) = region.grove(first) {
                    grove.grow(Leaf::new(b"key", &vec![first as u8; second * 100]));
                }
            }
            5 => {
                let shed = region.grove(first).and_then(|grove| grove.shed(second));
                // To another grove of this region or of the other one, or nowhere.
                let region = if second % 3 == 0 { other } else { region };
                if let (Some(leaf), Some(grove)) = (shed, region.grove(second / 3)) {
                    grove.grow(leaf);
                }
            }
            6 => region.grove(first).into_iter().for_each(|grove| grove.paint(second, first as u32)),
            7 => region.grove(first).into_iter().for_each(Grove::write),
            8 => drop(region.name(first).map(str::len)),
            _ => {
                let mut grove = Grove::new("passing".to_owned());
                grove.write();
                region.plant(grove);
                drop(region.fell(region.len() - 1));
            }
        }
    }

    fn roll_back(&mut self, kept: &mut Kept) {
        self.regions.iter_mut().for_each(|region| region.roll_back(kept));
        assert!(kept.is_rolled_back(), "{kept:?}");
        self.position -= 1;
    }
}

fn apply(sums: &mut Sums, change: Change) {
    let key = (change.region_id, change.id);
    let old = if change.new == Change::ABSENT { sums.remove(&key) } else { sums.insert(key, change.new) };
    assert_eq!(old.unwrap_or(Change::ABSENT), change.old, "{change:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn changes_are_all_there_is_and_can_be_rolled_back(seed: u64, checks: bool) {
        let mut random = SplitMix64::new(seed);
        let mut world = World::new(if checks { Protect::Check } else { Protect::Seal });
        let mut sums = world.sums();
        let mut versions: Vec<(Kept, Sums, [Vec<u8>; 2])> = Vec::new();
        for _ in 0..40 {
            if random.below(4) > 0 {
                let before = (sums.clone(), world.packed());
                let kept = world.run(&mut random);
                kept.changes().into_iter().for_each(|change| apply(&mut sums, change));
                versions.push((kept, before.0, before.1));
            } else {
                // Newest first, as many as it pleases.
                for _ in 0..random.below(versions.len() as u64 + 1) {
                    let (mut kept, before, packed) = versions.pop().expect("a version");
                    let changes = kept.changes();
                    world.roll_back(&mut kept);
                    changes.into_iter().for_each(|change| apply(&mut sums, change.inverse()));
                    prop_assert_eq!(&sums, &before);
                    prop_assert_eq!(world.packed(), packed);
                }
            }
            prop_assert_eq!(&world.sums(), &sums);
        }
    }
}

/// Every object of every earlier version can be packed again, although later requests stand; except some that lay
/// inside of one that is gone, or are in another owner. So can whole regions without such objects.
#[test]
fn earlier_versions_of_objects_and_regions_can_be_packed() {
    let (mut exact, mut unknown, mut moved, mut regions, mut not_known) = (0, 0, 0, 0, 0);
    for seed in 0..40 {
        let mut random = SplitMix64::new(seed);
        let mut world = World::new(Protect::Check);
        // Of each version its objects, packed, its regions, and the request after it.
        let mut versions = Vec::new();
        for _ in 0..12 {
            let sums = world.sums();
            let of = |region_id: RegionId| usize::from(region_id != REGION_IDS[0]);
            let packed: Vec<_> =
                sums.keys().map(|(region_id, id)| world.regions[of(*region_id)].pack(*id)).collect();
            let whole = [0, 1].map(|region| world.regions[region].pack_all());
            let kept = world.run(&mut random);
            versions.push((sums, packed, whole, kept));
        }
        let (present, bytes) = (world.sums(), world.packed());
        for at in 0..versions.len() {
            let (sums, packed, whole, _) = &versions[at];
            let before = |world: &mut World, region_id: RegionId, id: ObjectId| {
                let region = &mut world.regions[usize::from(region_id != REGION_IDS[0])];
                let later = versions[at..].iter().map(|(.., kept)| region.pack_before(kept, id));
                let found = later.into_iter().find(|before| *before != ObjectBefore::Same);
                found.unwrap_or_else(|| region.pack(id).map_or(ObjectBefore::Absent, ObjectBefore::Was))
            };
            for ((region_id, id), was) in sums.keys().zip(packed) {
                match before(&mut world, *region_id, *id) {
                    ObjectBefore::Was(bytes) if Some(&bytes) == was.as_ref() => exact += 1,
                    ObjectBefore::Unknown => unknown += 1,
                    // It lies in another owner now; version, class and id are equal.
                    ObjectBefore::Was(bytes) => {
                        assert_eq!(Some(&bytes[..13]), was.as_ref().map(|was| &was[..13]));
                        moved += 1;
                    }
                    other => panic!("{id}: {other:?}, and not {was:?}"),
                }
            }
            for (region, whole) in whole.iter().enumerate() {
                let changes = versions[at..].iter().flat_map(|(.., kept)| kept.changes());
                let changed =
                    changes.filter(|change| change.region_id == REGION_IDS[region]).map(|change| change.id);
                let changed: BTreeSet<ObjectId> = changed.collect();
                let later: Vec<&Kept> = versions[at..].iter().map(|(.., kept)| kept).collect();
                match world.regions[region].pack_all_before(&later, &changed) {
                    Some(packed) => assert_eq!(packed, *whole),
                    None => {
                        not_known += 1;
                        continue;
                    }
                }
                regions += 1;
            }
        }
        assert_eq!((world.sums(), world.packed()), (present, bytes), "nothing has changed");
    }
    assert!(exact > 4 * (unknown + moved), "{exact} exact, {unknown} unknown, {moved} moved");
    // Most of these objects lie inside of others.
    assert!(regions > 50, "{regions} regions, {not_known} not known");
}

#[test]
fn a_request_that_only_reads_changes_nothing_and_keeps_little() {
    let mut world = World::new(Protect::Check);
    let mut random = SplitMix64::new(1);
    (0..30).for_each(|_| drop(world.run(&mut random)));
    request::begin_with_whole_images(at(world.position, REVERSIBLE));
    assert!(world.regions[0].name(0).is_some());
    world.regions[0].seal(REGION_IDS[0]);
    let (touched, kept) = request::finish_keeping(Kept::new());
    assert!(!touched.pairs().is_empty() && kept.changes().is_empty() && kept.is_rolled_back());
    assert!(kept.is_read_only());
    assert!(kept.bytes() < 1_000, "{}", kept.bytes());
}

#[test]
fn without_before_images_nothing_can_be_rolled_back() {
    let mut region = genesis(REGION_IDS[0], Forest::new);
    request::begin_with_whole_images(at(1, PROTECTED));
    region.plant(Grove::new("g".to_owned()));
    region.seal(REGION_IDS[0]);
    let (_, mut kept) = request::finish_keeping(Kept::new());
    assert!(!kept.is_read_only(), "it has changed objects all the same");
    let before = region.digest();
    region.roll_back(&mut kept);
    assert_eq!(region.digest(), before);
}

/// Reads are neither checked nor noted, and what changes is sealed all the same.
#[test]
fn with_seals_alone_corruption_is_read_and_changes_are_noted() {
    let mut region = genesis(REGION_IDS[0], Forest::new);
    let mut run = |position, work: &mut dyn FnMut(&mut Forest)| {
        request::begin_with_whole_images(at(position, ScopeOptions { protect: Protect::Seal, ..REVERSIBLE }));
        work(&mut region);
        region.seal(REGION_IDS[0]);
        request::finish_keeping(Kept::new())
    };
    let (touched, kept) = run(1, &mut |region| region.plant(Grove::new("g".to_owned())));
    assert_eq!(touched.pairs().len(), kept.changes().len());
    assert_eq!(kept.changes().len(), 4, "the root and its record, the grove and its own");
    let (touched, kept) = run(2, &mut |region| {
        let id = region.root();
        region.inject(id, &Injection::Flip { member: None, bit: None, seed: 5 }).expect("the flip fits");
        assert!(region.len() <= 1);
    });
    assert!(touched.pairs().is_empty() && kept.changes().is_empty());
}
