//! The counts of all clients of a load together, readable while it runs, and its report.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::shared::CounterAccount;

/// Why a lock is never found broken.
const HELD: &str = "no panic while it is held";

/// The counts of all clients of a load together.
#[derive(Debug)]
pub struct LoadTally {
    start: Instant,
    stop: AtomicBool,
    answered: AtomicU64,
    disconnects: AtomicU64,
    timeouts: AtomicU64,
    refusals: Mutex<Vec<String>>,
    wrong: Mutex<Vec<String>>,
    last_answer_us: AtomicU64,
    longest_gap_us: AtomicU64,
    longest_us: AtomicU64,
    latencies: Mutex<Histogram<u64>>,
}

/// The counts at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LoadCounts {
    /// Replies that were read completely and were right.
    pub answered: u64,
    /// Errors that were found; the first one ends the load.
    pub wrong: u64,
    /// Requests that the server refused with an error.
    pub refused: u64,
    /// Connections that broke or stayed silent too long.
    pub broken: u64,
    /// The first errors and refusals, in words.
    pub words: Vec<String>,
}

/// The most errors and refusals that counts have in words.
const MOST_WORDS: usize = 8;

impl LoadCounts {
    fn new(answered: u64, broken: u64, wrong: &[String], refusals: &[String]) -> Self {
        LoadCounts {
            answered,
            wrong: wrong.len() as u64,
            refused: refusals.len() as u64,
            broken,
            words: wrong.iter().chain(refusals).take(MOST_WORDS).cloned().collect(),
        }
    }
}

/// An empty histogram of latencies in microseconds, up to an hour, to within a thousandth.
fn no_latencies() -> Histogram<u64> {
    const LONGEST_US: u64 = 3_600_000_000;
    Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are in order")
}

impl LoadTally {
    pub(super) fn new() -> Self {
        LoadTally {
            start: Instant::now(),
            stop: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            disconnects: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            refusals: Mutex::default(),
            wrong: Mutex::default(),
            last_answer_us: AtomicU64::new(0),
            longest_gap_us: AtomicU64::new(0),
            longest_us: AtomicU64::new(0),
            latencies: Mutex::new(no_latencies()),
        }
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn answered(&self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latencies.lock().expect(HELD).saturating_record(us);
        self.longest_us.fetch_max(us, Ordering::SeqCst);
        self.answered.fetch_add(1, Ordering::SeqCst);
        let now = self.start.elapsed().as_micros() as u64;
        let before = self.last_answer_us.fetch_max(now, Ordering::SeqCst);
        if before > 0 {
            self.longest_gap_us.fetch_max(now.saturating_sub(before), Ordering::SeqCst);
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> LoadCounts {
        let broken = self.disconnects.load(Ordering::SeqCst) + self.timeouts.load(Ordering::SeqCst);
        let answered = self.answered.load(Ordering::SeqCst);
        LoadCounts::new(answered, broken, &self.wrong.lock().expect(HELD), &self.refusals.lock().expect(HELD))
    }

    /// The longest latency since the last call.
    pub fn take_longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.swap(0, Ordering::SeqCst))
    }

    /// The latencies since the last call, in microseconds.
    pub fn take_latencies(&self) -> Histogram<u64> {
        std::mem::replace(&mut *self.latencies.lock().expect(HELD), no_latencies())
    }

    /// Every error so far, in words.
    pub(super) fn wrong_so_far(&self) -> Vec<String> {
        self.wrong.lock().expect(HELD).clone()
    }

    /// Requests every client to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    pub(super) fn longest_gap(&self) -> Duration {
        Duration::from_micros(self.longest_gap_us.load(Ordering::SeqCst))
    }

    pub(super) fn forget_gaps(&self) {
        self.longest_gap_us.store(0, Ordering::SeqCst);
    }

    pub(super) fn lost(&self, timeout: bool) {
        let count = if timeout { &self.timeouts } else { &self.disconnects };
        count.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn refused(&self, line: String) {
        self.refusals.lock().expect(HELD).push(line);
    }

    /// A wrong byte ends the whole load: later replies would obscure the cause.
    pub(super) fn wrong(&self, what: String) {
        self.wrong.lock().expect(HELD).push(what);
        self.stop.store(true, Ordering::SeqCst);
    }

    pub(super) fn report(&self, longest_gap: Duration, counters: Vec<CounterAccount>) -> LoadReport {
        LoadReport {
            answered: self.answered.load(Ordering::SeqCst),
            disconnects: self.disconnects.load(Ordering::SeqCst),
            timeouts: self.timeouts.load(Ordering::SeqCst),
            refusals: std::mem::take(&mut *self.refusals.lock().expect(HELD)),
            wrong: std::mem::take(&mut *self.wrong.lock().expect(HELD)),
            longest_gap,
            counters,
        }
    }
}

/// The observations of a load.
#[derive(Debug)]
pub struct LoadReport {
    /// Replies that were read completely and were right.
    pub answered: u64,
    /// Connections that broke.
    pub disconnects: u64,
    /// Connections given up because the server did not answer.
    pub timeouts: u64,
    /// `SERVER_ERROR` lines: no answers, and not wrong.
    pub refusals: Vec<String>,
    /// Wrong bytes, lost writes, doubled increments: each in full.
    pub wrong: Vec<String>,
    /// Longest time in which no client got a reply.
    pub longest_gap: Duration,
    /// The accounts of the shared counters.
    pub counters: Vec<CounterAccount>,
}

impl LoadReport {
    /// The counts.
    pub fn counts(&self) -> LoadCounts {
        let broken = self.disconnects + self.timeouts;
        LoadCounts::new(self.answered, broken, &self.wrong, &self.refusals)
    }

    /// Fails with all errors.
    pub fn assert_right(&self) {
        assert!(self.wrong.is_empty(), "the servers lied:\n  {}\n{self}", self.wrong.join("\n  "));
        assert!(self.answered > 0, "nothing was asked");
    }

    /// Also fails when a connection was lost or a command refused: then counters are exact.
    pub fn assert_undisturbed(&self) {
        self.assert_right();
        let disturbed = self.disconnects + self.timeouts + self.refusals.len() as u64;
        assert_eq!(disturbed, 0, "{self}\n  {:?}", self.refusals.first());
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} replies right, {} wrong, {} disconnects, {} timeouts, {} refused, longest gap {:?}",
            self.answered,
            self.wrong.len(),
            self.disconnects,
            self.timeouts,
            self.refusals.len(),
            self.longest_gap
        )
    }
}
