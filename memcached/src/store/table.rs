//! The hash table: linear hashing that splits one bucket per growing insert, so that no request pays for all.
//!
//! A bucket also remembers recently evicted items (ghosts): an item that is stored again soon is worth keeping.

use crosscheck::object::{Ref, Store, Summed, critical};

use crate::store::item::ItemRef;

/// Items per bucket at which the table grows.
const LOAD: u32 = 8;
/// Buckets whose references one directory page holds.
const PAGE: u32 = 64;
/// Ghosts that one bucket remembers.
const GHOSTS: usize = LOAD as usize;
/// The memory of a bucket and its share of the directory, in bytes, without entries.
pub const BUCKET_BYTES: u64 = 160;

/// Finds the bucket of a tag. Part of the shard's root object.
#[derive(Default, Summed)]
pub struct Directory {
    buckets: u32,
    pages: Vec<Ref<DirectoryPage>>,
}

/// References to [`PAGE`] buckets.
#[critical]
pub struct DirectoryPage {
    buckets: Vec<Ref<Bucket>>,
}

/// The items whose tags fall together.
#[critical]
pub struct Bucket {
    entries: Vec<BucketEntry>,
    ghosts: Vec<Ghost>,
}

/// One item of a bucket.
#[derive(Clone, Copy, Summed)]
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

impl Directory {
    /// The bucket of `tag`; `None` while the table is empty.
    pub fn bucket_of(&self, tag: u32, pages: &Store<DirectoryPage>) -> Option<Ref<Bucket>> {
        let number = self.number_of(tag)?;
        let page = self.pages.get((number / PAGE) as usize)?;
        Some(pages.expect(*page).bucket((number % PAGE) as usize))
    }

    /// Whether a table of `items` items should grow by a bucket.
    pub fn wants_growth(&self, items: u64) -> bool {
        items >= u64::from(self.buckets) * u64::from(LOAD)
    }

    /// Adds a bucket and moves the entries that belong there from the bucket that it splits.
    pub fn grow(&mut self, pages: &mut Store<DirectoryPage>, buckets: &mut Store<Bucket>) {
        let number = self.buckets;
        let split = number.checked_ilog2().map(|top| number & !(1 << top));
        let source = split.and_then(|source| {
            let page = self.pages.get((source / PAGE) as usize)?;
            Some(pages.expect(*page).bucket((source % PAGE) as usize))
        });
        self.buckets += 1;
        let moved = match source {
            Some(source) => buckets.expect_mut(source).split_off(number, self.buckets),
            None => Bucket::new(),
        };
        let bucket = buckets.insert(moved);
        if number.is_multiple_of(PAGE) {
            self.pages.push(pages.insert(DirectoryPage::new()));
        }
        if let Some(page) = self.pages.last() {
            pages.expect_mut(*page).push(bucket);
        }
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
impl DirectoryPage {
    fn new() -> Self {
        Self { buckets: Vec::with_capacity(PAGE as usize) }
    }

    fn bucket(&self, index: usize) -> Ref<Bucket> {
        self.buckets[index]
    }

    fn push(&mut self, bucket: Ref<Bucket>) {
        self.buckets.push(bucket);
    }
}

#[critical]
impl Bucket {
    fn new() -> Self {
        Self { entries: Vec::new(), ghosts: Vec::new() }
    }

    /// A bucket of these entries.
    fn of(entries: Vec<BucketEntry>, ghosts: Vec<Ghost>) -> Self {
        Self { entries, ghosts }
    }

    /// Its entries, in the order of their insertion but for removals.
    pub fn entries(&self) -> &[BucketEntry] {
        &self.entries
    }

    /// Adds an item.
    pub fn insert(&mut self, tag: u32, item: ItemRef) {
        self.entries.push(BucketEntry { tag, item });
    }

    /// Removes the item; returns whether it was there.
    pub fn remove(&mut self, item: ItemRef) -> bool {
        match self.entries.iter().position(|entry| entry.item == item) {
            Some(at) => {
                self.entries.swap_remove(at);
                true
            }
            None => false,
        }
    }

    /// Remembers that an item with this tag was evicted as the `stamp`-th.
    pub fn haunt(&mut self, tag: u32, stamp: u32) {
        self.ghosts.retain(|ghost| ghost.tag != tag);
        if self.ghosts.len() == GHOSTS {
            self.ghosts.remove(0);
        }
        self.ghosts.push(Ghost { tag, stamp });
    }

    /// Whether an item with this tag was evicted at most `window` evictions before `stamp`.
    pub fn is_haunted(&self, tag: u32, stamp: u32, window: u32) -> bool {
        self.ghosts.iter().any(|ghost| ghost.tag == tag && stamp.wrapping_sub(ghost.stamp) <= window)
    }

    /// Takes out the entries that belong to bucket `number` among `buckets`.
    fn split_off(&mut self, number: u32, buckets: u32) -> Bucket {
        let goes = |tag: u32| number_of(tag, buckets) == number;
        let entries = self.entries.extract_if(.., |entry| goes(entry.tag)).collect();
        let ghosts = self.ghosts.extract_if(.., |ghost| goes(ghost.tag)).collect();
        Bucket::of(entries, ghosts)
    }
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
