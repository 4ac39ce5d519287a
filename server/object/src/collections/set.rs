//! The ordered set: a map without values.

use crate::collections::delegate::member_of_parts;
use crate::collections::map::{Entries, Map};
use crate::summed::Summed;
use std::borrow::Borrow;
use std::fmt;
use std::ops::RangeBounds;

/// An ordered set as a member of a critical type. Its costs are those of a [`Map`].
pub struct Set<K> {
    map: Map<K, ()>,
}

member_of_parts! { Set<K: Summed> { map: Map<K, ()> } }

impl<K: Summed> Set<K> {
    /// An empty set. It has no objects.
    pub const fn new() -> Self {
        Set { map: Map::new() }
    }

    /// Number of keys. Touches nothing but the owner.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there are none. Touches nothing but the owner.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

impl<K: Summed + Ord + Clone> Set<K> {
    /// Whether the key is there; costs what [`Map::get`] does.
    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.map.contains_key(key)
    }

    /// Puts a key in; returns whether it is new. Costs what [`Map::insert`] does; one that is there changes nothing.
    pub fn insert(&mut self, key: K) -> bool {
        !self.map.contains_key(&key) && self.map.insert(key, ()).is_none()
    }

    /// Takes a key out; returns whether it was there. Costs what [`Map::remove`] does.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.map.remove(key).is_some()
    }

    /// The lowest key; costs what [`Map::first`] does.
    pub fn first(&self) -> Option<&K> {
        self.map.first().map(|(key, ())| key)
    }

    /// The highest key; costs what [`Map::last`] does.
    pub fn last(&self) -> Option<&K> {
        self.map.last().map(|(key, ())| key)
    }

    /// Takes the lowest key out; costs what [`Map::pop_first`] does.
    pub fn pop_first(&mut self) -> Option<K> {
        self.map.pop_first().map(|(key, ())| key)
    }

    /// Takes the highest key out; costs what [`Map::pop_last`] does.
    pub fn pop_last(&mut self) -> Option<K> {
        self.map.pop_last().map(|(key, ())| key)
    }

    /// As [`Map::remove_some`].
    pub fn remove_some(&mut self, most: usize) -> bool {
        self.map.remove_some(most)
    }

    /// All keys, ascending; costs what [`Map::iter`] does.
    pub fn iter(&self) -> SetKeys<'_, K> {
        SetKeys(self.map.iter())
    }

    /// The keys of a range, ascending; costs what [`Map::range`] does.
    pub fn range(&self, keys: impl RangeBounds<K>) -> SetKeys<'_, K> {
        SetKeys(self.map.range(keys))
    }

    /// The keys of a range, descending; costs what [`Map::range`] does.
    pub fn range_back(&self, keys: impl RangeBounds<K>) -> SetKeys<'_, K> {
        SetKeys(self.map.range_back(keys))
    }

    /// The keys that begin with these bytes, as [`Map::prefix`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> SetKeys<'_, K>
    where
        K: AsRef<[u8]>,
    {
        SetKeys(self.map.prefix(prefix))
    }
}

impl<K: Summed> fmt::Debug for Set<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.len())
    }
}

/// Keys of a [`Set`] in their order, or against it.
#[derive(Debug)]
pub struct SetKeys<'s, K>(Entries<'s, K, ()>);

impl<'s, K: Summed + Ord> Iterator for SetKeys<'s, K> {
    type Item = &'s K;

    fn next(&mut self) -> Option<&'s K> {
        self.0.next().map(|(key, ())| key)
    }
}
