//! Appends little-endian fields to a vector, so that an encoder reads like the layout that it writes.

/// Appends to a `Vec<u8>`. The calls chain.
pub trait Put {
    /// Bytes as they are.
    fn put(&mut self, bytes: &[u8]) -> &mut Self;

    /// The bytes that `write` appends, behind their length in 4 bytes. A length beyond 4 bytes is written as their
    /// largest number, which a decoder refuses.
    fn put_sized(&mut self, write: impl FnOnce(&mut Self)) -> &mut Self;

    /// One byte.
    #[inline]
    fn put8(&mut self, value: u8) -> &mut Self {
        self.put(&[value])
    }

    /// A number in 2 bytes.
    #[inline]
    fn put16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    /// A number in 4 bytes.
    #[inline]
    fn put32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    /// A number in 8 bytes.
    #[inline]
    fn put64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    /// A number in 16 bytes.
    #[inline]
    fn put128(&mut self, value: u128) -> &mut Self {
        self.put(&value.to_le_bytes())
    }
}

impl Put for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.extend_from_slice(bytes);
        self
    }

    #[inline]
    fn put8(&mut self, value: u8) -> &mut Self {
        self.push(value);
        self
    }

    #[inline]
    fn put_sized(&mut self, write: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.len();
        self.put32(0);
        write(self);
        let length = u32::try_from(self.len() - start - 4).unwrap_or(u32::MAX);
        self[start..start + 4].copy_from_slice(&length.to_le_bytes());
        self
    }
}
