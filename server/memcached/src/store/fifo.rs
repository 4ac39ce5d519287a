//! The queues of eviction (S3-FIFO): pages of references, so that a hit touches no neighbour and an insert one page.

use crosscheck::object::{ObjectId, Ref, Store, Summed, critical};

use crate::store::item::ItemRef;

/// References that one page holds.
const PAGE: usize = 32;
/// The memory of a page, in bytes.
pub const PAGE_BYTES: u64 = 640;

/// A first-in-first-out queue of items. Part of the shard's root object.
#[derive(Default, Summed)]
pub struct Queue {
    head: Ref<QueuePage>,
    tail: Ref<QueuePage>,
    items: u32,
    bytes: u64,
}

/// Where an item is: in which of the two queues, on which page, at which index.
#[derive(Clone, Copy, Default, PartialEq, Eq, Summed)]
pub struct QueuePlace {
    page: Ref<QueuePage>,
    index: u8,
    /// Whether the queue is the main one.
    pub main: bool,
}

/// A stretch of a queue, linked both ways so that it can go once all its items have gone.
#[critical]
pub struct QueuePage {
    before: Ref<QueuePage>,
    after: Ref<QueuePage>,
    /// Holes are items that left out of turn.
    items: Vec<ItemRef>,
    live: u8,
}

impl QueuePlace {
    /// Its page.
    pub fn page(&self) -> Ref<QueuePage> {
        self.page
    }
}

impl Queue {
    /// Items in the queue.
    pub fn items(&self) -> u32 {
        self.items
    }

    /// The id of the page with the next item to evict.
    pub fn head(&self) -> Option<ObjectId> {
        self.first_page().map(Ref::id)
    }

    /// That page.
    pub fn first_page(&self) -> Option<Ref<QueuePage>> {
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
    pub fn push(
        &mut self,
        pages: &mut Store<QueuePage>,
        item: ItemRef,
        charge: u64,
        main: bool,
    ) -> QueuePlace {
        if self.tail.is_none() || pages.expect(self.tail).is_full() {
            let page = pages.insert(QueuePage::new(self.tail));
            match self.tail.some() {
                Some(last) => pages.expect_mut(last).set_after(page),
                None => self.head = page,
            }
            self.tail = page;
        }
        self.items += 1;
        self.bytes += charge;
        QueuePlace { page: self.tail, index: pages.expect_mut(self.tail).push(item), main }
    }

    /// The item that has waited longest.
    pub fn oldest(&self, pages: &Store<QueuePage>) -> Option<ItemRef> {
        // A page without live items is unlinked at once, so the head has one if there is any.
        self.first_page().and_then(|head| pages.expect(head).next_from(0)).map(|(_, item)| item)
    }

    /// All items with their places, oldest first; stops at a page that it has seen.
    pub fn all(&self, pages: &Store<QueuePage>, main: bool) -> Vec<(ItemRef, QueuePlace)> {
        let mut all = Vec::new();
        let mut page = self.head;
        for _ in 0..pages.len() {
            let Some(at) = page.some() else { break };
            let items = pages.expect(at).items().iter().enumerate();
            let live = items.filter(|(_, item)| item.is_some());
            all.extend(live.map(|(index, item)| (*item, QueuePlace { page: at, index: index as u8, main })));
            page = pages.expect(at).after();
        }
        all
    }

    /// Takes an item out, wherever it is. If its page is unlinked then, returns the one after it.
    pub fn remove(
        &mut self,
        pages: &mut Store<QueuePage>,
        place: QueuePlace,
        charge: u64,
    ) -> Option<Ref<QueuePage>> {
        let page = pages.expect_mut(place.page);
        page.clear(place.index);
        self.items = self.items.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(charge);
        if !page.is_dead() {
            return None;
        }
        let (before, after) = (page.before(), page.after());
        if before.is_none() && after.is_none() {
            // The only page stays, empty, so that a queue of few items does not make one for each.
            page.reset();
            return None;
        }
        match before.some() {
            Some(before) => pages.expect_mut(before).set_after(after),
            None => self.head = after,
        }
        match after.some() {
            Some(after) => pages.expect_mut(after).set_before(before),
            None => self.tail = before,
        }
        pages.expect_remove(place.page);
        Some(after)
    }
}

#[critical]
impl QueuePage {
    fn new(before: Ref<QueuePage>) -> Self {
        Self { before, after: Ref::NONE, items: Vec::with_capacity(PAGE), live: 0 }
    }

    fn items(&self) -> &[ItemRef] {
        &self.items
    }

    fn is_full(&self) -> bool {
        self.items.len() >= PAGE
    }

    fn is_dead(&self) -> bool {
        self.live == 0
    }

    fn before(&self) -> Ref<QueuePage> {
        self.before
    }

    /// The next page of its queue.
    pub fn after(&self) -> Ref<QueuePage> {
        self.after
    }

    /// The first item at this index or behind it, with its index.
    pub fn next_from(&self, index: u8) -> Option<(u8, ItemRef)> {
        let mut places = (0..).zip(self.items.iter().copied()).skip(usize::from(index));
        places.find(|(_, item)| item.is_some())
    }

    fn set_before(&mut self, before: Ref<QueuePage>) {
        self.before = before;
    }

    fn set_after(&mut self, after: Ref<QueuePage>) {
        self.after = after;
    }

    fn push(&mut self, item: ItemRef) -> u8 {
        self.items.push(item);
        self.live += 1;
        (self.items.len() - 1) as u8
    }

    fn reset(&mut self) {
        self.items.clear();
    }

    fn clear(&mut self, index: u8) {
        if let Some(slot) = self.items.get_mut(usize::from(index)) {
            self.live = self.live.saturating_sub(u8::from(slot.is_some()));
            *slot = ItemRef::NONE;
        }
    }
}
