//! The checksum of an object: CRC-64/NVME over its class, its id and its tracked members (docs/checksums.md).

use crate::id::ObjectId;
use crc_fast::{CrcAlgorithm, Digest};

const ALGORITHM: CrcAlgorithm = CrcAlgorithm::Crc64Nvme;

/// Slices from this length on are summed where they are; shorter ones are gathered first, because a call costs more
/// than copying them.
const GATHER_MAX: usize = 512;

/// Sum of an object that was created or changed and not sealed yet. Neither zeroed nor erased memory looks like it.
pub(crate) const UNSEALED: u64 = 0x9AD1_6C83_2F74_E5B9;

/// Gathers the members of one object and sums them.
///
/// Small members are gathered so that an object of many tiny members costs one run of the checksum, not many.
#[derive(Debug)]
pub struct Summer {
    gathered: Vec<u8>,
    running: Option<Digest>,
}

impl Summer {
    /// A sum that begins with the object's class and id: a member that moved to another object is an error too.
    pub fn new(class: u32, id: ObjectId) -> Self {
        Self::reusing(Vec::with_capacity(256), class, id)
    }

    /// Like [`Summer::new`], with the buffer of an earlier one.
    pub(crate) fn reusing(mut gathered: Vec<u8>, class: u32, id: ObjectId) -> Self {
        gathered.clear();
        gathered.extend_from_slice(&class.to_le_bytes());
        gathered.extend_from_slice(&id.to_bits().to_le_bytes());
        Summer { gathered, running: None }
    }

    /// Adds bytes. A member of variable length adds its length first, see [`Summer::length`].
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        if bytes.len() < GATHER_MAX {
            self.gathered.extend_from_slice(bytes);
        } else {
            self.long(bytes);
        }
    }

    /// Adds many words of 64 bits, as [`Summer::bytes`] would one after the other, in one go.
    #[inline]
    pub(crate) fn words(&mut self, words: impl ExactSizeIterator<Item = u64>) {
        let start = self.gathered.len();
        self.gathered.resize(start + words.len() * size_of::<u64>(), 0);
        let (slots, _) = self.gathered[start..].as_chunks_mut();
        slots.iter_mut().zip(words).for_each(|(slot, word)| *slot = word.to_le_bytes());
    }

    /// Adds the length or count of what follows, so that two neighbours cannot trade bytes.
    #[inline]
    pub fn length(&mut self, length: usize) {
        self.gathered.extend_from_slice(&(length as u64).to_le_bytes());
    }

    /// The checksum. Never [`crate::Pair::REMOVED`] and never the mark of an unsealed object.
    #[inline]
    pub fn finish(self) -> u64 {
        self.finish_reusing().0
    }

    #[inline]
    pub(crate) fn finish_reusing(self) -> (u64, Vec<u8>) {
        let raw = match self.running {
            None => of(&self.gathered),
            Some(mut running) => {
                running.update(&self.gathered);
                running.finalize()
            }
        };
        // Two of 2^64 values are taken by marks. Moving them by one bit keeps every other guarantee of the code.
        (if raw == 0 || raw == UNSEALED { raw ^ 1 } else { raw }, self.gathered)
    }

    #[cold]
    fn long(&mut self, bytes: &[u8]) {
        let running = self.running.get_or_insert_with(|| Digest::new(ALGORITHM));
        running.update(&self.gathered);
        self.gathered.clear();
        running.update(bytes);
    }
}

/// Checksum of plain bytes, used for the pieces of a large value.
#[inline]
pub(crate) fn of(bytes: &[u8]) -> u64 {
    crc_fast::checksum(ALGORITHM, bytes)
}
