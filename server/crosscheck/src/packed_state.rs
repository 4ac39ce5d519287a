//! A packed state in pieces, which is how it is made, sent, received, written to the disk and loaded: at no time is
//! there one buffer with all of it. Each piece is digested as soon as it is full, by the thread that packs.

use std::collections::VecDeque;

use bytes::Bytes;
use wire::Malformed;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::limits;

/// Version of the digests below; a change of the format changes them all.
const DIGEST_SEED: u64 = 0x4352_4f53_5343_0001;

/// More bytes were to be read than have come.
pub const ENDS_EARLY: Malformed = Malformed("it ends early");

/// The digest by which a piece is accepted.
pub fn digest(piece: &[u8]) -> u128 {
    xxh3_128_with_seed(piece, DIGEST_SEED)
}

/// A whole state, in pieces. Clones share their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedState {
    pieces: Vec<Bytes>,
    digests: Vec<u128>,
}

impl PackedState {
    /// The state in these pieces, which have these digests.
    pub fn of(pieces: Vec<Bytes>, digests: Vec<u128>) -> Self {
        PackedState { pieces, digests }
    }

    /// The same state before `end`, which becomes a piece of its own.
    pub fn before(mut self, end: Bytes) -> Self {
        self.digests.push(digest(&end));
        self.pieces.push(end);
        self
    }

    /// Appends `later`.
    #[cfg(test)]
    pub fn extend(&mut self, later: PackedState) {
        self.digests.extend(later.digests);
        self.pieces.extend(later.pieces);
    }

    /// The last piece, and the state that is before it.
    pub fn split_end(mut self) -> Option<(Bytes, Self)> {
        self.digests.pop();
        Some((self.pieces.pop()?, self))
    }

    /// The pieces, in order.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// The digest of each piece.
    pub fn digests(&self) -> &[u128] {
        &self.digests
    }

    /// Bytes of all pieces.
    pub fn length(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

/// Makes a [`PackedState`].
#[derive(Debug)]
pub struct PackWriter {
    state: PackedState,
    /// The piece that is being filled.
    piece: Vec<u8>,
    /// Bytes of a piece.
    size: usize,
}

impl PackWriter {
    /// An empty state, in pieces of `size` bytes; the last one may be shorter.
    pub fn new(size: usize) -> Self {
        PackWriter { state: PackedState::default(), piece: Vec::new(), size: size.max(1) }
    }

    /// Appends bytes.
    pub fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.piece.capacity() == 0 {
                self.piece.reserve_exact(self.size);
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.size - self.piece.len()));
            self.piece.extend_from_slice(now);
            if self.piece.len() == self.size {
                self.close_piece();
            }
            bytes = later;
        }
    }

    /// Appends bytes behind their number, which [`PackReader::block`] reads.
    pub fn put_block(&mut self, block: &[u8]) {
        self.put(&(block.len() as u64).to_le_bytes());
        self.put(block);
    }

    /// The pieces that are full, with their digests; the rest goes on with the next bytes.
    pub fn take_full(&mut self) -> PackedState {
        std::mem::take(&mut self.state)
    }

    /// The state.
    pub fn finish(mut self) -> PackedState {
        if !self.piece.is_empty() {
            self.close_piece();
        }
        self.state
    }

    fn close_piece(&mut self) {
        let mut piece = std::mem::take(&mut self.piece);
        piece.shrink_to_fit();
        self.state.digests.push(digest(&piece));
        self.state.pieces.push(piece.into());
    }
}

impl Default for PackWriter {
    fn default() -> Self {
        PackWriter::new(limits::TRANSFER_PIECE)
    }
}

/// Reads a [`PackedState`] from its beginning, and frees each piece that was read. Clones read on independently.
#[derive(Clone, Debug, Default)]
pub struct PackReader {
    /// What is left of the piece that is being read.
    piece: Bytes,
    later: VecDeque<Bytes>,
    /// Bytes that were not read.
    remaining: u64,
}

impl From<PackedState> for PackReader {
    fn from(state: PackedState) -> Self {
        PackReader { remaining: state.length(), piece: Bytes::new(), later: state.pieces.into() }
    }
}

/// A state that was read from the disk: it has no digests of pieces, and needs none.
impl From<Vec<Bytes>> for PackReader {
    fn from(pieces: Vec<Bytes>) -> Self {
        PackedState::of(pieces, Vec::new()).into()
    }
}

impl PackReader {
    /// The next piece has come.
    pub fn push(&mut self, piece: Bytes) {
        self.remaining += piece.len() as u64;
        self.later.push_back(piece);
    }

    /// What was not read, a piece at a time.
    pub fn take_piece(&mut self) -> Option<Bytes> {
        let piece = match self.piece.is_empty() {
            true => self.later.pop_front()?,
            false => std::mem::take(&mut self.piece),
        };
        self.remaining -= piece.len() as u64;
        Some(piece)
    }

    /// Bytes that were not read.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.remaining == 0
    }

    /// The next `length` bytes: a part of a piece, or of a buffer of their own where they are in several.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn take(&mut self, length: u64) -> Result<Bytes, Malformed> {
        if length > self.remaining {
            return Err(ENDS_EARLY);
        }
        self.remaining -= length;
        // No more than is in memory.
        let mut missing = length as usize;
        if self.piece.is_empty() {
            self.piece = self.later.pop_front().unwrap_or_default();
        }
        if missing <= self.piece.len() {
            return Ok(self.piece.split_to(missing));
        }
        let mut bytes = Vec::with_capacity(missing);
        while missing > 0 {
            let part = self.piece.split_to(missing.min(self.piece.len()));
            bytes.extend_from_slice(&part);
            missing -= part.len();
            if self.piece.is_empty() {
                self.piece = self.later.pop_front().unwrap_or_default();
            }
        }
        Ok(bytes.into())
    }

    /// Passes over the next `length` bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn skip(&mut self, length: u64) -> Result<(), Malformed> {
        if length > self.remaining {
            return Err(ENDS_EARLY);
        }
        self.remaining -= length;
        let mut missing = length as usize;
        while missing > 0 {
            if self.piece.is_empty() {
                self.piece = self.later.pop_front().unwrap_or_default();
            }
            let part = self.piece.split_to(missing.min(self.piece.len()));
            missing -= part.len();
        }
        Ok(())
    }

    /// A number of `N` bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let bytes = self.take(N as u64)?;
        bytes.as_ref().try_into().map_err(|_| ENDS_EARLY)
    }

    /// Bytes behind their number.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn block(&mut self) -> Result<Bytes, Malformed> {
        let length = u64::from_le_bytes(self.array()?);
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_comes_in_full_pieces_however_it_is_cut() {
        let bytes: Vec<u8> = (0..1000u32).map(|at| (at * 7) as u8).collect();
        for cut in [1, 3, 64, 99, 100, 101, 1000] {
            let mut writer = PackWriter::new(100);
            bytes.chunks(cut).for_each(|chunk| writer.put(chunk));
            writer.put(b"rest");
            let state = writer.finish();
            let lengths: Vec<usize> = state.pieces().iter().map(Bytes::len).collect();
            assert_eq!(lengths, [[100; 10].as_slice(), &[4]].concat());
            assert_eq!(state.pieces().concat(), [&bytes[..], b"rest"].concat());
            assert_eq!(state.length(), 1004);
            let digests: Vec<u128> = state.pieces().iter().map(|piece| digest(piece)).collect();
            assert_eq!(state.digests(), digests);
        }
        assert_eq!(PackWriter::new(100).finish(), PackedState::default());
    }

    #[test]
    fn blocks_are_read_as_written_and_an_early_end_is_an_error() {
        let blocks: [&[u8]; 4] = [b"short", &[7; 250], b"", &[9; 100]];
        let mut writer = PackWriter::new(100);
        blocks.iter().for_each(|block| writer.put_block(block));
        let state = writer.finish();
        let mut reader = PackReader::from(state.clone());
        for block in blocks {
            assert_eq!(reader.block().unwrap(), block);
        }
        assert!(reader.is_empty() && reader.block().is_err());

        let all: Bytes = state.pieces().concat().into();
        for cut in 0..all.len() {
            let mut reader = PackReader::from(vec![all.slice(..cut)]);
            assert!(blocks.iter().any(|_| reader.block().is_err()), "{cut} bytes");
        }
    }

    /// A length is compared with what is there before memory is allocated for it.
    #[test]
    fn a_length_that_is_not_there_takes_no_memory() {
        let mut writer = PackWriter::new(10);
        writer.put(&u64::MAX.to_le_bytes());
        writer.put(&[1; 30]);
        assert!(PackReader::from(writer.finish()).block().is_err());
    }

    #[test]
    fn a_piece_is_freed_once_it_was_read() {
        let mut writer = PackWriter::new(100);
        writer.put(&[5; 1000]);
        let state = writer.finish();
        let first = state.pieces()[0].clone();
        assert!(!first.is_unique());
        let mut reader = PackReader::from(state);
        reader.take(150).unwrap();
        assert!(first.is_unique());
    }

    #[test]
    fn an_end_is_a_piece_of_its_own() {
        let mut writer = PackWriter::new(4);
        writer.put(b"state");
        let state = writer.finish();
        let before = state.clone().before(Bytes::from_static(b"ends"));
        assert_eq!((before.length(), before.digests().len()), (9, 3));
        assert_eq!(before.split_end(), Some((Bytes::from_static(b"ends"), state)));
        assert_eq!(PackedState::default().split_end(), None);
    }
}
