//! Types whose members change from one release to the next: old bytes, old and new builds side by side, and the change.

use std::collections::BTreeMap;

use crate::common::releases::{RELEASES, Shelf};
use crate::common::{BARE, PROTECTED, REGION_ID, REVERSIBLE, at};
use object::{Corrupted, Health, Injection, ObjectId, Protect, ScopeOptions, ScrubFinding, Touched, request};
use proptest::prelude::*;
use wire::SplitMix64;

type AnyShelf = Box<dyn Shelf>;

/// The n-th release, without a job.
fn release(number: usize) -> AnyShelf {
    RELEASES[number - 1]()
}

/// Runs a request while the group acts as `behavior`.
fn run<R>(
    shelf: &mut AnyShelf,
    (behavior, options): (u16, ScopeOptions),
    handler: impl FnOnce(&mut dyn Shelf) -> R,
) -> (R, Touched) {
    request::begin(options);
    request::act_as(behavior);
    let result = handler(&mut **shelf);
    shelf.seal(REGION_ID);
    (result, request::finish())
}

/// The object that stopped a request that reads all of a job.
fn read_fails(shelf: &AnyShelf, job: usize) -> Option<ObjectId> {
    request::begin(at(900, PROTECTED));
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shelf.read(job)));
    request::abandon();
    read.err()
        .map(|payload| object::corrupted(&*payload).map(|Corrupted { object, .. }| *object).expect("a check"))
}

/// A random step, which the first two releases have in common.
fn step(shelf: &mut dyn Shelf, random: &mut SplitMix64) {
    let value = random.next_u64();
    let (job, few) = ((value >> 8) as usize % shelf.len().max(1), (value >> 40) as u32);
    match value % 9 {
        0 | 1 => shelf.add(value >> 3, few),
        _ if shelf.len() == 0 => {}
        2 => shelf.set_delay(job, few),
        3 => shelf.write(job, &vec![7; few as usize % 50]),
        4 => shelf.set_limit(few),
        5 if shelf.len() > 3 => shelf.remove(job),
        6 => _ = shelf.read(job),
        _ => shelf.see(job, few),
    }
}

/// A shelf of a release with some jobs, as written by behavior 1.
fn filled(number: usize, seed: u64, requests: u64) -> AnyShelf {
    let (mut shelf, mut random) = (release(number), SplitMix64::new(seed));
    for position in 1..=requests {
        run(&mut shelf, (1, at(position, PROTECTED)), |shelf| (0..3).for_each(|_| step(shelf, &mut random)));
    }
    while shelf.len() < 3 {
        let position = requests + 1 + shelf.len() as u64;
        run(&mut shelf, (1, at(position, PROTECTED)), |shelf| shelf.add(5, 6));
    }
    shelf
}

/// A shelf of a release that has loaded these bytes.
fn loaded(number: usize, packed: &[u8]) -> AnyShelf {
    let mut shelf = release(number);
    shelf.load_all(packed).expect("a version that it knows");
    assert_eq!(shelf.scrub(9), []);
    shelf
}

/// The class tag of a packed object stands for its version.
fn tag_of(shelf: &AnyShelf, id: ObjectId) -> [u8; 4] {
    let packed = shelf.pack(id).expect("it exists");
    packed[1..5].try_into().expect("four bytes")
}

#[test]
fn the_old_version_is_described_as_by_the_old_release() {
    let [first, second, third] = RELEASES.map(|release| release().shapes());
    // The shape of a reference has the path of its type, in which the function is.
    for old in first.iter().filter(|(name, ..)| *name != "Root") {
        assert!(second.contains(old) && third.contains(old), "{old:?} is not in {second:?}");
    }
    let of = |all: &[(&str, u16, u64)], name: &str| -> BTreeMap<u16, u64> {
        all.iter().filter(|(one, ..)| *one == name).map(|(_, version, shape)| (*version, *shape)).collect()
    };
    let (jobs, newer) = (of(&second, "Job"), of(&third, "Job"));
    assert_eq!((jobs.len(), newer.len()), (2, 3));
    assert!(jobs.iter().all(|(version, shape)| newer[version] == *shape) && jobs[&1] != jobs[&2]);
    assert_eq!(of(&second, "Pin").into_keys().collect::<Vec<_>>(), [2]);
}

#[test]
fn a_build_that_knows_more_sums_and_packs_as_the_old_one_before_the_change() {
    for seed in 0..40 {
        let (mut old, mut new) = (release(1), release(2));
        for position in 1..60 {
            let options = at(position, if position % 3 == 0 { REVERSIBLE } else { PROTECTED });
            let deltas = [&mut old, &mut new].map(|shelf| {
                let mut random = SplitMix64::new(seed << 32 | position);
                run(shelf, (1, options), |shelf| (0..3).for_each(|_| step(shelf, &mut random))).1
            });
            assert_eq!(deltas[0], deltas[1], "request {position} of seed {seed}");
        }
        assert_eq!(old.pack_all(), new.pack_all());
        assert_eq!((old.digest(), old.scrub(9)), (new.digest(), new.scrub(9)));
        // Both ways: an old replica is repaired by a new one, and a new one by an old one.
        let job = old.job(0);
        let packed = [&old, &new].map(|shelf| shelf.pack(job));
        old.replace(job, packed[1].as_deref()).expect("an object of its version");
        new.replace(job, packed[0].as_deref()).expect("an object of an older version");
        assert_eq!(old.pack_all(), loaded(1, &new.pack_all()).pack_all());
        assert_eq!(old.pack_all(), loaded(2, &old.pack_all()).pack_all());
    }
}

#[test]
fn old_bytes_have_the_new_members_when_read_and_stay_old_until_a_request_writes_them() {
    let old = filled(1, 3, 20);
    let mut new = loaded(2, &old.pack_all());
    let (job, other) = (old.job(0), old.job(1));
    let expected = {
        let read = old.read(0);
        vec![
            read[0],
            read[1],
            read[2],
            read[3],
            read[2] + 1,
            4,
            read[4] << 32 | (read[4] * 2) & 0xFFFF_FFFF,
            0,
        ]
    };
    let (read, delta) = run(&mut new, (2, at(50, PROTECTED)), |shelf| shelf.read(0));
    assert_eq!((&read, new.pack_all()), (&expected, old.pack_all()), "it was only read");
    assert!(delta.iter().any(|pair| pair.id == job));
    run(&mut new, (2, at(51, PROTECTED)), |shelf| shelf.set_delay(0, 9));
    let (mut changed, packed) = (expected, new.pack(job).expect("it exists"));
    (changed[1], changed[4]) = (9_000_000, changed[4] + 1);
    assert_eq!(new.read(0), changed, "its new member was counted on from the value that it had");
    assert_ne!(tag_of(&new, job), tag_of(&old, job));
    assert_eq!(new.pack(other), old.pack(other), "no request has written this one");
    // A hot change is one too. The root has nothing that changed.
    run(&mut new, (2, at(52, PROTECTED)), |shelf| shelf.see(1, 77));
    assert_ne!(tag_of(&new, other), tag_of(&old, other));
    assert_eq!(tag_of(&new, new.root()), tag_of(&old, old.root()));
    run(&mut new, (2, at(53, PROTECTED)), |shelf| shelf.pin("new"));
    assert_ne!(tag_of(&new, new.root()), tag_of(&old, old.root()));
    // Evidence has the names that the members have in the version of the packed object.
    let names = |packed: &[u8]| -> Vec<&str> {
        new.members(packed).expect("a class of it").members.iter().map(|(name, _)| *name).collect()
    };
    let before = old.pack(job).expect("it exists");
    assert_eq!(names(&before), ["key", "delay", "notes", "seen_s", "spare", "span"]);
    assert_eq!(names(&packed), ["id", "notes", "seen_s", "weight", "delay", "span"]);
    assert!(new.difference(&before, &packed).is_err(), "two versions are not compared member by member");
    // Two releases later.
    let third = loaded(3, &new.pack_all());
    assert_eq!((third.pack_all(), third.digest()), (new.pack_all(), new.digest()));
    assert_eq!(third.read(0), [changed[0], 9_000_001, changed[4], 0, 0]);
    assert_eq!(loaded(3, &old.pack_all()).read(1)[1], old.delay_us(1) + 1, "through the version between");
}

/// What a member was in an earlier version, or before its object was sealed last, is in no value.
#[test]
fn members_that_came_follow_from_nothing_but_the_packed_ones() {
    let old = filled(1, 7, 10);
    for behavior in [1, 2] {
        let mut third = loaded(3, &old.pack_all());
        let delay_s = old.read(0)[1] / 1_000_000;
        assert_eq!(third.read(0)[3..], [0, delay_s]);
        run(&mut third, (2, at(60, PROTECTED)), |shelf| shelf.set_delay(1, 4));
        for position in 61..64 {
            run(&mut third, (behavior, at(position, PROTECTED)), |shelf| shelf.set_delay(0, 4));
            let again = loaded(3, &third.pack_all());
            assert_eq!([0, 1].map(|job| third.read(job)), [0, 1].map(|job| again.read(job)));
        }
        assert_eq!(third.read(0)[3..], [0, if behavior == 1 { delay_s } else { 0 }]);
    }
}

#[test]
fn a_version_that_the_program_does_not_know_is_refused_with_its_class_and_the_remedy() {
    let old = filled(1, 4, 10);
    let (mut first, mut second, mut third) =
        (loaded(1, &old.pack_all()), loaded(2, &old.pack_all()), loaded(3, &old.pack_all()));
    let job = old.job(0);
    run(&mut third, (3, at(70, PROTECTED)), |shelf| shelf.set_delay(0, 1));
    let newest = third.pack(job).expect("it exists");
    let before = [first.digest(), second.digest()];
    let refused = second.replace(job, Some(&newest)).unwrap_err().to_string();
    assert!(refused.contains("an object in a version of `all::common::releases::Job`"), "{refused}");
    assert!(refused.contains("(it knows 1, 2)") && refused.contains("start the release"), "{refused}");
    assert!(second.load_all(&third.pack_all()).is_err());
    second.load_all(&old.pack_all()).expect("it is loaded again");
    let refused = first.replace(job, Some(&newest)).unwrap_err().to_string();
    assert!(refused.contains("(it knows 1), or of another class"), "{refused}");
    assert_eq!([first.digest(), second.digest()], before);
    // Where it would be a new object.
    let other = third.job(1);
    run(&mut third, (3, at(71, PROTECTED)), |shelf| shelf.set_delay(1, 1));
    second.inject(other, &Injection::Lose).expect("it is in a store");
    assert!(second.replace(other, third.pack(other).as_deref()).is_err());
    second.replace(other, old.pack(other).as_deref()).expect("a version that it knows");
    assert_eq!(second.digest(), before[1]);
}

#[test]
fn each_flip_of_a_version_and_of_a_member_that_came_later_is_found() {
    let old = filled(1, 5, 10);
    let mut new = loaded(2, &old.pack_all());
    let (job, packed) = (old.job(0), old.pack_all());
    for bit in 0..16 {
        new.inject(job, &Injection::Version { bit }).expect("its class has several");
        assert_eq!((new.check(job), read_fails(&new, 0)), (Health::Damaged, Some(job)), "bit {bit}");
        assert_eq!(new.scrub(9), [ScrubFinding::Damaged(job)]);
        new.replace(job, old.pack(job).as_deref()).expect("it is repaired");
    }
    // Six members are of the first version; three came.
    let mut flips = 0;
    for (member, bit) in (6..9).flat_map(|member| (0..128).map(move |bit| (member, bit))) {
        let flip = Injection::Flip { member: Some(member), bit: Some(bit), seed: 0 };
        if new.inject(job, &flip).is_none() {
            continue;
        }
        flips += 1;
        assert_eq!(new.pack_all(), packed, "it is in no packed object");
        assert_eq!((new.check(job), read_fails(&new, 0)), (Health::Damaged, Some(job)), "{flip:?}");
        assert_eq!(new.scrub(9), [ScrubFinding::Damaged(job)]);
        new.replace(job, old.pack(job).as_deref()).expect("it is repaired");
    }
    assert_eq!(flips, 32 + 64 + 128);
    // One with a local copy is repaired on the spot, whichever member it was.
    let mut settings = None;
    new.objects(&mut |listed| {
        settings = settings.or(listed.class.ends_with("Settings").then_some(listed.id))
    });
    let settings = settings.expect("it is part of the root");
    for member in [0, 1] {
        let flip = Injection::Flip { member: Some(member), bit: Some(3), seed: 0 };
        new.inject(settings, &flip).expect("32 bits");
        assert_eq!((new.check(settings), read_fails(&new, 0)), (Health::Damaged, None));
        run(&mut new, (1, at(80, PROTECTED)), |shelf| shelf.set_limit(7));
        assert_eq!(new.check(settings), Health::Intact);
    }
}

#[test]
fn a_request_that_made_an_object_new_is_undone_before_and_after_its_seal() {
    let old = filled(1, 6, 10);
    for is_sealed in [false, true] {
        let mut new = loaded(2, &old.pack_all());
        request::begin(at(60, REVERSIBLE));
        request::act_as(2);
        new.set_delay(0, 5);
        new.see(1, 5);
        new.set_limit(5);
        new.pin("new");
        new.remove(2);
        new.add(5, 5);
        if is_sealed {
            new.seal(REGION_ID);
        }
        new.undo();
        assert!(request::is_undone());
        request::abandon();
        assert_eq!((new.pack_all(), new.scrub(9)), (old.pack_all(), vec![]), "sealed: {is_sealed}");
        assert_eq!((new.read(0).len(), new.delay_us(1)), (8, old.delay_us(1)));
        let (_, delta) = run(&mut new, (2, at(61, PROTECTED)), |shelf| shelf.set_delay(0, 5));
        let (_, again) =
            run(&mut loaded(2, &old.pack_all()), (2, at(61, PROTECTED)), |shelf| shelf.set_delay(0, 5));
        assert_eq!(delta, again);
    }
}

/// How a replica runs, from which no result may depend.
#[derive(Clone, Debug)]
struct Way {
    protect: Protect,
    /// Each so many requests, all objects are replaced by their packed bytes.
    transfers: u64,
    /// Each so many requests, a request is undone and runs again.
    undoes: u64,
}

/// Runs a script that changes to behavior 2 in the middle, and returns the packed state at its end.
fn play(way: &Way, (seed, requests, change): (u64, u64, u64)) -> Vec<u8> {
    let mut shelf = filled(2, seed, 4);
    let options = if way.protect == Protect::Nothing { BARE } else { REVERSIBLE };
    let options = ScopeOptions { protect: way.protect, ..options };
    for position in 10..10 + requests {
        if position % way.transfers == 0 {
            shelf = loaded(2, &shelf.pack_all());
        }
        if position == 10 + change {
            // As the pipeline does where requests seal nothing.
            shelf.seal_unsealed();
        }
        let behavior = if position < 10 + change { 1 } else { 2 };
        let handler = |shelf: &mut dyn Shelf| {
            let mut random = SplitMix64::new(seed ^ position << 17);
            (0..3).for_each(|_| step(shelf, &mut random));
            if behavior == 2 && random.below(5) == 0 {
                shelf.pin("pinned");
            }
        };
        if options.keep_before_images && position % way.undoes == 0 {
            request::begin(at(position, options));
            request::act_as(behavior);
            handler(&mut *shelf);
            shelf.undo();
            assert!(request::is_undone());
            request::abandon();
        }
        run(&mut shelf, (behavior, at(position, options)), handler);
    }
    shelf.seal_unsealed();
    assert_eq!(shelf.scrub(9), []);
    let packed = shelf.pack_all();
    assert_eq!(loaded(2, &packed).pack_all(), packed);
    packed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_state_is_a_function_of_the_requests_and_of_the_position_of_the_change(
        seed in any::<u64>(),
        requests in 1..40u64,
        change in 0..40u64,
        transfers in 2..50u64,
        undoes in 2..9u64,
    ) {
        let script = (seed, requests, change.min(requests));
        let plain = Way { protect: Protect::Check, transfers: u64::MAX, undoes: u64::MAX };
        let expected = play(&plain, script);
        for protect in [Protect::Check, Protect::Seal, Protect::Nothing] {
            prop_assert_eq!(&play(&Way { protect, transfers, undoes }, script), &expected);
            prop_assert_eq!(&play(&Way { protect, transfers: u64::MAX, undoes }, script), &expected);
        }
    }

    #[test]
    fn any_bytes_behind_the_tag_of_an_old_version_are_refused_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        keep in 0..80usize,
    ) {
        let old = filled(1, 8, 5);
        let mut new = loaded(2, &old.pack_all());
        let job = old.job(0);
        let mut packed = old.pack(job).unwrap();
        packed.truncate(22 + keep);
        packed.extend(&bytes);
        match new.replace(job, Some(&packed)) {
            Ok(()) => prop_assert_eq!(new.pack(job), Some(packed)),
            Err(_) => prop_assert_eq!(new.pack_all(), old.pack_all()),
        }
        prop_assert_eq!(new.check(job), Health::Intact);
    }
}
