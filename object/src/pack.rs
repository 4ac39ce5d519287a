//! Bytes in, bytes out: packed members, read by a reader that trusts nothing.

use crate::member::Member;
use std::fmt;

/// Packed bytes that are not what they claim to be. The bytes are at fault, never the reader.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Damaged(&'static str);

impl Damaged {
    /// `what` completes the sentence "the packed object has ..".
    pub const fn new(what: &'static str) -> Self {
        Damaged(what)
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the packed object has {}", self.0)
    }
}

impl fmt::Debug for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Damaged {}

/// Reads packed bytes from the front. Every method fails rather than reads past the end, and none allocates by a
/// length that the bytes only claim.
#[derive(Clone, Debug)]
pub struct Unpacker<'a> {
    rest: &'a [u8],
}

impl<'a> Unpacker<'a> {
    /// A reader of all of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Unpacker { rest: bytes }
    }

    /// The next `length` bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or(Damaged("fewer bytes than it claims"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes, by value.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (taken, rest) =
            self.rest.split_first_chunk::<N>().ok_or(Damaged("fewer bytes than it claims"))?;
        self.rest = rest;
        Ok(*taken)
    }

    /// A length or count, which must not exceed the bytes that are left: whatever it counts takes a byte at least.
    pub fn length(&mut self) -> Result<usize, Damaged> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        if length > self.rest.len() { Err(Damaged("a length beyond its end")) } else { Ok(length) }
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// One member, which must use up exactly the bytes packed for it.
    #[doc(hidden)]
    pub fn member<T: Member>(&mut self) -> Result<T::Packed, Damaged> {
        let length = self.length()?;
        let mut own = Unpacker::new(self.take(length)?);
        let packed = T::unpack(&mut own)?;
        own.finish()?;
        Ok(packed)
    }

    /// Ends the reading: nothing may be left.
    pub fn finish(&self) -> Result<(), Damaged> {
        if self.rest.is_empty() { Ok(()) } else { Err(Damaged("more bytes than its members")) }
    }
}

/// Writes members one after the other, each behind its length, so that two packed objects can be compared member by
/// member without knowing their type.
#[derive(Debug)]
pub struct Packer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Packer<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Packer { out }
    }

    /// Appends one member.
    pub fn member<T: Member>(&mut self, member: &T) {
        let start = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        member.pack(self.out);
        let length = (self.out.len() - start - 4) as u32;
        self.out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }
}
