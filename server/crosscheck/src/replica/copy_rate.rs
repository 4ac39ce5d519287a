//! How fast the state that a replica receives arrives, so that an operator sees whether and when it will be there. No
//! clock: the caller says what time it is.

use std::collections::VecDeque;
use std::time::Duration;

/// The rate is that of so long a time: a pause between two pieces does not show, and one of the network soon does.
const WINDOW: Duration = Duration::from_secs(3);
/// Between two samples.
const PAUSE: Duration = Duration::from_millis(100);
/// Samples that are kept.
const SAMPLES: usize = (WINDOW.as_micros() / PAUSE.as_micros()) as usize + 1;

/// The last samples of what has arrived of one state.
#[derive(Debug, Default)]
pub(super) struct CopyRate {
    /// Times and bytes, oldest first.
    samples: VecDeque<(u64, u64)>,
}

impl CopyRate {
    /// Takes a sample if one is due: how many bytes have arrived at `now_us`; none if no state is received.
    pub(super) fn note(&mut self, now_us: u64, received: impl FnOnce() -> Option<u64>) {
        if self.samples.back().is_some_and(|(last_us, _)| now_us < last_us + PAUSE.as_micros() as u64) {
            return;
        }
        let Some(bytes) = received() else { return self.samples.clear() };
        if bytes == 0 || self.samples.back().is_some_and(|(_, before)| bytes < *before) {
            // Nothing has arrived yet, or it is another state.
            self.samples.clear();
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((now_us, bytes));
    }

    /// Bytes that arrived per second; 0 before two samples were taken.
    pub(super) fn bytes_per_second(&self) -> u64 {
        let (Some((first_us, first)), Some((last_us, last))) = (self.samples.front(), self.samples.back())
        else {
            return 0;
        };
        let rate = u128::from(last - first) * 1_000_000 / u128::from((last_us - first_us).max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK_US: u64 = 25_000;

    /// Notes what arrives at so many bytes per tick, from the tick after `from` to `to`.
    fn arrive(rate: &mut CopyRate, (from, to): (u64, u64), bytes_per_tick: u64) {
        let before = rate.samples.back().map_or(0, |(_, bytes)| *bytes);
        for tick in from + 1..=to {
            rate.note(tick * TICK_US, || Some(before + (tick - from) * bytes_per_tick));
        }
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut rate = CopyRate::default();
        assert_eq!(rate.bytes_per_second(), 0);
        rate.note(TICK_US, || Some(0));
        assert_eq!(rate.bytes_per_second(), 0, "one sample is none");
        arrive(&mut rate, (1, 401), 1_000);
        assert_eq!(rate.bytes_per_second(), 40_000);
        assert_eq!(rate.samples.len(), SAMPLES);
        arrive(&mut rate, (401, 461), 3_000);
        assert_eq!(rate.bytes_per_second(), 80_000, "half of the window");
        arrive(&mut rate, (461, 581), 3_000);
        assert_eq!(rate.bytes_per_second(), 120_000);
    }

    #[test]
    fn a_copy_that_stands_still_has_no_rate_soon() {
        let mut rate = CopyRate::default();
        arrive(&mut rate, (0, 400), 1_000);
        arrive(&mut rate, (400, 600), 0);
        assert_eq!(rate.bytes_per_second(), 0);
    }

    #[test]
    fn another_state_begins_at_nothing() {
        let mut rate = CopyRate::default();
        arrive(&mut rate, (0, 400), 1_000);
        rate.note(400 * TICK_US, || Some(7));
        assert_eq!(rate.bytes_per_second(), 40_000, "it is not due");
        rate.note(411 * TICK_US, || Some(7));
        assert_eq!(rate.bytes_per_second(), 0);
        rate.note(421 * TICK_US, || Some(250_007));
        assert_eq!(rate.bytes_per_second(), 1_000_000);
        rate.note(431 * TICK_US, || None);
        assert_eq!((rate.bytes_per_second(), rate.samples.len()), (0, 0));
    }

    #[test]
    fn the_wait_for_the_first_bytes_does_not_count() {
        let mut rate = CopyRate::default();
        arrive(&mut rate, (0, 101), 0);
        arrive(&mut rate, (101, 121), 1_000);
        assert_eq!(rate.bytes_per_second(), 40_000);
    }

    #[test]
    fn bytes_without_bound_are_no_error() {
        let mut rate = CopyRate::default();
        rate.note(0, || Some(0));
        rate.note(1, || Some(u64::MAX));
        rate.note(PAUSE.as_micros() as u64, || Some(u64::MAX));
        assert_eq!(rate.bytes_per_second(), u64::MAX);
    }
}
