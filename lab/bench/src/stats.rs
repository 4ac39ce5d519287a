//! Medians with their spread: the conclusions that a few repetitions allow, and their confidence.

use serde::{Deserialize, Serialize};

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
}
