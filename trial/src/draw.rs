//! Draws that their seed repeats: SplitMix64, for plans, clients, packets and faults.

use schedule::DetRng;

/// A sequence of draws, one per seed.
#[derive(Clone, Debug)]
pub struct Draw(DetRng);

impl Draw {
    /// The sequence of `seed`; `of` tells apart who draws.
    pub fn new(seed: u64, of: u64) -> Self {
        let mut mixed = DetRng::new(seed ^ of.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        Draw(DetRng::new(mixed.next_u64()))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// A number from 0 up to and without 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number from `low` to `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    /// Puts `items` in a drawn order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}
