//! The queues of eviction (S3-FIFO): pages of references, so that a hit touches no neighbour and an insert one page.

use crosscheck::object::{Malformed, ObjectId, Reader, Ref, Store, Summed, Summer, critical};

use crate::store::item::ItemRef;

/// References that one page holds.
const PAGE: usize = 32;
/// What a page is charged with, in bytes.
pub const PAGE_BYTES: u64 = 640;

const _: () = assert!(size_of::<Option<QueuePage>>() <= 416, "13 bytes per item");

/// Number of a page in the shard's table of pages. An item keeps it in 4 bytes, where a reference takes 12.
#[derive(Clone, Copy, PartialEq, Eq, Summed)]
pub struct PageNumber(u32);

/// A first-in-first-out queue of items. Part of the shard's root object.
#[derive(Default, Summed)]
pub struct Queue {
    head: PageNumber,
    tail: PageNumber,
    items: u32,
    bytes: u64,
}

/// Where an item is: in which of the two queues, on which page, at which index.
#[derive(Clone, Copy, Default, PartialEq, Eq, Summed)]
pub struct QueuePlace {
    page: PageNumber,
    index: u8,
    /// Whether the queue is the main one.
    pub main: bool,
}

/// A stretch of a queue, linked both ways so that it can go once all its items have gone.
#[critical]
pub struct QueuePage {
    before: PageNumber,
    /// In a page that is in no queue: the next such page.
    after: PageNumber,
    items: PageItems,
    live: u8,
    is_free: bool,
}

/// The items of a page in the order in which they came.
struct PageItems {
    /// Those up to `pushed` are items, or holes where one left out of turn. The others mean nothing.
    items: [ItemRef; PAGE],
    pushed: u8,
}

/// The pages of both queues. Part of the shard's root object.
///
/// As buckets do, pages have numbers and never leave their store: one without items waits here for its next use. So a
/// number is all that a reference to a page needs.
#[derive(Default, Summed)]
pub struct PageTable {
    /// Pages with numbers.
    made: u32,
    /// Those in a queue.
    used: u32,
    /// The first one in no queue.
    free: PageNumber,
}

/// The pages of a shard, to read them.
#[derive(Clone, Copy)]
pub struct Pages<'a> {
    /// The id of the shard, after which they are named.
    pub shard: ObjectId,
    /// Where they are.
    pub store: &'a Store<QueuePage>,
}

/// The pages of a shard, to change them.
pub struct PagesMut<'a> {
    /// The id of the shard, after which they are named.
    pub shard: ObjectId,
    /// Which are in use.
    pub table: &'a mut PageTable,
    /// Where they are.
    pub store: &'a mut Store<QueuePage>,
}

impl PageNumber {
    const NONE: PageNumber = PageNumber(u32::MAX);

    /// The number, unless it is of no page.
    pub fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }

    fn of(self, shard: ObjectId) -> Ref<QueuePage> {
        Ref::numbered(shard, ObjectId::SECOND_TABLE | self.0)
    }
}

impl Default for PageNumber {
    fn default() -> Self {
        PageNumber::NONE
    }
}

impl PageTable {
    /// Pages that are in a queue.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Whether the pages in no queue are those that wait here: for audits.
    pub fn is_whole(&self, pages: Pages<'_>) -> bool {
        let (mut free, mut next) = (0, self.free);
        while let Some(number) = next.some().filter(|_| free < self.made) {
            let page = pages.get(number);
            if !page.is_free() {
                return false;
            }
            (free, next) = (free + 1, page.after());
        }
        next == PageNumber::NONE && free + self.used == self.made && pages.store.len() == self.made as usize
    }
}

impl PageItems {
    const EMPTY: PageItems = PageItems { items: [ItemRef::NONE; PAGE], pushed: 0 };

    fn pushed(&self) -> &[ItemRef] {
        self.items.get(..usize::from(self.pushed)).unwrap_or(&self.items)
    }
}

/// Written by hand so that only items that are there are summed and packed: a page that changes is half full on
/// average.
impl Summed for PageItems {
    fn sum(&self, summer: &mut Summer) {
        summer.length(usize::from(self.pushed));
        ItemRef::sum_all(self.pushed(), summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        self.pushed.pack(out);
        ItemRef::pack_all(self.pushed(), out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut page = PageItems { pushed: u8::unpack(from)?, ..PageItems::EMPTY };
        let places = page.items.get_mut(..usize::from(page.pushed));
        for place in places.ok_or(Malformed("a queue page with too many items"))? {
            *place = ItemRef::unpack(from)?;
        }
        Ok(page)
    }
    fn blank() -> Self {
        PageItems::EMPTY
    }
}

impl<'a> Pages<'a> {
    /// A page that the structure names.
    pub fn get(self, number: PageNumber) -> &'a QueuePage {
        self.store.expect(number.of(self.shard))
    }
}

impl PagesMut<'_> {
    fn get(&self, number: PageNumber) -> &QueuePage {
        self.store.expect(number.of(self.shard))
    }

    fn get_mut(&mut self, number: PageNumber) -> &mut QueuePage {
        self.store.expect_mut(number.of(self.shard))
    }

    /// A page for the end of a queue, behind `before`.
    fn take(&mut self, before: PageNumber) -> PageNumber {
        self.table.used += 1;
        if let Some(number) = self.table.free.some() {
            self.table.free = self.get(number).after();
            self.get_mut(number).begin(before);
            return number;
        }
        let number = PageNumber(self.table.made);
        self.table.made += 1;
        self.store.insert_numbered(self.shard, ObjectId::SECOND_TABLE | number.0, QueuePage::new(before));
        number
    }

    /// A page that is linked to no other any more.
    fn put_back(&mut self, number: PageNumber) {
        let next = self.table.free;
        self.get_mut(number).end(next);
        self.table.free = number;
        self.table.used = self.table.used.saturating_sub(1);
    }
}

impl QueuePlace {
    /// Its page.
    pub fn page(&self) -> PageNumber {
        self.page
    }
}

impl Queue {
    /// Items in the queue.
    pub fn items(&self) -> u32 {
        self.items
    }

    /// The id of the page with the next item to evict.
    pub fn head(&self, shard: ObjectId) -> Option<ObjectId> {
        self.first_page().map(|page| page.of(shard).id())
    }

    /// That page.
    pub fn first_page(&self) -> Option<PageNumber> {
        self.head.some()
    }

    /// Bytes charged for its items.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The charge of one of its items changes.
    pub fn recharge(&mut self, before: u64, after: u64) {
        self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
    }

    /// Appends an item; returns its place (`main` as given).
    pub fn push(&mut self, pages: &mut PagesMut<'_>, item: ItemRef, charge: u64, main: bool) -> QueuePlace {
        if self.tail.some().is_none_or(|tail| pages.get(tail).is_full()) {
            let page = pages.take(self.tail);
            match self.tail.some() {
                Some(last) => pages.get_mut(last).set_after(page),
                None => self.head = page,
            }
            self.tail = page;
        }
        self.items += 1;
        self.bytes += charge;
        QueuePlace { page: self.tail, index: pages.get_mut(self.tail).push(item), main }
    }

    /// The item that has waited longest.
    pub fn oldest(&self, pages: Pages<'_>) -> Option<ItemRef> {
        // A page without live items is unlinked at once, so the head has one if there is any.
        self.first_page().and_then(|head| pages.get(head).next_from(0)).map(|(_, item)| item)
    }

    /// All items with their places, oldest first; stops after as many pages as there are.
    pub fn all(&self, pages: Pages<'_>, main: bool) -> Vec<(ItemRef, QueuePlace)> {
        let mut all = Vec::new();
        let mut page = self.head;
        for _ in 0..pages.store.len() {
            let Some(at) = page.some() else { break };
            let items = pages.get(at).items().iter().enumerate();
            let live = items.filter(|(_, item)| item.is_some());
            all.extend(live.map(|(index, item)| (*item, QueuePlace { page: at, index: index as u8, main })));
            page = pages.get(at).after();
        }
        all
    }

    /// Takes an item out, wherever it is. If its page is unlinked then, returns the one after it.
    pub fn remove(&mut self, pages: &mut PagesMut<'_>, place: QueuePlace, charge: u64) -> Option<PageNumber> {
        let page = pages.get_mut(place.page);
        page.clear(place.index);
        self.items = self.items.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(charge);
        if !page.is_dead() {
            return None;
        }
        let (before, after) = (page.before(), page.after());
        if before.some().is_none() && after.some().is_none() {
            // The only page stays, empty, so that a queue of few items does not make one for each.
            page.reset();
            return None;
        }
        match before.some() {
            Some(before) => pages.get_mut(before).set_after(after),
            None => self.head = after,
        }
        match after.some() {
            Some(after) => pages.get_mut(after).set_before(before),
            None => self.tail = before,
        }
        pages.put_back(place.page);
        Some(after)
    }
}

#[critical]
impl QueuePage {
    fn new(before: PageNumber) -> Self {
        Self { before, after: PageNumber::NONE, items: PageItems::EMPTY, live: 0, is_free: false }
    }

    /// It is the last one of a queue from now on.
    fn begin(&mut self, before: PageNumber) {
        (self.before, self.after, self.is_free) = (before, PageNumber::NONE, false);
    }

    /// It is in no queue from now on.
    fn end(&mut self, next: PageNumber) {
        // Without what it held: pages in no queue are the same however they were used.
        (self.before, self.after, self.is_free) = (PageNumber::NONE, next, true);
        (self.items, self.live) = (PageItems::EMPTY, 0);
    }

    fn items(&self) -> &[ItemRef] {
        self.items.pushed()
    }

    fn is_full(&self) -> bool {
        usize::from(self.items.pushed) >= PAGE
    }

    fn is_dead(&self) -> bool {
        self.live == 0
    }

    fn is_free(&self) -> bool {
        self.is_free
    }

    fn before(&self) -> PageNumber {
        self.before
    }

    /// The next page of its queue.
    pub fn after(&self) -> PageNumber {
        self.after
    }

    /// The first item at this index or behind it, with its index.
    pub fn next_from(&self, index: u8) -> Option<(u8, ItemRef)> {
        let mut places = (0..).zip(self.items.pushed().iter().copied()).skip(usize::from(index));
        places.find(|(_, item)| item.is_some())
    }

    fn set_before(&mut self, before: PageNumber) {
        self.before = before;
    }

    fn set_after(&mut self, after: PageNumber) {
        self.after = after;
    }

    fn push(&mut self, item: ItemRef) -> u8 {
        let index = self.items.pushed;
        if let Some(slot) = self.items.items.get_mut(usize::from(index)) {
            *slot = item;
        }
        self.items.pushed = index.saturating_add(1);
        self.live = self.live.saturating_add(1);
        index
    }

    fn reset(&mut self) {
        self.items = PageItems::EMPTY;
    }

    fn clear(&mut self, index: u8) {
        if let Some(slot) = self.items.items.get_mut(usize::from(index)) {
            self.live = self.live.saturating_sub(u8::from(slot.is_some()));
            *slot = ItemRef::NONE;
        }
    }
}
