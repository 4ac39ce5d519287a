//! A large value summed in pieces, so that a small change or a partial read does not sum it all.

use crate::checksum::{self, Summer, UNSEALED};
use crate::corrupted::{Corrupted, How};
use crate::id::ObjectId;
use crate::lent;
use crate::request;
use crate::shape::Shape;
use crate::summed::Summed;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use wire::{Malformed, Reader};

/// Bytes of variable length as a member of a critical type.
///
/// Up to [`Pieces::PIECE`] bytes it is what a `Box<[u8]>` is: one allocation of just its length, summed with its owner.
/// Of a longer value the first [`Pieces::HEAD`] bytes are summed with the owner, and the others are cut into pieces
/// with a checksum each; the owner's checksum covers the length, the head and the pieces' checksums, and a piece is
/// compared with its checksum whenever it is read or partly overwritten. So a key in front of a long value is compared
/// without a look at the value. The piece sums lie behind the bytes, in the same allocation: 8 bytes for each piece.
///
/// A request in which objects have no checksums sums no pieces either: it marks their sums as not made. Until it is
/// overwritten, such a piece is part of its owner's checksum with all its bytes.
///
/// A value in pieces is its own before-image: a request that replaces it leaves the old memory as it is and takes other
/// memory for the new value.
///
/// Reading happens in methods of the owner, which has been checked when they run; so the piece sums can be trusted.
#[derive(Clone)]
pub struct Pieces {
    memory: PieceMemory,
}

/// The value, followed by one sum per piece if it is longer than a piece.
enum PieceMemory {
    /// A short one.
    Owned(Box<[u8]>),
    /// A long one: its before-image may refer to it too, and then it is not changed any more.
    Shared(Arc<Box<[u8]>>),
}

const _: () = assert!(size_of::<Pieces>() == size_of::<Box<[u8]>>(), "long values cost short ones no memory");

const SUM: usize = size_of::<u64>();

impl PieceMemory {
    fn new(bytes: Box<[u8]>) -> Self {
        if bytes.len() > Pieces::PIECE {
            PieceMemory::Shared(Arc::new(bytes))
        } else {
            PieceMemory::Owned(bytes)
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            PieceMemory::Owned(bytes) => bytes,
            PieceMemory::Shared(bytes) => bytes,
        }
    }

    /// To change bytes in place; none if a before-image refers to them.
    #[inline]
    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            PieceMemory::Owned(bytes) => Some(bytes),
            PieceMemory::Shared(bytes) => Arc::get_mut(bytes).map(|bytes| &mut **bytes),
        }
    }
}

impl Clone for PieceMemory {
    /// PieceMemory of its own: a fault in one of two objects leaves the other one intact.
    fn clone(&self) -> Self {
        PieceMemory::new(self.bytes().into())
    }
}

impl Pieces {
    /// Bytes per piece (docs/design.md, section 3).
    pub const PIECE: usize = checksum::GATHER_MAX;
    /// Bytes in front of the first piece of a long value, which are summed with the owner.
    pub const HEAD: usize = 256;

    /// An empty value.
    pub fn new() -> Self {
        Pieces { memory: PieceMemory::Owned(Box::default()) }
    }

    /// The bytes of both, one behind the other.
    pub fn joined(first: &[u8], second: &[u8]) -> Self {
        let mut pieces = Self::unsummed(first, second);
        pieces.renew(0..first.len() + second.len(), &[(0, first), (first.len(), second)]);
        pieces
    }

    /// The same, with piece sums of 0.
    fn unsummed(first: &[u8], second: &[u8]) -> Self {
        let length = first.len() + second.len();
        let sums = if length > Self::PIECE { (length - Self::HEAD).div_ceil(Self::PIECE) * SUM } else { 0 };
        let mut bytes = Vec::with_capacity(length + sums);
        bytes.extend_from_slice(first);
        bytes.extend_from_slice(second);
        bytes.resize(length + sums, 0);
        Pieces { memory: PieceMemory::new(bytes.into_boxed_slice()) }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        let total = self.bytes().len();
        if total <= Self::PIECE {
            total
        } else {
            total - SUM * (total - Self::HEAD).div_ceil(Self::PIECE + SUM)
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// The whole value; all its pieces are checked. A piece that fails leaves the request by unwinding with
    /// [`Corrupted`], like the check of an object.
    #[inline]
    pub fn whole(&self) -> &[u8] {
        self.part(0..self.len())
    }

    /// A part of the value; the pieces it lies in are checked.
    ///
    /// # Panics
    ///
    /// If the range reaches beyond the end.
    #[inline]
    pub fn part(&self, range: Range<usize>) -> &[u8] {
        self.verify(self.numbers(&range));
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
        let keep_some = |piece: &usize| {
            let place = self.place_of(*piece);
            range.start > place.start || range.end < place.end
        };
        let written = self.numbers(&range);
        // Only the first and the last one can keep something.
        written.clone().take(1).chain(written.clone().skip(1).last()).filter(keep_some).for_each(|piece| {
            self.verify(piece..piece + 1);
        });
        self.own()[range.clone()].copy_from_slice(bytes);
        self.renew(range, &[(offset, bytes)]);
    }

    /// Replaces the whole value. Nothing of the old one is read; one of the same length takes its place in memory,
    /// unless that is its before-image.
    pub fn replace(&mut self, bytes: &[u8]) {
        self.replace_after(0, bytes);
    }

    /// Replaces what is behind the first `kept` bytes. What is as long as before takes its place in memory, unless that
    /// is its before-image; pieces that keep some of their bytes are checked before.
    ///
    /// # Panics
    ///
    /// If there are not so many bytes.
    pub fn replace_after(&mut self, kept: usize, bytes: &[u8]) {
        let length = kept + bytes.len();
        if let PieceMemory::Owned(owned) = &mut self.memory
            && owned.len() == length
        {
            // A short one is in no pieces.
            owned[kept..].copy_from_slice(bytes);
        } else if length == self.len() && self.memory.bytes_mut().is_some() {
            self.write(kept, bytes);
        } else {
            *self = Self::joined(self.part(0..kept), bytes);
        }
    }

    /// Adds bytes behind the value. The last piece is checked if it grows; full ones keep their sums.
    pub fn append(&mut self, bytes: &[u8]) {
        let old = self.len();
        let full = if self.is_cut() { (old - Self::HEAD) / Self::PIECE } else { 0 };
        self.verify(full..self.count());
        let mut grown = Self::unsummed(self.data(), bytes);
        for piece in 0..full {
            grown.set_sum(piece, self.sum_in_place(piece));
        }
        grown.renew(self.place_of(full).start..old + bytes.len(), &[(old, bytes)]);
        *self = grown;
    }

    /// Adds bytes in front of the value. Every piece moves, so every piece is checked and summed again.
    pub fn prepend(&mut self, bytes: &[u8]) {
        *self = Self::joined(bytes, self.whole());
    }

    /// Bytes that the value takes in memory, piece sums included.
    pub fn memory(&self) -> usize {
        self.bytes().len()
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// The bytes to change them, for this object alone.
    fn own(&mut self) -> &mut Box<[u8]> {
        match &mut self.memory {
            PieceMemory::Owned(bytes) => bytes,
            PieceMemory::Shared(bytes) => Arc::make_mut(bytes),
        }
    }

    #[inline]
    fn is_cut(&self) -> bool {
        self.bytes().len() > Self::PIECE
    }

    #[inline]
    fn data(&self) -> &[u8] {
        &self.bytes()[..self.len()]
    }

    /// How many pieces there are.
    fn count(&self) -> usize {
        if self.is_cut() { (self.len() - Self::HEAD).div_ceil(Self::PIECE) } else { 0 }
    }

    /// Where a piece lies.
    fn place_of(&self, piece: usize) -> Range<usize> {
        let start = Self::HEAD + piece * Self::PIECE;
        start..(start + Self::PIECE).min(self.len())
    }

    fn sum_of(&self, piece: usize) -> u64 {
        checksum::of(&self.bytes()[self.place_of(piece)])
    }

    /// The sum that lies behind the value.
    fn sum_in_place(&self, piece: usize) -> u64 {
        let at = self.len() + piece * SUM;
        let mut sum = [0; SUM];
        sum.copy_from_slice(&self.bytes()[at..at + SUM]);
        u64::from_le_bytes(sum)
    }

    fn set_sum(&mut self, piece: usize, sum: u64) {
        let at = self.len() + piece * SUM;
        self.own()[at..at + SUM].copy_from_slice(&sum.to_le_bytes());
    }

    /// Whether a piece is that which was summed. One that was not is part of its owner's sum.
    fn fits(&self, piece: usize) -> bool {
        let sum = self.sum_in_place(piece);
        sum == UNSEALED || self.sum_of(piece) == sum
    }

    /// Compares pieces with their sums.
    #[inline]
    fn verify(&self, pieces: Range<usize>) {
        if !pieces.is_empty() && request::checks() {
            self.compare(pieces);
        }
    }

    #[inline(never)]
    fn compare(&self, pieces: Range<usize>) {
        if !pieces.into_iter().all(|piece| self.fits(piece)) {
            // Only the owner has a name; `Region::blame` finds it among the objects that the request touched.
            request::fail(Corrupted { object: ObjectId::NONE, class: "object::Pieces", how: How::Piece });
        }
    }

    /// Sums the pieces that hold `range` again, after `sources` were copied to these places.
    ///
    /// A piece of which one source has all bytes is summed there and not where it lies now. An error that strikes
    /// either of them between copy and sum, or in the copy itself, then leaves a piece that differs from its sum, which
    /// the next one who reads it finds. The sum of the copy would make such an error right. What strikes the source
    /// before both is the business of the checksum that came with the request.
    ///
    /// To copy and sum in one pass would guard no more, and spare one reading of bytes that are in the cache anyway:
    /// 300 of 14,000 instructions of a request that stores 4 KiB.
    fn renew(&mut self, range: Range<usize>, sources: &[(usize, &[u8])]) {
        let is_summed = request::sums_pieces();
        for piece in self.numbers(&range) {
            let place = self.place_of(piece);
            let whole = |(offset, bytes): &(usize, &'_ [u8])| -> Option<u64> {
                let start = place.start.checked_sub(*offset)?;
                bytes.get(start..start + place.len()).map(checksum::of)
            };
            let sum = match is_summed {
                true => sources.iter().find_map(whole).unwrap_or_else(|| self.sum_of(piece)),
                false => UNSEALED,
            };
            self.set_sum(piece, sum);
        }
    }

    /// The pieces that hold a part of `range`.
    #[inline]
    fn numbers(&self, range: &Range<usize>) -> Range<usize> {
        if !self.is_cut() || range.is_empty() {
            return 0..0;
        }
        let behind_head = |at: usize| at.saturating_sub(Self::HEAD);
        behind_head(range.start) / Self::PIECE..behind_head(range.end).div_ceil(Self::PIECE)
    }
}

impl From<&[u8]> for Pieces {
    fn from(bytes: &[u8]) -> Self {
        Self::joined(bytes, &[])
    }
}

impl Default for Pieces {
    fn default() -> Self {
        Pieces::new()
    }
}

impl PartialEq for Pieces {
    fn eq(&self, other: &Self) -> bool {
        self.data() == other.data()
    }
}

impl Eq for Pieces {}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl Summed for Pieces {
    const NAME: crate::TypeName = crate::TypeName::new("Pieces");
    #[inline]
    fn sum(&self, summer: &mut Summer) {
        let length = self.len();
        summer.length(length);
        if !self.is_cut() {
            return summer.bytes(self.bytes());
        }
        summer.bytes(&self.bytes()[..Self::HEAD]);
        let sum_of = |piece| match self.sum_in_place(piece) {
            UNSEALED => self.sum_of(piece),
            sum => sum,
        };
        summer.rows((0..self.count()).map(|piece| sum_of(piece).to_le_bytes()));
    }
    fn pack(&self, out: &mut Vec<u8>) {
        if let PieceMemory::Shared(bytes) = &self.memory
            && let Some(number) = lent::lend(bytes)
        {
            LENT.pack(out);
            number.pack(out);
            return;
        }
        (self.len() as u32).pack(out);
        out.extend_from_slice(self.data());
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let length = u32::unpack(from)?;
        if length == LENT && request::is_local() {
            let bytes = lent::get(u32::unpack(from)?).ok_or(Malformed("a value that nothing has lent"))?;
            return Ok(Pieces { memory: PieceMemory::Shared(bytes) });
        }
        from.take(length as usize).map(Pieces::from)
    }
    fn shape(shape: &mut Shape) {
        // The sums depend on where a value is cut.
        shape.text(std::any::type_name::<Self>());
        shape.text(&format!("{} {}", Self::HEAD, Self::PIECE));
    }
    fn blank() -> Self {
        Pieces::new()
    }
    fn is_intact(&self) -> bool {
        (0..self.count()).all(|piece| self.fits(piece))
    }
    #[cfg(feature = "inject")]
    fn damage(&mut self, damage: crate::inject::Damage) -> bool {
        crate::inject::damage_pieces(self, &mut Pieces::own, damage)
    }
}

/// In a before-image, instead of a length: the number of a value that was lent.
const LENT: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    /// A bit flips after the copy and before the sum: in the copy, or in what was copied.
    #[test]
    fn an_error_between_copy_and_sum_is_found() {
        let (key, value) = ([7; 100], vec![5; 3 * Pieces::PIECE]);
        let all = 0..key.len() + value.len();
        let copied = || Pieces::unsummed(&key, &value);
        let mut right = copied();
        right.renew(all.clone(), &[(0, &key), (key.len(), &value)]);
        assert!(right.is_intact());
        for at in [Pieces::HEAD, Pieces::HEAD + Pieces::PIECE, all.end - 1] {
            let mut flipped = copied();
            flipped.own()[at] ^= 8;
            let mut unnoticed = flipped.clone();
            flipped.renew(all.clone(), &[(0, &key), (key.len(), &value)]);
            assert!(!flipped.is_intact(), "byte {at} of the copy");
            // The sum of the copy is that of the error.
            unnoticed.renew(all.clone(), &[]);
            assert!(unnoticed.is_intact());

            let mut source = value.clone();
            source[at - key.len()] ^= 8;
            let mut flipped = copied();
            flipped.renew(all.clone(), &[(0, &key), (key.len(), &source)]);
            assert!(!flipped.is_intact(), "byte {at} of the source");
        }
    }

    #[test]
    fn sums_of_sources_are_those_of_the_copy() {
        let bytes: Vec<u8> = (0..5 * Pieces::PIECE + 77).map(|at| (at * 31 % 251) as u8).collect();
        for cut in [0, 1, 100, Pieces::HEAD, Pieces::PIECE, Pieces::HEAD + Pieces::PIECE + 9, bytes.len()] {
            let (first, second) = bytes.split_at(cut);
            let mut joined = Pieces::joined(first, second);
            assert!(joined.is_intact());
            joined.write(cut / 2, &bytes[..bytes.len() - cut / 2]);
            assert!(joined.is_intact(), "written at {}", cut / 2);
            joined.append(&bytes);
            joined.prepend(first);
            assert!(joined.is_intact(), "cut at {cut}");
        }
    }
}
