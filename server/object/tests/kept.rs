//! Requests that are rolled back after their end, newest first, and the changes that they report (OSDI 2012, 4.2 and
//! 5.2).

use crate::common::forest::{Forest, Grove, REGION_IDS, Sums, World};
use crate::common::{PROTECTED, REVERSIBLE, at};
use object::{
    Change, Injection, Kept, ObjectBefore, ObjectId, Protect, Region, RegionId, ScopeOptions, genesis,
    request,
};
use proptest::prelude::*;
use wire::SplitMix64;

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
/// inside of one that is gone, or are in another owner.
#[test]
fn earlier_versions_of_objects_can_be_packed() {
    let (mut exact, mut unknown, mut moved) = (0, 0, 0);
    for seed in 0..40 {
        let mut random = SplitMix64::new(seed);
        let mut world = World::new(Protect::Check);
        // Of each version its objects, packed, and the request after it.
        let mut versions = Vec::new();
        for _ in 0..12 {
            let sums = world.sums();
            let of = |region_id: RegionId| usize::from(region_id != REGION_IDS[0]);
            let packed: Vec<_> =
                sums.keys().map(|(region_id, id)| world.regions[of(*region_id)].pack(*id)).collect();
            let kept = world.run(&mut random);
            versions.push((sums, packed, kept));
        }
        let (present, bytes) = (world.sums(), world.packed());
        for at in 0..versions.len() {
            let (sums, packed, _) = &versions[at];
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
        }
        assert_eq!((world.sums(), world.packed()), (present, bytes), "nothing has changed");
    }
    assert!(exact > 4 * (unknown + moved), "{exact} exact, {unknown} unknown, {moved} moved");
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
