//! The queue: objects with some values each, and with a reference to the next one.

use crate::collections::delegate::member_of_parts;
use crate::collections::part::{CollectionPart, body};
use crate::collections::size::{self, FULL};
use crate::collections::tree::broken;
use crate::reference::Ref;
use crate::store::Store;
use crate::summed::Summed;
use std::collections::VecDeque;
use std::fmt;

/// A queue as a member of a critical type: first in, first out.
///
/// Its values are in objects of at most about [`crate::NODE_BYTES`] each. An operation touches one of them and the
/// owner, whose checksum covers the number of values; where one is full or empty, two.
///
/// A value that is longer than that makes an object of its own, as long as the value.
pub struct Queue<V> {
    front: BlockRef<V>,
    back: BlockRef<V>,
    length: u64,
    blocks: Store<CollectionPart<QueueBlock<V>>>,
}

/// Refers to an object of a queue.
pub type BlockRef<V> = Ref<CollectionPart<QueueBlock<V>>>;

/// Some values of a queue.
pub struct QueueBlock<V> {
    items: VecDeque<V>,
    next: BlockRef<V>,
}

body! {
    QueueBlock<V> {
        0 items: VecDeque<V>,
        1 next: BlockRef<V>,
    }
}

member_of_parts! {
    Queue<V: Summed> {
        front: BlockRef<V>,
        back: BlockRef<V>,
        length: u64,
        blocks: Store<CollectionPart<QueueBlock<V>>>,
    }
}

impl<V: Summed> QueueBlock<V> {
    /// Whether a further value of so many bytes is one too many.
    fn is_full_with(&self, more: usize) -> bool {
        let (front, back) = self.items.as_slices();
        !self.items.is_empty() && size::of_all(front) + size::of_all(back) + more > FULL
    }
}

impl<V: Summed> Queue<V> {
    /// An empty queue. It has no objects.
    pub const fn new() -> Self {
        Queue { front: Ref::NONE, back: Ref::NONE, length: 0, blocks: Store::new() }
    }

    /// Number of values. Touches nothing but the owner.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether there are none. Touches nothing but the owner.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Puts a value in behind all others. Changes one object; two where it begins another one.
    pub fn push_back(&mut self, value: V) {
        let more = size::of(&value);
        self.length = self.length.wrapping_add(1);
        let back = self.back.some();
        if let Some(back) = back.filter(|back| !self.blocks.expect(*back).read().is_full_with(more)) {
            return self.blocks.expect_mut(back).write().items.push_back(value);
        }
        let block = QueueBlock { items: VecDeque::from([value]), next: Ref::NONE };
        self.back = self.blocks.insert(CollectionPart::new(block));
        match back {
            Some(before) => self.blocks.expect_mut(before).write().next = self.back,
            None => self.front = self.back,
        }
    }

    /// The value that is next to leave. Touches one object.
    pub fn front(&self) -> Option<&V> {
        let front = self.front.some()?;
        let value = self.blocks.expect(front).read().items.front();
        // An object without values leaves the queue.
        Some(value.unwrap_or_else(|| broken::<QueueBlock<V>>(front.id())))
    }

    /// Takes the value that is in front of all others out. Changes one object.
    pub fn pop_front(&mut self) -> Option<V> {
        let front = self.front.some()?;
        let block = self.blocks.expect_mut(front).write();
        let Some(value) = block.items.pop_front() else { broken::<QueueBlock<V>>(front.id()) };
        self.length = self.length.wrapping_sub(1);
        if block.items.is_empty() {
            self.front = block.next;
            self.blocks.expect_remove(front);
            if self.front.is_none() {
                self.back = Ref::NONE;
            }
        }
        Some(value)
    }

    /// Takes up to `most` values out, and returns whether any are left: to empty a long queue by requests of bounded
    /// work.
    pub fn remove_some(&mut self, most: usize) -> bool {
        for _ in 0..most {
            if self.pop_front().is_none() {
                break;
            }
        }
        !self.is_empty()
    }

    /// All values, in the order in which they leave. Each object is checked when the iteration reaches it, and is part
    /// of the request's state delta.
    pub fn iter(&self) -> Items<'_, V> {
        Items { queue: self, block: None, next: self.front, at: 0, left: self.length }
    }
}

impl<V: Summed> fmt::Debug for Queue<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values", self.len())
    }
}

/// Values of a [`Queue`] in their order.
pub struct Items<'q, V> {
    queue: &'q Queue<V>,
    block: Option<&'q QueueBlock<V>>,
    next: BlockRef<V>,
    at: usize,
    /// How many follow: a damaged queue whose last object has a next one is not walked through for ever.
    left: u64,
}

impl<'q, V: Summed> Iterator for Items<'q, V> {
    type Item = &'q V;

    fn next(&mut self) -> Option<&'q V> {
        let has_more = self.block.is_some_and(|block| self.at < block.items.len());
        if !has_more {
            let is_end = self.next.is_none();
            if is_end != (self.left == 0) {
                // More or fewer values than the owner says.
                broken::<QueueBlock<V>>(self.next.some().unwrap_or(self.queue.back).id());
            }
            let next = self.next.some()?;
            let block = self.queue.blocks.expect(next).read();
            if block.items.is_empty() {
                broken::<QueueBlock<V>>(next.id());
            }
            (self.block, self.next, self.at) = (Some(block), block.next, 0);
        }
        let Some(left) = self.left.checked_sub(1) else {
            broken::<QueueBlock<V>>(self.queue.back.id());
        };
        self.left = left;
        self.at += 1;
        self.block?.items.get(self.at - 1)
    }
}

impl<V> fmt::Debug for Items<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "values of a queue, {} of them left", self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::How;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_queue_that_goes_round_and_one_that_ends_early_end_an_iteration() {
        let mut queue = Queue::new();
        (0..1_000u64).for_each(|value| queue.push_back(value));
        assert!(queue.iter().copied().eq(0..1_000));
        let (front, back) = (queue.front, queue.back);
        for next in [front, back] {
            queue.blocks.expect_mut(back).write().next = next;
            let payload = catch_unwind(AssertUnwindSafe(|| queue.iter().count())).expect_err("it goes round");
            assert_eq!(crate::corrupted(&*payload).map(|found| found.how), Some(How::Structure));
        }
        queue.blocks.expect_mut(front).write().next = Ref::NONE;
        let payload = catch_unwind(AssertUnwindSafe(|| queue.iter().count())).expect_err("it ends early");
        assert_eq!(crate::corrupted(&*payload).map(|found| found.how), Some(How::Structure));
    }
}
