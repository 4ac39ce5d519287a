//! Draws from measured distributions, in whole nanoseconds, so that a seed gives the same events everywhere.

use wire::SplitMix64;

use crate::executor::TIME_POINTS;

/// A distribution of times by some of its points; between two of them, all times are equally likely.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeasuredTimes {
    /// Nanoseconds at each of [`TIME_POINTS`]; or empty, for a time of 0.
    points: Vec<u64>,
}

impl MeasuredTimes {
    /// From points in microseconds, of several rounds: the median of each point. Rounds without points do not count.
    pub fn of_rounds<'p>(rounds: impl Iterator<Item = &'p [f64]>) -> MeasuredTimes {
        let rounds: Vec<&[f64]> = rounds.filter(|points| points.len() == TIME_POINTS.len()).collect();
        let Some(middle) = rounds.len().checked_sub(1).map(|last| last / 2) else {
            return MeasuredTimes::default();
        };
        let mut lowest = 0;
        let median = |at: usize| {
            let mut values: Vec<u64> = rounds.iter().map(|points| nanoseconds(points[at])).collect();
            values.sort_unstable();
            // Points ascend in every file that `bench executor` wrote; one that was edited must not end in a panic.
            lowest = values[middle].max(lowest);
            lowest
        };
        MeasuredTimes { points: (0..TIME_POINTS.len()).map(median).collect() }
    }

    /// Always the same time.
    pub fn fixed(ns: u64) -> MeasuredTimes {
        MeasuredTimes { points: vec![ns; TIME_POINTS.len()] }
    }

    /// Always the same time, in microseconds.
    pub fn of_mean(us: f64) -> MeasuredTimes {
        MeasuredTimes::fixed(nanoseconds(us))
    }

    /// The next time, in nanoseconds.
    pub fn draw(&self, random: &mut SplitMix64) -> u64 {
        // A millionth of the distribution; the points are thousandths.
        let drawn = random.below(1_000_000);
        let after = TIME_POINTS.partition_point(|point| point * 1000 <= drawn);
        let (Some(low), Some(high)) = (self.points.get(after.saturating_sub(1)), self.points.get(after))
        else {
            return 0;
        };
        let (from, to) = (TIME_POINTS[after - 1] * 1000, TIME_POINTS[after] * 1000);
        let part = u128::from(high - low) * u128::from(drawn - from) / u128::from(to - from);
        low + part as u64
    }
}

/// Of microseconds; nothing below 0 and nothing beyond an hour.
fn nanoseconds(us: f64) -> u64 {
    const HOUR_US: f64 = 3.6e9;
    (us.clamp(0.0, HOUR_US) * 1e3).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: [f64; 9] = [10.0, 20.0, 35.0, 60.0, 85.0, 100.0, 109.0, 110.0, 200.0];

    #[test]
    fn draws_have_the_points_that_were_measured() {
        let times = MeasuredTimes::of_rounds([&POINTS[..]].into_iter());
        let mut random = SplitMix64::new(1);
        let mut drawn: Vec<u64> = (0..100_000).map(|_| times.draw(&mut random)).collect();
        drawn.sort_unstable();
        for (point, us) in TIME_POINTS.into_iter().zip(POINTS) {
            let found = drawn[(point as usize * (drawn.len() - 1)) / 1000] as f64 / 1e3;
            assert!((found - us).abs() < 1.0 + us / 50.0, "{found} instead of {us} at {point}");
        }
    }

    #[test]
    fn of_several_rounds_the_middle_one_counts() {
        let round = |us: f64| vec![us; TIME_POINTS.len()];
        let rounds = [round(9.0), round(2.0), round(3.0), Vec::new()];
        let times = MeasuredTimes::of_rounds(rounds.iter().map(Vec::as_slice));
        assert_eq!(times, MeasuredTimes::fixed(3_000));
        assert_eq!(times.draw(&mut SplitMix64::new(5)), 3_000);
    }

    #[test]
    fn points_that_no_measurement_has_do_no_harm() {
        let odd = [5.0, 1.0, f64::NAN, -3.0, f64::INFINITY, 0.0, 0.0, 0.0, 0.0];
        let times = MeasuredTimes::of_rounds([&odd[..]].into_iter());
        let mut random = SplitMix64::new(2);
        assert!((0..1000).all(|_| times.draw(&mut random) >= 5_000));
        assert_eq!(MeasuredTimes::default().draw(&mut random), 0);
    }
}
