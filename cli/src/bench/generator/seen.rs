//! What a generator saw during the time it measured.

use hdrhistogram::Histogram;

use super::timeline::Timeline;

/// Longest latency that is told apart, in nanoseconds: a minute.
const LONGEST: u64 = 60_000_000_000;
/// Different complaints of servers that are kept.
const MOST_WORDS: usize = 4;

/// Counters and latencies of one measurement.
#[derive(Clone, Debug)]
pub struct MeasuredCounts {
    /// Replies that came while it was measured.
    pub completed: u64,
    /// Reads that found something, and those that did not.
    pub hits: u64,
    /// Reads that found nothing.
    pub misses: u64,
    /// Requests that the server said it could not do.
    pub refused: u64,
    /// Replies that no correct server gives.
    pub wrong: u64,
    /// Values that were stored and had gone, though they have no lifetime.
    pub lost: u64,
    /// Connections that broke.
    pub broken: u64,
    /// Requests of the measured time that never got a reply, their lower bound being in the latencies.
    pub unanswered: u64,
    /// Bytes of requests, without headers of the network.
    pub bytes_sent: u64,
    /// Bytes of replies, without headers of the network.
    pub bytes_received: u64,
    /// Nanoseconds from the intended time of a request to its reply, for requests of the measured time.
    pub latencies: Histogram<u64>,
    /// The first complaints, in the servers' words.
    pub words: Vec<String>,
    /// Replies step by step, where that was asked for.
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

    /// What should not have happened, without the rest.
    pub fn only_troubles(self) -> Self {
        let MeasuredCounts { refused, wrong, lost, broken, words, .. } = self;
        MeasuredCounts { refused, wrong, lost, broken, words, ..MeasuredCounts::default() }
    }

    /// Keeps a complaint if it is new and few are kept yet.
    pub fn complaint(&mut self, words: &str) {
        if self.words.len() < MOST_WORDS && !self.words.iter().any(|known| known == words) {
            self.words.push(words.to_owned());
        }
    }
}
