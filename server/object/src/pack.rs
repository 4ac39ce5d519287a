//! Bytes in, bytes out: the members of an object, each behind its length.

use crate::member::Member;
use wire::{Malformed, Put, Reader};

/// Reads one member, which must use up exactly the bytes packed for it.
pub fn unpack_member<T: Member>(reader: &mut Reader<'_>) -> Result<T::Packed, Malformed> {
    let length = reader.length32()?;
    let mut own = Reader::new(reader.take(length)?);
    let packed = T::unpack(&mut own)?;
    own.end()?;
    Ok(packed)
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
        self.out.put_sized(|out| member.pack(out));
    }
}
