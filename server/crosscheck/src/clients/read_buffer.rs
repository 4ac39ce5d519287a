//! The buffer into which a client's bytes are read. With cross-checking it is read once, and copied twice
//! ([`super::input`]).
//!
//! A client's bytes have no checksum before they are here. So one is made as soon as the kernel has written them, and
//! a copy is compared with it: a flip in the buffer, before or between the copies, is noticed. The result of the call,
//! how many bytes came, is kept twice at once, and each copy goes by its own: a wrong one makes the copies differ. A
//! wrong result of the call itself would make both alike. One that is too small, or too large by eight or more, shows
//! in the pattern that the buffer has where the kernel has written nothing.
//!
//! Where a bit flip is not noticed: in the kernel; in the bytes between its copy and the sum, which follows at once;
//! and in the register of the call's result, until it is kept twice, if that makes it larger by one to seven (V51 in
//! docs/vulnerabilities.md).

use std::io;

use crate::limits;

/// What the buffer has where nothing was read, repeated. Bytes of a client hardly look like it.
const PATTERN: [u8; 8] = [0xA7, 0x1C, 0xE9, 0x52, 0xBB, 0x06, 0xD4, 0x8F];

/// The buffer, for all connections of a client thread; they keep only the bytes that were read.
pub(super) struct ReadBuffer(Vec<u8>);

/// How many bytes were read, once for each copy, and their sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadBytes {
    counts: [usize; 2],
    sum: u32,
    /// The kernel has written as many.
    is_sure: bool,
}

impl ReadBuffer {
    pub fn new() -> Self {
        ReadBuffer(PATTERN.repeat(limits::READ_CHUNK / PATTERN.len() + 1))
    }

    /// Whether it has its length, and the pattern that it has between two reads if bytes are `copied_twice`. With an
    /// empty buffer, reads return nothing, as if every client had hung up.
    pub fn is_valid(&self, copied_twice: bool) -> bool {
        // Where each part is the one before it, all are the first one.
        let repeats = || self.0[PATTERN.len()..] == self.0[..self.0.len() - PATTERN.len()];
        let has_pattern = || self.0.starts_with(&PATTERN) && repeats();
        self.0.len() == limits::READ_CHUNK + PATTERN.len() && (!copied_twice || has_pattern())
    }

    /// Room for at most so many bytes.
    fn room(&mut self, most: usize) -> &mut [u8] {
        let most = most.min(limits::READ_CHUNK).min(self.0.len());
        &mut self.0[..most]
    }

    /// Reads at most `most` bytes into it, and returns those.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read(
        &mut self,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<&[u8]> {
        let room = self.room(most);
        let count = read(room)?;
        Ok(&room[..count.min(room.len())])
    }

    /// The same, where the bytes will be copied twice.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read_summed(
        &mut self,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<ReadBytes> {
        let result = read(self.room(most))?;
        let counts = [std::hint::black_box(result), std::hint::black_box(result)];
        let count = counts[0];
        let sum = wire::crc32c(self.0.get(..count).unwrap_or_default());
        let is_pattern = |at: usize| self.0.get(at) == Some(&PATTERN[at % PATTERN.len()]);
        let nothing_behind = (count..count + PATTERN.len()).all(is_pattern);
        let nothing_within = count >= PATTERN.len() && (count - PATTERN.len()..count).all(is_pattern);
        Ok(ReadBytes { counts, sum, is_sure: nothing_behind && !nothing_within })
    }

    /// The bytes that were read, for this copy, 0 or 1.
    pub fn bytes(&self, read: &ReadBytes, copy: usize) -> &[u8] {
        self.0.get(..read.counts[copy & 1]).unwrap_or_default()
    }

    /// They have been copied: the pattern takes their place. Where it is not sure how many they were, everywhere.
    pub fn clear(&mut self, read: &ReadBytes) {
        let [first, second] = read.counts;
        let all = self.0.len();
        let is_sure = read.is_sure && first == second;
        let written = if is_sure { first.saturating_add(PATTERN.len() - 1).min(all) } else { all };
        let written = written - written % PATTERN.len();
        self.0[..written].chunks_exact_mut(PATTERN.len()).for_each(|chunk| chunk.copy_from_slice(&PATTERN));
    }

    /// Injects a fault.
    #[cfg(test)]
    pub fn corrupt(&mut self, bit: usize) {
        self.0[bit / 8] ^= 1 << (bit % 8);
    }

    /// Injects a fault into its length.
    #[cfg(test)]
    pub fn lose(&mut self) {
        self.0.clear();
    }
}

impl ReadBytes {
    /// How many came.
    pub fn count(&self) -> usize {
        self.counts[0]
    }

    /// Whether the first copy has what was read, and all of it.
    pub fn are(&self, copy: &[u8]) -> bool {
        // Not what the compiler knows of the copy: what its memory has.
        self.is_sure && std::hint::black_box(copy).len() == self.counts[0] && wire::crc32c(copy) == self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads these bytes, and reports another count.
    fn read(buffer: &mut ReadBuffer, bytes: &[u8], count: usize) -> ReadBytes {
        let read = buffer.read_summed(limits::READ_CHUNK, |room| {
            room[..bytes.len()].copy_from_slice(bytes);
            Ok(count)
        });
        read.expect("nothing fails")
    }

    #[test]
    fn a_wrong_count_is_noticed() {
        let mut buffer = ReadBuffer::new();
        for length in [1, 7, 8, 9, 100, 4096] {
            let bytes = vec![b'x'; length];
            let right = read(&mut buffer, &bytes, length);
            assert!(right.are(buffer.bytes(&right, 0)), "{length}");
            buffer.clear(&right);
            assert!(buffer.is_valid(true), "{length}");
            for bit in 0..usize::BITS {
                let count = length ^ 1 << bit;
                let wrong = read(&mut buffer, &bytes, count);
                // Up to 7 bytes too many may be what a client has sent: V51.
                let may_be = count > length && count - length < PATTERN.len();
                assert!(may_be || !wrong.are(buffer.bytes(&wrong, 0)), "{length} as {count}");
                buffer.clear(&wrong);
                assert!(may_be || buffer.is_valid(true), "{length} as {count}");
                buffer = ReadBuffer::new();
            }
        }
    }

    #[test]
    fn a_flip_before_the_copies_is_noticed_and_the_next_read_finds_the_pattern() {
        let mut buffer = ReadBuffer::new();
        for bit in 0..8 * 20 {
            let bytes: Vec<u8> = (0..20).collect();
            let taken = read(&mut buffer, &bytes, bytes.len());
            let before = buffer.bytes(&taken, 0).to_vec();
            buffer.corrupt(bit);
            let after = buffer.bytes(&taken, 0).to_vec();
            assert_eq!((taken.are(&before), taken.are(&after)), (true, false), "bit {bit}");
            buffer.clear(&taken);
            assert!(buffer.is_valid(true), "bit {bit}");
        }
    }

    #[test]
    fn a_wrong_count_of_one_copy_makes_them_differ() {
        let mut buffer = ReadBuffer::new();
        let bytes: Vec<u8> = (0..20).collect();
        let right = read(&mut buffer, &bytes, bytes.len());
        for (copy, count) in [(0, 21), (1, 21), (0, 4), (1, 4)] {
            let mut wrong = right;
            wrong.counts[copy] = count;
            assert_ne!(buffer.bytes(&wrong, 0), buffer.bytes(&wrong, 1), "copy {copy} has {count}");
        }
    }

    /// A flip in what no read has touched: the next one, of fewer bytes, is not used, and the one after it is.
    #[test]
    fn a_flip_in_the_pattern_costs_one_read() {
        let mut buffer = ReadBuffer::new();
        assert!(buffer.is_valid(true));
        buffer.corrupt(9 * 8);
        assert!(!buffer.is_valid(true) && buffer.is_valid(false));
        for is_right in [false, true] {
            let taken = read(&mut buffer, b"four", 4);
            assert_eq!(taken.are(buffer.bytes(&taken, 0)), is_right);
            buffer.clear(&taken);
        }
        assert!(buffer.is_valid(true));
    }
}
