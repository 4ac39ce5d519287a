//! Own requests that wait while the primary orders none: a primary that is silent is known from that alone, since no
//! verifier knows of a batch.

use verify::limits::{SLOW_PATIENCE_US, VIEW_PATIENCE_MAX_US, VIEW_PATIENCE_US, WAITED_PER_TICK_US};

/// Doublings of the patience at most.
const MOST_DOUBLINGS: u32 = 4;

/// How long requests have waited, and the primary was silent. Only time in which this process ran counts: what came
/// meanwhile waits to be read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unserved {
    ticked_us: Option<u64>,
    /// When the primary was heard last, and how long it has been silent since.
    received_us: u64,
    silent_us: u64,
    /// How long requests have waited.
    waited_us: u64,
    /// The last stable batch.
    stable: u64,
    /// How often this replica has asked for another view in a row.
    in_vain: u32,
}

impl Unserved {
    /// Whether to ask for another view at `now_us`, with this stable batch; `waits` if requests wait and no later batch
    /// is known here. A primary that was heard at `received_us`, just now, is slow, and not gone: another one would be
    /// no faster.
    pub(super) fn is_over(&mut self, waits: bool, stable: u64, received_us: u64, now_us: u64) -> bool {
        let passed_us = now_us.saturating_sub(self.ticked_us.replace(now_us).unwrap_or(now_us));
        let passed_us = passed_us.min(WAITED_PER_TICK_US);
        let has_spoken = std::mem::replace(&mut self.received_us, received_us) != received_us;
        self.silent_us = if has_spoken { 0 } else { self.silent_us + passed_us };
        if !waits || stable != self.stable {
            (self.stable, self.waited_us, self.in_vain) = (stable, 0, 0);
            return false;
        }
        self.waited_us += passed_us;
        let is_silent = self.silent_us >= 2 * VIEW_PATIENCE_US;
        let patience_us = if is_silent { VIEW_PATIENCE_US } else { SLOW_PATIENCE_US };
        let patience_us = (patience_us << self.in_vain.min(MOST_DOUBLINGS)).min(VIEW_PATIENCE_MAX_US);
        let is_over = self.waited_us >= patience_us;
        if is_over {
            (self.waited_us, self.in_vain) = (0, self.in_vain + 1);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests wait from 0 on, a tick comes every so many microseconds, and the primary is heard up to `received_us`,
    /// every 100 ms. When it is over.
    fn over_at(tick_us: u64, received_us: u64) -> u64 {
        let mut unserved = Unserved::default();
        let received = |now_us: u64| now_us.min(received_us) / 100_000 * 100_000;
        let is_over = |now_us: &u64| unserved.is_over(true, 0, received(*now_us), *now_us);
        (0..10_000_000).step_by(tick_us as usize).find(is_over).unwrap_or(u64::MAX)
    }

    #[test]
    fn one_that_is_silent_is_replaced_soon_and_one_that_is_slow_later() {
        assert!((300_000..310_000).contains(&over_at(1_000, 0)));
        assert!((SLOW_PATIENCE_US..SLOW_PATIENCE_US + 10_000).contains(&over_at(1_000, u64::MAX)));
        let silent_later = over_at(1_000, 500_000);
        assert!((800_000..810_000).contains(&silent_later), "{silent_later}");
    }

    /// It is itself the one that does not run.
    #[test]
    fn time_in_which_this_process_did_not_run_does_not_count() {
        let over_us = over_at(200_000, 0);
        assert!(over_us >= 6 * 200_000, "{over_us}");
    }

    #[test]
    fn a_stable_batch_begins_anew() {
        let mut unserved = Unserved::default();
        assert!(!(0..290).any(|ms| unserved.is_over(true, 0, 0, 1_000 * ms)));
        assert!(!(290..430).any(|ms| unserved.is_over(true, 1, 0, 1_000 * ms)));
        assert!((430..450).any(|ms| unserved.is_over(true, 1, 0, 1_000 * ms)));
    }
}
