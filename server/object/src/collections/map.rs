//! The ordered map, whose entries are in objects of bounded size: a `BTreeMap` in an object is summed as a whole.

use crate::collections::delegate::member_of_parts;
use crate::collections::scan::{Direction, MapScan};
use crate::collections::tree::MapTree;
use crate::summed::Summed;
use std::borrow::Borrow;
use std::fmt;
use std::ops::{Bound, RangeBounds};

/// An ordered map as a member of a critical type: a B+tree whose nodes are objects.
///
/// Of `n` entries an operation touches O(log n) objects of at most about [`crate::NODE_BYTES`] each: three with 100,000
/// small entries. The owner is one more; insertion and removal change its checksum, which covers the number of entries.
/// A key or value that is longer than that makes the node that it is in as long: keep a large value as an object in a
/// [`crate::Store`] and its [`crate::Ref`] here, or use a [`crate::Table`].
///
/// `K`'s order must be a function of the summed part of a key, as for `BTreeMap`.
///
/// ```
/// use object::{critical, Map};
///
/// #[critical]
/// pub struct Jobs { ready: Map<(u32, u64), String> }
///
/// #[critical]
/// impl Jobs {
///     pub fn new() -> Self { Self { ready: Map::new() } }
///     pub fn put(&mut self, priority: u32, id: u64, job: &str) { self.ready.insert((priority, id), job.to_owned()); }
///     pub fn reserve(&mut self) -> Option<String> { self.ready.pop_first().map(|(_, job)| job) }
///     pub fn urgent(&self) -> usize { self.ready.range(..(10, 0)).count() }
/// }
///
/// let mut jobs = object::genesis(0, Jobs::new);
/// jobs.put(20, 1, "sweep");
/// jobs.put(5, 2, "cook");
/// assert_eq!(jobs.urgent(), 1);
/// assert_eq!(jobs.reserve().as_deref(), Some("cook"));
/// ```
pub struct Map<K, V> {
    tree: MapTree<K, V>,
}

member_of_parts! { Map<K: Summed, V: Summed> { tree: MapTree<K, V> } }

impl<K: Summed, V: Summed> Map<K, V> {
    /// An empty map. It has no objects.
    pub const fn new() -> Self {
        Map { tree: MapTree::new() }
    }

    /// Number of entries. Touches nothing but the owner.
    pub fn len(&self) -> usize {
        self.tree.length as usize
    }

    /// Whether there are none. Touches nothing but the owner.
    pub fn is_empty(&self) -> bool {
        self.tree.length == 0
    }
}

impl<K: Summed + Ord + Clone, V: Summed> Map<K, V> {
    /// The value of a key. Touches O(log n) objects.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.tree.find(|other| other.borrow().cmp(key)).map(|(_, value)| value)
    }

    /// Whether there is an entry of this key. Touches O(log n) objects.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// The value of a key, to change it. Touches O(log n) objects and changes one of them. Only for values of fixed
    /// length: others, which could outgrow their object, are changed by [`Map::change`].
    ///
    /// ```compile_fail
    /// let mut map: object::Map<u64, String> = object::Map::new();
    /// map.get_mut(&1_u64);
    /// ```
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        const {
            assert!(
                V::FIXED > 0,
                "a value without a fixed length could outgrow its object: use `Map::change`"
            );
        }
        self.tree.value_mut(|other| other.borrow().cmp(key))
    }

    /// Changes the value of a key, and returns what `change` does; `None` if there is no such entry. Touches O(log n)
    /// objects and changes one of them, unless the length of the value makes it divide or merge.
    pub fn change<Q: Ord + ?Sized, R>(&mut self, key: &Q, change: impl FnOnce(&mut V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let place = self.tree.place_of(|other| other.borrow().cmp(key))?;
        self.tree.change(place, change, whole)
    }

    /// Puts an entry in, and returns the value that its key had before. Touches O(log n) objects and changes one of
    /// them; where it fills one up, that is divided, and the one above it changes too.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.tree.insert(key, value, whole)
    }

    /// Takes an entry out, and returns its value. Touches O(log n) objects and changes one of them; where little is
    /// left in it, also its neighbour and the one above.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let place = self.tree.place_of(|other| other.borrow().cmp(key))?;
        Some(self.tree.take(place, whole).1)
    }

    /// The entry of the lowest key. Touches O(log n) objects.
    pub fn first(&self) -> Option<(&K, &V)> {
        self.tree.first()
    }

    /// The entry of the highest key. Touches O(log n) objects.
    pub fn last(&self) -> Option<(&K, &V)> {
        self.tree.last()
    }

    /// Takes the entry of the lowest key out; costs what [`Map::remove`] does.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        let place = self.tree.place_at_end(false)?;
        Some(self.tree.take(place, whole))
    }

    /// Takes the entry of the highest key out; costs what [`Map::remove`] does.
    pub fn pop_last(&mut self) -> Option<(K, V)> {
        let place = self.tree.place_at_end(true)?;
        Some(self.tree.take(place, whole))
    }

    /// Takes up to `most` entries out, those of the lowest keys first, and returns whether any are left: to empty a
    /// large map by requests of bounded work. Touches O(log n + `most`) objects.
    pub fn remove_some(&mut self, most: usize) -> bool {
        for _ in 0..most {
            if self.pop_first().is_none() {
                break;
            }
        }
        !self.is_empty()
    }

    /// All entries, keys ascending. Each object is checked when the iteration reaches it, and is part of the request's
    /// state delta: a request that iterates to the end pays for all of them.
    pub fn iter(&self) -> Entries<'_, K, V> {
        self.range(..)
    }

    /// The entries of a range of keys, ascending. Touches O(log n) objects, and those that the iteration reaches.
    pub fn range(&self, keys: impl RangeBounds<K>) -> Entries<'_, K, V> {
        let start = keys.start_bound().cloned();
        let scan = MapScan::new(&self.tree, Direction::Forward, |key| !is_from(key, &start));
        Entries { scan, end: End::Above(keys.end_bound().cloned()) }
    }

    /// The same entries, keys descending.
    pub fn range_back(&self, keys: impl RangeBounds<K>) -> Entries<'_, K, V> {
        let end = keys.end_bound().cloned();
        let scan = MapScan::new(&self.tree, Direction::Backward, |key| is_up_to(key, &end));
        Entries { scan, end: End::Below(keys.start_bound().cloned()) }
    }

    /// The entries whose keys begin with these bytes, keys ascending. `K`'s order must be that of its bytes, as it is
    /// for `String` and `Vec<u8>`. Costs what [`Map::range`] does.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Entries<'_, K, V>
    where
        K: AsRef<[u8]>,
    {
        let prefix = prefix.as_ref();
        let scan = MapScan::new(&self.tree, Direction::Forward, |key| key.as_ref() < prefix);
        let has = |key: &K, prefix: &[u8]| key.as_ref().starts_with(prefix);
        Entries { scan, end: End::Prefix(prefix.to_vec(), has) }
    }
}

/// The key that divides two neighbours: that of the right one.
fn whole<K: Clone>(_left: &K, right: &K) -> K {
    right.clone()
}

fn is_from<K: Ord>(key: &K, start: &Bound<K>) -> bool {
    match start {
        Bound::Included(start) => key >= start,
        Bound::Excluded(start) => key > start,
        Bound::Unbounded => true,
    }
}

fn is_up_to<K: Ord>(key: &K, end: &Bound<K>) -> bool {
    match end {
        Bound::Included(end) => key <= end,
        Bound::Excluded(end) => key < end,
        Bound::Unbounded => true,
    }
}

impl<K: Summed, V: Summed> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries", self.len())
    }
}

/// Entries of a [`Map`] in the order of their keys, or against it.
pub struct Entries<'m, K, V> {
    scan: MapScan<'m, K, V>,
    end: End<K>,
}

/// Where an iteration ends.
enum End<K> {
    /// Keys ascend to here.
    Above(Bound<K>),
    /// Keys descend to here.
    Below(Bound<K>),
    /// Keys begin with these bytes.
    Prefix(Vec<u8>, fn(&K, &[u8]) -> bool),
}

impl<'m, K: Summed + Ord, V: Summed> Iterator for Entries<'m, K, V> {
    type Item = (&'m K, &'m V);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = self.scan.next()?;
        let is_in = match &self.end {
            End::Above(end) => is_up_to(key, end),
            End::Below(start) => is_from(key, start),
            End::Prefix(prefix, has) => has(key, prefix),
        };
        if !is_in {
            self.scan.finish();
            return None;
        }
        Some((key, value))
    }
}

impl<K, V> fmt::Debug for Entries<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("entries of a map")
    }
}
