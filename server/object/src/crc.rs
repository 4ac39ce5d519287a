//! CRC-64/NVME over whole blocks of 16 bytes. Most sums are over 50 to 600 bytes, for which the dispatch of a general
//! library takes longer than the sum itself (docs/design.md, section 3).
//!
//! The method is folding with carry-less multiplication (Intel, "Fast CRC Computation for Generic Polynomials Using
//! PCLMULQDQ Instruction", 2009); the compiler computes the constants from the polynomial. A processor without these
//! instructions, and any other architecture, gets the same code from the crate `crc-fast`. The instructions are
//! `unsafe`, behind a check whether the processor has them.

use crc_fast::CrcAlgorithm;

/// 16 bytes, of which the first one comes first in the message.
pub(crate) type Block = [u8; 16];

/// The polynomial, reflected, without its highest power.
pub(crate) const POLYNOMIAL: u64 = 0x9A6C_9329_AC4B_C9B5;

/// The checksum of these blocks.
#[inline]
pub(crate) fn of_blocks(blocks: &[Block]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if blocks.is_empty() {
            return 0;
        }
        if blocks.len() >= folding::WIDE_FROM && folding::is_wide_possible() {
            // SAFETY: `is_wide_possible` has found every feature of the processor that the function is compiled for.
            return unsafe { folding::sum_wide(blocks) };
        }
        if folding::is_possible() {
            // SAFETY: `is_possible` has found every feature of the processor that the function is compiled for.
            return unsafe { folding::sum(blocks) };
        }
    }
    general(blocks)
}

/// The same by the library.
#[cold]
fn general(blocks: &[Block]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, blocks.as_flattened())
}

/// A register of 128 bits holds the polynomial `low * x^64 + high`: both words are reflected, so the lowest bit of each
/// belongs to its highest power, and bytes of the message need no rearranging. The product that the processor computes
/// of two reflected words is the reflected product times x, which is why the constants have one power less than the
/// distance they bridge.
#[cfg(target_arch = "x86_64")]
mod folding {
    use std::arch::x86_64::*;

    use super::{Block, POLYNOMIAL};

    /// The quotient of x^128 and the polynomial, reflected, without its highest power.
    const QUOTIENT: u64 = quotient();
    /// From this number of blocks on four registers are folded beside each other: each waits for its own products only.
    const LANES_FROM: usize = 8;
    /// From this number of blocks on registers of 512 bits are worth it, where the processor has them.
    pub(super) const WIDE_FROM: usize = 16;

    #[inline]
    pub(super) fn is_possible() -> bool {
        is_x86_feature_detected!("pclmulqdq")
    }

    #[inline]
    pub(super) fn is_wide_possible() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("pclmulqdq")
    }

    /// x^`power` modulo the polynomial, reflected.
    const fn power_of_x(power: u32) -> u64 {
        let (mut value, mut at) = (1 << 63, 0);
        while at < power {
            value = times_x(value);
            at += 1;
        }
        value
    }

    const fn times_x(value: u64) -> u64 {
        (value >> 1) ^ if value & 1 == 1 { POLYNOMIAL } else { 0 }
    }

    const fn quotient() -> u64 {
        let (mut rest, mut quotient, mut power) = (POLYNOMIAL, 0, 64);
        while power > 0 {
            power -= 1;
            quotient |= (rest & 1) << (63 - power);
            rest = times_x(rest);
        }
        quotient
    }

    /// The factors of both words of a register that moves over `bits` bits of the message.
    const fn over(bits: u32) -> (i64, i64) {
        (power_of_x(bits + 63) as i64, power_of_x(bits - 1) as i64)
    }

    /// Factors for the low and the high word, in registers.
    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn factors((low, high): (i64, i64)) -> __m128i {
        _mm_set_epi64x(high, low)
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn load(block: &Block) -> __m128i {
        let (words, _) = block.as_chunks::<8>();
        _mm_set_epi64x(i64::from_le_bytes(words[1]), i64::from_le_bytes(words[0]))
    }

    /// Moves the register over the distance of the factors, to where `next` is, and adds that.
    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn fold(register: __m128i, factors: __m128i, next: __m128i) -> __m128i {
        let low = _mm_clmulepi64_si128::<0x00>(register, factors);
        let high = _mm_clmulepi64_si128::<0x11>(register, factors);
        _mm_xor_si128(_mm_xor_si128(low, high), next)
    }

    /// The sum of at least one block.
    #[target_feature(enable = "pclmulqdq")]
    pub(super) fn sum(blocks: &[Block]) -> u64 {
        const BY_ONE: (i64, i64) = over(128);
        const BY_FOUR: (i64, i64) = over(512);
        let by_one = factors(BY_ONE);
        let begin = _mm_set_epi64x(0, -1);
        let (register, rest) = if blocks.len() < LANES_FROM {
            (_mm_xor_si128(load(&blocks[0]), begin), &blocks[1..])
        } else {
            let by_four = factors(BY_FOUR);
            let (fours, rest) = blocks.as_chunks::<4>();
            let mut lanes = [load(&fours[0][0]), load(&fours[0][1]), load(&fours[0][2]), load(&fours[0][3])];
            lanes[0] = _mm_xor_si128(lanes[0], begin);
            for four in &fours[1..] {
                for (lane, block) in lanes.iter_mut().zip(four) {
                    *lane = fold(*lane, by_four, load(block));
                }
            }
            (join(lanes, by_one), rest)
        };
        finish(register, by_one, rest)
    }

    /// Four registers beside each other as one.
    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn join(lanes: [__m128i; 4], by_one: __m128i) -> __m128i {
        let pair = fold(lanes[0], by_one, lanes[1]);
        fold(fold(pair, by_one, lanes[2]), by_one, lanes[3])
    }

    /// The sum of what the register stands for and of the blocks behind that.
    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn finish(mut register: __m128i, by_one: __m128i, rest: &[Block]) -> u64 {
        for block in rest {
            register = fold(register, by_one, load(block));
        }
        !reduce(register)
    }

    /// The same with registers of 512 bits, for at least [`WIDE_FROM`] blocks.
    #[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq")]
    pub(super) fn sum_wide(blocks: &[Block]) -> u64 {
        const BY_FOUR: (i64, i64) = over(512);
        const BY_EIGHT: (i64, i64) = over(1024);
        let by_one = factors(const { over(128) });
        let (eights, rest) = blocks.as_chunks::<8>();
        let Some((first, eights)) = eights.split_first() else { return sum(blocks) };
        let (mut even, mut odd) = wide(first);
        even = _mm512_xor_si512(even, _mm512_zextsi128_si512(_mm_set_epi64x(0, -1)));
        let by_eight = _mm512_broadcast_i32x4(factors(BY_EIGHT));
        for eight in eights {
            let (next_even, next_odd) = wide(eight);
            even = fold_wide(even, by_eight, next_even);
            odd = fold_wide(odd, by_eight, next_odd);
        }
        let lanes = fold_wide(even, _mm512_broadcast_i32x4(factors(BY_FOUR)), odd);
        let lanes = [
            _mm512_extracti32x4_epi32::<0>(lanes),
            _mm512_extracti32x4_epi32::<1>(lanes),
            _mm512_extracti32x4_epi32::<2>(lanes),
            _mm512_extracti32x4_epi32::<3>(lanes),
        ];
        finish(join(lanes, by_one), by_one, rest)
    }

    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq")]
    fn wide(blocks: &[Block; 8]) -> (__m512i, __m512i) {
        let begin = blocks.as_ptr().cast();
        // SAFETY: eight blocks are 128 readable bytes; the loads need no alignment and end with the last of them.
        unsafe { (_mm512_loadu_si512(begin), _mm512_loadu_si512(begin.add(1))) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq")]
    fn fold_wide(register: __m512i, factors: __m512i, next: __m512i) -> __m512i {
        let low = _mm512_clmulepi64_epi128::<0x00>(register, factors);
        let high = _mm512_clmulepi64_epi128::<0x11>(register, factors);
        _mm512_xor_si512(_mm512_xor_si512(low, high), next)
    }

    /// The register times x^64, modulo the polynomial (Barrett's method).
    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn reduce(register: __m128i) -> u64 {
        // The low word is 128 bits away from the end of the remainder, the high one 64.
        let by = _mm_set_epi64x(QUOTIENT as i64, const { power_of_x(127) as i64 });
        let moved = _mm_xor_si128(
            _mm_clmulepi64_si128::<0x00>(register, by),
            _mm_unpackhi_epi64(register, _mm_setzero_si128()),
        );
        let (low, high) = halves(moved);
        let quotient = low ^ (halves(_mm_clmulepi64_si128::<0x10>(moved, by)).0 << 1);
        let back = _mm_clmulepi64_si128::<0x00>(
            _mm_set_epi64x(0, quotient as i64),
            _mm_set_epi64x(0, POLYNOMIAL as i64),
        );
        let (back_low, back_high) = halves(back);
        high ^ (back_high << 1 | back_low >> 63)
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn halves(register: __m128i) -> (u64, u64) {
        let high = _mm_unpackhi_epi64(register, register);
        (_mm_cvtsi128_si64(register) as u64, _mm_cvtsi128_si64(high) as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn blocks(seed: u64, count: usize) -> Vec<Block> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        (0..count).map(|_| std::array::from_fn(|_| next())).collect()
    }

    #[test]
    fn every_length_sums_to_what_the_library_computes() {
        for count in 0..300 {
            let blocks = blocks(count as u64, count);
            assert_eq!(of_blocks(&blocks), general(&blocks), "{count} blocks");
            #[cfg(target_arch = "x86_64")]
            if count > 0 && folding::is_possible() {
                // SAFETY: the feature was found.
                assert_eq!(unsafe { folding::sum(&blocks) }, general(&blocks), "{count} blocks, narrow");
            }
        }
    }

    proptest! {
        /// Words of ones and zeros only: every constant is used with every bit.
        #[test]
        fn single_bits_sum_to_what_the_library_computes(count in 1_usize..40, bit in 0_usize..5000, ones: bool) {
            let mut blocks = vec![if ones { [255; 16] } else { [0; 16] }; count];
            let bit = bit % (count * 128);
            blocks[bit / 128][bit % 128 / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(of_blocks(&blocks), general(&blocks));
        }
    }
}
