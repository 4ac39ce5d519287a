//! Reading and writing little-endian fields without ever trusting a length: the base of every codec here.

use bytes::{Buf, Bytes};

/// The bytes end before the field does, or a field has a value that no sender writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed bytes: {0}")]
pub struct Malformed(
    /// Which rule the bytes break.
    pub &'static str,
);

/// A cursor over bytes of unknown origin. Every method fails instead of panicking, and none allocates.
pub(crate) struct Reader(pub Bytes);

impl Reader {
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.0.try_get_u8().map_err(|_| Malformed("ends early"))
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.0.try_get_u32_le().map_err(|_| Malformed("ends early"))
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.0.try_get_u64_le().map_err(|_| Malformed("ends early"))
    }

    /// A flag byte: 0 or 1, nothing else.
    pub fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("flag is neither 0 nor 1")),
        }
    }

    /// The next `len` bytes, sharing the buffer.
    pub fn bytes(&mut self, len: usize) -> Result<Bytes, Malformed> {
        if len > self.0.len() {
            return Err(Malformed("length exceeds the bytes present"));
        }
        Ok(self.0.split_to(len))
    }

    /// A count of items of at least `item` bytes each: refused when the bytes present cannot hold them.
    pub fn count(&mut self, item: usize, max: usize) -> Result<usize, Malformed> {
        let count = self.u32()? as usize;
        if count > max || count.saturating_mul(item) > self.0.len() {
            return Err(Malformed("count exceeds the bytes present"));
        }
        Ok(count)
    }

    /// Nothing may follow.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("bytes follow the last field")) }
    }
}

/// Appends to a `Vec`, so that encoders read like the layout they write.
pub(crate) trait Put {
    fn put8(&mut self, value: u8);
    fn put32(&mut self, value: u32);
    fn put64(&mut self, value: u64);
}

impl Put for Vec<u8> {
    fn put8(&mut self, value: u8) {
        self.push(value);
    }

    fn put32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
}

/// A well-mixed function of `x` (splitmix64): seeds and tie-breaks that must be equal wherever they are computed.
pub(crate) fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
