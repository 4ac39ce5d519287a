//! The buffers in which handlers write replies, and in which replies stay until they have left and no peer can need
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::{Bytes, BytesMut};

/// Kept replies are stored one after the other in blocks of this size: a block is allocated once for many of them.
const BLOCK: usize = 16 << 10;
/// A reply of at least this length has its own allocation, so that a reply that is kept for long keeps little other
/// memory.
pub(crate) const LARGE: usize = BLOCK / 4;
/// A reply of at least this length is kept where its handler wrote it: to copy it costs more than a new buffer for the
/// next one.
const HUGE: usize = 256 << 10;

/// The bytes that the large replies of a replica take together, from the end of their handlers until they are no longer
/// needed, and their bound.
///
/// The requests of clients are bounded by the expected lengths of their replies (`clients::Budget`). This is the bound
/// for replies that are longer than expected: the last bound, and the only one that does not depend on an estimate. One
/// reply that takes much of it is counted separately from the others, so that a client that reads such a reply slowly
/// does not cost others their replies.
#[derive(Debug)]
pub(crate) struct KeptReplies {
    bytes: AtomicUsize,
    /// The reply that is counted separately; 0: none.
    beside: AtomicUsize,
    bound: usize,
}

/// How a reply is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountedAs {
    AmongOthers,
    Beside,
}

impl KeptReplies {
    /// A bound of so many bytes, plus one long reply.
    pub fn new(bound: usize) -> Arc<Self> {
        Arc::new(KeptReplies { bytes: AtomicUsize::new(0), beside: AtomicUsize::new(0), bound })
    }

    /// The bytes that they take now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed) + self.beside.load(Relaxed)
    }

    /// The bytes that they may take.
    pub fn bound(&self) -> usize {
        self.bound
    }

    /// Reserves so many bytes more, if the bound allows.
    fn take(&self, bytes: usize) -> Option<CountedAs> {
        if bytes > self.bound / 4 && self.beside.compare_exchange(0, bytes, Relaxed, Relaxed).is_ok() {
            return Some(CountedAs::Beside);
        }
        let others = self.bytes.fetch_add(bytes, Relaxed);
        if others.saturating_add(bytes) <= self.bound {
            return Some(CountedAs::AmongOthers);
        }
        self.bytes.fetch_sub(bytes, Relaxed);
        None
    }

    fn count(&self, place: CountedAs) -> &AtomicUsize {
        match place {
            CountedAs::AmongOthers => &self.bytes,
            CountedAs::Beside => &self.beside,
        }
    }
}

/// A reply that is counted until it is dropped.
struct Counted {
    reply: Vec<u8>,
    kept: Arc<KeptReplies>,
    place: CountedAs,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.reply
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.kept.count(self.place).fetch_sub(self.reply.capacity(), Relaxed);
    }
}

/// One worker's replies.
#[derive(Debug)]
pub(crate) struct Replies {
    /// The reply of the request that runs.
    pub current: Vec<u8>,
    block: BytesMut,
    kept: Arc<KeptReplies>,
}

impl Replies {
    /// The replies of a worker whose replica counts its large replies in `kept`.
    pub fn new(kept: Arc<KeptReplies>) -> Self {
        Replies { current: Vec::new(), block: BytesMut::new(), kept }
    }

    /// The next request runs. Frees the buffer of a long reply that was not kept.
    pub fn begin(&mut self) {
        self.current.clear();
        if self.current.capacity() > 2 * HUGE {
            self.current = Vec::new();
        }
    }

    /// Takes the current reply, to be kept; none if there is no room for it. A long one is not in `current` afterwards.
    pub fn keep(&mut self) -> Option<Bytes> {
        if self.current.len() >= LARGE {
            return self.keep_large();
        }
        if self.block.capacity() < self.current.len() {
            self.block = BytesMut::with_capacity(BLOCK);
        }
        self.block.extend_from_slice(&self.current);
        Some(self.block.split().freeze())
    }

    fn keep_large(&mut self) -> Option<Bytes> {
        let place = self.kept.take(self.current.len())?;
        let (length, kept) = (self.current.len(), self.kept.clone());
        let mut reply = Vec::new();
        if length < HUGE {
            reply.reserve_exact(length);
            reply.extend_from_slice(&self.current);
        } else {
            std::mem::swap(&mut reply, &mut self.current);
            reply.shrink_to_fit();
        }
        // The allocator may have allocated a little more than requested.
        kept.count(place).fetch_add(reply.capacity() - length, Relaxed);
        Some(Bytes::from_owner(Counted { reply, kept, place }))
    }
}

// Replies that a voter leaves out of its window have to be counted here.
const _: () = assert!(LARGE <= vote::limits::LONG_REPLY_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays_as_it_was() {
        let mut replies = Replies::new(KeptReplies::new(usize::MAX));
        let lengths = [0, 1, 500, LARGE - 1, LARGE, 3 * BLOCK, HUGE, HUGE + 1];
        let kept: Vec<(u8, usize, Bytes)> = (0..200u8)
            .map(|round| {
                let length = lengths[usize::from(round) % lengths.len()];
                replies.begin();
                replies.current.resize(length, round);
                (round, length, replies.keep().unwrap())
            })
            .collect();
        assert!(kept.iter().all(|(round, length, reply)| *reply == vec![*round; *length]));
    }

    #[test]
    fn large_replies_are_kept_within_their_bound_and_one_beside_them() {
        let kept = KeptReplies::new(100 * LARGE);
        let mut replies = Replies::new(kept.clone());
        let mut keep = |length: usize| {
            replies.begin();
            replies.current.resize(length, 7);
            replies.keep()
        };
        let beside = keep(1000 * LARGE).expect("one is kept, however long it is");
        assert!(keep(1000 * LARGE).is_none());
        let part = beside.slice(5..10);
        drop(beside);
        assert!(keep(1000 * LARGE).is_none(), "a part of it keeps all of it");
        let many: Vec<Bytes> = std::iter::from_fn(|| keep(2 * LARGE)).collect();
        assert_eq!((many.len(), kept.bytes()), (50, 1100 * LARGE));
        assert!(keep(LARGE).is_none() && keep(LARGE - 1).is_some());
        drop(part);
        assert_eq!(kept.bytes(), 100 * LARGE);
        drop(many);
        assert_eq!(kept.bytes(), 0);
    }

    #[test]
    fn a_worker_gives_back_the_place_of_a_long_reply_that_was_not_kept() {
        let mut replies = Replies::new(KeptReplies::new(0));
        let _alone = {
            replies.current.resize(LARGE, 1);
            replies.keep().unwrap()
        };
        replies.current.resize(8 * HUGE, 2);
        assert!(replies.keep().is_none());
        replies.begin();
        assert_eq!(replies.current.capacity(), 0);
    }
}
