//! A large value summed in pieces, so that a small change or a partial read does not sum it all.

use crate::checksum::{self, Summer};
use crate::corrupted::{Corrupted, How};
use crate::id::ObjectId;
use crate::request;
use crate::summed::Summed;
use std::fmt;
use std::ops::Range;
use wire::{Malformed, Reader};

/// Bytes of variable length as a member of a critical type.
///
/// Up to [`Pieces::PIECE`] bytes it is what a `Box<[u8]>` is: one allocation of just its length, summed with its owner.
/// A longer value is cut into pieces with a checksum each; the owner's checksum covers the length and the pieces'
/// checksums, and a piece is compared with its checksum whenever it is read or partly overwritten. The piece sums lie
/// behind the bytes, in the same allocation: 8 bytes for each piece, 0.2 %.
///
/// Reading happens in methods of the owner, which has been checked when they run; so the piece sums can be trusted.
#[derive(Clone, PartialEq, Eq)]
pub struct Pieces {
    /// The value, followed by one sum per piece if it is longer than a piece.
    bytes: Box<[u8]>,
}

const SUM: usize = size_of::<u64>();

impl Pieces {
    /// Bytes per piece (docs/design.md, section 3).
    pub const PIECE: usize = 4096;

    /// An empty value.
    pub fn new() -> Self {
        Pieces { bytes: Box::default() }
    }

    /// The bytes of both, one behind the other.
    pub fn joined(first: &[u8], second: &[u8]) -> Self {
        if first.len() + second.len() <= Self::PIECE {
            return Pieces { bytes: [first, second].concat().into_boxed_slice() };
        }
        let mut pieces = Self::zeroed(first.len() + second.len());
        pieces.bytes[..first.len()].copy_from_slice(first);
        pieces.bytes[first.len()..][..second.len()].copy_from_slice(second);
        pieces.renew(0..first.len() + second.len());
        pieces
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        let total = self.bytes.len();
        if total <= Self::PIECE { total } else { total - SUM * total.div_ceil(Self::PIECE + SUM) }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The whole value; all its pieces are checked. A piece that fails leaves the request by unwinding with
    /// [`Corrupted`], like the check of an object.
    pub fn whole(&self) -> &[u8] {
        self.part(0..self.len())
    }

    /// A part of the value; the pieces it lies in are checked.
    ///
    /// # Panics
    ///
    /// If the range reaches beyond the end.
    pub fn part(&self, range: Range<usize>) -> &[u8] {
        self.verify(&range);
        &self.data()[range]
    }

    /// Overwrites a part of the value. Pieces that keep some of their bytes are checked before.
    ///
    /// # Panics
    ///
    /// If `bytes` reaches beyond the end.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let range = offset..offset + bytes.len();
        assert!(range.end <= self.len(), "a write beyond the end of a value");
        let (first, last) = (range.start / Self::PIECE, range.end / Self::PIECE);
        self.verify(&(first * Self::PIECE..range.start));
        self.verify(&(range.end..((last + 1) * Self::PIECE).min(self.len())));
        self.bytes[range.clone()].copy_from_slice(bytes);
        self.renew(range);
    }

    /// Replaces the whole value. Nothing of the old one is read; one of the same length takes its place in memory.
    pub fn replace(&mut self, bytes: &[u8]) {
        if bytes.len() != self.len() {
            if bytes.len() <= Self::PIECE {
                self.bytes = bytes.into();
                return;
            }
            *self = Self::zeroed(bytes.len());
        }
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        self.renew(0..bytes.len());
    }

    /// Replaces what is behind the first `kept` bytes. What is as long as before takes its place in memory; pieces that
    /// keep some of their bytes are checked before.
    ///
    /// # Panics
    ///
    /// If there are not so many bytes.
    pub fn replace_after(&mut self, kept: usize, bytes: &[u8]) {
        if kept + bytes.len() != self.len() {
            *self = Self::joined(self.part(0..kept), bytes);
        } else if self.is_cut() {
            self.write(kept, bytes);
        } else {
            self.bytes[kept..].copy_from_slice(bytes);
        }
    }

    /// Adds bytes behind the value. The last piece is checked if it grows; full ones keep their sums.
    pub fn append(&mut self, bytes: &[u8]) {
        let old = self.len();
        let kept = old - old % Self::PIECE;
        self.verify(&(kept..old));
        let sums_kept = if self.is_cut() { kept / Self::PIECE } else { 0 };
        let mut grown = Self::zeroed(old + bytes.len());
        grown.bytes[..old].copy_from_slice(self.data());
        grown.bytes[old..old + bytes.len()].copy_from_slice(bytes);
        for piece in 0..sums_kept {
            grown.set_sum(piece, self.sum_of(piece));
        }
        grown.renew(sums_kept * Self::PIECE..old + bytes.len());
        *self = grown;
    }

    /// Adds bytes in front of the value. Every piece moves, so every piece is checked and summed again.
    pub fn prepend(&mut self, bytes: &[u8]) {
        *self = Self::joined(bytes, self.whole());
    }

    /// Bytes that the value takes in memory, piece sums included.
    pub fn memory(&self) -> usize {
        self.bytes.len()
    }

    fn zeroed(length: usize) -> Self {
        let sums = if length > Self::PIECE { length.div_ceil(Self::PIECE) * SUM } else { 0 };
        Pieces { bytes: vec![0; length + sums].into_boxed_slice() }
    }

    fn is_cut(&self) -> bool {
        self.bytes.len() > Self::PIECE
    }

    fn data(&self) -> &[u8] {
        &self.bytes[..self.len()]
    }

    fn piece(&self, number: usize) -> &[u8] {
        let start = number * Self::PIECE;
        &self.bytes[start..(start + Self::PIECE).min(self.len())]
    }

    fn sum_of(&self, piece: usize) -> u64 {
        let at = self.len() + piece * SUM;
        let mut sum = [0; SUM];
        sum.copy_from_slice(&self.bytes[at..at + SUM]);
        u64::from_le_bytes(sum)
    }

    fn set_sum(&mut self, piece: usize, sum: u64) {
        let at = self.len() + piece * SUM;
        self.bytes[at..at + SUM].copy_from_slice(&sum.to_le_bytes());
    }

    /// Compares the pieces that hold `range` with their sums.
    fn verify(&self, range: &Range<usize>) {
        if !self.is_cut() || range.is_empty() || !request::checks() {
            return;
        }
        if !Self::numbers(range).all(|piece| checksum::of(self.piece(piece)) == self.sum_of(piece)) {
            // Only the owner has a name; `Region::blame` finds it among the objects that the request touched.
            request::fail(Corrupted { object: ObjectId::NONE, class: "object::Pieces", how: How::Piece });
        }
    }

    /// Sums the pieces that hold `range` again.
    fn renew(&mut self, range: Range<usize>) {
        if self.is_cut() && !range.is_empty() {
            for piece in Self::numbers(&range) {
                let sum = checksum::of(self.piece(piece));
                self.set_sum(piece, sum);
            }
        }
    }

    fn numbers(range: &Range<usize>) -> Range<usize> {
        range.start / Self::PIECE..range.end.div_ceil(Self::PIECE)
    }
}

impl From<&[u8]> for Pieces {
    fn from(bytes: &[u8]) -> Self {
        let mut pieces = Self::new();
        pieces.replace(bytes);
        pieces
    }
}

impl Default for Pieces {
    fn default() -> Self {
        Pieces::new()
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl Summed for Pieces {
    #[inline]
    fn sum(&self, summer: &mut Summer) {
        let length = self.len();
        summer.length(length);
        summer.bytes(if self.is_cut() { &self.bytes[length..] } else { &self.bytes });
    }
    fn pack(&self, out: &mut Vec<u8>) {
        (self.len() as u32).pack(out);
        out.extend_from_slice(self.data());
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let length = from.length32()?;
        from.take(length).map(Pieces::from)
    }
    fn blank() -> Self {
        Pieces::new()
    }
    fn is_intact(&self) -> bool {
        !self.is_cut()
            || Self::numbers(&(0..self.len()))
                .all(|piece| checksum::of(self.piece(piece)) == self.sum_of(piece))
    }
    #[cfg(feature = "inject")]
    fn damage(&mut self, damage: crate::inject::Damage) -> bool {
        crate::inject::damage_pieces(self, &mut |pieces| &mut pieces.bytes, damage)
    }
}
