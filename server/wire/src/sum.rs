//! CRC-32C, the checksum of everything that leaves memory: requests, batches, frames, log records.
//!
//! Heads of frames and batches have a few dozen bytes, and a request passes a dozen such sums. There the library takes
//! most of its time to prepare for long inputs, so short ones are summed here, eight bytes per instruction:
//! `unsafe`, behind a check whether the processor has it.

/// Inputs up to this length are summed here: from some hundred bytes on, three sums beside each other are faster.
const SHORT: usize = 256;

/// CRC-32C of these bytes (RFC 3720, section 12.1).
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// CRC-32C of bytes whose beginning has the CRC-32C `before`, and which go on with `bytes`.
#[inline]
pub fn crc32c_append(before: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT && is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the feature that the function is compiled for.
        return unsafe { short(before, bytes) };
    }
    crc32c::crc32c_append(before, bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn short(before: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};

    let (words, rest) = bytes.as_chunks();
    let sum = words.iter().fold(u64::from(!before), |sum, word| _mm_crc32_u64(sum, u64::from_le_bytes(*word)))
        as u32;
    let (sum, rest) = match rest.split_first_chunk() {
        Some((word, rest)) => (_mm_crc32_u32(sum, u32::from_le_bytes(*word)), rest),
        None => (sum, rest),
    };
    !rest.iter().fold(sum, |sum, byte| _mm_crc32_u8(sum, *byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_every_cut_sum_to_what_the_library_computes() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283, "the check value of CRC-32C");
        let bytes: Vec<u8> = (0..2 * SHORT).map(|at| (at as u8).wrapping_mul(167) ^ 0x5A).collect();
        for length in 0..bytes.len() {
            assert_eq!(crc32c(&bytes[..length]), crc32c::crc32c(&bytes[..length]), "{length} bytes");
        }
        for cut in 0..100 {
            assert_eq!(crc32c_append(crc32c(&bytes[..cut]), &bytes[cut..100]), crc32c(&bytes[..100]));
        }
    }
}
