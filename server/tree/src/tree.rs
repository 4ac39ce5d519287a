//! The tree: sums of objects' hashes as leaves, and above them one hash for every sixteen.

use object::{Change, ObjectId, RegionId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::shape::TreeShape;

/// Children of a node.
pub(crate) const CHILDREN: usize = 16;
/// Seed of an object's hash; a node's is its level.
const OBJECT: u64 = 0x6f62_6a65_6374;

/// A level: leaves, or the nodes above a level.
#[derive(Clone, Debug, Default)]
struct Level {
    values: Vec<u64>,
    /// Nodes whose children have changed since they were hashed, in the order in which they did.
    stale: Vec<u32>,
    is_stale: Vec<bool>,
}

/// The tree of one replica.
#[derive(Clone, Debug)]
pub struct Tree {
    shape: TreeShape,
    /// Leaves first, the root's level last.
    levels: Vec<Level>,
}

/// The hash of an object with this checksum; an object that is not there has none.
fn hash(region_id: RegionId, id: ObjectId, sum: u64) -> u64 {
    if sum == Change::ABSENT {
        return 0;
    }
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&id.to_bits().to_le_bytes());
    bytes[8..16].copy_from_slice(&sum.to_le_bytes());
    bytes[16..].copy_from_slice(&region_id.to_le_bytes());
    xxh3_64_with_seed(&bytes, OBJECT)
}

/// The hash of the node above these children; missing ones count as 0.
fn node(level: usize, children: &[u64]) -> u64 {
    let mut bytes = [0; CHILDREN * 8];
    for (child, place) in children.iter().zip(bytes.chunks_exact_mut(8)) {
        place.copy_from_slice(&child.to_le_bytes());
    }
    xxh3_64_with_seed(&bytes, level as u64)
}

impl Tree {
    /// The tree of a state without objects.
    pub fn new(shape: TreeShape) -> Tree {
        let mut levels = vec![Level { values: vec![0; shape.leaves() as usize], ..Level::default() }];
        // At least one level of nodes, so that the root is a hash.
        while levels.len() == 1 || levels[levels.len() - 1].values.len() > 1 {
            let below = levels[levels.len() - 1].values.len();
            let nodes = below.div_ceil(CHILDREN).max(1);
            levels.push(Level {
                values: vec![0; nodes],
                stale: (0..nodes as u32).collect(),
                is_stale: vec![true; nodes],
            });
        }
        Tree { shape, levels }
    }

    /// Which leaf an object has.
    pub fn shape(&self) -> &TreeShape {
        &self.shape
    }

    /// An object was changed, created or removed. [`Change::inverse`] takes that back. Objects of regions that the
    /// service does not have are left out.
    pub fn apply(&mut self, change: Change) {
        let Some(leaf) = self.shape.leaf(change.region_id, change.id) else { return };
        let Change { region_id, id, old, new } = change;
        let value = &mut self.levels[0].values[leaf as usize];
        *value = value.wrapping_sub(hash(region_id, id, old)).wrapping_add(hash(region_id, id, new));
        self.mark(1, leaf / CHILDREN as u32);
    }

    /// The root, which is the same for the same objects, in whatever order they were changed.
    pub fn root(&mut self) -> u64 {
        for level in 1..self.levels.len() {
            let mut stale = std::mem::take(&mut self.levels[level].stale);
            for &number in &stale {
                let hash = node(level, self.children(level, number));
                let above = &mut self.levels[level];
                above.values[number as usize] = hash;
                above.is_stale[number as usize] = false;
                self.mark(level + 1, number / CHILDREN as u32);
            }
            stale.clear();
            self.levels[level].stale = stale;
        }
        self.levels[self.levels.len() - 1].values[0]
    }

    /// Flips a bit of a leaf that has objects, or of the node above one, and leaves everything above as it is; false if
    /// no leaf has any: an injected fault.
    #[cfg(feature = "inject")]
    pub fn damage(&mut self, of_leaves: bool, seed: u64) -> bool {
        let used: Vec<usize> =
            (0..self.levels[0].values.len()).filter(|at| self.levels[0].values[*at] != 0).collect();
        let Some(leaf) = (seed >> 8).checked_rem(used.len() as u64).map(|at| used[at as usize]) else {
            return false;
        };
        let (level, at) = if of_leaves { (0, leaf) } else { (1, leaf / CHILDREN) };
        self.levels[level].values[at] ^= 1 << (seed % 64);
        true
    }

    /// Levels, the leaves' included.
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// How many values a level has; 0 for a level that is not there. Level 0 is the leaves'.
    pub fn width(&self, level: usize) -> u32 {
        self.levels.get(level).map_or(0, |level| level.values.len() as u32)
    }

    /// Values of a level, as they were when [`Tree::root`] was called last; none if one of the numbers is too high.
    pub fn values(&self, level: usize, numbers: &[u32]) -> Option<Vec<u64>> {
        let values = &self.levels.get(level)?.values;
        numbers.iter().map(|number| values.get(*number as usize).copied()).collect()
    }

    /// The leaves of a region that do not have the value that its objects give them: objects or leaves are corrupted.
    /// `later` are changes that were made to the objects, and not applied to the tree.
    pub fn differing(
        &self,
        region_id: RegionId,
        objects: impl IntoIterator<Item = (ObjectId, u64)>,
        later: impl IntoIterator<Item = Change>,
    ) -> Vec<u32> {
        let leaves = self.shape.of(region_id);
        let mut sums = vec![0u64; leaves.len()];
        let is_here = later.into_iter().filter(|change| change.region_id == region_id).map(Change::inverse);
        let objects = objects.into_iter().map(|(id, new)| Change { region_id, id, old: Change::ABSENT, new });
        for Change { id, old, new, .. } in objects.chain(is_here) {
            if let Some(leaf) = self.shape.leaf(region_id, id) {
                let value = &mut sums[(leaf - leaves.start) as usize];
                *value = value.wrapping_sub(hash(region_id, id, old)).wrapping_add(hash(region_id, id, new));
            }
        }
        let is_other =
            |leaf: &u32| self.levels[0].values[*leaf as usize] != sums[(leaf - leaves.start) as usize];
        leaves.clone().filter(is_other).collect()
    }

    /// Makes the leaves of a region what its objects give, and every node what its children give: after corruption.
    pub fn recompute(&mut self, region_id: RegionId, objects: impl IntoIterator<Item = (ObjectId, u64)>) {
        let leaves = self.shape.of(region_id);
        for leaf in leaves {
            self.levels[0].values[leaf as usize] = 0;
        }
        for (id, sum) in objects {
            self.apply(Change { region_id, id, old: Change::ABSENT, new: sum });
        }
        for level in 1..self.levels.len() {
            (0..self.width(level)).for_each(|number| self.mark(level, number));
        }
    }

    fn children(&self, level: usize, number: u32) -> &[u64] {
        let below = &self.levels[level - 1].values;
        let first = number as usize * CHILDREN;
        &below[first.min(below.len())..(first + CHILDREN).min(below.len())]
    }

    /// A node is to be hashed again; above the root there is none.
    fn mark(&mut self, level: usize, number: u32) {
        let Some(level) = self.levels.get_mut(level) else { return };
        if !std::mem::replace(&mut level.is_stale[number as usize], true) {
            level.stale.push(number);
        }
    }

    /// Flips a bit of a value, in a test.
    #[cfg(test)]
    fn corrupt(&mut self, level: usize, number: usize, bit: u32) {
        self.levels[level].values[number] ^= 1 << bit;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use wire::SplitMix64;

    use super::*;

    /// A state as the objects' sums, the reference that the tree is compared with.
    type Objects = BTreeMap<(RegionId, ObjectId), u64>;

    fn shape() -> TreeShape {
        TreeShape::new([1, 16, 256, 4])
    }

    fn of(objects: &Objects) -> Tree {
        let mut tree = Tree::new(shape());
        for (&(region_id, id), &new) in objects {
            tree.apply(Change { region_id, id, old: Change::ABSENT, new });
        }
        tree
    }

    /// Changes `count` random objects; returns what was changed, in order.
    fn change(objects: &mut Objects, random: &mut SplitMix64, count: usize) -> Vec<Change> {
        let mut changes = Vec::new();
        for _ in 0..count {
            let (region_id, id) = (random.below(4) as RegionId, ObjectId::new(random.below(60), 0));
            let old = objects.remove(&(region_id, id)).unwrap_or(Change::ABSENT);
            let new = if random.below(4) == 0 { Change::ABSENT } else { random.next_u64() | 1 };
            if new != Change::ABSENT {
                objects.insert((region_id, id), new);
            }
            changes.push(Change { region_id, id, old, new });
        }
        changes
    }

    proptest! {
        #[test]
        fn the_root_is_that_of_the_objects(seed: u64, batches in 1usize..8, size in 0usize..60) {
            let mut random = SplitMix64::new(seed);
            let mut objects = Objects::new();
            let mut tree = Tree::new(shape());
            for _ in 0..batches {
                let before = tree.root();
                let mut other = tree.clone();
                let changes = change(&mut objects, &mut random, size);
                changes.iter().for_each(|change| tree.apply(*change));
                prop_assert_eq!(tree.root(), of(&objects).root());
                // In another order, and rolled back.
                changes.iter().rev().for_each(|change| other.apply(*change));
                prop_assert_eq!(other.root(), tree.root());
                changes.iter().for_each(|change| other.apply(change.inverse()));
                prop_assert_eq!(other.root(), before);
            }
        }

        #[test]
        fn every_bit_of_a_sum_counts(bit in 0u32..64, region_id in 0u32..4, position: u32) {
            let id = ObjectId::new(u64::from(position), 3);
            let [mut left, mut right] = [77, 77 ^ 1 << bit].map(|sum| of(&[((region_id, id), sum)].into()));
            prop_assert_ne!(left.root(), right.root());
        }
    }

    #[test]
    fn the_same_object_elsewhere_is_another_state() {
        let roots: Vec<u64> = [(0, 1), (1, 1), (1, 2)]
            .map(|(region_id, position)| of(&[((region_id, ObjectId::new(position, 0)), 5)].into()).root())
            .into();
        assert!(roots[0] != roots[1] && roots[1] != roots[2]);
        let none = Tree::new(shape()).root();
        assert!(!roots.contains(&none));
    }

    #[test]
    fn a_region_that_is_not_there_changes_nothing() {
        let mut tree = Tree::new(shape());
        let before = tree.root();
        tree.apply(Change { region_id: 4, id: ObjectId::new(1, 0), old: 0, new: 1 });
        assert_eq!(tree.root(), before);
        assert_eq!(tree.values(0, &[277]), None);
        assert_eq!(tree.values(9, &[]), None);
        // A service without locks has a tree, too.
        assert_eq!(Tree::new(TreeShape::new([])).root(), Tree::new(TreeShape::new([])).root());
    }

    #[test]
    fn corrupted_leaves_and_nodes_are_found_and_recomputed() {
        let mut random = SplitMix64::new(3);
        let mut objects = Objects::new();
        change(&mut objects, &mut random, 500);
        let sums = |region_id: RegionId| -> Vec<(ObjectId, u64)> {
            let range = (region_id, ObjectId::from_bits(0))..=(region_id, ObjectId::NONE);
            objects.range(range).map(|((_, id), sum)| (*id, *sum)).collect()
        };
        let mut tree = of(&objects);
        let right = tree.root();
        assert!((0..4).all(|region_id| tree.differing(region_id, sums(region_id), []).is_empty()));
        // An object that no request has touched.
        let mut other = sums(2);
        other[0].1 ^= 1 << 40;
        assert_eq!(tree.differing(2, other.clone(), []), [tree.shape().leaf(2, other[0].0).expect("a leaf")]);
        // One that a request has changed which the tree does not have yet.
        let (id, old) = sums(2)[0];
        let later = Change { region_id: 2, id, old, new: other[0].1 };
        assert_eq!(tree.differing(2, other, [later]), []);
        for (level, number) in [(0, 20), (1, 3), (2, 1)] {
            tree.corrupt(level, number, 17);
            let region_id = 2;
            assert_eq!(tree.differing(region_id, sums(region_id), []).len(), usize::from(level == 0));
            tree.recompute(region_id, sums(region_id));
            assert_eq!(tree.root(), right, "level {level}");
        }
    }
}
