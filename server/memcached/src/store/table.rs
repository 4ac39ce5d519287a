//! The hash table: linear hashing that splits one bucket per growing insert, so that no request pays for all.
//!
//! A bucket also remembers recently evicted items (ghosts): an item that is stored again soon is worth keeping.

use crosscheck::object::{Malformed, ObjectId, Reader, Ref, Store, Summed, Summer, critical};

use crate::store::item::ItemRef;

/// Items per bucket at which the table grows.
const LOAD: u32 = 8;
/// Ghosts that one bucket remembers.
const GHOSTS: usize = LOAD as usize;
/// The memory of a bucket in bytes, without entries.
pub const BUCKET_BYTES: u64 = 160;

/// Finds the bucket of a tag. Part of the shard's root object.
///
/// Buckets are named after their numbers and never leave their store, so that a lookup reads no list of them.
#[derive(Default, Summed)]
pub struct Directory {
    buckets: u32,
}

/// The items whose tags fall together.
///
/// Both lists have just the memory of what is in them: with room for more, every item would pay for half an entry that
/// is not there.
#[critical]
pub struct Bucket {
    entries: Box<[BucketEntry]>,
    ghosts: Box<[Ghost]>,
}

/// One item of a bucket.
#[derive(Clone, Copy)]
pub struct BucketEntry {
    /// The upper bits avoid most accesses to items with other keys.
    pub tag: u32,
    /// The item.
    pub item: ItemRef,
}

/// An item that was evicted before it was read again.
#[derive(Clone, Copy, Summed)]
pub struct Ghost {
    tag: u32,
    /// The shard's count of evictions then.
    stamp: u32,
}

impl BucketEntry {
    fn row(&self) -> [u8; 12] {
        let mut row = [0; 12];
        row[..4].copy_from_slice(&self.tag.to_le_bytes());
        row[4..].copy_from_slice(&self.item.id().to_bits().to_le_bytes());
        row
    }
}

/// Written by hand because every request sums a bucket: all of its entries in one call.
impl Summed for BucketEntry {
    fn sum(&self, summer: &mut Summer) {
        summer.bytes(&self.row());
    }
    fn sum_all(all: &[Self], summer: &mut Summer) {
        summer.rows(all.iter().map(BucketEntry::row));
    }
    fn pack(&self, out: &mut Vec<u8>) {
        self.tag.pack(out);
        self.item.pack(out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(BucketEntry { tag: Summed::unpack(from)?, item: Summed::unpack(from)? })
    }
    fn blank() -> Self {
        BucketEntry { tag: 0, item: ItemRef::NONE }
    }
}

impl Directory {
    /// The bucket of `tag` in the shard `shard`; `None` while the table is empty.
    pub fn bucket_of(&self, shard: ObjectId, tag: u32) -> Option<Ref<Bucket>> {
        Some(Ref::numbered(shard, self.number_of(tag)?))
    }

    /// All buckets of the shard `shard`, in order.
    pub fn all(&self, shard: ObjectId) -> impl Iterator<Item = Ref<Bucket>> + use<> {
        (0..self.buckets).map(move |number| Ref::numbered(shard, number))
    }

    /// Whether a table of `items` items should grow by a bucket.
    pub fn wants_growth(&self, items: u64) -> bool {
        items >= u64::from(self.buckets) * u64::from(LOAD)
    }

    /// Adds a bucket and moves the entries that belong there from the bucket that it splits.
    pub fn grow(&mut self, shard: ObjectId, buckets: &mut Store<Bucket>) {
        let number = self.buckets;
        let split = number.checked_ilog2().map(|top| number & !(1 << top));
        self.buckets += 1;
        let bucket = match split {
            Some(source) => buckets.expect_mut(Ref::numbered(shard, source)).split_off(number, self.buckets),
            None => Bucket::new(),
        };
        buckets.insert_numbered(shard, number, bucket);
    }

    fn number_of(&self, tag: u32) -> Option<u32> {
        if self.buckets == 0 { None } else { Some(number_of(tag, self.buckets)) }
    }
}

/// The bucket of `tag` among `buckets` (at least one): by its low bits, one bit fewer where that bucket is
/// not split yet.
fn number_of(tag: u32, buckets: u32) -> u32 {
    let bits = buckets.next_power_of_two() - 1;
    let number = tag & bits;
    if number < buckets { number } else { number & (bits >> 1) }
}

#[critical]
impl Bucket {
    fn new() -> Self {
        Self { entries: Box::default(), ghosts: Box::default() }
    }

    /// A bucket of these entries.
    fn of(entries: Box<[BucketEntry]>, ghosts: Box<[Ghost]>) -> Self {
        Self { entries, ghosts }
    }

    /// Its entries, in the order of their insertion but for removals.
    pub fn entries(&self) -> &[BucketEntry] {
        &self.entries
    }

    /// Adds an item.
    pub fn insert(&mut self, tag: u32, item: ItemRef) {
        change(&mut self.entries, 1, |entries| entries.push(BucketEntry { tag, item }));
    }

    /// Removes the item; returns whether it was there.
    pub fn remove(&mut self, item: ItemRef) -> bool {
        match self.entries.iter().position(|entry| entry.item == item) {
            Some(at) => {
                change(&mut self.entries, 0, |entries| entries.swap_remove(at));
                true
            }
            None => false,
        }
    }

    /// Remembers that an item with this tag was evicted as the `stamp`-th.
    pub fn haunt(&mut self, tag: u32, stamp: u32) {
        let more = usize::from(self.ghosts.len() < GHOSTS);
        change(&mut self.ghosts, more, |ghosts| {
            ghosts.retain(|ghost| ghost.tag != tag);
            if ghosts.len() == GHOSTS {
                ghosts.remove(0);
            }
            ghosts.push(Ghost { tag, stamp });
        });
    }

    /// Whether an item with this tag was evicted at most `window` evictions before `stamp`.
    pub fn is_haunted(&self, tag: u32, stamp: u32, window: u32) -> bool {
        self.ghosts.iter().any(|ghost| ghost.tag == tag && stamp.wrapping_sub(ghost.stamp) <= window)
    }

    /// Takes out the entries that belong to bucket `number` among `buckets`.
    fn split_off(&mut self, number: u32, buckets: u32) -> Bucket {
        let goes = |tag: u32| number_of(tag, buckets) == number;
        let entries =
            change(&mut self.entries, 0, |all| all.extract_if(.., |entry| goes(entry.tag)).collect());
        let ghosts = change(&mut self.ghosts, 0, |all| all.extract_if(.., |ghost| goes(ghost.tag)).collect());
        Bucket::of(entries, ghosts)
    }
}

/// Changes a list that grows by `more` at most, and gives it just the memory that it needs then.
fn change<T, R>(list: &mut Box<[T]>, more: usize, change: impl FnOnce(&mut Vec<T>) -> R) -> R {
    let mut all = std::mem::take(list).into_vec();
    all.reserve_exact(more);
    let result = change(&mut all);
    *list = all.into_boxed_slice();
    result
}

#[cfg(test)]
mod tests {
    use super::number_of;

    #[test]
    fn a_split_moves_tags_only_to_the_new_bucket() {
        for buckets in 1..200u32 {
            for tag in (0..4_000u32).map(|i| i.wrapping_mul(0x9e37_79b9)) {
                let (before, after) = (number_of(tag, buckets), number_of(tag, buckets + 1));
                assert!(before < buckets);
                let split = buckets & !(1 << buckets.ilog2());
                assert!(after == before || (after == buckets && before == split));
            }
        }
    }
}
