//! Draws requests: operation, key, and length of the value; the same seed gives the same requests.

use wire::{SplitMix64, scramble, unit};

use crate::definition::{Amount, Op, Workload};

/// Ranks from 0 with probability proportional to `1 / (rank + 1)^exponent`.
///
/// Rejection-inversion after Hörmann and Derflinger (ACM TOMACS 6(3), 1996): constant memory and about one attempt per
/// draw, for any exponent, so that a million keys cost no table.
#[derive(Clone, Debug)]
pub struct Zipf {
    count: f64,
    exponent: f64,
    head: f64,
    tail: f64,
    shortcut: f64,
}

impl Zipf {
    /// Over `count` ranks, at least one.
    pub fn new(count: usize, exponent: f64) -> Self {
        let mut zipf = Zipf { count: count.max(1) as f64, exponent, head: 0.0, tail: 0.0, shortcut: 0.0 };
        zipf.head = zipf.area(1.5) - 1.0;
        zipf.tail = zipf.area(zipf.count + 0.5);
        zipf.shortcut = 2.0 - zipf.place(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    /// One rank.
    pub fn draw(&self, random: &mut SplitMix64) -> usize {
        if self.exponent == 0.0 {
            return random.below(self.count as u64) as usize;
        }
        loop {
            let area = self.tail + random.unit() * (self.head - self.tail);
            let place = self.place(area);
            let rank = place.round().clamp(1.0, self.count);
            if rank - place <= self.shortcut || area >= self.area(rank + 0.5) - self.height(rank) {
                return rank as usize - 1;
            }
        }
    }

    fn height(&self, rank: f64) -> f64 {
        (-self.exponent * rank.ln()).exp()
    }

    /// The integral of [`Zipf::height`]; near exponent 1 the power becomes a logarithm, without a jump between the two.
    fn area(&self, rank: f64) -> f64 {
        let log = rank.ln();
        let scaled = (1.0 - self.exponent) * log;
        log * if scaled.abs() > 1e-8 { scaled.exp_m1() / scaled } else { 1.0 + scaled / 2.0 }
    }

    /// The inverse of [`Zipf::area`].
    fn place(&self, area: f64) -> f64 {
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        let factor = if scaled.abs() > 1e-8 { scaled.ln_1p() / scaled } else { 1.0 - scaled / 2.0 };
        (factor * area).exp()
    }
}

/// Draws operations, keys, lengths and lifetimes of one workload.
#[derive(Clone, Debug)]
pub struct Draw {
    /// Operations with the upper end of their share of [0, 1).
    ops: Vec<(f64, Op)>,
    ranks: Zipf,
    random: SplitMix64,
    lengths: Sizes,
    lifetimes: Sizes,
    prefill: f64,
}

impl Draw {
    /// `keys` are those that one generator may use: all, or those of one connection when replies are verified.
    pub fn new(workload: &Workload, keys: usize, seed: u64) -> Self {
        let total: f64 = workload.mix.values().sum();
        let mut reached = 0.0;
        let share = |(op, weight): (&Op, &f64)| {
            reached += weight / total;
            (reached, *op)
        };
        Draw {
            ops: workload.mix.iter().filter(|(_, weight)| **weight > 0.0).map(share).collect(),
            ranks: Zipf::new(keys, workload.zipf),
            random: SplitMix64::new(seed),
            lengths: Sizes::new(&workload.value_bytes),
            lifetimes: Sizes::new(&workload.ttl_seconds),
            prefill: workload.prefill_percent / 100.0,
        }
    }

    /// The next operation.
    pub fn op(&mut self) -> Op {
        if let [(_, only)] = self.ops[..] {
            return only;
        }
        let at = self.random.unit();
        let found = self.ops.iter().find(|(end, _)| at < *end).or(self.ops.last());
        found.map_or(Op::Get, |(_, op)| *op)
    }

    /// The rank of the next key, 0 for the most popular one.
    pub fn rank(&mut self) -> usize {
        self.ranks.draw(&mut self.random)
    }

    /// A lifetime in seconds.
    pub fn lifetime(&mut self) -> u32 {
        let drawn = self.random.next_u64();
        self.lifetimes.at(drawn) as u32
    }

    /// A version for a value whose successor is not known from a model.
    pub fn version(&mut self) -> u32 {
        self.random.next_u64() as u32
    }

    /// The length of this version of this key's value: always the same, so that a reader can compute it.
    pub fn length_of(&self, key: u32, version: u32) -> usize {
        self.lengths.at(scramble((u64::from(key) << 32) | u64::from(version))) as usize
    }

    /// Whether this key is stored before the load.
    pub fn is_prefilled(&self, key: u32) -> bool {
        self.prefill >= 1.0 || unit(scramble(u64::from(key) ^ 0xF111)) <= self.prefill
    }
}

/// An [`Amount`] that turns 64 random bits into one of its numbers.
#[derive(Clone, Debug)]
enum Sizes {
    Fixed(u64),
    Between(u64, u64),
    Weighted(Vec<(f64, u64)>),
}

impl Sizes {
    fn new(amount: &Amount) -> Self {
        match amount {
            Amount::Fixed(number) => Sizes::Fixed(*number),
            Amount::Between { from, to } => Sizes::Between(*from, *to),
            Amount::Weighted(pairs) => {
                let total: f64 = pairs.iter().map(|pair| pair.1).sum();
                let mut reached = 0.0;
                let place = |(number, share): &(u64, f64)| {
                    reached += share / total;
                    (reached, *number)
                };
                Sizes::Weighted(pairs.iter().map(place).collect())
            }
        }
    }

    fn at(&self, bits: u64) -> u64 {
        match self {
            Sizes::Fixed(number) => *number,
            Sizes::Between(from, to) => from + SplitMix64::new(bits).below(to - from + 1),
            Sizes::Weighted(places) => {
                let at = unit(bits);
                places.iter().find(|(end, _)| at < *end).or(places.last()).map_or(0, |(_, number)| *number)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares of the first ranks among `draws`.
    fn shares(count: usize, exponent: f64, draws: usize) -> Vec<f64> {
        let zipf = Zipf::new(count, exponent);
        let mut random = SplitMix64::new(7);
        let mut seen = vec![0usize; count];
        for _ in 0..draws {
            seen[zipf.draw(&mut random)] += 1;
        }
        seen.iter().map(|seen| *seen as f64 / draws as f64).collect()
    }

    #[test]
    fn ranks_follow_the_law_for_every_exponent() {
        for exponent in [0.0, 0.0521, 0.7352, 0.99, 1.0, 1.2959, 2.6774] {
            let total: f64 = (1..=50).map(|rank| f64::from(rank).powf(-exponent)).sum();
            for (rank, share) in shares(50, exponent, 400_000).iter().enumerate() {
                let expected = (rank as f64 + 1.0).powf(-exponent) / total;
                let error = (share - expected).abs();
                // Five standard deviations of a count of 400,000.
                let allowed = 5.0 * (expected / 400_000.0).sqrt();
                assert!(error < allowed, "exponent {exponent} rank {rank}: {share} against {expected}");
            }
        }
    }

    #[test]
    fn one_key_is_always_the_same() {
        assert_eq!(shares(1, 1.3, 100), [1.0]);
    }

    #[test]
    fn amounts_keep_their_shares_and_bounds() {
        let weighted = Sizes::new(&Amount::Weighted(vec![(10, 3.0), (20, 1.0)]));
        let between = Sizes::new(&Amount::Between { from: 5, to: 7 });
        let mut random = SplitMix64::new(1);
        let drawn: Vec<u64> = (0..100_000).map(|_| random.next_u64()).collect();
        let tens = drawn.iter().filter(|bits| weighted.at(**bits) == 10).count();
        assert!((74_000..76_000).contains(&tens), "{tens}");
        assert!(drawn.iter().all(|bits| (5..=7).contains(&between.at(*bits))));
    }
}
