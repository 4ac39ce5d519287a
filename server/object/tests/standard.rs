//! Types of the standard library, generic types, and what `check_summed` finds in types that break its law.

use object::testing::check_summed;
use object::{
    Malformed, Pieces, Reader, Ref, Region, Store, Summed, Summer, critical, from_bytes, genesis, to_bytes,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::num::{NonZeroI8, NonZeroU64};
use std::time::Duration;

fn check<T: Summed + PartialEq + Clone + Debug>(values: &[T]) {
    check_summed(values.to_vec(), |value| value);
}

#[test]
fn types_of_the_standard_library_keep_the_law() {
    let map = |entries: &[(u8, &str)]| {
        entries.iter().map(|(key, value)| (*key, (*value).to_owned())).collect::<BTreeMap<_, _>>()
    };
    check(&[map(&[]), map(&[(1, "a")]), map(&[(1, "a"), (2, "")]), map(&[(2, "a")])]);
    check(&[BTreeSet::new(), BTreeSet::from([1u16]), BTreeSet::from([2, 1]), BTreeSet::from([256])]);
    check(&[Box::new(1u32), Box::new(2)]);
    check::<Box<str>>(&["".into(), "a".into(), "ab".into()]);
    check(&[Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(1), Duration::MAX]);
    check(&[NonZeroU64::MIN, NonZeroU64::MAX]);
    check(&[NonZeroI8::new(-1), NonZeroI8::new(1), None]);
    check::<Result<u8, u8>>(&[Ok(1), Err(1), Ok(2), Err(2)]);
    check(&[Reverse(1u8), Reverse(2)]);
    let inverted = std::ops::Range { start: 2, end: 1 };
    check(&[1u8..2, inverted, 1..1]);
    check(&[vec![], vec![()], vec![(), ()]]);
    check(&[PhantomData::<str>]);
    check(&[(1u8, 2u8, 3u8, 4u8, 5u8, 6u8, 7u8, 8u8, 9u8, 10u8, 11u8, 12u8)]);
}

#[test]
fn what_is_no_value_does_not_unpack() {
    let pairs = |pairs: &[(u8, u8)]| from_bytes::<BTreeMap<u8, u8>>(&to_bytes(&pairs.to_vec()));
    assert_eq!(pairs(&[(1, 5), (2, 5)]), Ok(BTreeMap::from([(1, 5), (2, 5)])));
    assert!(pairs(&[(2, 5), (1, 5)]).is_err(), "keys descend");
    assert!(pairs(&[(1, 5), (1, 6)]).is_err(), "a key is there twice");
    assert!(from_bytes::<BTreeSet<u8>>(&to_bytes(&vec![3u8, 3])).is_err());
    assert!(from_bytes::<NonZeroU64>(&[0; 8]).is_err());
    assert!(from_bytes::<Duration>(&[0xff; 12]).is_err(), "4 s of nanoseconds");
    assert!(from_bytes::<()>(&[1]).is_err());
    assert!(from_bytes::<u8>(&[1, 2]).is_err(), "a byte too many");
    assert!(from_bytes::<BTreeMap<u64, u64>>(&[0xff; 12]).is_err(), "more entries than bytes");
}

#[derive(Clone, Debug, PartialEq, Summed)]
struct Pair<K, V> {
    key: K,
    values: Vec<V>,
}

#[derive(Clone, Debug, PartialEq, Summed)]
enum Tree<T, const N: usize> {
    Empty,
    Leaf([T; N]),
    Fork(Box<Tree<T, N>>, Box<Tree<T, N>>),
}

#[test]
fn derived_generic_and_recursive_types_keep_the_law() {
    check(&[Pair { key: 1u8, values: vec![String::new()] }, Pair { key: 1, values: vec![] }]);
    let leaf = |value: u8| Tree::Leaf([value; 2]);
    let fork = |left, right| Tree::Fork(Box::new(left), Box::new(right));
    check(&[
        Tree::Empty,
        leaf(1),
        leaf(2),
        fork(leaf(1), leaf(2)),
        fork(leaf(2), leaf(1)),
        fork(leaf(1), Tree::Empty),
    ]);
}

#[derive(Summed)]
struct Holds {
    text: Pieces,
}

#[critical]
struct Shelf {
    holds: Holds,
    prices: BTreeMap<Box<str>, NonZeroU64>,
    pairs: Pair<u8, Ref<Shelf>>,
    inner: Store<Shelf>,
}

#[critical]
impl Shelf {
    fn new() -> Self {
        let one = NonZeroU64::MIN;
        Self {
            holds: Holds { text: Pieces::from(&[7u8; 100][..]) },
            prices: BTreeMap::from([("a".into(), one), ("b".into(), one)]),
            pairs: Pair { key: 3, values: vec![Ref::NONE] },
            inner: Store::new(),
        }
    }
}

#[test]
fn they_are_members_that_are_packed_and_put_back() {
    let mut shelf = genesis(0, Shelf::new);
    let (root, packed, digest) = (shelf.root(), shelf.pack(shelf.root()), shelf.digest());
    let injection = object::Injection::Flip { member: Some(1), bit: Some(32 + 32), seed: 0 };
    shelf.inject(root, &injection).expect("the flip fits");
    assert_ne!(shelf.digest(), digest);
    shelf.replace(root, packed.as_deref()).expect("its own bytes");
    assert_eq!(shelf.digest(), digest);
}

/// A piece of a large value has a checksum of its own; a derived type passes on whether that checksum fits.
#[test]
fn a_derived_type_is_not_intact_when_its_part_is_not() {
    let mut shelf = genesis(0, Shelf::new);
    let root = shelf.root();
    assert_eq!(shelf.check(root), object::Health::Intact);
    shelf
        .inject(root, &object::Injection::Flip { member: Some(0), bit: Some(100), seed: 0 })
        .expect("the flip fits");
    assert_eq!(shelf.check(root), object::Health::Damaged);
}

/// A heap whose elements are summed in sorted order: equal heaps sum alike, and yet an unpacked one pops ties in
/// another order.
#[derive(Clone, Debug)]
struct Heap(BinaryHeap<(u8, Tie)>);

/// Compares equal whatever it holds, like the value next to a priority.
#[derive(Clone, Copy, Debug)]
struct Tie(u8);

impl PartialEq for Tie {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Tie {}
impl PartialOrd for Tie {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Tie {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl Heap {
    fn sorted(&self) -> Vec<(u8, u8)> {
        let mut all: Vec<(u8, u8)> =
            self.0.iter().map(|(priority, Tie(value))| (*priority, *value)).collect();
        all.sort_unstable();
        all
    }
}

impl PartialEq for Heap {
    fn eq(&self, other: &Self) -> bool {
        self.sorted() == other.sorted()
    }
}

impl Summed for Heap {
    fn sum(&self, summer: &mut Summer) {
        self.sorted().sum(summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        self.sorted().pack(out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let all = Vec::<(u8, u8)>::unpack(from)?;
        Ok(Heap(all.into_iter().map(|(priority, value)| (priority, Tie(value))).collect()))
    }
    fn blank() -> Self {
        Heap(BinaryHeap::new())
    }
}

#[test]
#[should_panic(expected = "behaves otherwise once it was packed and unpacked")]
fn an_unpacked_heap_that_pops_ties_in_another_order_is_found() {
    let heap: BinaryHeap<(u8, Tie)> = (0..9).rev().map(|value| (1, Tie(value))).collect();
    check_summed(vec![Heap(heap)], |mut heap| {
        std::iter::from_fn(move || heap.0.pop()).map(|(_, Tie(value))| value).collect::<Vec<_>>()
    });
}

/// Leaves a part out of the checksum.
#[derive(Clone, Debug, PartialEq)]
struct HalfSummed(u8, u8);

impl Summed for HalfSummed {
    fn sum(&self, summer: &mut Summer) {
        self.0.sum(summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        (self.0, self.1).pack(out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        <(u8, u8)>::unpack(from).map(|(one, two)| HalfSummed(one, two))
    }
    fn blank() -> Self {
        HalfSummed(0, 0)
    }
}

#[test]
#[should_panic(expected = "equal is false, equal checksums is true")]
fn a_part_that_is_not_summed_is_found() {
    check(&[HalfSummed(1, 1), HalfSummed(1, 2)]);
}
