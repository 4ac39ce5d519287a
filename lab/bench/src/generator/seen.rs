//! The observations of a generator during the measured time.

use hdrhistogram::Histogram;

use super::timeline::Timeline;

/// Longest latency that is recorded exactly, in nanoseconds: a minute.
const LONGEST: u64 = 60_000_000_000;
/// The most different error messages of servers that are kept.
const MOST_WORDS: usize = 4;

/// Counters and latencies of one measurement.
#[derive(Clone, Debug)]
pub struct MeasuredCounts {
    /// Replies received during the measured time.
    pub completed: u64,
    /// Reads that found something, and those that did not.
    pub hits: u64,
    /// Reads that found nothing.
    pub misses: u64,
    /// Requests that the server refused.
    pub refused: u64,
    /// Replies that no correct server gives.
    pub wrong: u64,
    /// Stored values without a lifetime that were missing.
    pub lost: u64,
    /// Connections that broke.
    pub broken: u64,
    /// Requests of the measured time that never got a reply; the latencies contain their lower bound.
    pub unanswered: u64,
    /// Bytes of requests, without network headers.
    pub bytes_sent: u64,
    /// Bytes of replies, without network headers.
    pub bytes_received: u64,
    /// Nanoseconds from the intended time of a request to its reply, for requests of the measured time.
    pub latencies: Histogram<u64>,
    /// The first error messages, as the servers sent them.
    pub words: Vec<String>,
    /// Replies step by step, where requested.
    pub timeline: Option<Timeline>,
}

impl Default for MeasuredCounts {
    fn default() -> Self {
        MeasuredCounts {
            completed: 0,
            hits: 0,
            misses: 0,
            refused: 0,
            wrong: 0,
            lost: 0,
            broken: 0,
            unanswered: 0,
            bytes_sent: 0,
            bytes_received: 0,
            latencies: Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order"),
            words: Vec::new(),
            timeline: None,
        }
    }
}

impl MeasuredCounts {
    /// Notes one latency; longer ones than a minute count as a minute.
    pub fn latency(&mut self, nanoseconds: u64) {
        self.latencies.saturating_record(nanoseconds);
    }

    /// Keeps only the counts of errors.
    pub fn only_troubles(self) -> Self {
        let MeasuredCounts { refused, wrong, lost, broken, words, .. } = self;
        MeasuredCounts { refused, wrong, lost, broken, words, ..MeasuredCounts::default() }
    }

    /// Keeps an error message if it is new and few are kept yet.
    pub fn complaint(&mut self, words: &str) {
        if self.words.len() < MOST_WORDS && !self.words.iter().any(|known| known == words) {
            self.words.push(words.to_owned());
        }
    }
}
