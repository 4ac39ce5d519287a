//! Failover windows: a trouble announces its window before it begins, so that a failed request is either foreseen or a
//! failure.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

/// Shorter waits than this are not recorded one by one.
pub const SHORT: Duration = Duration::from_millis(100);

/// A time in which requests may fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Begin, in nanoseconds of the run.
    pub begin: u64,
    /// End, grace included; none while it is open.
    pub end: Option<u64>,
    /// The victim of the trouble, from 1.
    pub replica: u8,
    /// True: announced before it began, for all clients. False: the replica replaced itself, which is detected
    /// afterwards and concerns its own clients only.
    pub planned: bool,
    /// The reason.
    pub why: String,
}

/// A request without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unanswered {
    /// The client.
    pub client: u16,
    /// The replica, from 1.
    pub replica: u8,
    /// When it was sent, in nanoseconds of the run.
    #[serde(rename = "asked")]
    pub sent: u64,
    /// When it was given up.
    pub ended: u64,
    /// How it failed.
    pub what: String,
}

/// A time in which a client got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The client.
    pub client: u16,
    /// The replica that gave the last answer before, from 1.
    pub before: u8,
    /// The replica it waited for last, from 1.
    pub replica: u8,
    /// From the last answer (or from its first request), in nanoseconds of the run.
    pub from: u64,
    /// To the next.
    pub to: u64,
}

/// Which kind of window a failure or a gap overlaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreseen {
    /// It overlaps a planned window.
    Announced,
    /// It overlaps the window of its own replica's replacement.
    Replaced,
    /// It overlaps none.
    No,
}

/// The windows of a run.
#[derive(Debug)]
pub struct Announcer {
    epoch: Instant,
    windows: Mutex<Vec<Window>>,
}

impl Announcer {
    /// No window yet; time counts from `epoch`.
    pub fn new(epoch: Instant) -> Self {
        Announcer { epoch, windows: Mutex::new(Vec::new()) }
    }

    /// The time of an instant, in nanoseconds of the run.
    pub fn at(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.epoch).as_nanos() as u64
    }

    /// The time, in nanoseconds of the run.
    pub fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Opens a planned window; returns its number.
    pub fn open(&self, replica: u8, why: &str) -> usize {
        let mut windows = self.lock();
        let window = Window { begin: self.now(), end: None, replica, planned: true, why: why.to_owned() };
        windows.push(window);
        windows.len() - 1
    }

    /// Ends a window after `grace`.
    pub fn close(&self, number: usize, grace: Duration) {
        let end = self.now() + grace.as_nanos() as u64;
        self.lock()[number].end = Some(end);
    }

    /// Records that a replica has replaced itself; it may have been faulty for `before`.
    pub fn replaced(&self, replica: u8, before: Duration, grace: Duration, why: &str) {
        let now = self.now();
        self.lock().push(Window {
            begin: now.saturating_sub(before.as_nanos() as u64),
            end: Some(now + grace.as_nanos() as u64),
            replica,
            planned: false,
            why: why.to_owned(),
        });
    }

    /// Whether this replica is in a window now.
    pub fn is_troubled(&self, replica: u8) -> bool {
        let now = self.now();
        self.lock().iter().rev().take(8).any(|window| {
            window.replica == replica && window.begin <= now && window.end.is_none_or(|end| now < end)
        })
    }

    /// All windows so far.
    pub fn windows(&self) -> Vec<Window> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Window>> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a failure or gap of a client of `replica` from `from` to `to` was foreseen.
pub fn foreseen(windows: &[Window], replica: u8, from: u64, to: u64) -> Foreseen {
    let meets = |window: &&Window| window.begin <= to && window.end.is_none_or(|end| from <= end);
    let mut met = windows.iter().filter(meets);
    if met.clone().any(|window| window.planned) {
        Foreseen::Announced
    } else if met.any(|window| window.replica == replica) {
        Foreseen::Replaced
    } else {
        Foreseen::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(begin: u64, end: Option<u64>, replica: u8, planned: bool) -> Window {
        Window { begin, end, replica, planned, why: String::new() }
    }

    #[test]
    fn what_meets_a_window_is_foreseen_and_what_does_not_is_a_failure() {
        let windows = [window(100, Some(200), 1, true), window(300, Some(310), 2, false)];
        assert_eq!(foreseen(&windows, 3, 90, 100), Foreseen::Announced);
        assert_eq!(foreseen(&windows, 3, 200, 250), Foreseen::Announced);
        assert_eq!(foreseen(&windows, 3, 201, 250), Foreseen::No);
        assert_eq!(foreseen(&windows, 3, 20, 99), Foreseen::No);
        assert_eq!(foreseen(&windows, 2, 305, 306), Foreseen::Replaced);
        assert_eq!(foreseen(&windows, 1, 305, 306), Foreseen::No, "another replica's replacement");
        assert_eq!(foreseen(&[window(100, None, 1, true)], 2, 900, 950), Foreseen::Announced);
    }

    #[test]
    fn a_window_ends_with_its_grace() {
        let announcer = Announcer::new(Instant::now());
        let number = announcer.open(2, "kill");
        assert!(announcer.is_troubled(2) && !announcer.is_troubled(1));
        announcer.close(number, Duration::ZERO);
        assert!(!announcer.is_troubled(2));
        let number = announcer.open(1, "pause");
        announcer.close(number, Duration::from_secs(3600));
        assert!(announcer.is_troubled(1));
    }
}
