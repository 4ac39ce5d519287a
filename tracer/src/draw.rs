//! The random numbers of a campaign: every injection has a stream of its own, so that each can be repeated alone.

use schedule::{DetRng, scramble};

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Stream(DetRng);

impl Stream {
    /// The stream of injection `id` of fault number `fault` in the campaign of `seed`.
    pub fn of(seed: u64, fault: u64, id: u64) -> Self {
        Stream(DetRng::new(scramble(scramble(scramble(seed) ^ fault.wrapping_add(1)) ^ id)))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, or 0 for the bound 0. Its bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// One of several; none of none.
    pub fn one_of<'a, T>(&mut self, several: &'a [T]) -> Option<&'a T> {
        several.get(self.below(several.len() as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_neighbours_differ_and_repeat() {
        let first = |seed, fault, id| Stream::of(seed, fault, id).bits();
        assert_eq!(first(1, 2, 3), first(1, 2, 3));
        let all = [first(1, 2, 3), first(2, 2, 3), first(1, 3, 3), first(1, 2, 4), first(1, 3, 2)];
        for (number, one) in all.iter().enumerate() {
            assert!(!all[number + 1..].contains(one), "{all:?}");
        }
    }

    #[test]
    fn every_number_below_the_bound_comes_and_no_other() {
        let mut stream = Stream::of(7, 0, 0);
        let mut seen = [0; 5];
        for _ in 0..5_000 {
            seen[stream.below(5) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (800..1_200).contains(&count)), "{seen:?}");
        assert_eq!(stream.below(0), 0);
    }
}
