//! SplitMix64: draws that their seed repeats everywhere; load, faults and benchmarks need speed and repeatability, not secrecy.

/// What separates the states of two draws: 2^64 divided by the golden ratio.
pub const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The draw from a state; neighbouring seeds give unrelated draws.
pub fn draw(seed: u64) -> u64 {
    spread(seed.wrapping_add(STEP))
}

/// Spreads the bits of a number over all of them; 0 stays 0.
pub fn spread(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_those_of_the_published_generator() {
        let states = (0u64..3).map(|number| 1_234_567u64.wrapping_add(number.wrapping_mul(STEP)));
        let published = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(states.map(draw).collect::<Vec<_>>(), published);
    }
}
