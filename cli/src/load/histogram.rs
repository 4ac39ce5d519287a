//! Latencies in buckets that are 1/32 wide of their value: any percentile without keeping every sample.

use std::time::Duration;

/// Buckets per doubling.
const FINE: u32 = 32;
const FINE_BITS: u32 = FINE.trailing_zeros();

/// Counts of latencies, from 1 us to hours.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    longest_us: u64,
}

impl Histogram {
    /// Counts one latency.
    pub fn add(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let bucket = bucket_of(us);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.longest_us = self.longest_us.max(us);
    }

    /// Adds another histogram's counts.
    pub fn merge(&mut self, other: &Histogram) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.longest_us = self.longest_us.max(other.longest_us);
    }

    /// The latency in microseconds that this share of all (0 to 1) did not exceed, to within 1/32.
    pub fn percentile_us(&self, share: f64) -> u64 {
        let rank = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return highest_of(bucket).min(self.longest_us);
            }
        }
        0
    }

    /// The longest latency in microseconds.
    pub fn longest_us(&self) -> u64 {
        self.longest_us
    }

    /// How many latencies were counted.
    #[cfg(test)]
    pub fn count(&self) -> u64 {
        self.total
    }
}

fn bucket_of(us: u64) -> usize {
    if us < u64::from(FINE) {
        return us as usize;
    }
    let doubling = us.ilog2() - FINE_BITS;
    (u64::from(doubling * FINE) + (us >> doubling)) as usize
}

/// The highest latency that falls into a bucket.
fn highest_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < u64::from(FINE) {
        return bucket;
    }
    let doubling = bucket / u64::from(FINE) - 1;
    let within = bucket - doubling * u64::from(FINE);
    ((within + 1) << doubling) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_falls_into_them() {
        for us in (0..5000).chain([u64::from(u32::MAX), 1 << 40]) {
            let bucket = bucket_of(us);
            let highest = highest_of(bucket);
            assert!(highest >= us && highest - us <= us / 32, "{us} fell into {bucket} up to {highest}");
            assert_eq!(bucket_of(highest), bucket);
            assert_eq!(bucket_of(highest + 1), bucket + 1);
        }
    }

    #[test]
    fn percentiles_are_near_the_sample() {
        let mut histogram = Histogram::default();
        let mut second = Histogram::default();
        (1..=500).for_each(|us| histogram.add(Duration::from_micros(us)));
        (501..=1000).for_each(|us| second.add(Duration::from_micros(us)));
        histogram.merge(&second);
        let median = histogram.percentile_us(0.5);
        assert!((500..=516).contains(&median), "{median}");
        assert_eq!(histogram.percentile_us(1.0), 1000);
        assert_eq!((histogram.count(), histogram.longest_us()), (1000, 1000));
        assert_eq!(Histogram::default().percentile_us(0.99), 0);
    }
}
