//! The memory that handlers work on, behind a trait, so that log and comparison are safe code and tests run them on a
//! vector.

/// How many bytes an entry of the log describes: the logarithm, which makes a dense table of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Size {
    /// One byte.
    B1 = 0,
    /// Two bytes.
    B2 = 1,
    /// Four bytes.
    B4 = 2,
    /// Eight bytes.
    B8 = 3,
}

impl Size {
    /// Its bytes.
    pub const fn bytes(self) -> usize {
        1 << self as usize
    }
}

/// Memory of the program. Addresses are those of the program; who calls knows that they are mapped.
pub trait ProgramMemory {
    /// The `size` bytes at `address`, little-endian, the rest zero.
    fn load(&self, address: usize, size: Size) -> u64;
    /// Stores the low `size` bytes of `value`.
    fn store(&mut self, address: usize, size: Size, value: u64);
    /// The `length` bytes at `address`.
    fn bytes(&self, address: usize, length: usize) -> &[u8];
    /// Overwrites the bytes at `address`.
    fn overwrite(&mut self, address: usize, bytes: &[u8]);
}

/// A vector as memory, for unit tests: addresses are indices.
#[cfg(all(test, not(loom)))]
pub(crate) struct VectorMemory(pub Vec<u8>);

#[cfg(all(test, not(loom)))]
impl ProgramMemory for VectorMemory {
    fn load(&self, address: usize, size: Size) -> u64 {
        let mut word = [0; 8];
        word[..size.bytes()].copy_from_slice(self.bytes(address, size.bytes()));
        u64::from_le_bytes(word)
    }

    fn store(&mut self, address: usize, size: Size, value: u64) {
        self.overwrite(address, &value.to_le_bytes()[..size.bytes()]);
    }

    fn bytes(&self, address: usize, length: usize) -> &[u8] {
        &self.0[address..address + length]
    }

    fn overwrite(&mut self, address: usize, bytes: &[u8]) {
        self.0[address..address + bytes.len()].copy_from_slice(bytes);
    }
}
