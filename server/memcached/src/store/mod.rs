//! One shard: the items, table and queues behind one lock, all of them protected objects.
//!
//! Everything here is a function of the ordered requests: time, uniques and flushes come with the request, growth is a
//! bucket per insert, and eviction takes items in the order of their queues.

mod audit;
pub mod expiry;
mod fifo;
mod item;
mod sweep;
mod table;

use crosscheck::object::{ObjectId, Store, Summed, critical};

use crate::command::{Key, KeyHash};
use crate::limits::{ITEM_BYTES_MIN, LARGEST_ITEMS_PER_SHARD, stock_overhead};
use crate::sizes::Sizes;
use crate::stats::{ServiceCounters, Stats};
use crate::store::expiry::Deadline;
use crate::store::fifo::{PAGE_BYTES, PageTable, Pages, PagesMut, Queue, QueuePage, QueuePlace};
use crate::store::sweep::Hand;
use crate::store::table::{BUCKET_BYTES, Bucket, Directory};
use crate::watch::{WatchKinds, WatchLog};

pub use crate::store::audit::Misshapen;
pub use crate::store::item::{ITEM_OVERHEAD, Item, ItemRef, Marks, NewItem, charge};

/// Share of a shard's memory that new items fill before they need a hit to stay (S3-FIFO's small queue): 1/10.
const PROBATION_SHARE: u64 = 10;
/// Items that one request may pass over before it evicts the next in turn, hit or not: bounds the work of a request.
const PASSED_OVER: u32 = 64;

/// Items that one request evicts at most besides those whose memory it needs, after the limit was lowered: bounds the
/// work of a request.
const EVICTED_BESIDES: u32 = 32;

/// Memory that an insert may take besides the item itself: a bucket, and a page of either queue.
const ADMINISTRATION: u64 = BUCKET_BYTES + 2 * PAGE_BYTES;

const _: () = assert!(
    ADMINISTRATION + ITEM_OVERHEAD < (LARGEST_ITEMS_PER_SHARD - 1) * ITEM_BYTES_MIN as u64,
    "the largest item fits into an empty shard"
);

/// What an operator bounds a shard with, and the batches that have set it; 0 where it is of the founding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Summed)]
pub struct Limits {
    /// Memory for items and their administration, in bytes.
    pub memory: u64,
    /// Longest item in bytes, counted as stock memcached counts it ([`stock_overhead`]).
    pub item_bytes: u64,
    /// When the first was set.
    pub memory_set_at: u64,
    /// When the second was set.
    pub item_set_at: u64,
}

impl Limits {
    /// Those of a group that begins.
    pub fn of_founding(memory: u64, item_bytes: u64) -> Self {
        Limits { memory, item_bytes, memory_set_at: 0, item_set_at: 0 }
    }
}

/// The state that all requests on one shard share. Each shard is one region, behind one lock.
#[critical]
pub struct Shard {
    limits: Limits,
    /// Bytes charged against the memory limit.
    bytes: u64,
    /// Items in the table.
    count: u64,
    /// Items evicted so far: the clock of the ghosts.
    evicted: u32,
    /// Items of another epoch have been flushed.
    epoch: u32,
    /// When the next epoch begins, if a `flush_all` with a delay is pending.
    flush_us: Deadline,
    hand: Hand,
    directory: Directory,
    probation: Queue,
    main: Queue,
    page_table: PageTable,
    items: Store<Item>,
    buckets: Store<Bucket>,
    queue_pages: Store<QueuePage>,
}

/// Position and time of a request: the ordered facts that every operation on a shard depends on.
#[derive(Clone, Copy)]
pub struct ShardTurn<'a> {
    /// Ordered time in microseconds since 1970.
    pub now_us: u64,
    /// The unique of items that this request stores: its ordered position.
    pub unique: u64,
    /// The counters.
    pub counters: &'a ServiceCounters,
    /// The estimates of values' lengths.
    pub sizes: &'a Sizes,
    /// Where events are noted that a client watches.
    pub watch: Option<&'a WatchLog>,
}

/// The result of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ItemLookup {
    /// No item of that key.
    Nothing,
    /// A live one.
    Live(ItemRef),
    /// An expired one.
    Expired(ItemRef),
    /// A flushed one.
    Flushed(ItemRef),
}

/// The live item of that key. A dead one that it meets is removed on the way, and counted as the reason of a miss when
/// `looking` (a retrieval).
pub fn find(shard: &mut Shard, key: &Key, turn: ShardTurn<'_>, looking: bool) -> Option<ItemRef> {
    if looking && turn.watch.is_some() {
        note_read(shard, key, shard.lookup(key, turn.now_us), turn);
    }
    let (dead, reason) = match shard.lookup(key, turn.now_us) {
        ItemLookup::Nothing => return None,
        ItemLookup::Live(item) => return Some(item),
        ItemLookup::Expired(item) => (item, &turn.counters.get_expired),
        ItemLookup::Flushed(item) => (item, &turn.counters.get_flushed),
    };
    if looking {
        Stats::count(reason);
    }
    shard.reclaim(dead, turn);
    None
}

/// Tells clients that watch reads what one found.
pub fn note_read(shard: &Shard, key: &Key, lookup: ItemLookup, turn: ShardTurn<'_>) {
    let Some(watch) = turn.watch else { return };
    let (status, size) = match lookup {
        ItemLookup::Nothing => ("not_found", 0),
        ItemLookup::Live(item) => ("found", shard.item(item).value_len()),
        ItemLookup::Expired(_) => ("expired", 0),
        ItemLookup::Flushed(_) => ("flushed", 0),
    };
    let rest = format_args!("status={status} clsid=1 size={size}");
    watch.note(WatchKinds::FETCHERS, "item_get", key.bytes(), rest);
}

/// Removes a live item on a client's behalf.
pub fn delete_item(shard: &mut Shard, item: ItemRef, turn: ShardTurn<'_>) {
    Stats::count(&turn.counters.delete_hits);
    if let Some(watch) = turn.watch {
        let gone = shard.item(item);
        let rest = format_args!("cmd=delete clsid=1 size={}", gone.value_len());
        watch.note(WatchKinds::DELETIONS, "deleted", gone.key(), rest);
    }
    shard.remove(item);
}

/// Notes a hit; enters the shard and the item for writing only if that changes anything.
pub fn access(shard: &mut Shard, item: ItemRef, now_us: u64) {
    if shard.item(item).access_changes(now_us) {
        shard.item_mut(item).access(now_us);
    }
}

/// Before something is read: every [`sweep::READS`]th request looks at a few items of the shard, and removes the dead
/// ones.
pub fn sweep_at_times(shard: &mut Shard, turn: ShardTurn<'_>) {
    if turn.unique.is_multiple_of(sweep::READS) {
        sweep(shard, turn);
    }
}

/// Before something is stored: looks at a few items of the shard, and removes the dead ones.
pub fn sweep(shard: &mut Shard, turn: ShardTurn<'_>) {
    if shard.has_mortal() {
        shard.sweep(turn);
    }
}

/// Gives an item another deadline.
pub fn set_deadline(shard: &mut Shard, item: ItemRef, deadline: Deadline) {
    shard.item_mut(item).set_deadline(deadline);
    note_deadline(shard, deadline);
}

/// An item with this deadline was stored. Enters the shard for writing only if that changes anything.
fn note_deadline(shard: &mut Shard, deadline: Deadline) {
    if deadline != expiry::NEVER && !shard.has_met_mortal() {
        shard.note_mortal();
    }
}

/// Stores another value under a key that has a live item; its place in the queue remains.
pub fn replace(shard: &mut Shard, item: ItemRef, new: &NewItem<'_>, turn: ShardTurn<'_>) {
    let old = shard.item(item);
    if old.charge() == charge(old.key_len(), new.value.len()) {
        shard.replace_alike(item, new, turn);
    } else {
        shard.replace_resized(item, new, turn);
    }
    note_deadline(shard, new.expires_us);
    Stats::count(&turn.counters.total_items);
}

#[critical]
impl Shard {
    /// An empty shard.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            bytes: 0,
            count: 0,
            evicted: 0,
            epoch: 0,
            flush_us: expiry::NEVER,
            hand: Hand::default(),
            directory: Directory::default(),
            probation: Queue::default(),
            main: Queue::default(),
            page_table: PageTable::default(),
            items: Store::new(),
            buckets: Store::new(),
            queue_pages: Store::new(),
        }
    }

    /// The result of a lookup of that key. Changes nothing, so that a lookup does not count as a change of the shard.
    pub fn lookup(&self, key: &Key, now_us: u64) -> ItemLookup {
        let Some(found) = self.peek(key) else { return ItemLookup::Nothing };
        let item = self.items.expect(found);
        if expiry::is_over(self.flush_us, now_us) || item.is_flushed(self.epoch) {
            ItemLookup::Flushed(found)
        } else if item.is_expired(now_us) {
            ItemLookup::Expired(found)
        } else {
            ItemLookup::Live(found)
        }
    }

    /// The item of that key, dead or alive.
    pub fn peek(&self, key: &Key) -> Option<ItemRef> {
        let tag = key.hash().tag();
        let bucket = self.directory.bucket_of(self.object_id(), tag)?;
        let entries = self.buckets.expect(bucket).entries();
        let same = |entry: &&table::BucketEntry| {
            entry.tag == tag && self.items.expect(entry.item).has_key(key.bytes())
        };
        entries.iter().find(same).map(|entry| entry.item)
    }

    /// The item itself.
    pub fn item(&self, item: ItemRef) -> &Item {
        self.items.expect(item)
    }

    /// The item itself, for changes that keep its size.
    #[through]
    pub fn item_mut(&mut self, item: ItemRef) -> &mut Item {
        self.items.expect_mut(item)
    }

    /// Stores a new item under a key that has none.
    pub fn insert(&mut self, key: &Key, new: &NewItem<'_>, turn: ShardTurn<'_>) -> ItemRef {
        self.begin_epoch_if_due(turn.now_us);
        let tag = key.hash().tag();
        let charge = charge(key.bytes().len(), new.value.len());
        self.make_room(charge, turn, None);
        if self.directory.wants_growth(self.count) {
            let shard = self.object_id();
            self.directory.grow(shard, &mut self.buckets);
            self.bytes += BUCKET_BYTES;
        }
        let item = self.items.insert(Item::new(key.bytes(), new, self.epoch, turn.now_us));
        self.count += 1;
        self.bytes += charge;
        let mut returns = false;
        if let Some(bucket) = self.directory.bucket_of(self.object_id(), tag) {
            let bucket = self.buckets.expect_mut(bucket);
            returns = bucket.is_haunted(tag, self.evicted, self.main.items().max(1));
            bucket.insert(tag, item);
        }
        self.enqueue(item, charge, returns);
        if new.expires_us != expiry::NEVER {
            self.hand.note_mortal();
        }
        Stats::count(&turn.counters.total_items);
        item
    }

    /// Stores another value that takes as much memory as the one before: nothing of the shard's own changes.
    #[through]
    fn replace_alike(&mut self, item: ItemRef, new: &NewItem<'_>, turn: ShardTurn<'_>) {
        let epoch = *self.epoch;
        self.items.expect_mut(item).replace(new, epoch, turn.now_us);
    }

    /// Stores another value that takes more or less memory.
    fn replace_resized(&mut self, item: ItemRef, new: &NewItem<'_>, turn: ShardTurn<'_>) {
        let old = self.items.expect(item);
        let (before, place) = (old.charge(), old.place());
        let after = charge(old.key_len(), new.value.len());
        if after > before {
            self.make_room(after - before, turn, Some(item));
        }
        self.items.expect_mut(item).replace(new, self.epoch, turn.now_us);
        // Making space may have moved the item to the main queue.
        let place = if after > before { self.items.expect(item).place() } else { place };
        self.queue_mut(place.main).recharge(before, after);
        self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
    }

    /// Removes an item.
    pub fn remove(&mut self, item: ItemRef) {
        self.unlink(item, false);
    }

    /// Removes everything that is stored now, at once or at `begin_us`. The last such call counts.
    pub fn flush(&mut self, begin_us: Deadline, now_us: u64) {
        self.begin_epoch_if_due(now_us);
        self.flush_us = begin_us.max(expiry::PAST);
        self.begin_epoch_if_due(now_us);
    }

    /// Items, dead ones included until a request finds and removes them.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Bytes charged against the limit.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Shows live items, in an order that is the same at all replicas, until `visit` returns false; returns whether it
    /// did not.
    pub fn visit_live(&self, now_us: u64, visit: &mut dyn FnMut(&Item) -> bool) -> bool {
        if expiry::is_over(self.flush_us, now_us) {
            return true;
        }
        self.directory.all(self.object_id()).all(|bucket| {
            let mut items =
                self.buckets.expect(bucket).entries().iter().map(|entry| self.items.expect(entry.item));
            items.all(|item| item.is_dead(self.epoch, now_us) || visit(item))
        })
    }

    /// What bounds it.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Sets what bounds it. Where more is stored, each insert evicts a little more than it needs until it is kept;
    /// items that are too long by now stay.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Whether stock memcached would find such an item too large.
    pub fn is_too_large(&self, key: &Key, flags: u32, value: usize) -> bool {
        (stock_overhead(flags) + key.bytes().len() + value) as u64 > self.limits.item_bytes
    }

    /// Checks all relations between the shard's objects. Enters every object.
    ///
    /// # Errors
    /// The first error that is found.
    pub fn audit(&self) -> Result<(), Misshapen> {
        let parts = audit::ShardParts {
            count: self.count,
            bytes: self.bytes,
            shard: self.object_id(),
            directory: &self.directory,
            queues: [&self.probation, &self.main],
            items: &self.items,
            buckets: &self.buckets,
            page_table: &self.page_table,
            queue_pages: self.pages(),
        };
        parts.audit()
    }

    /// The id of the object that `what` names: `item`, `slot` (the bucket) of a key, for the fault injector.
    pub fn name(&self, what: &str, key: &Key) -> Option<ObjectId> {
        match what {
            "item" => self.peek(key).map(|item| item.id()),
            "slot" => self.directory.bucket_of(self.object_id(), key.hash().tag()).map(|bucket| bucket.id()),
            _ => None,
        }
    }

    /// The id of the queue page with the next item to evict.
    pub fn queue_head(&self) -> Option<ObjectId> {
        let me = self.object_id();
        self.probation.head(me).or(self.main.head(me))
    }

    fn begin_epoch_if_due(&mut self, now_us: u64) {
        if expiry::is_over(self.flush_us, now_us) {
            self.flush_us = expiry::NEVER;
            self.epoch = self.epoch.wrapping_add(1);
            self.note_mortal();
        }
    }

    fn note_mortal(&mut self) {
        self.hand.note_mortal();
    }

    fn has_met_mortal(&self) -> bool {
        self.hand.has_met_mortal()
    }

    /// Whether items can die here.
    fn has_mortal(&self) -> bool {
        self.hand.has_mortal() || self.flush_us != expiry::NEVER
    }

    /// Looks at a few items, and removes the dead ones.
    fn sweep(&mut self, turn: ShardTurn<'_>) {
        self.begin_epoch_if_due(turn.now_us);
        for _ in 0..sweep::PER_STORE {
            if !self.hand.has_mortal() || self.sweep_next(turn, None).is_none() {
                break;
            }
        }
    }

    /// Looks at the next item of the round, and removes it if it is dead. Returns whether it was; none in an empty
    /// shard.
    fn sweep_next(&mut self, turn: ShardTurn<'_>, spared: Option<ItemRef>) -> Option<bool> {
        let pages = Pages { shard: self.object_id(), store: &self.queue_pages };
        let next = self.hand.next([&self.probation, &self.main], pages)?;
        let item = self.items.expect(next);
        let is_dead = item.is_dead(self.epoch, turn.now_us) && spared != Some(next);
        if is_dead {
            self.reclaim(next, turn);
        } else if item.deadline() != expiry::NEVER {
            self.hand.note_mortal();
        }
        Some(is_dead)
    }

    /// Removes an item that is dead.
    fn reclaim(&mut self, item: ItemRef, turn: ShardTurn<'_>) {
        Stats::count(&turn.counters.reclaimed);
        self.remove(item);
    }

    /// Makes room for `needed` more bytes, sparing `spared`: dead items go first, as far as a few looks find them.
    fn make_room(&mut self, needed: u64, turn: ShardTurn<'_>, spared: Option<ItemRef>) {
        let mut looks = 0;
        while self.lacks_room(needed) && self.hand.has_mortal() && looks < sweep::FOR_ROOM {
            if let Some(dead) = self.dead_head(turn.now_us, spared) {
                self.reclaim(dead, turn);
            } else {
                looks += 1;
                self.sweep_next(turn, spared);
            }
        }
        self.evict(needed, turn, spared);
    }

    fn lacks_room(&self, needed: u64) -> bool {
        self.bytes.saturating_add(needed + ADMINISTRATION) > self.limits.memory
    }

    /// The item that has waited longest in either queue, if it is dead.
    fn dead_head(&self, now_us: u64, spared: Option<ItemRef>) -> Option<ItemRef> {
        let heads = [true, false].into_iter().filter_map(|main| self.queue(main).oldest(self.pages()));
        let is_dead = |head: &ItemRef| self.items.expect(*head).is_dead(self.epoch, now_us);
        heads.filter(|head| spared != Some(*head)).find(is_dead)
    }

    /// Evicts until `needed` more bytes fit, sparing `spared`; in a shard whose limit was lowered, at most
    /// [`EVICTED_BESIDES`] items more than give that room.
    fn evict(&mut self, needed: u64, turn: ShardTurn<'_>, spared: Option<ItemRef>) {
        let mut passed_over = 0;
        let mut met_spared = false;
        let (mut freed, mut besides) = (0, 0);
        while self.lacks_room(needed) && (freed < needed + ADMINISTRATION || besides < EVICTED_BESIDES) {
            besides += u32::from(freed >= needed + ADMINISTRATION);
            let mut main = self.main.items() > 0
                && (self.probation.items() == 0
                    || self.probation.bytes() <= self.limits.memory / PROBATION_SHARE);
            let Some(mut candidate) = self.queue(main).oldest(self.pages()) else { return };
            if met_spared && spared == Some(candidate) {
                // No other item of its queue can be evicted, so the other queue has to give one up. Every round makes
                // some progress.
                main = !main;
                match self.queue(main).oldest(self.pages()) {
                    Some(other) if spared != Some(other) => candidate = other,
                    _ => return,
                }
            }
            let item = self.items.expect(candidate);
            let dead = item.is_dead(self.epoch, turn.now_us);
            let hit = item.marks().hits() > 0;
            let spare = spared == Some(candidate);
            if spare && self.probation.items() + self.main.items() == 1 {
                return;
            }
            if spare || (!dead && hit && passed_over < PASSED_OVER) {
                passed_over += 1;
                met_spared |= spare;
                self.pass_over(candidate);
                continue;
            }
            met_spared = false;
            let counters = turn.counters;
            Stats::count(if dead { &counters.reclaimed } else { &counters.evictions });
            if !dead && !item.marks().has(Marks::FETCHED) {
                Stats::count(&counters.evicted_unfetched);
            }
            freed += item.charge();
            if let (Some(watch), false) = (turn.watch, dead) {
                let fetched = if item.marks().has(Marks::FETCHED) { "yes" } else { "no" };
                let ttl = expiry::remaining_s(item.deadline(), turn.now_us).map_or(-1, |s| s as i64);
                let (idle, size) = (item.idle_s(turn.now_us), item.value_len());
                let rest = format_args!("fetch={fetched} ttl={ttl} la={idle} clsid=1 size={size}");
                watch.note(WatchKinds::EVICTIONS, "eviction", item.key(), rest);
            }
            self.unlink(candidate, !dead && !main);
        }
    }

    /// Moves an item to the end of the main queue, for one of its hits.
    fn pass_over(&mut self, item: ItemRef) {
        let (charge, place) = (self.items.expect(item).charge(), self.items.expect(item).place());
        self.leave_queue(place, charge);
        self.items.expect_mut(item).spend_hit();
        self.enqueue(item, charge, true);
    }

    fn enqueue(&mut self, item: ItemRef, charge: u64, main: bool) {
        let place = self.with_queue(main, |queue, pages| queue.push(pages, item, charge, main));
        self.items.expect_mut(item).set_place(place);
    }

    fn leave_queue(&mut self, place: QueuePlace, charge: u64) {
        let after = self.with_queue(place.main, |queue, pages| queue.remove(pages, place, charge));
        if let Some(after) = after {
            self.hand.leave_page(place, after);
        }
    }

    fn unlink(&mut self, item: ItemRef, haunts: bool) {
        let gone = self.items.expect(item);
        let (tag, charge, place) = (KeyHash::of(gone.key()).tag(), gone.charge(), gone.place());
        if let Some(bucket) = self.directory.bucket_of(self.object_id(), tag) {
            let bucket = self.buckets.expect_mut(bucket);
            bucket.remove(item);
            if haunts {
                self.evicted = self.evicted.wrapping_add(1);
                bucket.haunt(tag, self.evicted);
            }
        }
        self.leave_queue(place, charge);
        self.items.expect_remove(item);
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(charge);
    }

    /// Changes a queue, and charges the pages it takes or gives back.
    fn with_queue<R>(&mut self, main: bool, change: impl FnOnce(&mut Queue, &mut PagesMut<'_>) -> R) -> R {
        let shard = self.object_id();
        let queue = if main { &mut self.main } else { &mut self.probation };
        let before = u64::from(self.page_table.used());
        let mut pages = PagesMut { shard, table: &mut self.page_table, store: &mut self.queue_pages };
        let result = change(queue, &mut pages);
        let after = u64::from(self.page_table.used());
        self.bytes = (self.bytes + after * PAGE_BYTES).saturating_sub(before * PAGE_BYTES);
        result
    }

    fn pages(&self) -> Pages<'_> {
        Pages { shard: self.object_id(), store: &self.queue_pages }
    }

    fn queue(&self, main: bool) -> &Queue {
        if main { &self.main } else { &self.probation }
    }

    fn queue_mut(&mut self, main: bool) -> &mut Queue {
        if main { &mut self.main } else { &mut self.probation }
    }
}

/// Names of the protected classes.
pub const CLASSES: [&str; 4] = ["Shard", "Item", "Bucket", "QueuePage"];

/// Protects objects of these classes only, in the whole process from now on: for benchmarks.
#[cfg(feature = "lab")]
pub fn protect_only(names: &[&str]) {
    let known = crosscheck::object::exempt::protect_only::<Shard>(names);
    debug_assert!(known.iter().all(|class| CLASSES.contains(class)), "{known:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The real memory of an item: its slot, the allocator's header, its places in bucket and queue (which are
    /// half full on average).
    #[test]
    fn an_item_is_charged_with_what_it_costs() {
        let places = 2 * (size_of::<table::BucketEntry>() + size_of::<ItemRef>());
        let cost = size_of::<Option<Item>>() + 16 + places;
        println!(
            "item {} bytes, entry {}, place {}",
            size_of::<Item>(),
            size_of::<table::BucketEntry>(),
            size_of::<ItemRef>()
        );
        assert!(cost as u64 <= ITEM_OVERHEAD, "{cost} bytes");
        assert!(ITEM_OVERHEAD - cost as u64 <= 32, "{cost} bytes: the charge is too pessimistic");
    }
}
