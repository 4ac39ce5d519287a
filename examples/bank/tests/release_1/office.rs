//! The office in release 1.

use crosscheck::object::critical;

/// The settings of the whole bank. It is small and seldom changes, so a copy of it costs little: a flipped bit is
/// repaired on the spot.
#[critical(copy)]
pub struct Office {
    /// Interest per period, in hundredths of a percent; 0 for none.
    rate: u32,
    period_us: u64,
    /// A [`crate::Request::Tick`] is on its way.
    is_ticking: bool,
}

#[critical]
impl Office {
    /// No interest.
    #[allow(clippy::new_without_default, reason = "an office is made once, at the genesis")]
    pub fn new() -> Self {
        Self { rate: 0, period_us: 0, is_ticking: false }
    }

    /// Interest per period, in hundredths of a percent.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Sets the interest. Returns the time of the first tick, unless one is on its way.
    pub fn set(&mut self, rate: u32, period_us: u64, now_us: u64) -> Option<u64> {
        (self.rate, self.period_us) = (rate, period_us);
        let starts = rate > 0 && !self.is_ticking;
        self.is_ticking |= starts;
        starts.then_some(now_us + period_us)
    }

    /// A period is over; returns the time of the next tick.
    pub fn tick(&mut self, now_us: u64) -> Option<u64> {
        self.is_ticking = self.rate > 0;
        self.is_ticking.then_some(now_us + self.period_us)
    }
}
