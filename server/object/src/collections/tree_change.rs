//! How a tree of objects changes: an entry comes, changes or goes, and the nodes on the way to it are divided or merged
//! where that has made them too large or too small.

use crate::collections::node::{MapNode, NodeRef, Separate};
use crate::collections::part::CollectionPart;
use crate::collections::tree::{MapTree, Way, broken, child};
use crate::reference::Ref;
use crate::summed::Summed;
use std::cmp::Ordering;

/// A place in a leaf: the way to the leaf, the leaf, and the number of the entry.
type EntryPlace<K, V> = (Way<K, V>, NodeRef<K, V>, usize);

impl<K: Summed + Ord, V: Summed> MapTree<K, V> {
    /// Puts an entry in, and returns the value that its key had before.
    pub(crate) fn insert(&mut self, key: K, value: V, separate: Separate<K>) -> Option<V> {
        let Some((way, at)) = self.way_to(|other: &K| other.cmp(&key)) else {
            self.root = self.nodes.insert(CollectionPart::new(MapNode::leaf(key, value)));
            (self.height, self.length) = (0, 1);
            return None;
        };
        let found = self.filled(at).keys.binary_search(&key);
        let leaf = self.node_mut(at, 0);
        match found {
            Ok(number) => {
                let before = std::mem::replace(&mut leaf.values[number], value);
                if V::FIXED == 0 {
                    self.settle(way, at, false, separate);
                }
                Some(before)
            }
            Err(number) => {
                let is_last = number == leaf.keys.len();
                leaf.keys.insert(number, key);
                leaf.values.insert(number, value);
                let is_full = leaf.is_full();
                self.length = self.length.wrapping_add(1);
                if is_full {
                    let at_end = is_last && self.is_at_end(&way);
                    self.settle(way, at, at_end, separate);
                }
                None
            }
        }
    }

    /// Whether a way goes to the last leaf.
    fn is_at_end(&self, way: &Way<K, V>) -> bool {
        way.iter()
            .zip((1..=self.height).rev())
            .all(|(step, level)| step.child + 1 == self.node(step.node, level).width())
    }

    /// The place of the entry for which `probe` is equal.
    pub(crate) fn place_of(&self, probe: impl Fn(&K) -> Ordering) -> Option<EntryPlace<K, V>> {
        let (way, at) = self.way_to(&probe)?;
        let number = self.filled(at).keys.binary_search_by(probe).ok()?;
        Some((way, at, number))
    }

    /// The place of the first entry, or of the last one.
    pub(crate) fn place_at_end(&self, is_last: bool) -> Option<EntryPlace<K, V>> {
        let (way, at) = self.way_to(|_: &K| if is_last { Ordering::Less } else { Ordering::Greater })?;
        let number = if is_last { self.filled(at).keys.len() - 1 } else { 0 };
        Some((way, at, number))
    }

    /// Takes an entry out.
    pub(crate) fn take(&mut self, (way, at, number): EntryPlace<K, V>, separate: Separate<K>) -> (K, V) {
        let leaf = self.node_mut(at, 0);
        if number >= leaf.keys.len() {
            broken::<MapNode<K, V>>(at.id());
        }
        let entry = (leaf.keys.remove(number), leaf.values.remove(number));
        let is_thin = leaf.is_thin();
        self.length = self.length.wrapping_sub(1);
        if is_thin {
            self.settle(way, at, false, separate);
        }
        entry
    }

    /// The value of the entry for which `probe` is equal, to change it where it is.
    pub(crate) fn value_mut(&mut self, probe: impl Fn(&K) -> Ordering) -> Option<&mut V> {
        let (_, at, number) = self.place_of(probe)?;
        self.node_mut(at, 0).values.get_mut(number)
    }

    /// Changes the value at a place, which may have another length then.
    pub(crate) fn change<R>(
        &mut self,
        (way, at, number): EntryPlace<K, V>,
        change: impl FnOnce(&mut V) -> R,
        separate: Separate<K>,
    ) -> Option<R> {
        let result = change(self.node_mut(at, 0).values.get_mut(number)?);
        if V::FIXED == 0 {
            self.settle(way, at, false, separate);
        }
        Some(result)
    }

    /// Divides a node that is full, and fills or drops one that is thin; then the same for the node above, if that has
    /// changed by it.
    fn settle(&mut self, mut way: Way<K, V>, mut at: NodeRef<K, V>, at_end: bool, separate: Separate<K>) {
        for level in 0..=self.height {
            let node = self.node(at, level);
            if node.is_full() {
                let Some(step) = way.pop() else { return self.divide_root(level, at_end, separate) };
                let others = self.divide(at, level, at_end, separate);
                self.node_mut(step.node, level + 1).adopt(step.child, others);
                at = step.node;
            } else if let Some(step) = way.last() {
                if !node.is_thin() {
                    return;
                }
                self.fill(step.node, step.child, level, separate);
                at = step.node;
                way.pop();
            } else {
                return self.lower_root();
            }
        }
    }

    /// Divides a node; returns its new neighbours.
    fn divide(
        &mut self,
        at: NodeRef<K, V>,
        level: u32,
        at_end: bool,
        separate: Separate<K>,
    ) -> Vec<(K, NodeRef<K, V>)> {
        let others = self.node_mut(at, level).divide(at_end, separate);
        others.into_iter().map(|(key, node)| (key, self.nodes.insert(CollectionPart::new(node)))).collect()
    }

    /// Divides the root, and puts a new one above it.
    fn divide_root(&mut self, level: u32, at_end: bool, separate: Separate<K>) {
        let others = self.divide(self.root, level, at_end, separate);
        let root = MapNode::inner(level as u8 + 1, self.root, others);
        self.root = self.nodes.insert(CollectionPart::new(root));
        self.height = level + 1;
    }

    /// Drops a root that is empty, or has a single child.
    fn lower_root(&mut self) {
        let root = self.node(self.root, self.height);
        let lower = match (self.height, root.width()) {
            (0, 0) => Ref::NONE,
            (1.., 1) => child(root, 0),
            _ => return,
        };
        self.nodes.expect_remove(self.root);
        self.root = lower;
        self.height = self.height.saturating_sub(1);
    }

    /// Makes one node of a thin child and its neighbour, or gives it some of the neighbour's entries.
    fn fill(&mut self, parent: NodeRef<K, V>, number: usize, level: u32, separate: Separate<K>) {
        let above = self.node(parent, level + 1);
        // With its right neighbour, if it has one.
        let number = if number + 1 < above.width() { number } else { number.saturating_sub(1) };
        let (left, right) = (child(above, number), child(above, number + 1));
        if self.node(left, level).merges_with(self.node(right, level)) {
            let above = self.node_mut(parent, level + 1);
            let key = above.keys.remove(number);
            above.children.remove(number + 1);
            let gone = self.nodes.expect_remove(right).take();
            self.node_mut(left, level).absorb(key, gone);
            return;
        }
        let there = self.node_mut(right, level);
        let empty =
            MapNode { level: there.level, keys: Vec::new(), values: Vec::new(), children: Vec::new() };
        let all = std::mem::replace(there, empty);
        // The place is filled below.
        let key = self.node_mut(parent, level + 1).keys.remove(number);
        let here = self.node_mut(left, level);
        here.absorb(key, all);
        let (key, rest) = here.cut(here.middle(), separate);
        *self.nodes.expect_mut(right).write() = rest;
        // One key fewer than `node_mut` takes.
        self.nodes.expect_mut(parent).write().keys.insert(number, key);
    }
}
