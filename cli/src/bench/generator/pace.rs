//! When an open loop sends: at random times that do not depend on the server, so that a slow reply cannot
//! hide the next ones.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use wire::SplitMix64;

/// Intended times with independent, exponentially distributed gaps (a Poisson process).
#[derive(Debug)]
pub struct Pace {
    gap: f64,
    next: f64,
    random: SplitMix64,
}

impl Pace {
    /// `rate` requests per second, the first soon after `now` (nanoseconds).
    pub fn new(rate: f64, now: u64, seed: u64) -> Self {
        let mut pace = Pace { gap: 1e9 / rate, next: now as f64, random: SplitMix64::new(seed) };
        pace.step();
        pace
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

/// A kernel timer that wakes the poll at a time between its milliseconds.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// There are no more file descriptors.
    pub fn new() -> std::io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Timer(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Its descriptor, to be polled.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Wakes once, `nanoseconds` from now; at once when that is 0. An earlier setting is forgotten, and so is
    /// its expiry.
    ///
    /// # Errors
    /// The kernel refuses, which it does not for these values.
    pub fn set(&self, nanoseconds: u64) -> std::io::Result<()> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A value of zero would switch the timer off.
        let nanoseconds = nanoseconds.max(1);
        let value = Timespec {
            tv_sec: (nanoseconds / 1_000_000_000) as i64,
            tv_nsec: (nanoseconds % 1_000_000_000) as i64,
        };
        timerfd_settime(
            &self.0,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: zero, it_value: value },
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_gaps_vary() {
        let mut pace = Pace::new(10_000.0, 0, 3);
        let second = 1_000_000_000;
        let times: Vec<u64> = std::iter::from_fn(|| pace.due(10 * second)).collect();
        // 100,000 expected, with a standard deviation of 316.
        assert!((98_500..101_500).contains(&times.len()), "{}", times.len());
        assert!(times.is_sorted());
        let short = times.windows(2).filter(|pair| pair[1] - pair[0] < 100_000).count();
        let share = short as f64 / times.len() as f64;
        assert!((0.62..0.645).contains(&share), "1 - 1/e of the gaps are below the mean, not {share}");
    }

    #[test]
    fn nothing_is_due_before_its_time() {
        let mut pace = Pace::new(1.0, 5_000, 3);
        assert_eq!(pace.due(5_000), None);
        let next = pace.next();
        assert_eq!(pace.due(next - 1), None);
        assert_eq!(pace.due(next), Some(next));
    }
}
