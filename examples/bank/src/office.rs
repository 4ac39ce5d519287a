//! What holds for the whole bank: a critical struct with a copy, a member of which has another type since release 2.

use std::time::Duration;

use crosscheck::object::critical;

/// The settings of the whole bank. It is small and seldom changes, so a copy of it costs little: a flipped bit is
/// repaired on the spot.
#[critical(copy, version = 2)]
pub struct Office {
    /// Interest per period, in hundredths of a percent; 0 for none.
    rate: u32,
    #[until(2)]
    #[renamed(2, from = "period_us")]
    period_before: u64,
    #[since(2, default = Duration::from_micros(self.period_before))]
    period: Duration,
    /// A [`crate::Request::Tick`] is on its way.
    is_ticking: bool,
}

#[critical]
impl Office {
    /// No interest.
    #[allow(clippy::new_without_default, reason = "an office is made once, at the genesis")]
    pub fn new() -> Self {
        Self { rate: 0, period_before: 0, period: Duration::ZERO, is_ticking: false }
    }

    /// Interest per period, in hundredths of a percent.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Sets the interest. Returns the time of the first tick, unless one is on its way.
    pub fn set(&mut self, rate: u32, period_us: u64, now_us: u64) -> Option<u64> {
        self.rate = rate;
        if self.stored_version() < 2 {
            self.period_before = period_us;
        } else {
            self.period = Duration::from_micros(period_us);
        }
        let starts = rate > 0 && !self.is_ticking;
        self.is_ticking |= starts;
        starts.then_some(now_us + period_us)
    }

    /// A period is over; returns the time of the next tick.
    pub fn tick(&mut self, now_us: u64) -> Option<u64> {
        self.is_ticking = self.rate > 0;
        let period_us =
            if self.stored_version() < 2 { self.period_before } else { self.period.as_micros() as u64 };
        self.is_ticking.then_some(now_us + period_us)
    }
}
