//! CRCs that are joined without their bytes: a reply's CRC takes in that of a stored value.
//!
//! The CRC of `a` followed by `b` is that of `a` times x^(8 · bytes of `b`), plus that of `b`, as polynomials modulo
//! that of CRC-32C. The crate `crc32c` multiplies by matrices, 29,000 instructions for each pair; a product of
//! polynomials takes about 160, and the power of x for the latest length is kept.

/// The polynomial of CRC-32C, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// 1, bits reversed.
const ONE: u32 = 1 << 31;

/// x^(8 · 2^k), for each k.
const POWERS: [u32; 64] = powers();

const fn powers() -> [u32; 64] {
    let mut powers = [0; 64];
    powers[0] = ONE >> 8;
    let mut k = 1;
    while k < 64 {
        powers[k] = multiply(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
}

/// The product of two polynomials modulo that of CRC-32C.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        product ^= b & (a >> bit & 1).wrapping_neg();
        b = b >> 1 ^ POLYNOMIAL & (b & 1).wrapping_neg();
    }
    product
}

/// Joins CRCs; keeps the power of x for the latest length.
#[derive(Clone, Copy, Debug)]
pub struct Joiner {
    length: usize,
    power: u32,
}

impl Default for Joiner {
    fn default() -> Self {
        Self { length: 0, power: ONE }
    }
}

impl Joiner {
    /// The CRC of bytes with the CRC `first`, followed by `length` bytes with the CRC `second`.
    pub fn join(&mut self, first: u32, second: u32, length: usize) -> u32 {
        if length != self.length {
            self.length = length;
            self.power =
                (0..64).filter(|k| length >> k & 1 == 1).fold(ONE, |power, k| multiply(power, POWERS[k]));
        }
        multiply(self.power, first) ^ second
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn joined_crcs_are_those_of_the_joined_bytes() {
        let bytes: Vec<u8> = (0..70_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut joiner = Joiner::default();
        for length in [0, 1, 2, 7, 8, 8, 10, 10, 255, 1026, 4098, 65_537] {
            let (first, second) = bytes.split_at(bytes.len() - length);
            let joined = joiner.join(crc32c::crc32c(first), crc32c::crc32c(second), length);
            assert_eq!(joined, crc32c::crc32c(&bytes), "{length}");
            assert_eq!(joined, crc32c::crc32c_combine(crc32c::crc32c(first), crc32c::crc32c(second), length));
        }
    }
}
