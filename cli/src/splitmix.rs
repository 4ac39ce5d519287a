//! SplitMix64: draws that their seed repeats everywhere; load, faults and benchmarks need speed and repeatability, not secrecy.

/// What separates the states of two draws, and what spreads the bits of a state over all of them.
pub use schedule::{GOLDEN as STEP, scramble as spread};

/// The draw from a state; neighbouring seeds give unrelated draws.
pub fn draw(seed: u64) -> u64 {
    spread(seed.wrapping_add(STEP))
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
