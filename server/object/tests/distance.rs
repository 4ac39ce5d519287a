//! The Hamming distance of the checksum at the sizes of our objects, computed, not cited (docs/design.md, section 3).
//!
//! A CRC is linear: an error goes undetected exactly if the code word made of the flipped bits is a multiple of the
//! polynomial. With `r(i)` for x^i modulo the polynomial, an undetected error of k bits, shifted so that its last bit
//! is bit 0, is a set of k - 1 positions whose `r` xor to `r(0) = 1`. So distances follow from collisions of sums.

/// CRC-64/NVME without its highest term (NVM Express NVM Command Set Specification, section 5.2.1.3.4).
const POLYNOMIAL: u64 = 0xAD93_D235_94C9_3659;

/// `r(0), r(1), ..` for all bits of a code word of `bytes` bytes and its checksum.
fn residues(bytes: usize) -> Vec<u64> {
    std::iter::successors(Some(1u64), |r| Some(r << 1 ^ if r >> 63 == 1 { POLYNOMIAL } else { 0 }))
        .take(bytes * 8 + 64)
        .collect()
}

/// The polynomial above is the one that the checksum computes: one flipped bit changes the sum by its residue.
#[test]
fn the_polynomial_is_that_of_the_checksum() {
    let sum = |bytes: &[u8]| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes);
    let residues = residues(40);
    let zeros = [0u8; 40];
    for bit in 0..320 {
        let mut flipped = zeros;
        // Reflected: the lowest bit of a byte comes first, and so has the highest power.
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!((sum(&zeros) ^ sum(&flipped)).reverse_bits(), residues[64 + 319 - bit]);
    }
}

/// The polynomial is primitive, so x^i = x^j only if i = j modulo 2^64 - 1: every error of two bits is detected in any
/// object that fits into memory.
#[test]
fn errors_of_two_bits_are_detected_at_any_length() {
    let times = |left: u64, right: u64| {
        let (mut product, mut left) = (0, left);
        for bit in 0..64 {
            product ^= if right >> bit & 1 == 1 { left } else { 0 };
            left = left << 1 ^ if left >> 63 == 1 { POLYNOMIAL } else { 0 };
        }
        product
    };
    let power = |mut exponent: u64| {
        let (mut result, mut square) = (1, 2);
        while exponent > 0 {
            result = if exponent & 1 == 1 { times(result, square) } else { result };
            square = times(square, square);
            exponent >>= 1;
        }
        result
    };
    assert_eq!(power(u64::MAX), 1);
    let primes = [3, 5, 17, 257, 641, 65_537, 6_700_417u64];
    assert_eq!(primes.iter().product::<u64>(), u64::MAX);
    assert!(primes.iter().all(|prime| power(u64::MAX / prime) != 1));
}

/// No errors of three bits (two residues that differ by 1) in a megabyte.
#[test]
fn errors_of_three_bits_are_detected_up_to_a_megabyte() {
    let mut residues = residues(1 << 20);
    residues.sort_unstable();
    assert!(residues.iter().all(|r| r & 1 == 1 || residues.binary_search(&(r ^ 1)).is_err()));
}

/// No errors of four or five bits in a kilobyte: an item of 100 + 400 B with its other members, filled up. Equal sums
/// of two pairs would be an error of four bits; sums that differ by 1 = r(0), one of five.
#[test]
fn errors_of_up_to_five_bits_are_detected_up_to_a_kilobyte() {
    let residues = residues(1024);
    let mut pairs = Vec::with_capacity(residues.len() * residues.len() / 2);
    for (index, left) in residues.iter().enumerate() {
        pairs.extend(residues[index + 1..].iter().map(|right| left ^ right));
    }
    pairs.sort_unstable();
    for two in pairs.windows(2) {
        assert_ne!(two[0], two[1], "an error of four bits");
        // Sums that differ by 1 are neighbours. Pairs that share a position, or hold r(0), would be errors of three.
        assert_ne!(two[0] | 1, two[1] | 1, "an error of five bits");
    }
}

/// The same for four bits in a piece of 4 KiB, or an item that holds one. Takes 20 s of one core.
#[test]
#[ignore = "a long computation whose result does not change; run it when the polynomial does"]
fn errors_of_four_bits_are_detected_in_a_piece() {
    let residues = residues(object::Pieces::PIECE + 512);
    let mut sorted = residues[1..].to_vec();
    sorted.sort_unstable();
    for (index, left) in residues.iter().enumerate().skip(1) {
        for right in &residues[index + 1..] {
            assert!(sorted.binary_search(&(left ^ right ^ 1)).is_err());
        }
    }
}
