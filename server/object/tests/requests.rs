//! One request: checks, notes, seals and undo (docs/design.md, section 3; EDCC'16, IV-A and V-B).

use crate::common::{BARE, Leaf, PROTECTED, REGION_ID, REVERSIBLE, Tree, at, run, tree};
use object::{Health, How, Injection, ObjectId, Pair, Region, ScrubFinding, critical, request};

fn ids(pairs: &[Pair]) -> Vec<String> {
    pairs.iter().map(|pair| pair.id.to_string()).collect()
}

#[test]
fn objects_are_born_with_names_of_their_region_and_sealed() {
    let tree = tree();
    let mut seen = Vec::new();
    tree.objects(&mut |listed| {
        assert_eq!(listed.sum, listed.recomputed);
        seen.push(listed.id.to_string());
    });
    assert_eq!(seen, ["g3.0", "g3.1", "g3.2", "g3.3", "g3.4"]);
    assert_eq!(tree.scrub(9), []);
}

#[test]
fn the_delta_holds_each_touched_object_once_sorted_with_its_latest_sum() {
    let mut tree = tree();
    let (_, delta) = run(&mut tree, at(5, PROTECTED), |tree| {
        tree.leaf(1).flags();
        tree.leaf(1).flags();
        tree.leaf_mut(0).set_flags(1);
        tree.leaf_mut(0).set_flags(2);
        tree.grow(b"new", b"born in request five");
    })
    .unwrap();
    // Root, its counters, leaf 0 (written), leaf 1 (read) and the new leaf; leaf 2 was not touched.
    assert_eq!(ids(&delta), ["5.0", "g3.0", "g3.1", "g3.2", "g3.3"]);
    assert_eq!(delta.unclaimed(), 0);
    assert!(delta.iter().all(|pair| pair.region_id == REGION_ID));
    for pair in delta.iter() {
        assert_eq!(tree.check(pair.id), Health::Intact);
        tree.objects(&mut |listed| assert!(listed.id != pair.id || listed.sum == pair.sum));
    }
}

#[test]
fn a_read_leaves_the_sum_a_write_changes_it_and_equal_replicas_agree() {
    let (mut left, mut right) = (tree(), tree());
    let read = |tree: &mut Tree| run(tree, at(5, PROTECTED), |tree| tree.leaf(0).flags()).unwrap().1;
    let before = read(&mut left);
    let write =
        |tree: &mut Tree| run(tree, at(6, PROTECTED), |tree| tree.leaf_mut(0).set_flags(1)).unwrap().1;
    let written = write(&mut left);
    assert_ne!(before.pairs().last(), written.pairs().last());
    read(&mut right);
    assert_eq!(written, write(&mut right));
    assert_eq!(left.digest(), right.digest());
    run(&mut right, at(7, PROTECTED), |tree| tree.leaf_mut(0).set_flags(2)).unwrap();
    assert_ne!(left.digest(), right.digest());
}

#[test]
fn a_method_that_passes_through_an_object_checks_it_and_changes_what_is_inside() {
    let (mut passed, mut opened) = (tree(), tree());
    let (_, delta) = run(&mut passed, at(5, REVERSIBLE), |tree| tree.leaf_through(0).set_flags(9)).unwrap();
    let (_, of_opened) = run(&mut opened, at(5, REVERSIBLE), |tree| tree.leaf_mut(0).set_flags(9)).unwrap();
    assert_eq!(delta, of_opened, "the tree is noted, and its checksum is the same");
    assert_eq!(passed.digest(), opened.digest());
    assert_eq!(passed.scrub(9), []);

    // One request that passes through, opens, and passes through again is undone as a whole.
    let before = passed.digest();
    let given_up = std::panic::AssertUnwindSafe(|| {
        run(&mut passed, at(6, REVERSIBLE), |tree| {
            tree.leaf_through(1).set_flags(1);
            tree.rename("ash");
            tree.leaf_through(0).set_flags(2);
            std::panic::resume_unwind(Box::new("given up"));
        })
    });
    assert!(std::panic::catch_unwind(given_up).is_err());
    assert_eq!(passed.digest(), before);

    let root = passed.object_id();
    passed.inject(root, &Injection::Flip { member: Some(0), bit: Some(3), seed: 1 }).unwrap();
    let (corrupted, _) =
        run(&mut passed, at(7, REVERSIBLE), |tree| tree.leaf_through(0).set_flags(3)).unwrap_err();
    assert_eq!((corrupted.object, corrupted.how), (root, How::Checksum));
}

#[test]
fn more_objects_than_are_remembered_are_each_noted_once_and_sealed_when_opened_late() {
    let mut tree = tree();
    let grown = |tree: &mut Tree| {
        for number in 0..8 {
            tree.grow(&[number], b"leaf");
        }
    };
    run(&mut tree, at(5, PROTECTED), grown).unwrap();
    let (_, delta) = run(&mut tree, at(6, PROTECTED), |tree| {
        // All are read; the first ones are no longer among those entered last when they are changed.
        let flags: u32 = (0..11).map(|at| tree.leaf(at).flags()).sum();
        tree.leaf_through(0).set_flags(flags);
        (3..11).for_each(|at| _ = tree.leaf(at).flags());
        tree.leaf_through(0).set_flags(flags + 1);
        tree.leaf_through(10).set_flags(1);
    })
    .unwrap();
    assert_eq!(delta.pairs().len(), 12, "the tree and its leaves");
    assert_eq!(tree.scrub(9), [], "both leaves are sealed");
}

#[test]
fn a_removed_object_is_noted_as_removed() {
    let mut tree = tree();
    let leaf = tree.reference(0);
    let (value, delta) = run(&mut tree, at(5, PROTECTED), |tree| tree.shed(leaf)).unwrap();
    assert_eq!(value, vec![1; 40]);
    assert_eq!(delta.iter().find(|pair| pair.id == leaf.id()).unwrap().sum, Pair::REMOVED);
    assert_eq!(tree.check(leaf.id()), Health::Absent);
    assert_eq!(tree.scrub(9), []);
}

#[test]
fn a_request_of_many_objects_is_indexed_and_sorted() {
    let mut tree = tree();
    let grow = |tree: &mut Tree| {
        for n in 0..100u32 {
            tree.grow(&n.to_le_bytes(), b"v");
        }
    };
    let (_, delta) = run(&mut tree, at(5, PROTECTED), grow).unwrap();
    assert_eq!(delta.len(), 102);
    assert!(delta.is_sorted());
    let (_, delta) =
        run(&mut tree, at(6, PROTECTED), |tree| (0..103).map(|n| tree.leaf(n).flags()).sum::<u32>()).unwrap();
    assert_eq!(delta.len(), 104);
}

#[test]
fn a_flipped_object_is_found_at_first_touch_and_named() {
    let mut tree = tree();
    let leaf = tree.reference(0).id();
    tree.inject(leaf, &Injection::Flip { member: Some(2), bit: Some(3), seed: 0 }).unwrap();
    assert_eq!(tree.check(leaf), Health::Damaged);
    let (corrupted, blamed) = run(&mut tree, at(5, PROTECTED), |tree| tree.leaf(0).flags()).unwrap_err();
    assert_eq!((corrupted.object, corrupted.how), (leaf, How::Checksum));
    assert_eq!(blamed, []);
    assert_eq!(tree.scrub(9), [ScrubFinding::Damaged(leaf)]);
    // Other objects are still served.
    run(&mut tree, at(6, PROTECTED), |tree| tree.leaf(1).flags()).unwrap();
}

/// Without the check the same flip goes unnoticed: a read accepts it, and a write seals it with a valid checksum.
#[test]
fn without_protection_a_flip_goes_through() {
    let mut tree = tree();
    let leaf = tree.reference(0).id();
    tree.inject(leaf, &Injection::Flip { member: Some(2), bit: Some(3), seed: 0 }).unwrap();
    let (flags, delta) = run(&mut tree, at(5, BARE), |tree| tree.leaf(0).flags()).unwrap();
    assert_eq!(flags, 7 ^ 8);
    assert!(delta.is_empty());
}

#[test]
fn an_object_is_checked_once_per_request_and_again_in_the_next() {
    let mut tree = tree();
    let leaf = tree.reference(0).id();
    let (flags, _) = run(&mut tree, at(5, PROTECTED), |tree| {
        tree.leaf(0).flags();
        // A fault after the check and before the seal: this request cannot see it (the vote does).
        tree.inject(leaf, &Injection::Flip { member: Some(2), bit: Some(0), seed: 0 }).unwrap();
        tree.leaf(0).flags()
    })
    .unwrap();
    assert_eq!(flags, 6);
    run(&mut tree, at(6, PROTECTED), |tree| tree.leaf(0).flags()).unwrap_err();
}

#[test]
fn a_missing_object_leaves_the_request_where_the_structure_says_it_exists() {
    let mut tree = tree();
    let leaf = tree.reference(1).id();
    tree.inject(leaf, &Injection::Lose).unwrap();
    let (corrupted, _) = run(&mut tree, at(5, PROTECTED), |tree| tree.leaf(1).flags()).unwrap_err();
    assert_eq!((corrupted.object, corrupted.how), (leaf, How::Missing));
    assert_eq!(tree.scrub(9), [ScrubFinding::Lost(leaf)]);
}

#[test]
fn a_doubled_object_shows_in_a_scrub() {
    let mut tree = tree();
    let leaf = tree.reference(1).id();
    tree.inject(leaf, &Injection::Double).unwrap();
    assert_eq!(tree.scrub(9), [ScrubFinding::Extra(leaf)]);
}

#[test]
fn a_damaged_piece_is_blamed_on_its_owner() {
    let mut tree = tree();
    let leaf = tree.reference(1).id();
    // Member 1 is the value of 9000 bytes: three pieces; bit 32 is the first of its bytes.
    tree.inject(leaf, &Injection::Flip { member: Some(1), bit: Some(32 + 8 * 5000), seed: 0 }).unwrap();
    run(&mut tree, at(5, PROTECTED), |tree| assert_eq!(tree.leaf(1).part(0..4096), [2; 4096])).unwrap();
    let (corrupted, blamed) =
        run(&mut tree, at(6, PROTECTED), |tree| tree.leaf(1).value().len()).unwrap_err();
    assert_eq!((corrupted.object, corrupted.how), (ObjectId::NONE, How::Piece));
    assert_eq!(blamed, [leaf]);
}

#[test]
fn undo_rolls_back_changes_creations_and_removals() {
    for options in [REVERSIBLE, request::ScopeOptions { protect: request::Protect::Nothing, ..REVERSIBLE }] {
        let mut tree = tree();
        let before = (tree.digest(), tree.pack_all());
        request::begin(at(5, options));
        let leaf = tree.reference(1);
        tree.leaf_mut(0).append(b"more");
        tree.leaf_mut(1).write(5000, b"changed");
        tree.leaf_mut(2).set_next(leaf);
        tree.leaf_mut(0).prepend(b"front");
        tree.shed(leaf);
        let new = tree.grow(b"k", b"v");
        tree.leaf_mut(2).set_next(new);
        tree.shed(new);
        tree.rename("elm");
        assert_ne!(tree.digest(), before.0);
        tree.undo();
        request::abandon();
        assert_eq!((tree.digest(), tree.pack_all()), before);
        assert_eq!(tree.name(), "oak");
        run(&mut tree, at(6, PROTECTED), |tree| (0..3).map(|n| tree.leaf(n).flags()).sum::<u32>()).unwrap();
        assert_eq!(tree.scrub(9), []);
    }
}

#[test]
fn objects_changed_outside_of_requests_are_sealed_by_the_next() {
    let mut tree = Tree::new();
    tree.grow(b"k", b"v");
    assert_eq!(tree.check(tree.root()), Health::Unsealed);
    run(&mut tree, at(5, PROTECTED), |tree| tree.leaf(0).flags()).unwrap();
    assert_eq!(tree.check(tree.root()), Health::Intact);
    run(&mut tree, at(6, BARE), |tree| tree.leaf_mut(0).set_flags(1)).unwrap();
    run(&mut tree, at(7, PROTECTED), |tree| tree.leaf(0).flags()).unwrap();
    assert_eq!(tree.scrub(9), []);
}

#[test]
fn readers_that_share_a_region_note_without_changing_it() {
    let tree = tree();
    let reader = |position| {
        let tree = &tree;
        request::begin(at(position, PROTECTED));
        let flags = tree.leaf(0).part(0..1)[0];
        tree.note(REGION_ID);
        (flags, request::finish())
    };
    let (left, right) = (reader(5), reader(6));
    assert_eq!(left, right);
    assert_eq!(ids(&left.1), ["g3.0", "g3.2"]);
}

#[test]
fn a_request_that_makes_too_many_objects_panics_alike_everywhere() {
    request::begin(at(5, PROTECTED));
    let result = std::panic::catch_unwind(|| (0..70_000).map(|_| request::new_id()).max());
    request::abandon();
    assert!(result.is_err());
}

#[critical(copy)]
struct Twin {
    name: String,
    count: u64,
}

#[critical]
impl Twin {
    fn new() -> Self {
        Self { name: "first".to_owned(), count: 1 }
    }
    fn count(&self) -> u64 {
        self.count
    }
    fn add(&mut self) {
        self.count += 1;
    }
}

#[test]
fn a_local_copy_repairs_a_flipped_object_on_the_spot() {
    let mut twin = object::genesis(REGION_ID, Twin::new);
    let digest = twin.digest();
    let root = twin.root();
    for injection in [
        Injection::Flip { member: Some(1), bit: Some(2), seed: 0 },
        Injection::Sum { bit: 7 },
        Injection::Id { bit: 9 },
        Injection::Length { seed: 3 },
    ] {
        let before = request::locally_repaired();
        twin.inject(twin.root(), &injection).unwrap();
        let (count, delta) = run(&mut twin, at(5, PROTECTED), |twin| (twin.count(), twin.count()).0).unwrap();
        assert_eq!((count, delta[0].id), (1, root), "{injection:?}");
        assert_eq!(request::locally_repaired(), before + 1);
        assert_eq!(twin.digest(), digest);
        assert_eq!(twin.scrub(9), []);
    }
    twin.inject(root, &Injection::Flip { member: Some(1), bit: Some(2), seed: 0 }).unwrap();
    run(&mut twin, at(6, PROTECTED), Twin::add).unwrap();
    assert_eq!(run(&mut twin, at(7, PROTECTED), |twin| twin.count()).unwrap().0, 2);
}

#[test]
fn headers_and_unused_protection_cost_sixteen_bytes() {
    assert_eq!(
        size_of::<Twin>() - size_of::<(String, u64)>() - 16,
        size_of::<object::hidden::LocalCopy<Twin>>()
    );
    assert_eq!(size_of::<crate::common::Counters>(), 16 + 16);
    assert_eq!(size_of::<Option<Leaf>>(), size_of::<Leaf>());
}
