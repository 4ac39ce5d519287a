//! A B+tree of objects: what is common to maps, sets and tables.

use crate::collections::delegate::member_of_parts;
use crate::collections::node::{MapNode, NodeRef};
use crate::collections::part::{Body, CollectionPart};
use crate::corrupted::{Corrupted, How};
use crate::id::ObjectId;
use crate::reference::Ref;
use crate::request;
use crate::store::Store;
use crate::summed::Summed;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// Where the tree is in its owner: the owner's checksum covers this.
pub struct MapTree<K, V> {
    pub(crate) root: NodeRef<K, V>,
    /// The level of the root.
    pub(crate) height: u32,
    pub(crate) length: u64,
    pub(crate) nodes: Store<CollectionPart<MapNode<K, V>>>,
}

member_of_parts! {
    MapTree<K: Summed, V: Summed> {
        root: NodeRef<K, V>,
        height: u32,
        length: u64,
        nodes: Store<CollectionPart<MapNode<K, V>>>,
    }
}

/// A node on the way down, and which of its children was taken.
pub(crate) struct WayStep<K, V> {
    pub(crate) node: NodeRef<K, V>,
    pub(crate) child: usize,
}

/// The way from the root to a leaf.
pub(crate) type Way<K, V> = SmallVec<[WayStep<K, V>; 5]>;

impl<K: Summed, V: Summed> MapTree<K, V> {
    pub(crate) const fn new() -> Self {
        MapTree { root: Ref::NONE, height: 0, length: 0, nodes: Store::new() }
    }

    /// The entry for which `probe` is equal.
    pub(crate) fn find(&self, probe: impl Fn(&K) -> Ordering) -> Option<(&K, &V)> {
        let leaf = self.leaf_of(&probe)?;
        let at = leaf.keys.binary_search_by(probe).ok()?;
        Some((&leaf.keys[at], leaf.values.get(at)?))
    }

    /// The first entry.
    pub(crate) fn first(&self) -> Option<(&K, &V)> {
        let leaf = self.leaf_of(|_: &K| Ordering::Greater)?;
        Some((leaf.keys.first()?, leaf.values.first()?))
    }

    /// The last entry.
    pub(crate) fn last(&self) -> Option<(&K, &V)> {
        let leaf = self.leaf_of(|_: &K| Ordering::Less)?;
        Some((leaf.keys.last()?, leaf.values.last()?))
    }

    /// The leaf in which an entry is, if it is anywhere; none in an empty tree.
    fn leaf_of(&self, probe: impl Fn(&K) -> Ordering) -> Option<&MapNode<K, V>> {
        let mut at = self.root.some()?;
        for level in (1..=self.height).rev() {
            let node = self.node(at, level);
            at = child(node, node.child_of(&probe));
        }
        Some(self.filled(at))
    }

    /// The same as a reference, and the way to it.
    pub(crate) fn way_to(&self, probe: impl Fn(&K) -> Ordering) -> Option<(Way<K, V>, NodeRef<K, V>)> {
        let mut at = self.root.some()?;
        let mut way = Way::new();
        for level in (1..=self.height).rev() {
            let node = self.node(at, level);
            let number = node.child_of(&probe);
            way.push(WayStep { node: at, child: number });
            at = child(node, number);
        }
        Some((way, at))
    }

    /// A node of this level, checked. Since each step of a descent is to the next level below, and each level is
    /// checked, a damaged tree has no endless way.
    #[inline]
    pub(crate) fn node(&self, at: NodeRef<K, V>, level: u32) -> &MapNode<K, V> {
        let node = self.nodes.expect(at).read();
        if !node.is_of(level) {
            broken::<MapNode<K, V>>(at.id());
        }
        node
    }

    /// A leaf, which has an entry.
    pub(crate) fn filled(&self, at: NodeRef<K, V>) -> &MapNode<K, V> {
        let leaf = self.node(at, 0);
        if leaf.keys.is_empty() {
            broken::<MapNode<K, V>>(at.id());
        }
        leaf
    }

    /// A node of this level, checked, to change it.
    pub(crate) fn node_mut(&mut self, at: NodeRef<K, V>, level: u32) -> &mut MapNode<K, V> {
        let node = self.nodes.expect_mut(at).write();
        if !node.is_of(level) {
            broken::<MapNode<K, V>>(at.id());
        }
        node
    }
}

/// A child of a node; none that exists, if the node has fewer.
#[inline]
pub(crate) fn child<K, V>(node: &MapNode<K, V>, number: usize) -> NodeRef<K, V> {
    node.children.get(number).copied().unwrap_or(Ref::NONE)
}

/// Leaves the request at this replica: an object of a collection is not what it has to be in its place. Its check, or
/// that of the object that refers to it, has missed an error, or the error came behind the check.
#[cold]
pub(crate) fn broken<B: Body>(object: ObjectId) -> ! {
    request::fail(Corrupted { object, class: B::CLASS.name, how: How::Structure })
}
