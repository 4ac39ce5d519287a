//! The intended times of an open loop: random times that do not depend on the server, so that a slow reply cannot hide
//! the next ones.

use wire::SplitMix64;

/// Intended times with independent, exponentially distributed gaps (a Poisson process).
#[derive(Debug)]
pub struct Arrivals {
    gap: f64,
    next: f64,
    random: SplitMix64,
}

impl Arrivals {
    /// `rate` requests per second, the first soon after `now` (nanoseconds).
    pub fn new(rate: f64, now: u64, seed: u64) -> Self {
        let mut arrivals = Arrivals { gap: 1e9 / rate, next: now as f64, random: SplitMix64::new(seed) };
        arrivals.step();
        arrivals
    }

    /// The next intended time, if it is not after `now`.
    pub fn due(&mut self, now: u64) -> Option<u64> {
        let intended = self.next as u64;
        if intended > now {
            return None;
        }
        self.step();
        Some(intended)
    }

    /// The next intended time.
    pub fn next(&self) -> u64 {
        self.next as u64
    }

    fn step(&mut self) {
        // 1 - unit() is above zero, so its logarithm is finite.
        self.next -= (1.0 - self.random.unit()).ln() * self.gap;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_gaps_vary() {
        let mut arrivals = Arrivals::new(10_000.0, 0, 3);
        let second = 1_000_000_000;
        let times: Vec<u64> = std::iter::from_fn(|| arrivals.due(10 * second)).collect();
        // 100,000 expected, with a standard deviation of 316.
        assert!((98_500..101_500).contains(&times.len()), "{}", times.len());
        assert!(times.is_sorted());
        let short = times.windows(2).filter(|pair| pair[1] - pair[0] < 100_000).count();
        let share = short as f64 / times.len() as f64;
        assert!((0.62..0.645).contains(&share), "1 - 1/e of the gaps are below the mean, not {share}");
    }

    #[test]
    fn nothing_is_due_before_its_time() {
        let mut arrivals = Arrivals::new(1.0, 5_000, 3);
        assert_eq!(arrivals.due(5_000), None);
        let next = arrivals.next();
        assert_eq!(arrivals.due(next - 1), None);
        assert_eq!(arrivals.due(next), Some(next));
    }
}
