//! Values in pieces: what is read and checked of them, requests without checksums, and before-images that are the value
//! itself.

use crate::common::{BARE, Leaf, PROTECTED, REGION_ID, REVERSIBLE, Tree, at, run};
use object::{Health, How, Injection, Pieces, Ref, Region, ScopeOptions, Store, critical, genesis, request};

/// The number of the value among a leaf's members, and where its bytes begin.
const VALUE: usize = 1;
const BYTES: u64 = 32;

/// A leaf with a value of so many bytes.
fn tree_of(length: usize) -> Tree {
    let value: Vec<u8> = (0..length).map(|at| at as u8).collect();
    genesis(REGION_ID, || {
        let mut tree = Tree::new();
        tree.grow(b"key", &value);
        tree
    })
}

fn flip(tree: &mut Tree, byte: usize) {
    let injection = Injection::Flip { member: Some(VALUE), bit: Some(BYTES + 8 * byte as u64), seed: 0 };
    let leaf = tree.reference(0).id();
    tree.inject(leaf, &injection).unwrap();
}

#[test]
fn the_head_is_checked_with_its_owner_and_read_without_the_pieces() {
    let head = |tree: &mut Tree| tree.leaf(0).part(0..Pieces::HEAD).len();
    for byte in [0, 99, Pieces::HEAD - 1] {
        let mut tree = tree_of(10_000);
        flip(&mut tree, byte);
        let (corrupted, _) = run(&mut tree, at(5, PROTECTED), head).unwrap_err();
        assert_eq!((corrupted.object, corrupted.how), (tree.reference(0).id(), How::Checksum), "byte {byte}");
    }
    for byte in [Pieces::HEAD, Pieces::HEAD + Pieces::PIECE, 9_999] {
        let mut tree = tree_of(10_000);
        flip(&mut tree, byte);
        run(&mut tree, at(5, PROTECTED), head).expect("no piece is checked");
        let (corrupted, blamed) =
            run(&mut tree, at(6, PROTECTED), |tree| tree.leaf(0).value().len()).unwrap_err();
        assert_eq!((corrupted.how, blamed), (How::Piece, vec![tree.reference(0).id()]), "byte {byte}");
    }
}

/// The first lengths with another number of pieces, and those around them.
#[test]
fn a_piece_more_or_less_is_told_by_the_length() {
    let ends = (0..3).map(|pieces| Pieces::HEAD + pieces * Pieces::PIECE).chain([Pieces::PIECE]);
    for length in ends.flat_map(|end| end.saturating_sub(10)..end + 10) {
        let pieces = Pieces::from(&vec![7; length][..]);
        let sums = if length > Pieces::PIECE { (length - Pieces::HEAD).div_ceil(Pieces::PIECE) } else { 0 };
        assert_eq!((pieces.len(), pieces.memory()), (length, length + 8 * sums));
        assert_eq!(pieces.whole(), vec![7; length]);
    }
}

#[test]
fn pieces_of_a_request_without_checksums_are_part_of_their_owners_sum() {
    let mut tree = tree_of(10_000);
    let change = |tree: &mut Tree| tree.leaf_mut(0).write(5_000, b"unsummed");
    run(&mut tree, at(5, BARE), change).unwrap();
    // Another request seals the leaf, and leaves its value as it is.
    run(&mut tree, at(6, PROTECTED), |tree| tree.leaf_mut(0).set_flags(1)).unwrap();
    assert_eq!(tree.scrub(9), []);
    let mut summed = tree_of(10_000);
    run(&mut summed, at(5, PROTECTED), change).unwrap();
    run(&mut summed, at(6, PROTECTED), |tree| tree.leaf_mut(0).set_flags(1)).unwrap();
    assert_eq!(tree.leaf(0).value(), summed.leaf(0).value());
    let leaf = tree.reference(0).id();
    let sum_of = |tree: &Tree| {
        let mut sums = Vec::new();
        tree.objects(&mut |listed| {
            sums.extend((listed.id == leaf).then_some((listed.sum, listed.recomputed)))
        });
        sums
    };
    assert_eq!(sum_of(&tree), sum_of(&summed), "a sum that was not made counts as if it were");

    flip(&mut tree, 5_500);
    let (corrupted, _) = run(&mut tree, at(7, PROTECTED), |tree| tree.leaf(0).flags()).unwrap_err();
    assert_eq!((corrupted.object, corrupted.how), (leaf, How::Checksum), "found when the owner is entered");
}

/// A step of a request on a leaf with a long value.
type Step = fn(&mut Tree);

#[test]
fn a_long_value_that_a_request_has_changed_is_put_back() {
    let steps: [Step; 8] = [
        |tree| tree.leaf_mut(0).replace_after(100, &[9; 9_900]),
        |tree| tree.leaf_mut(0).replace_after(0, &[9; 10_000]),
        |tree| tree.leaf_mut(0).replace_after(7_000, &[9; 3_000]),
        |tree| tree.leaf_mut(0).replace_after(3, b"short"),
        |tree| tree.leaf_mut(0).write(4_000, b"a part"),
        |tree| tree.leaf_mut(0).append(b"more"),
        |tree| tree.leaf_mut(0).prepend(b"more"),
        |tree| tree.leaf_mut(0).set_flags(9),
    ];
    let bare = ScopeOptions { protect: request::Protect::Nothing, ..REVERSIBLE };
    for options in [REVERSIBLE, bare] {
        // Behind the one that makes the value short the others find too few bytes.
        let firsts = (0..8).filter(|first| *first != 3);
        for (first, second) in firsts.flat_map(|first| (0..8).map(move |second| (first, second))) {
            let mut tree = tree_of(10_000);
            let before = (tree.digest(), tree.pack_all());
            request::begin(at(5, options));
            steps[first](&mut tree);
            steps[second](&mut tree);
            if (first + second) % 3 == 0 {
                let leaf = tree.reference(0);
                tree.shed(leaf);
            }
            tree.undo();
            request::abandon();
            assert_eq!((tree.digest(), tree.pack_all()), before, "steps {first} and {second}");
            assert_eq!(tree.scrub(9), []);
            run(&mut tree, at(6, PROTECTED), |tree| tree.leaf(0).value().len()).unwrap();
        }
    }
}

/// The before-image is the memory of the value itself: what strikes it there is found like any other fault, and would
/// be taken for the value without its checksums.
#[test]
fn a_long_value_that_is_struck_while_a_request_has_changed_it_is_found_after_undo() {
    let mut found = 0;
    for seed in 0..400 {
        let mut tree = tree_of(10_000);
        let leaf = tree.reference(0).id();
        let before = tree.leaf(0).value().to_vec();
        request::begin(at(5, REVERSIBLE));
        tree.leaf_mut(0).replace_after(100, &[9; 9_900]);
        assert!(request::damage_images(2 * seed * 7_919 + 1), "there is an image of a long value");
        tree.undo();
        request::abandon();
        assert_eq!(tree.check(leaf), Health::Damaged, "seed {seed}");
        let read = |tree: &mut Tree| tree.leaf(0).value().to_vec();
        assert!(run(&mut tree, at(6, PROTECTED), read).is_err(), "seed {seed}");
        let unchecked = run(&mut tree, at(7, BARE), read).unwrap().0;
        found += u32::from(unchecked != before);
    }
    // All but those that hit a sum.
    assert!(found > 390, "{found} of 400 wrong values would have been read");
}

#[test]
fn a_copy_of_a_long_value_has_memory_of_its_own() {
    let mut tree = tree_of(10_000);
    request::begin(at(5, REVERSIBLE));
    tree.leaf_mut(0).set_flags(1);
    // The before-image and the leaf share their memory now: a fault in one of them leaves the other as it is.
    assert!(request::damage_images(1));
    assert_eq!(tree.leaf(0).value().len(), 10_000);
    tree.seal(REGION_ID);
    request::finish();
    assert_eq!(tree.scrub(9), []);
}

/// A region whose objects are its root and those in the root's stores.
#[critical]
struct Flat {
    even: Store<Leaf>,
    odd: Store<Leaf>,
    first: [Ref<Leaf>; 2],
}

#[critical]
impl Flat {
    fn new() -> Self {
        let (mut even, mut odd) = (Store::new(), Store::new());
        let first = [even.insert(Leaf::new(b"even", b"0")), odd.insert(Leaf::new(b"odd", b"1"))];
        Self { even, odd, first }
    }
    #[through]
    fn leaf(&mut self, number: usize) -> &mut Leaf {
        let leaf = self.first[number];
        if number == 0 { self.even.expect_mut(leaf) } else { self.odd.expect_mut(leaf) }
    }
}

/// Two regions in one request: each claims and seals its own objects, whether these were read or changed.
#[test]
fn a_flat_region_claims_and_seals_its_own_objects_and_no_others() {
    let mut regions = [4, 5].map(|region_id| genesis(region_id, Flat::new));
    request::begin(at(9, PROTECTED));
    for (flat, (read, changed)) in regions.iter_mut().zip([(0, 1), (1, 0)]) {
        flat.leaf(read).flags();
        flat.leaf(changed).set_flags(77);
    }
    for (flat, region_id) in regions.iter_mut().zip([4, 5]) {
        flat.seal(region_id);
    }
    let touched = request::finish();
    assert_eq!((touched.len(), touched.unclaimed()), (6, 0));
    for (flat, region_id) in regions.iter().zip([4, 5]) {
        assert_eq!(flat.scrub(9), []);
        let mut sums = Vec::new();
        flat.objects(&mut |listed| sums.push((listed.id, listed.sum)));
        let of_region = touched.iter().filter(|pair| pair.region_id == region_id);
        assert_eq!(of_region.map(|pair| (pair.id, pair.sum)).collect::<Vec<_>>(), sums);
    }
}
