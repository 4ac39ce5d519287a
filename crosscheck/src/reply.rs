//! Where handlers write replies, and where the replies stay until they have left and no peer can need them.

use bytes::{Bytes, BytesMut};

/// Kept replies lie behind one another in blocks of this size: a block is allocated once for many of them.
const BLOCK: usize = 16 << 10;
/// A reply from this length on has its own allocation, so that one that is kept for long keeps little else.
const LARGE: usize = BLOCK / 4;

/// One worker's replies.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    /// The reply of the request that runs.
    pub current: Vec<u8>,
    block: BytesMut,
}

impl Replies {
    /// The current reply, to be kept.
    pub fn keep(&mut self) -> Bytes {
        if self.current.len() >= LARGE {
            return Bytes::copy_from_slice(&self.current);
        }
        if self.block.capacity() < self.current.len() {
            self.block = BytesMut::with_capacity(BLOCK);
        }
        self.block.extend_from_slice(&self.current);
        self.block.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays_as_it_was() {
        let mut replies = Replies::default();
        let lengths = [0, 1, 500, LARGE - 1, LARGE, 3 * BLOCK];
        let kept: Vec<(u8, usize, Bytes)> = (0..200u8)
            .map(|round| {
                let length = lengths[usize::from(round) % lengths.len()];
                replies.current.clear();
                replies.current.resize(length, round);
                (round, length, replies.keep())
            })
            .collect();
        assert!(kept.iter().all(|(round, length, reply)| *reply == vec![*round; *length]));
    }
}
