//! A walk over the entries of a tree, in one of the two directions. Each node is checked when the walk reaches it.

use crate::collections::node::{MapNode, NodeRef};
use crate::collections::tree::{MapTree, broken, child};
use crate::summed::Summed;
use std::cmp::Ordering;

/// The direction of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Keys ascend.
    Forward,
    /// Keys descend.
    Backward,
}

/// A walk, which stands between two entries.
pub(crate) struct MapScan<'t, K, V> {
    tree: &'t MapTree<K, V>,
    direction: Direction,
    /// The inner nodes above the leaf, and which of their children is taken.
    way: Vec<(&'t MapNode<K, V>, usize)>,
    leaf: Option<&'t MapNode<K, V>>,
    /// The number of entries of the leaf in front of the place, as keys ascend.
    at: usize,
}

impl<'t, K: Summed + Ord, V: Summed> MapScan<'t, K, V> {
    /// A walk that begins behind the entries for which `is_before` says so, as keys ascend.
    pub(crate) fn new(
        tree: &'t MapTree<K, V>,
        direction: Direction,
        is_before: impl Fn(&K) -> bool,
    ) -> MapScan<'t, K, V> {
        let mut scan = MapScan { tree, direction, way: Vec::new(), leaf: None, at: 0 };
        if let Some(root) = tree.root.some() {
            let probe = |key: &K| if is_before(key) { Ordering::Less } else { Ordering::Greater };
            scan.descend(root, tree.height, |node| node.child_of(probe));
            scan.at = scan.leaf.map_or(0, |leaf| leaf.keys.partition_point(is_before));
        }
        scan
    }

    /// Ends the walk.
    pub(crate) fn finish(&mut self) {
        self.leaf = None;
    }

    fn descend(
        &mut self,
        mut at: NodeRef<K, V>,
        top: u32,
        choose: impl Fn(&MapNode<K, V>) -> usize,
    ) -> &'t MapNode<K, V> {
        for level in (1..=top).rev() {
            let node = self.tree.node(at, level);
            let number = choose(node);
            self.way.push((node, number));
            at = child(node, number);
        }
        let leaf = self.tree.filled(at);
        self.leaf = Some(leaf);
        leaf
    }

    /// The next leaf in the direction.
    fn turn(&mut self, from: &MapNode<K, V>) {
        self.leaf = None;
        let direction = self.direction;
        while let Some((node, number)) = self.way.pop() {
            let next = match direction {
                Direction::Forward => Some(number + 1).filter(|next| *next < node.width()),
                Direction::Backward => number.checked_sub(1),
            };
            let Some(next) = next else { continue };
            self.way.push((node, next));
            let at = child(node, next);
            let leaf = self.descend(at, u32::from(node.level) - 1, |node| match direction {
                Direction::Forward => 0,
                Direction::Backward => node.width() - 1,
            });
            let (is_behind, start) = match direction {
                Direction::Forward => (leaf.keys.first() > from.keys.last(), 0),
                Direction::Backward => (leaf.keys.last() < from.keys.first(), leaf.keys.len()),
            };
            // A leaf that a walk reaches twice would make it endless.
            if !is_behind {
                broken::<MapNode<K, V>>(at.id());
            }
            self.at = start;
            return;
        }
    }
}

impl<'t, K: Summed + Ord, V: Summed> Iterator for MapScan<'t, K, V> {
    type Item = (&'t K, &'t V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let leaf = self.leaf?;
            let number = match self.direction {
                Direction::Forward => Some(self.at).filter(|at| *at < leaf.keys.len()),
                Direction::Backward => self.at.checked_sub(1),
            };
            let Some(number) = number else {
                self.turn(leaf);
                continue;
            };
            self.at = if self.direction == Direction::Forward { number + 1 } else { number };
            return Some((leaf.keys.get(number)?, leaf.values.get(number)?));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Corrupted, How};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A tree with several leaves.
    fn tree() -> MapTree<u64, u64> {
        let mut tree = MapTree::new();
        (0..1_000).for_each(|key| assert_eq!(tree.insert(key, key, |_, right| *right), None));
        tree
    }

    fn walk(tree: &MapTree<u64, u64>, direction: Direction) -> Result<usize, Corrupted> {
        let is_before = |_: &u64| direction == Direction::Backward;
        let walk = AssertUnwindSafe(|| MapScan::new(tree, direction, is_before).count());
        catch_unwind(walk).map_err(|payload| *crate::corrupted(&*payload).expect("nothing else unwinds"))
    }

    /// Nodes that are referred to twice on several levels would keep a walk busy almost for ever.
    #[test]
    fn a_leaf_that_a_walk_comes_to_twice_ends_it() {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut tree = tree();
            assert_eq!(walk(&tree, direction).ok(), Some(1_000));
            let root = tree.node_mut(tree.root, 1);
            root.children[3] = root.children[2];
            let twice = root.children[2].id();
            let found = walk(&tree, direction).expect_err("a leaf is there twice");
            assert_eq!((found.object, found.how), (twice, How::Structure));
        }
    }

    #[test]
    fn a_leaf_without_entries_ends_a_walk() {
        let mut tree = tree();
        let leaf = tree.node(tree.root, 1).children[2];
        *tree.nodes.expect_mut(leaf).write() =
            MapNode { level: 0, keys: Vec::new(), values: Vec::new(), children: Vec::new() };
        let found = walk(&tree, Direction::Forward).expect_err("no leaf is empty");
        assert_eq!((found.object, found.how), (leaf.id(), How::Structure));
    }

    #[test]
    fn a_node_that_refers_to_itself_ends_a_descent() {
        let mut tree = tree();
        let itself = tree.root;
        tree.node_mut(itself, 1).children.fill(itself);
        let found = walk(&tree, Direction::Forward).expect_err("it is of another level");
        assert_eq!((found.object, found.how), (itself.id(), How::Structure));
    }
}
