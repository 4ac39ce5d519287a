//! Requests that take long, and their watchdogs: the shipped one, which a thread of the process polls.

use std::collections::BTreeSet;

use crosscheck::stepped::PeerProgress;
use crosscheck::{ReplaceReason, limits};
use wire::{ReplicaId, SplitMix64};

use super::{Event, Run};
use crate::fault::SimFault;
use crate::promises::PATIENCE;
use crate::workload::Workload;

/// The text that only a watchdog writes about a process that it ends (`server/crosscheck/src/replace.rs`).
const WORDS: &str = " within watchdog_ms";
/// A handler that never ends.
pub(super) const NEVER_US: u64 = 1_000_000_000;

impl<W: Workload> Run<W> {
    /// Requests take long from now on: the next one at all replicas or at f+1, or the next ones at one.
    pub(super) fn slow_down(&mut self, victim: u8, fault: SimFault, draws: &mut SplitMix64) {
        match fault {
            SimFault::Hang => self.slow.slow_down(victim, [NEVER_US].into_iter()),
            // A replica's only worker takes up to 24 s for the requests of one, and a heal in verified mode may take 30
            // s.
            SimFault::SlowCore if self.slow_in == self.summary.episodes => {}
            SimFault::SlowCore => {
                self.slow_in = self.summary.episodes;
                let count = draws.within(4, 10);
                let times: Vec<u64> = (0..count).map(|_| draws.within(1_200_000, 2_400_000)).collect();
                self.slow.slow_down(victim, times.into_iter());
            }
            // Replicas whose order threads run the handlers take it one after the other: two of them would
            // take longer than a heal may.
            _ if self.slow_in == self.summary.episodes => {}
            _ => {
                self.slow_in = self.summary.episodes;
                let mut replicas: Vec<u8> = (0..self.options.replicas).collect();
                if draws.chance(333) {
                    while replicas.len() > self.facts.faults() + 1 {
                        replicas.remove(draws.modulo(replicas.len() as u64) as usize);
                    }
                }
                self.slow.share(draws.within(6_000_000, 12_000_000), BTreeSet::from_iter(replicas));
            }
        }
    }

    /// The watchdog's thread of a replica checks after a while.
    pub(super) fn watch_in_a_while(&mut self, replica: u8) {
        let incarnation = self.slots[usize::from(replica)].incarnation;
        self.at(limits::WATCH.as_micros() as u64, Event::Watch { replica, incarnation });
    }

    /// It checks.
    pub(super) fn watch(&mut self, replica: u8, incarnation: u64) {
        let slot = &self.slots[usize::from(replica)];
        if slot.incarnation != incarnation {
            return;
        }
        let Some(process) = &slot.process else { return };
        // It is stopped like the rest of its process.
        if slot.paused_us <= self.now_us {
            if !self.is_at_one_stretch(replica) {
                process.replica.moves();
            }
            let others = self.others(replica);
            let process = self.slots[usize::from(replica)].process.as_mut();
            if process.is_some_and(|process| process.replica.is_hung(|| others)) {
                return self.end(replica, &ReplaceReason::OrderThreadHangs.to_string());
            }
        }
        self.watch_in_a_while(replica);
    }

    /// Whether the order thread has been in one handler since the watchdog's last check.
    fn is_at_one_stretch(&self, replica: u8) -> bool {
        let stepped_us = self.slots[usize::from(replica)].stepped_us;
        let late_us = self.now_us - stepped_us;
        let stretches = self.network.stretches(replica);
        let Some(at) = stretches.iter().position(|(end_us, _)| late_us < *end_us) else { return false };
        let begun_us = stepped_us + at.checked_sub(1).map_or(0, |before| stretches[before].0);
        stretches[at].1 && begun_us + limits::WATCH.as_micros() as u64 <= self.now_us
    }

    /// The pace of the others, as reported by those that answer within the watchdog's time limit.
    fn others(&self, replica: u8) -> PeerProgress {
        let until_us = self.now_us + limits::PROBE.as_micros() as u64;
        let reaches = |other: &u8| {
            *other != replica
                && !self.network.is_blocked(replica, *other)
                && !self.network.is_blocked(*other, replica)
        };
        let reported = (0..self.options.replicas).filter(reaches).filter_map(|other| {
            let slot = &self.slots[usize::from(other)];
            let answers = slot.free_us.max(slot.paused_us) <= until_us;
            slot.process.as_ref().filter(|_| answers).map(|process| process.replica.progress())
        });
        PeerProgress::of_others(&reported.collect::<Vec<_>>(), self.facts.faults())
    }

    /// Whether a watchdog may have ended this process.
    pub(super) fn judge_watchdog(&mut self, replica: u8, why: &str) {
        let faults_since_equal = &self.slots[usize::from(replica)].faults_since_equal;
        let is_watchdogs = why.contains(WORDS);
        if is_watchdogs && !faults_since_equal.iter().any(|fault| fault.may_end()) {
            let how = format!(
                "replica {} ended itself, and nothing but slowness has hit it since all was equal: {why}",
                ReplicaId(replica)
            );
            self.broken(PATIENCE, how);
        }
    }
}
