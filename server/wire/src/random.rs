//! SplitMix64: numbers that are a function of their seed, equal on every replica and in every repeated run.
//!
//! Source: Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014. It is fast and repeatable,
//! and no secret: one number is enough to compute all others.

/// The difference of two states of [`SplitMix64`]: the odd constant of the golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Spreads the bits of a number over all of them; 0 stays 0. [`SplitMix64`] applies this to each of its states.
#[inline]
pub const fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The first number of the generator with the seed `x`: a well-mixed function for derived seeds and tie-breaks.
#[inline]
pub const fn mix(x: u64) -> u64 {
    scramble(x.wrapping_add(GOLDEN))
}

/// Seed of the `number`-th value derived from `seed`.
#[inline]
pub const fn derive(seed: u64, number: u64) -> u64 {
    scramble(seed ^ mix(number))
}

/// The upper 53 bits as a number from 0 up to and without 1.
#[inline]
pub fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// A sequence of numbers, one per seed.
///
/// There are two ways to a number below a bound, and recorded seeds depend on which one their users take:
///
/// - [`SplitMix64::below`] multiplies and takes the upper half (schedule, trial, tracer, bench); so do `one_of` and
///   `shuffle`, and `unit` and `between` take the upper bits too;
/// - [`SplitMix64::modulo`] takes the remainder (sim, fault injection, the test harnesses); so do `within`, `chance`,
///   `once_in` and `pick`.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The generator of this seed.
    #[inline]
    pub const fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        let drawn = mix(self.0);
        self.0 = self.0.wrapping_add(GOLDEN);
        drawn
    }

    /// A number below `bound`, or 0 for the bound 0. Its bias is below `bound` / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// One of several, by [`below`](Self::below); none of none.
    pub fn one_of<'a, T>(&mut self, several: &'a [T]) -> Option<&'a T> {
        several.get(self.below(several.len() as u64) as usize)
    }

    /// Puts `items` in a drawn order (Fisher and Yates), by [`below`](Self::below).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// A number from 0 up to and without 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        unit(self.next_u64())
    }

    /// A number from `low` to `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    /// A number below `bound`, or 0 for the bound 0: the remainder of the next 64 bits. Its bias is below
    /// `bound` / 2^64.
    #[inline]
    pub fn modulo(&mut self, bound: u64) -> u64 {
        self.next_u64().checked_rem(bound).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included, by [`modulo`](Self::modulo). `low` is at most `high`, and the two
    /// are not the lowest and the highest number of 64 bits.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.modulo(high - low + 1)
    }

    /// True this often in a thousand, by [`modulo`](Self::modulo).
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.modulo(1000) < per_mille
    }

    /// True once in `n`, by [`modulo`](Self::modulo).
    pub fn once_in(&mut self, n: u64) -> bool {
        self.modulo(n) == 0
    }

    /// One of several (at least one), by [`modulo`](Self::modulo).
    ///
    /// # Panics
    /// When there is none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.modulo(of.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        let first = |seed: u64| {
            let mut rng = SplitMix64::new(seed);
            [rng.next_u64(), rng.next_u64(), rng.next_u64()]
        };
        assert_eq!(first(0), [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F]);
        let published = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(first(1_234_567), published);
        let states = (0u64..3).map(|number| 1_234_567u64.wrapping_add(number.wrapping_mul(GOLDEN)));
        assert_eq!(states.map(mix).collect::<Vec<_>>(), published);
        assert_eq!(scramble(0), 0);
        assert_eq!(derive(5, 0), scramble(5 ^ 0xE220_A839_7B1D_CDAF));
        assert_ne!(derive(1, 0), derive(1, 1));
    }

    /// Seeds in logs, records and tests mean these numbers: a change here changes all of them.
    #[test]
    fn both_ways_to_a_bound_stay_what_recorded_seeds_expect() {
        let next = 0xE220_A839_7B1D_CDAF_u64;
        let rng = || SplitMix64::new(0);
        assert_eq!(rng().below(1000), ((u128::from(next) * 1000) >> 64) as u64);
        assert_eq!(rng().modulo(1000), next % 1000);
        assert_eq!(rng().within(10, 1009), 10 + next % 1000);
        assert_eq!(rng().unit(), (next >> 11) as f64 / (1u64 << 53) as f64);
        assert_eq!(rng().between(2.0, 4.0), 2.0 + unit(next) * 2.0);
        let of: Vec<u64> = (0..1000).collect();
        assert_eq!(rng().one_of(&of), Some(&(((u128::from(next) * 1000) >> 64) as u64)));
        assert_eq!(*rng().pick(&of), next % 1000);
        assert!(!rng().chance(next % 1000) && rng().chance(next % 1000 + 1));
        assert!((1..100).all(|n| rng().once_in(n) == next.is_multiple_of(n)));
        let (mut items, mut by_hand, mut drawn) = ([0, 1, 2, 3], [0, 1, 2, 3], rng());
        rng().shuffle(&mut items);
        (1..4).rev().for_each(|last| by_hand.swap(last, drawn.below(last as u64 + 1) as usize));
        assert_eq!(items, by_hand);
    }

    #[test]
    fn every_number_below_the_bound_comes_and_no_other() {
        for draw in [SplitMix64::below, SplitMix64::modulo] {
            let mut rng = SplitMix64::new(7);
            let mut seen = [0; 5];
            for _ in 0..5_000 {
                seen[draw(&mut rng, 5) as usize] += 1;
            }
            assert!(seen.iter().all(|&count| (800..1_200).contains(&count)), "{seen:?}");
            assert_eq!(draw(&mut rng, 0), 0);
            assert_eq!(draw(&mut rng, 1), 0);
        }
        assert_eq!(SplitMix64::new(1).one_of::<u8>(&[]), None);
        assert!((0..1_000).map(mix).map(unit).all(|one| (0.0..1.0).contains(&one)));
    }
}
