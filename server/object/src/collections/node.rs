//! One object of a map: some entries in the order of their keys, or references to objects of the level below.

use crate::collections::part::{CollectionPart, body};
use crate::collections::size::{self, FULL};
use crate::reference::Ref;
use crate::summed::Summed;
use std::cmp::Ordering;

/// A leaf (level 0) with entries, or an inner node with children.
///
/// `keys[i]` of an inner node is above all keys in `children[i]`, and no key in `children[i + 1]` is below it.
#[derive(Debug)]
pub struct MapNode<K, V> {
    pub(crate) level: u8,
    pub(crate) keys: Vec<K>,
    pub(crate) values: Vec<V>,
    pub(crate) children: Vec<NodeRef<K, V>>,
}

body! {
    MapNode<K, V> {
        0 level: u8,
        1 keys: Vec<K>,
        2 values: Vec<V>,
        3 children: Vec<NodeRef<K, V>>,
    }
}

/// Refers to an object of a map.
pub type NodeRef<K, V> = Ref<CollectionPart<MapNode<K, V>>>;

/// Makes the key that divides two neighbours: above the one, and not above the other.
pub(crate) type Separate<K> = fn(&K, &K) -> K;

/// Bytes of a reference.
const REFERENCE: usize = size_of::<u64>();
/// A node with less gets entries of a neighbour, or goes into it.
const THIN: usize = FULL / 4;
/// Two neighbours become one if it has no more than this, so that it is not divided again soon.
const MERGED: usize = FULL / 4 * 3;

impl<K: Summed, V: Summed> MapNode<K, V> {
    /// A leaf with one entry.
    pub(crate) fn leaf(key: K, value: V) -> Self {
        MapNode { level: 0, keys: vec![key], values: vec![value], children: Vec::new() }
    }

    /// A node above `first` and its new neighbours.
    pub(crate) fn inner(level: u8, first: NodeRef<K, V>, others: Vec<(K, NodeRef<K, V>)>) -> Self {
        let mut node = MapNode { level, keys: Vec::new(), values: Vec::new(), children: vec![first] };
        node.adopt(0, others);
        node
    }

    /// Whether it can be a node of this level: after an error that no checksum shows, it may not be.
    #[inline]
    pub(crate) fn is_of(&self, level: u32) -> bool {
        let has_its_parts = match self.level {
            0 => self.values.len() == self.keys.len() && self.children.is_empty(),
            _ => self.children.len() == self.keys.len() + 1 && self.values.is_empty(),
        };
        u32::from(self.level) == level && has_its_parts
    }

    /// The number of the child that has the key, if any has; `probe` compares a key with it.
    #[inline]
    pub(crate) fn child_of(&self, probe: impl Fn(&K) -> Ordering) -> usize {
        self.keys.partition_point(|key| probe(key) != Ordering::Greater)
    }

    /// Takes in new neighbours of the child with this number.
    pub(crate) fn adopt(&mut self, child: usize, others: Vec<(K, NodeRef<K, V>)>) {
        for (number, (key, node)) in others.into_iter().enumerate() {
            self.keys.insert(child + number, key);
            self.children.insert(child + number + 1, node);
        }
    }

    /// Number of entries or children.
    pub(crate) fn width(&self) -> usize {
        if self.level == 0 { self.keys.len() } else { self.children.len() }
    }

    /// The fewest entries or children of a node that is divided.
    fn least(&self) -> usize {
        if self.level == 0 { 1 } else { 2 }
    }

    /// Bytes of its entries or children.
    pub(crate) fn bytes(&self) -> usize {
        size::of_all(&self.keys) + size::of_all(&self.values) + self.children.len() * REFERENCE
    }

    /// Bytes of one entry, or of one child with the key in front of it.
    fn bytes_at(&self, at: usize) -> usize {
        match self.level {
            0 => size::of(&self.keys[at]) + size::of(&self.values[at]),
            _ => REFERENCE + at.checked_sub(1).map_or(0, |before| size::of(&self.keys[before])),
        }
    }

    /// Whether it should be divided.
    pub(crate) fn is_full(&self) -> bool {
        self.width() >= 2 * self.least() && self.bytes() > FULL
    }

    /// Whether it should have more entries, or go.
    pub(crate) fn is_thin(&self) -> bool {
        self.width() < self.least() || self.bytes() < THIN
    }

    /// Whether it and its right neighbour should become one node.
    pub(crate) fn merges_with(&self, right: &Self) -> bool {
        self.width() + right.width() < 2 * self.least() || self.bytes() + right.bytes() <= MERGED
    }

    /// Takes in what its right neighbour had; `key` stood between them.
    pub(crate) fn absorb(&mut self, key: K, mut right: Self) {
        if self.level > 0 {
            self.keys.push(key);
        }
        self.keys.append(&mut right.keys);
        self.values.append(&mut right.values);
        self.children.append(&mut right.children);
    }

    /// Divides a full node: keeps the first entries, and returns the others as nodes with the keys in front of them.
    ///
    /// `at_end` says that the last entry has just come, with the highest key of all. Where keys ascend, more will come
    /// behind it and none before, so the others stay together.
    pub(crate) fn divide(&mut self, at_end: bool, separate: Separate<K>) -> Vec<(K, Self)> {
        if !self.is_full() {
            return Vec::new();
        }
        let last = self.width() - self.least();
        let at = if at_end { last } else { self.middle() };
        let (key, mut right) = self.cut(at, separate);
        let mut all = self.divide(false, separate);
        let further = right.divide(false, separate);
        all.push((key, right));
        all.extend(further);
        all
    }

    /// The number of the entry before which it is cut into halves of about as many bytes: neither has more than it has
    /// to have.
    pub(crate) fn middle(&self) -> usize {
        let (least, width, all) = (self.least(), self.width(), self.bytes());
        let mut left: usize = (0..least).map(|at| self.bytes_at(at)).sum();
        let mut at = least;
        while at + least < width {
            let with_next = left + self.bytes_at(at);
            if with_next.max(all.saturating_sub(with_next)) > left.max(all.saturating_sub(left)) {
                break;
            }
            (left, at) = (with_next, at + 1);
        }
        at
    }

    /// Keeps the first `at` entries or children, and returns the others with the key that divides them.
    pub(crate) fn cut(&mut self, at: usize, separate: Separate<K>) -> (K, Self) {
        let children = self.children.split_off(at.min(self.children.len()));
        let values = self.values.split_off(at.min(self.values.len()));
        let mut keys = self.keys.split_off(if self.level == 0 { at } else { at - 1 });
        let key = match self.level {
            0 => separate(&self.keys[at - 1], &keys[0]),
            _ => keys.remove(0),
        };
        (key, MapNode { level: self.level, keys, values, children })
    }
}
