//! Every choice of a run is a draw from one of these streams, and all of them come from one seed.

use wire::SplitMix64;

/// The stream of `seed`. `purpose` separates several streams of one seed, so that an additional draw from one changes
/// no draw from another. Bounded draws are remainders ([`SplitMix64::modulo`]): the seeds of recorded runs depend on
/// that.
pub fn stream(seed: u64, purpose: u64) -> SplitMix64 {
    let mut rng = SplitMix64::new(seed ^ purpose.wrapping_mul(0xD134_2543_DE82_EF95));
    rng.next_u64();
    rng
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded seeds depend on these numbers.
    #[test]
    fn a_known_seed_keeps_its_numbers() {
        let mut stream = stream(7, 3);
        assert_eq!([(); 3].map(|()| stream.modulo(1000)), [364, 488, 268]);
    }
}
