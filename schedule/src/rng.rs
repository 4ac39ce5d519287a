//! Random numbers that are a function of the ordered log.

/// What separates two states of [`DetRng`]: the odd constant of the golden ratio (Steele, Lea, Flood: SplitMix, OOPSLA'14).
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Deterministic generator (SplitMix64): the same numbers on every replica, and on a retry of the same request.
#[derive(Clone, Debug)]
pub struct DetRng(u64);

impl DetRng {
    /// A generator from a seed.
    pub const fn new(seed: u64) -> Self {
        DetRng(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        scramble(self.0)
    }

    /// A number below `bound` (0 if `bound` is 0), without a noticeable bias.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// Seed of the `number`-th thing derived from `seed`.
pub(crate) const fn derive(seed: u64, number: u64) -> u64 {
    scramble(seed ^ scramble(number.wrapping_add(GOLDEN)))
}

/// Spreads the bits of a number over all of them; 0 stays 0. What [`DetRng`] does to each of its states.
pub const fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn known_answers_and_bounds() {
        // First outputs of SplitMix64 from seed 0, as published with the algorithm.
        let mut rng = DetRng::new(0);
        assert_eq!(rng.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(rng.next_u64(), 0x6e78_9e6a_a1b9_65f4);
        assert!((0..1_000).all(|_| rng.below(7) < 7));
        assert_eq!(rng.below(0), 0);
        assert_ne!(derive(1, 0), derive(1, 1));
    }
}
