//! The checksum of an object: CRC-64/NVME over its class, its id and its tracked members (docs/design.md, section 3).

use crate::crc::{self, Block};
use crate::id::ObjectId;
use crc_fast::{CrcAlgorithm, Digest};
use std::cell::Cell;

const ALGORITHM: CrcAlgorithm = CrcAlgorithm::Crc64Nvme;

/// Slices up to this length are gathered before they are summed, because a call costs more than copying them;
/// longer ones are summed where they are, unless they fit.
pub(crate) const GATHER_MAX: usize = 4096;
/// Bytes that are gathered before any of them is summed.
const GATHERED: usize = 2 * GATHER_MAX;
/// Gathered members are filled up with zeros to a multiple of this: only whole blocks are summed.
const BLOCK: usize = size_of::<Block>();
/// A buffer for gathered members, for what fills them up, and for the hot words.
type Room = [u8; GATHERED + 2 * BLOCK];

/// Sum of an object that was created or changed and not sealed yet. Neither zeroed nor erased memory has this value.
pub(crate) const UNSEALED: u64 = 0x9AD1_6C83_2F74_E5B9;

thread_local! {
    /// The buffer of the last object that was summed. It is of fixed length, and so is kept as it is, and its bounds
    /// are constants.
    static ROOM: Cell<Option<Box<Room>>> = const { Cell::new(None) };
}

/// Gathers the members of one object and sums them.
///
/// Small members are gathered so that an object of many tiny members costs one run of the checksum, not many.
#[derive(Debug)]
pub struct Summer {
    room: Box<Room>,
    /// How many bytes are gathered.
    at: usize,
    /// The sum of those before them, and their number: of long objects only, and not in a place that every sum moves.
    running: Option<Box<(Digest, usize)>>,
    /// The hot words: summed last, in a block of their own.
    hot: Option<u64>,
}

impl Summer {
    /// A sum that begins with the object's class and id: a member that moved to another object is an error too.
    #[inline]
    pub fn new(class: u32, id: ObjectId) -> Self {
        let room = ROOM.take().unwrap_or_else(another_room);
        let mut summer = Summer { room, at: 0, running: None, hot: None };
        summer.bytes(&class.to_le_bytes());
        summer.bytes(&id.to_bits().to_le_bytes());
        summer
    }

    /// Adds bytes. A member of variable length adds its length first, see [`Summer::length`].
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        match self.next(bytes.len()) {
            Some(place) => place.copy_from_slice(bytes),
            None => self.long(bytes),
        }
    }

    /// Adds many values of `N` bytes in one call, with the result of [`Summer::bytes`] for one after the other.
    #[inline]
    pub fn rows<const N: usize>(&mut self, rows: impl ExactSizeIterator<Item = [u8; N]>) {
        match self.next(rows.len() * N) {
            Some(place) => {
                let (slots, _) = place.as_chunks_mut();
                slots.iter_mut().zip(rows).for_each(|(slot, row)| *slot = row);
            }
            None => rows.for_each(|row| self.bytes(&row)),
        }
    }

    /// Adds the length or count of what follows, so that no byte can move from one member to the next unnoticed.
    #[inline]
    pub fn length(&mut self, length: usize) {
        self.bytes(&(length as u64).to_le_bytes());
    }

    /// Adds the hot members of an object as words, once: they are summed behind everything else, see [`resummed`].
    #[doc(hidden)]
    #[inline]
    pub fn hot(&mut self, words: u64) {
        debug_assert!(self.hot.is_none(), "only `#[critical]` adds hot members, once per object");
        self.hot = Some(words);
    }

    /// The checksum. Never [`crate::Pair::REMOVED`] and never the mark of an unsealed object.
    #[inline]
    pub fn finish(self) -> u64 {
        let Summer { mut room, at, running, hot } = self;
        let before = running.as_ref().map_or(0, |running| running.1);
        let missing = (before + at).next_multiple_of(BLOCK) - (before + at);
        room[at..at + BLOCK].fill(0);
        let mut end = at + missing;
        if let Some(words) = hot {
            room[end..end + BLOCK].copy_from_slice(&hot_block(words));
            end += BLOCK;
        }
        let raw = match running {
            None => crc::of_blocks(room[..end].as_chunks().0),
            Some(mut running) => {
                running.0.update(&room[..end]);
                running.0.finalize()
            }
        };
        GATHERED_LAST.set(end);
        ROOM.set(Some(room));
        // Two of 2^64 values are taken by marks. Moving them by one bit keeps every other guarantee of the code.
        if is_mark(raw) { raw ^ 1 } else { raw }
    }

    /// Room for bytes that the caller writes, all of them, with the result of [`Summer::bytes`] for one value after the
    /// other; none where they are too many to be gathered.
    #[inline]
    pub(crate) fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        self.next(length)
    }

    /// Room for the next bytes, if there is any.
    #[inline]
    fn next(&mut self, length: usize) -> Option<&mut [u8]> {
        let place = self.room.get_mut(self.at..GATHERED)?.get_mut(..length)?;
        self.at += length;
        Some(place)
    }

    #[cold]
    #[inline(never)]
    fn long(&mut self, bytes: &[u8]) {
        let running = self.running.get_or_insert_with(|| Box::new((Digest::new(ALGORITHM), 0)));
        let (running, before) = &mut **running;
        running.update(&self.room[..self.at]);
        let mut summed = self.at;
        self.at = 0;
        if bytes.len() > GATHER_MAX {
            running.update(bytes);
            summed += bytes.len();
        } else {
            self.room[..bytes.len()].copy_from_slice(bytes);
            self.at = bytes.len();
        }
        *before += summed;
        LONG.set(LONG.get() + summed);
    }
}

#[cold]
#[inline(never)]
fn another_room() -> Box<Room> {
    Box::new([0; size_of::<Room>()])
}

fn is_mark(sum: u64) -> bool {
    sum == 0 || sum == UNSEALED
}

fn hot_block(words: u64) -> Block {
    u128::from(words).to_le_bytes()
}

/// The checksum of an object that had `sum` before its hot words changed from `old` to `new`, and nothing else.
///
/// The code is linear: a change of the last block changes the sum as it would change that of this block alone. So the
/// other members are not read, and an error that strikes them meanwhile does not become part of the sum, as it would if
/// all were summed again. None where the sum does not tell whether it was moved off a mark; then all is summed again.
#[inline]
pub(crate) fn resummed(sum: u64, old: u64, new: u64) -> Option<u64> {
    let difference = crc::of_blocks(&[hot_block(old ^ new)]) ^ OF_ZEROS;
    let raw = sum ^ difference;
    (!is_mark(sum ^ 1) && !is_mark(raw)).then_some(raw)
}

/// The checksum of one block of zeros.
const OF_ZEROS: u64 = {
    let (mut crc, mut bit) = (!0u64, 0);
    while bit < 8 * BLOCK {
        crc = if crc & 1 == 1 { crc >> 1 ^ crc::POLYNOMIAL } else { crc >> 1 };
        bit += 1;
    }
    !crc
};

thread_local! {
    /// Bytes that this thread has summed before the last ones of their objects, since [`forget_long`].
    static LONG: Cell<usize> = const { Cell::new(0) };
    /// Bytes of the last object that were gathered when it ended.
    static GATHERED_LAST: Cell<usize> = const { Cell::new(0) };
}

/// Counts the bytes of one object from here on; see [`bytes_of_last`].
pub(crate) fn forget_long() {
    LONG.set(0);
}

/// The bytes of the object that this thread has summed last, and begun behind [`forget_long`]. Those of long objects
/// are counted apart because objects on a request's path have none, and pay nothing for the count.
pub(crate) fn bytes_of_last() -> usize {
    LONG.get() + GATHERED_LAST.get()
}

/// Checksum of plain bytes, used for the pieces of a large value.
#[inline]
pub(crate) fn of(bytes: &[u8]) -> u64 {
    crc_fast::checksum(ALGORITHM, bytes)
}

/// The sum of these blocks of 16 bytes by the code of all checksums here, for digests of bytes that are in no object; 0
/// of none.
#[inline]
pub fn of_blocks(blocks: &[[u8; BLOCK]]) -> u64 {
    crc::of_blocks(blocks)
}

/// The longest inputs that [`is_valid`] tries, of any number of bytes and of whole blocks: all cases of the checksum
/// for short inputs, and for the remainder of long ones.
const TRIED: usize = 300;
const TRIED_IN_BLOCKS: usize = 2 * TRIED;
/// The expected result of [`is_valid`] for any number of bytes, and for whole blocks.
const FOLDED: [u64; 2] = [0xEC19_A68E_0384_DF14, 0xA284_AD61_CD89_BCA0];

/// Whether checksums are still computed rightly, shown by known answers for every length up to some hundred bytes.
///
/// The checksum reads constants and tables. A bit that changes in one of them makes every object look wrong from then
/// on, at this replica alone, and no repair of objects ends that.
pub fn is_valid() -> bool {
    let of_blocks = |bytes: &[u8]| crc::of_blocks(bytes.as_chunks().0);
    [folded(lengths(), of), folded(lengths_in_blocks(), of_blocks)] == FOLDED
}

fn lengths() -> impl Iterator<Item = usize> {
    0..=TRIED
}

fn lengths_in_blocks() -> impl Iterator<Item = usize> {
    (0..=TRIED_IN_BLOCKS).step_by(BLOCK)
}

fn folded(lengths: impl Iterator<Item = usize>, sum: impl Fn(&[u8]) -> u64) -> u64 {
    let bytes: [u8; TRIED_IN_BLOCKS] = std::array::from_fn(|at| (at as u8).wrapping_mul(167) ^ 0x5A);
    lengths.fold(0, |folded: u64, length| folded.rotate_left(7) ^ sum(&bytes[..length]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CRC-64/NVME bit by bit, as its specification defines it (NVM Command Set 1.0, section 5.2.1.3.4): without any
    /// table.
    fn by_bits(bytes: &[u8]) -> u64 {
        let step = |crc: u64| if crc & 1 == 1 { crc >> 1 ^ 0x9A6C_9329_AC4B_C9B5 } else { crc >> 1 };
        !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u64::from(*byte), |crc, _| step(crc)))
    }

    #[test]
    fn the_known_answers_are_those_of_the_specification() {
        assert_eq!(by_bits(b"123456789"), 0xAE8B_1486_0A79_9888);
        assert_eq!([folded(lengths(), by_bits), folded(lengths_in_blocks(), by_bits)], FOLDED);
        assert!(is_valid());
    }

    /// The zeros that fill a block up do not count as bytes of the object.
    #[test]
    fn what_is_filled_up_differs_from_what_ends_in_zeros() {
        let sum = |length: usize| {
            let mut summer = Summer::new(1, ObjectId::new(2, 3));
            summer.length(length);
            summer.bytes(&vec![0; length]);
            summer.finish()
        };
        let sums: std::collections::BTreeSet<u64> = (0..2 * GATHER_MAX).map(sum).collect();
        assert_eq!(sums.len(), 2 * GATHER_MAX);
    }

    #[test]
    fn hot_words_are_summed_again_alone() {
        let sum = |length: usize, words: u64| {
            let mut summer = Summer::new(1, ObjectId::new(2, 3));
            summer.length(length);
            summer.bytes(&vec![0xA5; length]);
            summer.hot(words);
            summer.finish()
        };
        for length in [0, 1, 20, 100, 500, GATHER_MAX + 1] {
            for (old, new) in [(0, 1), (7, 7), (u64::MAX, 0), (0x0123_4567_89AB_CDEF, 0x8000_0000_0000_0000)]
            {
                let before = sum(length, old);
                assert_eq!(resummed(before, old, new), Some(sum(length, new)), "{length} {old} {new}");
                assert_eq!(before == sum(length, new), old == new);
            }
        }
        assert_eq!(OF_ZEROS, by_bits(&[0; BLOCK]));
        // The sum may have been moved off a mark, or would be one.
        assert_eq!([resummed(1, 3, 4), resummed(UNSEALED ^ 1, 3, 4), resummed(0, 5, 5)], [None; 3]);
    }

    /// One wrong answer is detected, for whichever length.
    #[test]
    fn a_wrong_answer_for_one_length_is_not_valid() {
        let wrong_at = |length| move |bytes: &[u8]| of(bytes) ^ u64::from(bytes.len() == length);
        assert!(lengths().all(|length| folded(lengths(), wrong_at(length)) != FOLDED[0]));
        assert!(lengths_in_blocks().all(|length| folded(lengths_in_blocks(), wrong_at(length)) != FOLDED[1]));
    }
}
