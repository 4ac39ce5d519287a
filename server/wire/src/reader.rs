//! Reads little-endian fields from bytes of unknown origin, without ever trusting a length in them.

use bytes::Bytes;

/// The bytes end before a field does, or a field has a value that no encoder writes. The bytes are wrong, never the
/// reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed bytes: {0}")]
pub struct Malformed(
    /// The rule that the bytes break.
    pub &'static str,
);

/// A field, or a part of known length, goes beyond the end.
const SHORT: Malformed = Malformed("they end early");
/// A length or a count goes beyond the end.
const BEYOND: Malformed = Malformed("a length exceeds the bytes present");

/// Reads from the front. Every method fails where the bytes do not suffice; none panics, and none allocates.
///
/// A reader is made of a slice ([`Reader::new`]) or of shared bytes ([`Reader::shared`]). The second kind can
/// also return parts that share the buffer, without a copy.
#[derive(Debug, Clone)]
pub struct Reader<'a, W = ()> {
    /// The unread bytes. Always a part of the bytes that the reader was made of.
    rest: &'a [u8],
    whole: W,
}

/// A reader of shared bytes.
pub type SharedReader<'a> = Reader<'a, &'a Bytes>;

impl<'a> Reader<'a> {
    /// A reader of all of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes, whole: () }
    }
}

impl<'a> SharedReader<'a> {
    /// A reader of all of `bytes` that can share them.
    #[inline]
    pub fn shared(bytes: &'a Bytes) -> Self {
        Reader { rest: bytes, whole: bytes }
    }

    /// All the bytes that the reader was made of; [`Reader::take`] returns parts of them.
    #[inline]
    pub fn whole(&self) -> &'a Bytes {
        self.whole
    }

    /// The next `length` bytes, sharing the buffer.
    #[inline]
    pub fn bytes(&mut self, length: usize) -> Result<Bytes, Malformed> {
        self.take(length).map(|taken| self.whole.slice_ref(taken))
    }

    /// All the bytes that are left, sharing the buffer.
    #[inline]
    pub fn rest_bytes(&mut self) -> Bytes {
        self.whole.slice_ref(self.rest())
    }
}

impl<'a, W> Reader<'a, W> {
    /// The next `length` bytes.
    #[inline]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(SHORT)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes, by value.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(SHORT)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    /// The next 2 bytes as a number.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next 4 bytes as a number.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next 8 bytes as a number.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next 16 bytes as a number.
    #[inline]
    pub fn u128(&mut self) -> Result<u128, Malformed> {
        self.array().map(u128::from_le_bytes)
    }

    /// The next 8 bytes as a signed number.
    #[inline]
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_le_bytes)
    }

    /// A flag byte: 0 or 1, nothing else.
    #[inline]
    pub fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag is neither 0 nor 1")),
        }
    }

    /// A length in 4 bytes, or a count of items of a byte or more each: refused when fewer bytes are left.
    #[inline]
    pub fn length32(&mut self) -> Result<usize, Malformed> {
        self.count32(usize::MAX, 1)
    }

    /// A count, in 2 bytes, of at most `max` items of at least `item` bytes each: refused when the bytes that are left
    /// cannot hold them, so memory may be reserved for so many items.
    #[inline]
    pub fn count16(&mut self, max: usize, item: usize) -> Result<usize, Malformed> {
        let count = self.u16()?;
        self.backed(usize::from(count), max, item)
    }

    /// The same of a count in 4 bytes.
    #[inline]
    pub fn count32(&mut self, max: usize, item: usize) -> Result<usize, Malformed> {
        let count = self.u32()?;
        self.backed(count as usize, max, item)
    }

    /// The count, if that many items are allowed and can be there.
    #[inline]
    fn backed(&self, count: usize, max: usize, item: usize) -> Result<usize, Malformed> {
        if count > max {
            return Err(Malformed("a count is beyond its bound"));
        }
        if count.saturating_mul(item) > self.rest.len() { Err(BEYOND) } else { Ok(count) }
    }

    /// How many bytes are left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Whether no byte is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// All the bytes that are left.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Ends the reading: nothing may be left.
    #[inline]
    pub fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed("bytes follow the last field")) }
    }
}
