//! Timers that wait for their time: they fire by deadline, then in the order in which they were set.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::entry::{Internal, Origin};
use crate::state::Timers;

/// Deadline, position and number of the request that set it: the order in which timers fire.
type TimerKey = (u64, u64, u32);

/// The timers that were set and have not fired.
pub(crate) struct PendingTimers<R>(BTreeMap<TimerKey, Arc<Internal<R>>>);

impl<R> PendingTimers<R> {
    /// These, with their deadlines.
    pub fn of(timers: &[(u64, Arc<Internal<R>>)]) -> Self {
        let mut pending = PendingTimers(BTreeMap::new());
        pending.set(timers);
        pending
    }

    /// Adds timers, with their deadlines.
    pub fn set(&mut self, timers: &[(u64, Arc<Internal<R>>)]) {
        for (deadline, timer) in timers {
            if let Origin::Timer { position, number } = timer.origin {
                self.0.insert((*deadline, position, number), Arc::clone(timer));
            }
        }
    }

    /// Takes the next timer whose deadline has come at `time_us`.
    pub fn take_due(&mut self, time_us: u64) -> Option<Arc<Internal<R>>> {
        self.0.first_entry().filter(|first| first.key().0 <= time_us).map(|first| first.remove())
    }

    /// The first deadline; without timers, the end of time.
    pub fn first_deadline(&self) -> u64 {
        self.0.first_key_value().map_or(u64::MAX, |(key, _)| key.0)
    }

    /// All of them with their deadlines, in the order in which they fire.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Arc<Internal<R>>)> {
        self.0.iter().map(|(key, timer)| (key.0, timer))
    }

    /// All of them, as data.
    pub fn save(&self) -> Timers<R> {
        self.iter().map(|(deadline, timer)| (deadline, Arc::clone(timer))).collect()
    }
}

impl<R> Clone for PendingTimers<R> {
    fn clone(&self) -> Self {
        PendingTimers(self.0.clone())
    }
}
