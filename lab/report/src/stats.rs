//! Medians with their spread and shares with their interval: what a few repetitions or runs allow to conclude.

use serde::{Deserialize, Serialize};

/// The 97.5 % quantile of the normal distribution.
const Z: f64 = 1.959_963_985;
/// Coverage that an interval should have.
const WANTED: f64 = 0.95;

/// The median of some repetitions, and their spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// Lowest.
    pub min: f64,
    /// Highest.
    pub max: f64,
    /// Lower end of the interval in which the true median lies with probability [`Spread::coverage`].
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Probability that the interval holds the true median.
    pub coverage: f64,
    /// Repetitions.
    pub count: usize,
}

impl Spread {
    /// The spread of some values; none when there is none, or one of them is not a number.
    ///
    /// The interval is between two order statistics: it assumes that repetitions are independent, and nothing about
    /// their distribution. Below six repetitions even the widest interval, from lowest to highest, contains the median
    /// with a probability below 95 %; its coverage gives that probability.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted = values.to_vec();
        if sorted.is_empty() || sorted.iter().any(|value| !value.is_finite()) {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let (rank, coverage) = ranks(count);
        Some(Spread {
            median: median_of_sorted(&sorted),
            min: sorted[0],
            max: sorted[count - 1],
            low: sorted[rank],
            high: sorted[count - 1 - rank],
            coverage,
            count,
        })
    }

    /// The ends of the interval of the true median.
    pub fn interval(&self, number: impl Fn(f64) -> String) -> String {
        self.ends(self.low, self.high, number)
    }

    /// The lowest and the highest value.
    pub fn range(&self, number: impl Fn(f64) -> String) -> String {
        self.ends(self.min, self.max, number)
    }

    fn ends(&self, low: f64, high: f64, number: impl Fn(f64) -> String) -> String {
        if self.count == 1 { "one only".to_owned() } else { format!("{}..{}", number(low), number(high)) }
    }
}

/// The Wilson score interval of `count` in `all`, in percent (Wilson 1927).
pub fn wilson(count: u64, all: u64) -> (f64, f64) {
    if all == 0 {
        return (0.0, 100.0);
    }
    let (n, p) = (all as f64, count as f64 / all as f64);
    let middle = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 100.0 / (1.0 + Z * Z / n);
    (((middle - half) * scale).max(0.0), ((middle + half) * scale).min(100.0))
}

/// A count with its share and its interval.
pub fn rate(count: u64, all: u64) -> String {
    if all == 0 {
        return "-".into();
    }
    let (low, high) = wilson(count, all);
    format!("{count}/{all} {:.2} % [{low:.2}, {high:.2}]", 100.0 * count as f64 / all as f64)
}

/// The rank (from 0) of the narrowest interval with the required coverage, or of the widest one, and its coverage.
fn ranks(count: usize) -> (usize, f64) {
    // Probability that fewer than `rank + 1` of `count` values lie below the true median.
    let mut outside = 0.0;
    let mut term = 0.5f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut found = (0, 1.0 - 2.0 * term);
    for rank in 0..count.div_ceil(2) {
        outside += term;
        let coverage = 1.0 - 2.0 * outside;
        if coverage < WANTED {
            break;
        }
        found = (rank, coverage);
        term *= (count - rank) as f64 / (rank + 1) as f64;
    }
    (found.0, found.1.max(0.0))
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends() {
        let spread = Spread::of(&[3.0, 1.0, 2.0]).expect("values");
        assert_eq!((spread.median, spread.min, spread.max, spread.count), (2.0, 1.0, 3.0, 3));
        assert_eq!(Spread::of(&[4.0, 1.0]).expect("values").median, 2.5);
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn intervals_have_the_coverage_of_the_textbook() {
        // Conover, Practical Nonparametric Statistics: sign test intervals for the median.
        for (count, rank, coverage) in
            [(1, 0, 0.0), (5, 0, 0.9375), (6, 0, 0.96875), (10, 1, 0.978_515_6), (20, 5, 0.958_6)]
        {
            let (found, covered) = ranks(count);
            assert_eq!(found, rank, "{count}");
            assert!((covered - coverage).abs() < 1e-3, "{count}: {covered}");
        }
    }

    #[test]
    fn intervals_of_shares_are_those_of_the_papers_numbers() {
        // mc-sei of SEI's table 2: CF 4 of 6,515, DF 30 of 20,264.
        let (low, high) = wilson(4, 6_515);
        assert!((low - 0.024).abs() < 0.001 && (high - 0.158).abs() < 0.001, "{low} {high}");
        let (low, high) = wilson(0, 100);
        assert!(low == 0.0 && (high - 3.70).abs() < 0.01, "{low} {high}");
    }
}
