//! Pack and replace: round trips, repair of every structural damage, evidence, and bytes that must not be trusted.

use crate::common::{Leaf, PROTECTED, Tree, at, run, tree};
use object::{Health, Injection, Malformed, ObjectId, Region, ScrubFinding};
use proptest::prelude::*;

/// The two replicas of every test here: equal, until one of them is damaged.
fn pair() -> (Tree, Tree) {
    let grown = || {
        let mut tree = tree();
        run(&mut tree, at(5, PROTECTED), |tree| {
            for n in 0..20u8 {
                tree.grow(&[n], &vec![n; n as usize * 300]);
            }
            let second = tree.reference(1);
            tree.leaf_mut(0).set_next(second);
        })
        .unwrap();
        tree
    };
    (grown(), grown())
}

fn all_ids(tree: &Tree) -> Vec<ObjectId> {
    let mut ids = Vec::new();
    tree.objects(&mut |listed| ids.push(listed.id));
    ids
}

/// Repairs one object of `broken` from `healthy`, as REPAIR does.
fn repair(broken: &mut Tree, healthy: &Tree, id: ObjectId) {
    broken.replace(id, healthy.pack(id).as_deref()).unwrap();
}

#[test]
fn packed_objects_are_equal_on_equal_replicas_and_repair_each_other() {
    let (mut left, right) = pair();
    for id in all_ids(&left) {
        assert_eq!(left.pack(id), right.pack(id));
        let injection = Injection::Flip { member: None, bit: None, seed: id.to_bits() };
        let Some(injected) = left.inject(id, &injection) else { panic!("nothing to flip in {id}") };
        assert_eq!(left.check(id), Health::Damaged, "{injected:?}");
        repair(&mut left, &right, id);
        assert_eq!(left.check(id), Health::Intact);
        assert_eq!(left.pack(id), right.pack(id));
    }
    assert_eq!(left.digest(), right.digest());
}

#[test]
fn structural_damage_is_repaired_object_by_object() {
    let injections = [
        Injection::Lose,
        Injection::Double,
        Injection::Sum { bit: 3 },
        Injection::Id { bit: 5 },
        Injection::Id { bit: 40 },
    ];
    for injection in injections {
        let (mut left, right) = pair();
        for at in [0, 7, 19] {
            let id = left.reference(at).id();
            left.inject(id, &injection).unwrap();
            assert_ne!(left.scrub(9), [], "{injection:?}");
            repair(&mut left, &right, id);
        }
        assert_eq!(left.scrub(9), [], "{injection:?}");
        assert_eq!(left.digest(), right.digest(), "{injection:?}");
        // References have lost their hints, but not their objects.
        for at in 0..20 {
            let read = |tree: &mut Tree| tree.leaf(at).value().to_vec();
            run(&mut left, crate::common::at(9, PROTECTED), read).unwrap();
        }
    }
}

#[test]
fn a_root_whose_own_name_is_damaged_is_repaired_by_its_place() {
    let (mut left, right) = pair();
    let root = left.root();
    left.inject(root, &Injection::Id { bit: 1 }).unwrap();
    run(&mut left, at(9, PROTECTED), |tree| tree.name().len()).unwrap_err();
    repair(&mut left, &right, root);
    assert_eq!((left.digest(), left.scrub(9)), (right.digest(), vec![]));
    assert_eq!(left.digest_of_intact(), right.digest());
}

#[test]
fn objects_that_should_not_exist_are_dropped() {
    let (mut left, right) = pair();
    run(&mut left, at(9, PROTECTED), |tree| tree.grow(b"extra", b"")).unwrap();
    let extra = ObjectId::new(9, 0);
    for id in [extra, left.root(), ObjectId::from_bits(left.root().to_bits() + 1)] {
        repair(&mut left, &right, id);
    }
    assert_eq!((left.digest(), left.scrub(9)), (right.digest(), vec![]));
    // Dropping what is not there is no error; dropping a part of another object is.
    left.replace(extra, None).unwrap();
    assert!(left.replace(left.root(), None).is_err());
}

#[test]
fn a_whole_region_travels_in_bounded_pieces() {
    let (left, _) = pair();
    let (mut packed, all, mut next, mut pieces) = (Vec::new(), left.locate_all(), 0, 0);
    while next < all.len() {
        let before = packed.len();
        next += left.pack_listed(&all[next..], 8 << 10, &mut packed, &mut Vec::new());
        assert!(packed.len() - before <= (8 << 10) + 9500, "a piece is bounded by its limit and one object");
        pieces += 1;
    }
    assert!(pieces > 5);
    assert_eq!(packed, left.pack_all());
    let mut empty = object::genesis(crate::common::REGION_ID, Tree::new);
    run(&mut empty, at(4, PROTECTED), |tree| tree.grow(b"other", b"content")).unwrap();
    empty.load_all(&packed).unwrap();
    assert_eq!((empty.digest(), empty.scrub(9)), (left.digest(), vec![]));
    assert_eq!(empty.pack_all(), packed);
    for at in 0..23 {
        run(&mut empty, crate::common::at(9, PROTECTED), |tree| tree.leaf(at).key().len()).unwrap();
    }
}

#[test]
fn evidence_names_the_member_and_the_bits() {
    let (mut left, right) = pair();
    let id = left.reference(0).id();
    left.inject(id, &Injection::Flip { member: Some(2), bit: Some(9), seed: 0 }).unwrap();
    let (mine, other) = (left.pack(id).unwrap(), right.pack(id).unwrap());
    let difference = left.difference(&mine, &other).unwrap();
    assert_eq!(difference.len(), 1);
    assert_eq!((difference[0].member, difference[0].bits), ("flags", 1));
    assert_eq!(
        (difference[0].first_bit, difference[0].last_bit, difference[0].pattern),
        (Some(9), Some(9), 2)
    );
    assert_eq!(right.difference(&other, &other).unwrap(), []);
    let members = left.members(&mine).unwrap();
    assert_eq!(members.get("flags").map(<[u8]>::len), Some(difference[0].left_length));
    assert_eq!((members.get("flag"), left.members(&mine[..mine.len() - 1]).is_err()), (None, true));
    let root = right.pack(right.root()).unwrap();
    assert!(right.difference(&root, &other).is_err());
}

#[test]
fn a_package_is_only_taken_for_what_it_is() {
    let (mut tree, _) = pair();
    let (leaf, other) = (tree.reference(0).id(), tree.reference(1).id());
    let before = tree.digest();
    let packed = tree.pack(leaf).unwrap();
    assert!(tree.replace(other, Some(&packed)).is_err(), "another id");
    let mut wrong_class = packed.clone();
    wrong_class[1] ^= 1;
    assert!(tree.replace(leaf, Some(&wrong_class)).is_err(), "another class");
    let mut wrong_version = packed.clone();
    wrong_version[0] = 77;
    assert!(tree.replace(leaf, Some(&wrong_version)).is_err(), "another version");
    assert_eq!((tree.digest(), tree.scrub(9)), (before, vec![]));
}

/// Every prefix of a packed object, and every single-byte change, is refused or leaves an intact object; none panics.
#[test]
fn damaged_packages_never_panic() {
    let (mut tree, _) = pair();
    for id in [tree.reference(0).id(), tree.root()] {
        let packed = tree.pack(id).unwrap();
        for length in 0..packed.len() {
            assert!(tree.replace(id, Some(&packed[..length])).is_err(), "{length} of {} bytes", packed.len());
        }
        for at in 0..packed.len() {
            for byte in [0, 0x7F, 0xFF, packed[at] ^ 1] {
                let mut damaged = packed.clone();
                damaged[at] = byte;
                if tree.replace(id, Some(&damaged)).is_ok() {
                    assert_ne!(tree.check(id), Health::Damaged);
                }
            }
        }
        tree.replace(id, Some(&packed)).unwrap();
        assert_eq!(tree.pack(id).unwrap(), packed);
    }
}

#[test]
fn a_claimed_length_allocates_nothing() {
    let (mut tree, _) = pair();
    let id = tree.reference(0).id();
    let mut packed = tree.pack(id).unwrap();
    // The first member's length, then the length inside of it, claim four gigabytes.
    packed[22..26].copy_from_slice(&[0xFF; 4]);
    assert_eq!(tree.replace(id, Some(&packed)), Err(Malformed("a length exceeds the bytes present")));
    let mut packed = tree.pack(id).unwrap();
    packed[26..30].copy_from_slice(&[0xFF; 4]);
    assert_eq!(tree.replace(id, Some(&packed)), Err(Malformed("a length exceeds the bytes present")));
}

#[test]
fn a_scrub_names_a_lost_object_exactly() {
    let (mut tree, _) = pair();
    for at in 0..20 {
        let id = tree.reference(at).id();
        let packed = tree.pack(id);
        tree.inject(id, &Injection::Lose).unwrap();
        assert_eq!(tree.scrub(9), [ScrubFinding::Lost(id)]);
        tree.replace(id, packed.as_deref()).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut tree = tree();
        let id = tree.root();
        let before = tree.digest();
        prop_assert!(tree.replace(id, Some(&bytes)).is_err());
        prop_assert_eq!(tree.digest(), before);
        let mut packed = tree.pack(id).unwrap();
        packed.truncate(22);
        packed.extend(&bytes);
        let _ = tree.replace(id, Some(&packed));
        prop_assert_ne!(tree.check(id), Health::Damaged);
        let _ = tree.load_all(&bytes);
        let _ = tree.difference(&bytes, &packed);
    }

    #[test]
    fn pieces_hold_what_a_vector_would(
        start in 0..9000usize,
        edits in proptest::collection::vec((0..6u8, any::<u16>(), 0..5000usize, any::<u8>()), 1..8),
    ) {
        let mut model = vec![1u8; start];
        let mut leaf = object::genesis(0, || Leaf::new(b"k", &model));
        for (position, (kind, at, length, byte)) in edits.into_iter().enumerate() {
            let bytes = vec![byte; length];
            let offset = at as usize % (model.len() + 1);
            let behind = model.len() - offset;
            let length = length.min(behind);
            run(&mut leaf, crate::common::at(position as u64, PROTECTED), |leaf| match kind {
                0 => leaf.append(&bytes),
                1 => leaf.prepend(&bytes),
                2 => leaf.replace_after(offset, &bytes),
                3 => leaf.replace_after(offset, &vec![byte; behind]),
                _ => leaf.write(offset, &bytes[..length]),
            }).unwrap();
            match kind {
                0 => model.extend(&bytes),
                1 => drop(model.splice(0..0, bytes)),
                2 => drop(model.splice(offset.., bytes)),
                3 => model[offset..].fill(byte),
                _ => model[offset..offset + length].copy_from_slice(&bytes[..length]),
            }
            prop_assert_eq!(leaf.check(leaf.root()), Health::Intact);
            prop_assert_eq!(leaf.value(), &model[..]);
        }
    }
}
