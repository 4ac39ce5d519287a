//! SplitMix64: every choice of a run is a draw from one of these, and all of them come from one seed.

use schedule::DetRng;

/// A stream of draws.
#[derive(Clone, Debug)]
pub struct Rng(DetRng);

impl Rng {
    /// The stream of `seed`; `purpose` tells several streams of one seed apart, so that a draw more in one changes nothing in
    /// another.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut rng = Rng(DetRng::new(seed ^ purpose.wrapping_mul(0xD134_2543_DE82_EF95)));
        rng.draw();
        rng
    }

    /// 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Below `bound`, which is above 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// From `low` to `high`, both included.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True so often in a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}
