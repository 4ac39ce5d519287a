//! The voter of one replica: every event goes in here, every command comes out.

use crate::command::Command;
use crate::config::Config;
use crate::event::Event;
use crate::evidence::Counters;

/// Compares this replica's results with its peers', lets replies go, and drives repair. Owns no socket, clock or thread.
///
/// The pipeline feeds every [`Event`] with the current time, performs the [`Command`]s in order, and calls
/// [`Voter::flush`] at the end of each round of its loop, so that digests of several batches share a CHECK.
#[derive(Debug)]
pub struct Voter {
    config: Config,
    counters: Counters,
}

impl Voter {
    /// A voter that has seen nothing.
    pub fn new(config: Config) -> Self {
        Voter { config, counters: Counters::default() }
    }

    /// One event at `now_us` (monotonic, microseconds; only differences matter).
    pub fn handle(&mut self, event: Event, now_us: u64, commands: &mut Vec<Command>) {
        let _ = (event, now_us, commands, &self.config);
    }

    /// Sends what was collected: CHECKs, and RECOVERs for what this round found out.
    pub fn flush(&mut self, now_us: u64, commands: &mut Vec<Command>) {
        let _ = (now_us, commands);
    }

    /// Running totals.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
