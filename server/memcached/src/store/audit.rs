//! Checks the structure of a whole shard: a second definition of a correct shard, for tests and simulation.

use std::collections::BTreeSet;

use crosscheck::object::{ObjectId, Store};

use crate::command::KeyHash;
use crate::store::fifo::{PAGE_BYTES, PageTable, Pages, Queue};
use crate::store::item::{Item, ItemRef};
use crate::store::table::{BUCKET_BYTES, Bucket, Directory};

/// The broken part of the structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misshapen {
    /// The count is not the number of items.
    Count,
    /// An item is not in the bucket of its key, or its tag there is wrong, or it is there twice.
    Bucket(ItemRef),
    /// A bucket names more items than there are.
    Entries,
    /// An item is not in a queue at the place it names.
    Place(ItemRef),
    /// A queue's items or bytes differ from those of the items that name it.
    Queue,
    /// A queue page is neither in use nor kept for its next use, or both.
    Pages,
    /// The charged bytes are not the sum of the charges.
    Bytes,
}

/// The parts of a shard.
pub(super) struct ShardParts<'a> {
    pub(super) count: u64,
    pub(super) bytes: u64,
    /// The id of its root.
    pub(super) shard: ObjectId,
    pub(super) directory: &'a Directory,
    /// The queue of new items, and the main one.
    pub(super) queues: [&'a Queue; 2],
    pub(super) items: &'a Store<Item>,
    pub(super) buckets: &'a Store<Bucket>,
    pub(super) page_table: &'a PageTable,
    pub(super) queue_pages: Pages<'a>,
}

impl ShardParts<'_> {
    /// Checks all relations between the shard's objects. Enters every object.
    ///
    /// # Errors
    /// The first error that is found.
    pub(super) fn audit(&self) -> Result<(), Misshapen> {
        let items = self.items.all();
        if items.len() as u64 != self.count {
            return Err(Misshapen::Count);
        }
        let mut charges = [0u64; 2];
        let mut counts = [0u32; 2];
        for &reference in &items {
            let item = self.items.expect(reference);
            let tag = KeyHash::of(item.key()).tag();
            let bucket = self.directory.bucket_of(self.shard, tag);
            let entries = bucket.map(|bucket| self.buckets.expect(bucket).entries()).unwrap_or_default();
            let mut named = entries.iter().filter(|entry| entry.item == reference && entry.tag == tag);
            if named.next().is_none() || named.next().is_some() {
                return Err(Misshapen::Bucket(reference));
            }
            let place = item.place();
            charges[usize::from(place.main)] += item.charge();
            counts[usize::from(place.main)] += 1;
        }
        let named: usize = self.buckets.all().iter().map(|b| self.buckets.expect(*b).entries().len()).sum();
        if named != items.len() {
            return Err(Misshapen::Entries);
        }
        if !self.page_table.is_whole(self.queue_pages) {
            return Err(Misshapen::Pages);
        }
        self.audit_queue(false, charges[0], counts[0])?;
        self.audit_queue(true, charges[1], counts[1])?;
        let administration =
            self.buckets.len() as u64 * BUCKET_BYTES + u64::from(self.page_table.used()) * PAGE_BYTES;
        if self.bytes != charges[0] + charges[1] + administration {
            return Err(Misshapen::Bytes);
        }
        Ok(())
    }

    fn audit_queue(&self, main: bool, bytes: u64, items: u32) -> Result<(), Misshapen> {
        let queue = self.queues[usize::from(main)];
        let listed = queue.all(self.queue_pages, main);
        let different: BTreeSet<ItemRef> = listed.iter().map(|(item, _)| *item).collect();
        let sizes = (queue.bytes(), queue.items(), listed.len(), different.len());
        if sizes != (bytes, items, items as usize, items as usize) {
            return Err(Misshapen::Queue);
        }
        match listed.iter().find(|(item, place)| self.items.expect(*item).place() != *place) {
            Some((item, _)) => Err(Misshapen::Place(*item)),
            None => Ok(()),
        }
    }
}
