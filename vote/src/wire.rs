//! Little-endian reading and writing with every length checked before it is used.

use bytes::Bytes;

use crate::event::Place;
use crate::message::Malformed;

/// Appends fields to a buffer; the calls chain.
pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u128(&mut self, value: u128) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn place(&mut self, place: Place) -> &mut Self {
        self.u64(place.batch).u16(place.request)
    }
}

/// Takes fields from the front of a frame.
pub(crate) struct Reader<'a> {
    frame: &'a Bytes,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(frame: &'a Bytes) -> Self {
        Reader { frame, at: 0 }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let end = self.at.checked_add(N).ok_or(Malformed::Length)?;
        let slice = self.frame.get(self.at..end).ok_or(Malformed::Length)?;
        self.at = end;
        slice.try_into().map_err(|_| Malformed::Length)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Malformed::Kind(other)),
        }
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, Malformed> {
        self.array().map(u128::from_le_bytes)
    }

    pub(crate) fn place(&mut self) -> Result<Place, Malformed> {
        Ok(Place { batch: self.u64()?, request: self.u16()? })
    }

    /// A 16-bit count of elements of `element` bytes each: within `bound`, and backed by bytes that are really there.
    pub(crate) fn count(&mut self, bound: usize, element: usize) -> Result<usize, Malformed> {
        let count = self.u16()? as usize;
        if count > bound {
            return Err(Malformed::Bound);
        }
        if count * element > self.frame.len() - self.at {
            return Err(Malformed::Length);
        }
        Ok(count)
    }

    /// Everything that is left, without copying it.
    pub(crate) fn rest(&mut self) -> Bytes {
        let rest = self.frame.slice(self.at..);
        self.at = self.frame.len();
        rest
    }

    pub(crate) fn finish(&self) -> Result<(), Malformed> {
        if self.at == self.frame.len() { Ok(()) } else { Err(Malformed::Length) }
    }
}
