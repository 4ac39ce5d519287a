//! The sweep: a hand goes round the queues of a shard and removes items that are dead, so that their memory is used
//! again before live items are evicted, and `curr_items` and `bytes` fall after a flush or an expiry.
//!
//! Two things move the hand, both of them ordered: an insert that lacks memory, by a few items, and the request
//! `sweep`, which a shard with items that can die starts for itself about once a second. A shard in which nothing can
//! die is not swept: it costs nothing.

use crosscheck::object::{Ref, Store, Summed};

use crate::store::fifo::{Queue, QueuePage, QueuePlace};
use crate::store::item::ItemRef;

/// Items that one sweep looks at, if none of them is dead.
pub(super) const FEW: u32 = 64;
/// The same, if one is.
pub(super) const MANY: u32 = 256;
/// Items at which an insert that lacks memory looks before it evicts a live one.
pub(super) const FOR_ROOM: u32 = 4;
/// A sweep that has found dead items is followed by the next one after so long, in microseconds.
const SOON_US: u64 = 250_000;
/// The same, if it has found none. A multiple of [`SOON_US`]: shards are swept in the same batch.
const LATER_US: u64 = 1_000_000;

/// The hand, and what is known of the items that can die. Part of the shard's root object.
#[derive(Default, Summed)]
pub struct Hand {
    /// The page and the place on it that come next; none for the beginning of the queue.
    page: Ref<QueuePage>,
    index: u8,
    /// Whether that is in the main queue, which is the second one of a round.
    main: bool,
    /// There may be items that can die: with a deadline, or flushed.
    mortal: bool,
    /// One was stored or met since this round began.
    met_mortal: bool,
    /// A request to sweep is to come.
    is_due: bool,
}

impl Hand {
    /// Whether there may be items that can die.
    pub(super) fn has_mortal(&self) -> bool {
        self.mortal
    }

    /// Whether an item that can die was stored or met in this round.
    pub(super) fn has_met_mortal(&self) -> bool {
        self.mortal && self.met_mortal
    }

    pub(super) fn note_mortal(&mut self) {
        (self.mortal, self.met_mortal) = (true, true);
    }

    /// Whether a request to sweep has to be started.
    pub(super) fn is_lacking(&self) -> bool {
        self.mortal && !self.is_due
    }

    /// A request to sweep is to come.
    pub(super) fn expect(&mut self) {
        self.is_due = true;
    }

    /// A sweep is over; another one comes if items can die.
    pub(super) fn end_sweep(&mut self, is_empty: bool) {
        self.mortal &= !is_empty;
        self.is_due = self.mortal;
    }

    /// The page at `place` is unlinked, and `after` follows it in its queue.
    pub(super) fn leave_page(&mut self, place: QueuePlace, after: Ref<QueuePage>) {
        if self.page == place.page() {
            self.go_to(after);
        }
    }

    /// The next item of the round; none in an empty shard.
    pub(super) fn next(&mut self, queues: [&Queue; 2], pages: &Store<QueuePage>) -> Option<ItemRef> {
        let mut ended = 0;
        while ended <= 2 {
            let queue = queues[usize::from(self.main)];
            let Some(page) = self.page.some().or(queue.first_page()) else {
                ended += 1;
                self.end_queue();
                continue;
            };
            let shown = pages.expect(page);
            if let Some((index, item)) = shown.next_from(self.index) {
                (self.page, self.index) = (page, index + 1);
                return Some(item);
            }
            let after = shown.after();
            ended += u32::from(after.is_none());
            self.go_to(after);
        }
        None
    }

    fn go_to(&mut self, page: Ref<QueuePage>) {
        (self.page, self.index) = (page, 0);
        if page.is_none() {
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

/// When the first sweep of a shard is due after an item that can die was stored, in microseconds of ordered time.
pub fn first_due_us(now_us: u64) -> u64 {
    due_us(now_us, LATER_US)
}

/// When the next one is due after a sweep that has found dead items, or none.
pub(super) fn next_due_us(now_us: u64, has_dead: bool) -> u64 {
    due_us(now_us, if has_dead { SOON_US } else { LATER_US })
}

fn due_us(now_us: u64, pause_us: u64) -> u64 {
    now_us.saturating_add(pause_us).next_multiple_of(SOON_US)
}
