//! Replies over the measured time, in steps short enough to show a repair (EDCC'16, Fig. 12: every 2 ms).

/// Length of a step, in nanoseconds.
pub const STEP_NS: u64 = 2_000_000;

/// Steps of the measured time, from its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// When it began, in microseconds since 1970: replicas timestamp their reports by that clock.
    pub began_wall_us: u64,
    /// The counts of each step.
    pub steps: Vec<TimelineStep>,
}

/// The counts of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelineStep {
    /// Replies received.
    pub replies: u32,
    /// The longest wait for one of them, in microseconds.
    pub longest_us: u32,
}

impl Timeline {
    /// Begins the measured time now.
    pub fn begin() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let began_wall_us = now.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX));
        Timeline { began_wall_us, steps: Vec::new() }
    }

    /// Notes a reply, `at` nanoseconds after the beginning, that came after a wait of `waited` nanoseconds.
    pub fn record(&mut self, at: u64, waited: u64) {
        let number = (at / STEP_NS) as usize;
        if number >= self.steps.len() {
            self.steps.resize(number + 1, TimelineStep::default());
        }
        let step = &mut self.steps[number];
        step.replies += 1;
        step.longest_us = step.longest_us.max(u32::try_from(waited / 1000).unwrap_or(u32::MAX));
    }

    /// The step at this time of the wall clock; none before the beginning.
    pub fn step_at(&self, wall_us: u64) -> Option<usize> {
        let since = wall_us.checked_sub(self.began_wall_us)?;
        usize::try_from(since / (STEP_NS / 1000)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_fall_into_their_steps() {
        let mut timeline = Timeline { began_wall_us: 5_000_000, steps: Vec::new() };
        timeline.record(0, 900_000);
        timeline.record(1_999_999, 3_000_000);
        timeline.record(6_000_000, 1);
        let reported: Vec<(u32, u32)> =
            timeline.steps.iter().map(|step| (step.replies, step.longest_us)).collect();
        assert_eq!(reported, [(2, 3000), (0, 0), (0, 0), (1, 0)]);
        assert_eq!(timeline.step_at(5_006_100), Some(3));
        assert_eq!(timeline.step_at(4_999_999), None);
    }
}
