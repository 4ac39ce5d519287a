//! The counts of all connections of a load together, readable while it runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The most wrong replies and refusals that are kept as text.
const KEPT: usize = 8;

/// Counters of a running load.
#[derive(Debug, Default)]
pub struct LoadTally {
    over: AtomicBool,
    measuring: AtomicBool,
    answered: AtomicU64,
    wrong: AtomicU64,
    missed: AtomicU64,
    refused: AtomicU64,
    broken: AtomicU64,
    longest_us: AtomicU64,
    words: Mutex<Vec<String>>,
}

/// The counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LoadCounts {
    /// Replies.
    pub answered: u64,
    /// Replies with a wrong byte, or malformed ones.
    pub wrong: u64,
    /// Reads that found nothing.
    pub missed: u64,
    /// Requests the server refused with an error.
    pub refused: u64,
    /// Connections that broke or stayed silent too long.
    pub broken: u64,
    /// The first wrong replies and refusals, as text.
    pub words: Vec<String>,
}

impl LoadTally {
    /// Requests every connection to end.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether the end was requested.
    pub fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Begins or stops to record latencies.
    pub fn measure(&self, on: bool) {
        self.measuring.store(on, Ordering::Relaxed);
    }

    /// Whether latencies are recorded.
    pub fn measuring(&self) -> bool {
        self.measuring.load(Ordering::Relaxed)
    }

    /// Counts a reply.
    pub fn answered(&self, latency: Duration) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.longest_us.fetch_max(us, Ordering::Relaxed);
    }

    /// Counts a wrong reply.
    pub fn wrong(&self, what: String) {
        self.wrong.fetch_add(1, Ordering::Relaxed);
        self.keep(what);
    }

    /// Counts a read that found nothing.
    pub fn missed(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an error line.
    pub fn refused(&self, line: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.keep(format!("refused: {line}"));
    }

    /// Counts a broken connection.
    pub fn broken(&self) {
        self.broken.fetch_add(1, Ordering::Relaxed);
    }

    /// The longest latency since the last call.
    pub fn take_longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.swap(0, Ordering::Relaxed))
    }

    /// The counters now.
    pub fn seen(&self) -> LoadCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LoadCounts {
            answered: read(&self.answered),
            wrong: read(&self.wrong),
            missed: read(&self.missed),
            refused: read(&self.refused),
            broken: read(&self.broken),
            words: self.words.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    fn keep(&self, words: String) {
        let mut kept = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.push(words);
        }
    }
}
