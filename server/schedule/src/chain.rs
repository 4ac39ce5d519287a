//! One writer, many readers, each reading everything once: the log and the lists of rare events.
//!
//! A chain of chunks; a reader holds the chunk it reads, and chunks before the slowest reader are freed by their
//! reference count.

use std::sync::{Arc, OnceLock};

/// Items per chunk: amortises the allocation, and keeps few items alive behind the slowest reader.
const CHUNK: usize = 32;

struct Chunk<T> {
    items: [OnceLock<T>; CHUNK],
    next: OnceLock<Arc<Chunk<T>>>,
}

impl<T> Chunk<T> {
    fn new() -> Arc<Self> {
        Arc::new(Chunk { items: [const { OnceLock::new() }; CHUNK], next: OnceLock::new() })
    }
}

impl<T> Drop for Chunk<T> {
    /// Frees a long rest of the chain in a loop: the recursion of the default would use a stack frame per chunk.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut chunk) = next.and_then(Arc::into_inner) {
            next = chunk.next.take();
        }
    }
}

/// The writing end.
pub(crate) struct Writer<T> {
    tail: Arc<Chunk<T>>,
    used: usize,
}

/// A reading end.
pub(crate) struct ChainReader<T> {
    chunk: Arc<Chunk<T>>,
    read: usize,
}

impl<T> Writer<T> {
    pub fn new() -> Self {
        Writer { tail: Chunk::new(), used: 0 }
    }

    /// A reader of everything that is pushed from now on.
    pub fn reader(&self) -> ChainReader<T> {
        ChainReader { chunk: Arc::clone(&self.tail), read: self.used }
    }

    pub fn push(&mut self, item: T) {
        if self.used == CHUNK {
            let next = Chunk::new();
            let linked = self.tail.next.set(Arc::clone(&next));
            debug_assert!(linked.is_ok(), "one writer");
            (self.tail, self.used) = (next, 0);
        }
        let stored = self.tail.items[self.used].set(item);
        debug_assert!(stored.is_ok(), "one writer");
        self.used += 1;
    }
}

impl<T: Clone> ChainReader<T> {
    /// The next item if there is one, and moves past it.
    pub fn next(&mut self) -> Option<T> {
        if self.read == CHUNK {
            let next = self.chunk.next.get()?;
            (self.chunk, self.read) = (Arc::clone(next), 0);
        }
        let item = self.chunk.items[self.read].get()?.clone();
        self.read += 1;
        Some(item)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_reader_sees_everything_once_and_memory_is_returned() {
        let mut writer = Writer::new();
        let mut early = writer.reader();
        let items: Vec<Arc<usize>> = (0..1_000).map(Arc::new).collect();
        items.iter().for_each(|item| writer.push(Arc::clone(item)));
        let mut late = writer.reader();
        assert!(late.next().is_none());
        let seen: Vec<usize> = std::iter::from_fn(|| early.next()).map(|item| *item).collect();
        assert_eq!(seen, (0..1_000).collect::<Vec<_>>());
        writer.push(Arc::new(1_000));
        assert_eq!((late.next().as_deref(), early.next().as_deref()), (Some(&1_000), Some(&1_000)));
        let held = items.iter().filter(|item| Arc::strong_count(item) > 1).count();
        assert!(held < 2 * CHUNK, "{held} items are still held behind all readers");
    }

    #[test]
    fn a_long_unread_chain_is_freed_without_recursion() {
        let mut writer = Writer::new();
        let reader = writer.reader();
        (0..2_000_000u32).for_each(|i| writer.push(i));
        drop(writer);
        drop(reader);
    }
}
