//! How long a supervisor waits before it restarts a dead replica: briefly after a single death, longer if the replica
//! dies at once again.

use std::time::Duration;

/// First pause.
const FIRST: Duration = Duration::from_millis(100);
/// Longest pause.
const LONGEST: Duration = Duration::from_secs(5);
/// A replica that served this long did not die of its start: the next pause is the first one again.
const SETTLED: Duration = Duration::from_secs(10);

/// The pauses of one replica.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    next: Duration,
    fixed: Option<Duration>,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { next: FIRST, fixed: None }
    }
}

impl Backoff {
    /// The same pause after every death.
    pub fn fixed(pause: Duration) -> Self {
        Backoff { next: pause, fixed: Some(pause) }
    }

    /// The pause after a replica that served for `served` (zero when it never did) has died.
    pub fn after(&mut self, served: Duration) -> Duration {
        if served >= SETTLED && self.fixed.is_none() {
            self.next = FIRST;
        }
        let pause = self.next;
        self.next = self.fixed.unwrap_or((pause * 2).min(LONGEST));
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..8).map(|_| backoff.after(Duration::ZERO).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }

    #[test]
    fn a_fixed_pause_stays() {
        let pause = Duration::from_millis(5);
        let mut backoff = Backoff::fixed(pause);
        assert!(
            [0, 20, 0].map(|s| backoff.after(Duration::from_secs(s))).iter().all(|after| *after == pause)
        );
    }

    #[test]
    fn ten_seconds_of_service_begin_anew_and_less_does_not() {
        let mut backoff = Backoff::default();
        backoff.after(Duration::ZERO);
        backoff.after(Duration::ZERO);
        assert_eq!(backoff.after(SETTLED - Duration::from_millis(1)).as_millis(), 400);
        assert_eq!(backoff.after(SETTLED), FIRST);
        assert_eq!(backoff.after(Duration::ZERO), FIRST * 2);
    }

    /// However long a replica serves before it dies, each time as long: 20 starts later there are 5 s or more from one
    /// to the next.
    #[test]
    fn no_replica_is_started_more_often_than_every_five_seconds_for_ever() {
        for served in (0..120).map(|tenths| Duration::from_millis(100 * tenths)) {
            let mut backoff = Backoff::default();
            let last = (0..20).map(|_| served + backoff.after(served)).last();
            assert!(last >= Some(LONGEST), "{served:?}: {last:?}");
        }
    }
}
