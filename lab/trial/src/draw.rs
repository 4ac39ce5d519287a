//! Random draws that are repeated by their seed, for plans, clients, packets and faults: every purpose has a stream of
//! its own.

use wire::SplitMix64;

/// The stream of `seed`; `of` identifies the purpose.
pub fn stream(seed: u64, of: u64) -> SplitMix64 {
    SplitMix64::new(SplitMix64::new(seed ^ of.wrapping_mul(0xD6E8_FEB8_6659_FD93)).next_u64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded seeds depend on these numbers.
    #[test]
    fn a_known_seed_keeps_its_numbers() {
        let mut stream = stream(7, 3);
        assert_eq!([(); 3].map(|()| stream.below(1000)), [585, 531, 545]);
    }
}
