//! Copies of regions in parts, while requests change them: what a receiver has after the last part is the region, to
//! the byte; and each thing that a copy must not forget is missed by the receiver.

use crate::common::forest::{Forest, Grove, REGION_IDS, World};
use object::{
    CopiedPart, Health, Injection, Kept, Located, Location, ObjectId, Orphans, Protect, Region, RegionCopy,
    RegionId, ScopeOptions, genesis, request,
};
use proptest::prelude::*;
use std::panic::catch_unwind;
use wire::SplitMix64;

/// What a copy may forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// Nothing.
    None,
    /// Objects that were removed.
    Removed,
    /// Objects in which only hot members changed.
    Hot,
    /// Objects that were created.
    Created,
    /// The first object of a part.
    OffByOne,
    /// Changes of objects inside of others.
    Inside,
    /// Parts after the first round.
    LaterRounds,
    /// Objects of requests that were rolled back.
    RolledBack,
    /// That these objects are gone.
    Vanished,
}

/// A region that is copied, and its receiver.
struct Copy {
    copy: RegionCopy,
    receiver: Forest,
    orphans: Orphans,
}

impl Copy {
    fn new(region_id: RegionId) -> Self {
        let mut receiver = genesis(region_id, Forest::new);
        // It has a past of its own, of which nothing may be left.
        request::begin(ScopeOptions { position: 9, protect: Protect::Check, keep_before_images: false });
        receiver.plant(Grove::new("older".to_owned()));
        receiver.seal(region_id);
        request::abandon();
        receiver.empty();
        Copy { copy: RegionCopy::default(), receiver, orphans: Orphans::default() }
    }

    fn install(&mut self, part: &CopiedPart, mutant: Mutant) {
        assert_eq!(part.damaged, [], "nothing is corrupted");
        let bytes = match mutant {
            Mutant::OffByOne if part.bytes.len() > 4 => {
                let length = u32::from_le_bytes(part.bytes[..4].try_into().expect("4 bytes")) as usize;
                &part.bytes[4 + length..]
            }
            Mutant::LaterRounds if !part.is_first => return,
            _ => &part.bytes,
        };
        self.receiver
            .install_part(bytes, part.is_first, &mut self.orphans)
            .expect("what was packed can be installed");
    }
}

/// Runs a request of random steps, and tells the copies what it has changed.
fn run(world: &mut World, random: &mut SplitMix64, copies: &mut [Copy; 2], mutant: Mutant) {
    // Where objects change that are not kept, before-images of hot members are words.
    let options = ScopeOptions { position: world.position, protect: world.protect, keep_before_images: true };
    request::begin(options);
    world.position += 1;
    let mut visited: Vec<ObjectId> = Vec::new();
    for _ in 0..random.below(7) {
        match random.below(9) {
            0 => transplant(world, random),
            1 => {
                let region = random.below(2) as usize;
                if let Some(grove) = world.regions[region].grove(random.below(50) as usize) {
                    grove.visit(random.below(1 << 32) as u32);
                    visited.push(grove.object_id());
                }
            }
            _ => world.step(random),
        }
    }
    REGION_IDS.iter().zip(&mut world.regions).for_each(|(region_id, region)| region.seal(*region_id));
    let position = world.position - 1;
    request::changed_objects(&mut |region_id, object| {
        let is_forgotten = match mutant {
            Mutant::Removed => object.location == Location::REMOVED,
            Mutant::Created => object.id.position() == position,
            Mutant::Hot => visited.contains(&object.id),
            Mutant::Inside => object.location == Location::UNKNOWN,
            _ => false,
        };
        let copy = &mut copies[usize::from(region_id != REGION_IDS[0])].copy;
        if !is_forgotten {
            copy.on_changed(object);
        }
    });
    request::abandon();
}

/// Moves a grove with everything inside of it to the other region.
fn transplant(world: &mut World, random: &mut SplitMix64) {
    let [one, other] = &mut world.regions;
    let (from, to) = if random.below(2) == 0 { (one, other) } else { (other, one) };
    if let Some(grove) = from.fell(random.below(50) as usize) {
        to.plant(grove);
    }
}

/// Copies both regions while requests run; whether the receivers have them then. Then their changes, twice: with the
/// copy that has learned of them, or with one that begins with a region that is copied already.
fn copies(seed: u64, protect: Protect, mutant: Mutant) -> bool {
    let mut random = SplitMix64::new(seed);
    let mut world = World::new(protect);
    let mut copies = REGION_IDS.map(Copy::new);
    for _ in 0..random.below(40) {
        run(&mut world, &mut random, &mut copies, mutant);
    }
    (0..3).all(|_| {
        if random.below(2) == 0 {
            let begun = copies.iter_mut().filter(|copy| copy.copy.left() == Some(0));
            begun.for_each(|copy| copy.copy = RegionCopy::of_kept());
        }
        copy_both(&mut world, &mut random, &mut copies, mutant)
    })
}

/// Goes on with the copies of both regions, to their end.
fn copy_both(world: &mut World, random: &mut SplitMix64, copies: &mut [Copy; 2], mutant: Mutant) -> bool {
    for _ in 0..60 {
        if random.below(3) == 0 {
            let number = random.below(2) as usize;
            let part = copies[number].copy.pack(&world.regions[number], random.below(4000) as usize);
            copies[number].install(&part, mutant);
        } else {
            run(world, random, copies, mutant);
        }
    }
    for (copy, region) in copies.iter_mut().zip(&world.regions) {
        let left = copy.copy.left();
        let part = copy.copy.pack_rest(region);
        assert_eq!(left == Some(0), part.bytes.is_empty() && left.is_some(), "{left:?}");
        copy.install(&part, mutant);
        assert_eq!(copy.copy.left(), Some(0));
    }
    copies.iter().zip(&world.regions).all(|(copy, region)| {
        let is_equal = copy.receiver.pack_all() == region.pack_all() && copy.orphans.is_empty();
        is_equal && copy.receiver.scrub(9).is_empty() && copy.receiver.digest() == region.digest()
    })
}

/// The same with requests that are rolled back later, newest first: positions and ids come again.
fn copies_of_what_is_rolled_back(seed: u64, protect: Protect, mutant: Mutant) -> bool {
    let mut random = SplitMix64::new(seed);
    let mut world = World::new(protect);
    let mut copies = REGION_IDS.map(Copy::new);
    let mut later: Vec<Kept> = Vec::new();
    let at = |region_id| usize::from(region_id != REGION_IDS[0]);
    for _ in 0..80 {
        match random.below(5) {
            0 => {
                let number = random.below(2) as usize;
                let part = copies[number].copy.pack(&world.regions[number], random.below(4000) as usize);
                copies[number].install(&part, mutant);
            }
            1 => {
                for _ in 0..random.below(later.len() as u64 + 1) {
                    let mut kept = later.pop().expect("a request");
                    let mut changed = Vec::new();
                    kept.each_changed(&mut |region_id, id| changed.push((at(region_id), id)));
                    world.roll_back(&mut kept);
                    for (region, id) in changed.into_iter().filter(|_| mutant != Mutant::RolledBack) {
                        let is_there = world.regions[region].check(id) != Health::Absent;
                        let is_there = is_there || mutant == Mutant::Vanished;
                        copies[region].copy.on_rolled_back(id, is_there);
                    }
                }
            }
            _ => {
                let kept = world.run(&mut random);
                kept.each_changed(&mut |region_id, id| {
                    copies[at(region_id)].copy.on_changed(Located { id, location: Location::UNKNOWN });
                });
                later.push(kept);
            }
        }
    }
    for (copy, region) in copies.iter_mut().zip(&world.regions) {
        let rest = copy.copy.pack_rest(region);
        copy.install(&rest, mutant);
    }
    copies
        .iter()
        .zip(&world.regions)
        .all(|(copy, region)| copy.receiver.pack_all() == region.pack_all() && copy.orphans.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_copy_is_the_region_although_requests_were_rolled_back(seed: u64, checks: bool) {
        let protect = if checks { Protect::Check } else { Protect::Seal };
        prop_assert!(copies_of_what_is_rolled_back(seed, protect, Mutant::None));
    }

    #[test]
    fn a_copy_in_parts_is_the_region_to_the_byte(seed: u64, checks: bool) {
        let protect = if checks { Protect::Check } else { Protect::Seal };
        prop_assert!(copies(seed, protect, Mutant::None));
    }
}

#[test]
fn whatever_a_copy_forgets_is_missed() {
    let all = [
        Mutant::Removed,
        Mutant::Hot,
        Mutant::Created,
        Mutant::OffByOne,
        Mutant::Inside,
        Mutant::LaterRounds,
    ];
    for mutant in all {
        let missed = (0..40).filter(|seed| !copies(*seed, Protect::Check, mutant)).count();
        assert!(missed > 0, "{mutant:?} is not noticed");
    }
    for mutant in [Mutant::RolledBack, Mutant::Vanished] {
        // Some of it cannot be installed.
        let copied = |seed: u64| catch_unwind(|| copies_of_what_is_rolled_back(seed, Protect::Check, mutant));
        let missed = (0..400).filter(|seed| !matches!(copied(*seed), Ok(true))).count();
        assert!(missed > 0, "{mutant:?} is not noticed");
    }
}

/// A world that has grown for a while, and the first part of a copy of one of its regions.
fn grown() -> (World, CopiedPart) {
    let mut world = World::new(Protect::Check);
    let mut random = SplitMix64::new(7);
    (0..40).for_each(|_| drop(world.run(&mut random)));
    let part = RegionCopy::default().pack(&world.regions[0], usize::MAX);
    (world, part)
}

#[test]
fn an_object_that_does_not_fit_its_checksum_is_named() {
    let (mut world, part) = grown();
    assert!(part.damaged.is_empty() && part.bytes.len() > 1000);
    let all = world.regions[0].locate_all();
    let wrong = all[all.len() / 2].id;
    world.regions[0].inject(wrong, &Injection::Flip { member: None, bit: None, seed: 3 }).expect("injected");
    let part = RegionCopy::default().pack(&world.regions[0], usize::MAX);
    assert_eq!(part.damaged, [wrong]);
}

#[test]
fn a_part_that_ends_early_is_refused_or_lacks_objects() {
    let (world, part) = grown();
    for cut in 0..part.bytes.len() {
        let mut copy = Copy::new(REGION_IDS[0]);
        let cut = CopiedPart { bytes: part.bytes[..cut].to_vec(), ..part.clone() };
        let installed = copy.receiver.install_part(&cut.bytes, true, &mut copy.orphans);
        let is_whole = copy.receiver.pack_all() == world.regions[0].pack_all() && copy.orphans.is_empty();
        assert!(installed.is_err() || !is_whole);
    }
}

#[test]
fn objects_wait_for_those_that_they_are_inside_of() {
    let (world, part) = grown();
    let mut blocks = Vec::new();
    let mut rest = &part.bytes[..];
    while let Some((length, from)) = rest.split_first_chunk::<4>() {
        let (block, after) = from.split_at(u32::from_le_bytes(*length) as usize);
        blocks.push([&length[..], block].concat());
        rest = after;
    }
    let mut copy = Copy::new(REGION_IDS[0]);
    let mut most = 0;
    for block in blocks.iter().rev() {
        copy.receiver.install_part(block, true, &mut copy.orphans).expect("an object");
        most = most.max(copy.orphans.bytes());
    }
    assert!(most > 100 && copy.orphans.is_empty() && copy.orphans.bytes() == 0, "{most} bytes waited");
    assert_eq!(copy.receiver.pack_all(), world.regions[0].pack_all());
}
