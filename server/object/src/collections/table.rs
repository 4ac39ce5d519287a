//! The table: objects by key. Each is found by a hash of its key.

use crate::collections::delegate::member_of_parts;
use crate::collections::scan::{Direction, MapScan};
use crate::collections::size;
use crate::collections::tree::MapTree;
use crate::critical::Critical;
use crate::reference::Ref;
use crate::store::Store;
use crate::summed::Summed;
use std::fmt;

/// Objects by key, as a member of a critical type: each has its own checksum, as in a [`Store`], and is found by its
/// key.
///
/// Of `n` objects an operation touches O(log n) objects of the table of at most about [`crate::NODE_BYTES`] each, and
/// the one that it is for. The table is a B+tree by the hash of the key: nothing has to be moved but half a node where
/// one becomes full, and keys that a client chooses to have one hash cost no more than others. The hash is a function
/// of the key's packed bytes, with a fixed seed, so the order of an iteration is the same on all replicas.
///
/// ```
/// use object::{critical, Table};
///
/// #[critical]
/// pub struct Account { balance: u64 }
///
/// #[critical]
/// impl Account {
///     fn new() -> Self { Self { balance: 0 } }
///     fn deposit(&mut self, amount: u64) { self.balance += amount }
///     fn balance(&self) -> u64 { self.balance }
/// }
///
/// #[critical]
/// pub struct Bank { accounts: Table<String, Account> }
///
/// #[critical]
/// impl Bank {
///     pub fn new() -> Self { Self { accounts: Table::new() } }
///     pub fn open(&mut self, owner: &str) { self.accounts.insert(owner.to_owned(), Account::new()); }
///     pub fn deposit(&mut self, owner: &str, amount: u64) -> Option<u64> {
///         let account = self.accounts.get_mut(&owner.to_owned())?;
///         account.deposit(amount);
///         Some(account.balance())
///     }
/// }
///
/// let mut bank = object::genesis(0, Bank::new);
/// bank.open("alice");
/// assert_eq!(bank.deposit("alice", 5), Some(5));
/// assert_eq!(bank.deposit("bob", 5), None);
/// ```
pub struct Table<K, T> {
    tree: MapTree<Hashed<K>, Ref<T>>,
    objects: Store<T>,
}

member_of_parts! {
    Table<K: Summed, T: Critical> {
        tree: MapTree<Hashed<K>, Ref<T>>,
        objects: Store<T>,
    }
}

/// A key with its hash, by which it is ordered first.
///
/// Without a key it stands in front of all keys of its hash: a node above others has no need of whole keys, where these
/// have different hashes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, object_macros::Summed)]
pub struct Hashed<K> {
    hash: u64,
    key: Option<K>,
}

/// Fixed for ever: the order of a table's entries depends on it.
const SEED: u64 = 0x6372_6F73_7363_6B02;

impl<K: Summed> Hashed<K> {
    fn of(key: K) -> Self {
        Hashed { hash: hash_of(&key), key: Some(key) }
    }
}

fn hash_of<K: Summed>(key: &K) -> u64 {
    size::packed(std::slice::from_ref(key), |bytes| xxhash_rust::xxh3::xxh3_64_with_seed(bytes, SEED))
}

/// The key that divides two neighbours: the hash alone where that is enough.
fn short<K: Clone>(left: &Hashed<K>, right: &Hashed<K>) -> Hashed<K> {
    match left.hash < right.hash {
        true => Hashed { hash: right.hash, key: None },
        false => right.clone(),
    }
}

impl<K: Summed, T: Critical> Table<K, T> {
    /// An empty table. It has no objects.
    pub const fn new() -> Self {
        Table { tree: MapTree::new(), objects: Store::new() }
    }

    /// Number of objects. Touches nothing but the owner.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are none. Touches nothing but the owner.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

impl<K: Summed + Ord + Clone, T: Critical> Table<K, T> {
    /// Refers to the object of a key. Touches O(log n) objects, and not that one.
    pub fn find(&self, key: &K) -> Option<Ref<T>> {
        self.tree.find(probe(key)).map(|(_, object)| *object)
    }

    /// Whether there is an object of this key. Touches O(log n) objects, and not that one.
    pub fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_some()
    }

    /// The object of a key, checked. Touches O(log n) objects of the table, and it.
    pub fn get(&self, key: &K) -> Option<&T> {
        self.find(key).map(|object| self.objects.expect(object))
    }

    /// The object of a key, checked, to change it. It counts as changed only once a method with `&mut self` enters it;
    /// the table's own objects are not changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut T> {
        let object = self.find(key)?;
        Some(self.objects.expect_mut(object))
    }

    /// The object that [`Table::find`] has found before, checked; `None` if it has left the table. Touches it alone.
    pub fn at(&self, object: Ref<T>) -> Option<&T> {
        self.objects.get(object)
    }

    /// The same, to change it.
    pub fn at_mut(&mut self, object: Ref<T>) -> Option<&mut T> {
        self.objects.get_mut(object)
    }

    /// Puts an object in under its key, and returns the one that was there before. Touches O(log n) objects of the
    /// table and changes one of them; where it fills one up, that is divided, and the one above it changes too.
    pub fn insert(&mut self, key: K, object: T) -> Option<T> {
        let object = self.objects.insert(object);
        let before = self.tree.insert(Hashed::of(key), object, short)?;
        Some(self.objects.expect_remove(before))
    }

    /// Takes the object of a key out. Touches O(log n) objects of the table and changes one of them; where little is
    /// left in it, also its neighbour and the one above.
    pub fn remove(&mut self, key: &K) -> Option<T> {
        let place = self.tree.place_of(probe(key))?;
        let (_, object) = self.tree.take(place, short);
        Some(self.objects.expect_remove(object))
    }

    /// Takes up to `most` objects out, in the order of [`Table::iter`], and returns whether any are left: to empty a
    /// large table by requests of bounded work.
    pub fn remove_some(&mut self, most: usize) -> bool {
        for _ in 0..most {
            let Some(place) = self.tree.place_at_end(false) else { break };
            let (_, object) = self.tree.take(place, short);
            self.objects.expect_remove(object);
        }
        !self.is_empty()
    }

    /// All keys with their objects, in the order of the keys' hashes: the same on all replicas, and without a meaning.
    /// Each object is checked when the iteration reaches it, and is part of the request's state delta.
    pub fn iter(&self) -> Objects<'_, K, T> {
        let scan = MapScan::new(&self.tree, Direction::Forward, |_| false);
        Objects { scan, objects: &self.objects }
    }
}

/// Compares keys of the table with this one.
fn probe<K: Summed + Ord>(key: &K) -> impl Fn(&Hashed<K>) -> std::cmp::Ordering {
    let hash = hash_of(key);
    move |other| other.hash.cmp(&hash).then_with(|| other.key.as_ref().cmp(&Some(key)))
}

impl<K: Summed, T: Critical> fmt::Debug for Table<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} objects of {}",
            self.len(),
            <T::Members as crate::critical::Members>::CLASS.short_name()
        )
    }
}

/// Keys of a [`Table`] with their objects.
pub struct Objects<'t, K, T> {
    scan: MapScan<'t, Hashed<K>, Ref<T>>,
    objects: &'t Store<T>,
}

impl<'t, K: Summed + Ord, T: Critical> Iterator for Objects<'t, K, T> {
    type Item = (&'t K, &'t T);

    fn next(&mut self) -> Option<Self::Item> {
        let (hashed, object) = self.scan.next()?;
        Some((hashed.key.as_ref()?, self.objects.expect(*object)))
    }
}

impl<K, T> fmt::Debug for Objects<'_, K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("objects of a table")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where each bucket has a list, such keys are one long list, and every request of a client that has found them
    /// would walk through it.
    #[test]
    fn keys_of_one_hash_cost_no_more_than_others() {
        let mut tree: MapTree<Hashed<u64>, u64> = MapTree::new();
        let hashed = |key: u64| Hashed { hash: 7, key: Some(key) };
        for key in (0..2_000).map(|number| number * 7 % 2_000) {
            assert_eq!(tree.insert(hashed(key), key, short), None);
        }
        assert!(tree.height <= 3);
        for key in 0..2_000 {
            assert_eq!(tree.find(|other| other.cmp(&hashed(key))).map(|(_, value)| *value), Some(key));
            let place = tree.place_of(|other| other.cmp(&hashed(key))).expect("it is there");
            assert_eq!(tree.take(place, short).1, key);
        }
        assert!(tree.root.is_none() && tree.nodes.is_empty());
    }

    #[test]
    fn a_node_above_others_has_no_whole_keys() {
        let mut tree: MapTree<Hashed<String>, u64> = MapTree::new();
        for number in 0..500 {
            tree.insert(Hashed::of(format!("{number}").repeat(30)), number, short);
        }
        let root = tree.node(tree.root, tree.height);
        assert!(tree.height > 0 && root.keys.iter().all(|key| key.key.is_none()));
    }
}
