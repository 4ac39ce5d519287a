//! The sweep: a hand goes round the queues of a shard and removes items that are dead, so that their memory is used
//! again before live items are evicted, and `curr_items` and `bytes` fall after a flush or an expiry.
//!
//! Requests that store something move the hand, each by a few items, and by some more where memory is short; of those
//! that read, one in sixteen does. A shard in which nothing can die is not swept: it costs nothing.

use crosscheck::object::Summed;

use crate::store::fifo::{PageNumber, Pages, Queue, QueuePlace};
use crate::store::item::ItemRef;

/// Items at which a request looks that stores something. More than one, or the hand would not gain on inserts.
pub(super) const PER_STORE: u32 = 4;
/// Of so many requests, one sweeps although it only reads: as few as keep the cost of a read unchanged.
pub(super) const READS: u64 = 16;
/// Items at which an insert that lacks memory looks besides, before it evicts a live one.
pub(super) const FOR_ROOM: u32 = 4;

/// The hand, and what is known of the items that can die. Part of the shard's root object.
#[derive(Default, Summed)]
pub struct Hand {
    /// The page and the place on it that come next; none for the beginning of the queue.
    page: PageNumber,
    index: u8,
    /// Whether that is in the main queue, which is the second one of a round.
    main: bool,
    /// There may be items that can die: with a deadline, or flushed.
    mortal: bool,
    /// One was stored or met since this round began.
    met_mortal: bool,
}

impl Hand {
    /// Whether there may be items that can die.
    pub(super) fn has_mortal(&self) -> bool {
        self.mortal
    }

    /// Whether an item that can die was stored or met in this round.
    pub(super) fn has_met_mortal(&self) -> bool {
        self.met_mortal
    }

    pub(super) fn note_mortal(&mut self) {
        (self.mortal, self.met_mortal) = (true, true);
    }

    /// The page at `place` is unlinked, and `after` follows it in its queue.
    pub(super) fn leave_page(&mut self, place: QueuePlace, after: PageNumber) {
        if self.page == place.page() {
            self.go_to(after);
        }
    }

    /// The next item of the round; none in an empty shard.
    pub(super) fn next(&mut self, queues: [&Queue; 2], pages: Pages<'_>) -> Option<ItemRef> {
        let mut ended = 0;
        while ended <= 2 {
            let queue = queues[usize::from(self.main)];
            let Some(page) = self.page.some().or(queue.first_page()) else {
                ended += 1;
                self.end_queue();
                continue;
            };
            let shown = pages.get(page);
            if let Some((index, item)) = shown.next_from(self.index) {
                (self.page, self.index) = (page, index + 1);
                return Some(item);
            }
            let after = shown.after();
            ended += u32::from(after.some().is_none());
            self.go_to(after);
        }
        None
    }

    fn go_to(&mut self, page: PageNumber) {
        (self.page, self.index) = (page, 0);
        if page.some().is_none() {
            self.end_queue();
        }
    }

    /// The next item is the first one of the other queue.
    fn end_queue(&mut self) {
        if self.main {
            // A round has met every item that was there when it began.
            (self.mortal, self.met_mortal) = (self.met_mortal, false);
        }
        self.main = !self.main;
    }
}
