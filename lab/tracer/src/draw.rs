//! The random numbers of a campaign: every injection has a stream of its own, so that each can be repeated alone.

use wire::{SplitMix64, scramble};

/// The stream of injection `id` of fault number `fault` in the campaign of `seed`.
pub fn stream(seed: u64, fault: u64, id: u64) -> SplitMix64 {
    SplitMix64::new(scramble(scramble(scramble(seed) ^ fault.wrapping_add(1)) ^ id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_neighbours_differ_and_repeat() {
        let first = |seed, fault, id| stream(seed, fault, id).next_u64();
        assert_eq!(first(1, 2, 3), first(1, 2, 3));
        let all = [first(1, 2, 3), first(2, 2, 3), first(1, 3, 3), first(1, 2, 4), first(1, 3, 2)];
        for (number, one) in all.iter().enumerate() {
            assert!(!all[number + 1..].contains(one), "{all:?}");
        }
    }

    /// Recorded campaigns depend on these numbers.
    #[test]
    fn a_known_seed_keeps_its_numbers() {
        let mut stream = stream(7, 3, 5);
        assert_eq!([(); 3].map(|()| stream.below(1000)), [219, 643, 800]);
    }
}
