//! Broken hardware: a replica that has more faults than any healthy machine causes ends, if the group can do without
//! it.
//!
//! Each of its faults is masked and repaired. But each repair takes time of all replicas, and while a replica is wrong,
//! a fault of another one has no majority against it. Nothing here reaches state or a reply: a replica decides for
//! itself, by its own clock, and its end is that of any replica that an operator stops.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use super::Replica;
use super::replica_sets::{are, bits};
use crate::outcome::BrokenHardware;
use crate::service::Service;
use crate::world::World;
use crate::{Stop, limits};

/// The recent faults of this replica.
#[derive(Debug, Default)]
pub(super) struct OwnFaults {
    /// All of them so far.
    seen: u64,
    /// Times of ticks in which some were found, and how many; oldest first.
    recent: VecDeque<(u64, u64)>,
    /// When it was said that this replica cannot be spared.
    said_us: Option<u64>,
}

impl OwnFaults {
    /// There were so many faults until now; returns those of the last interval.
    fn note(&mut self, all: u64, now_us: u64) -> u64 {
        let new = all.saturating_sub(self.seen);
        self.seen = all;
        if new > 0 {
            self.recent.push_back((now_us, new));
        }
        let within_us = limits::FAULTS_WITHIN.as_micros() as u64;
        while self.recent.front().is_some_and(|(at_us, _)| now_us.saturating_sub(*at_us) > within_us) {
            self.recent.pop_front();
        }
        self.recent.iter().map(|(_, count)| count.min(&limits::FAULTS_PER_TICK)).sum()
    }

    /// Whether to say that this replica cannot be spared.
    fn is_to_be_said(&mut self, now_us: u64) -> bool {
        let again_us = limits::REPORTED_STILL.as_micros() as u64;
        let is_new = self.said_us.is_none_or(|said_us| now_us.saturating_sub(said_us) >= again_us);
        if is_new {
            self.said_us = Some(now_us);
        }
        is_new
    }
}

impl<S: Service, W: World> Replica<S, W> {
    /// Ends this replica if its hardware is broken, and the group goes on without it.
    pub(super) fn drain_if_broken(&mut self) {
        let (env, counters) = (&self.core.env, &self.core.clients.counters);
        let (limit, now_us) = (env.settings.faults_per_10s, env.world.now_us());
        let of_clients = counters.misread.load(Relaxed) + counters.withheld.load(Relaxed);
        let faults = self.own_faults.note(env.tally.own_faults + of_clients, now_us);
        if limit == 0 || faults <= u64::from(limit) || self.stopping.is_some() {
            return;
        }
        let last = env.evidence.last().as_ref().map(crate::evidence::line);
        let broken = BrokenHardware { faults, limit, last };
        match self.needed_because() {
            None => self.begin_stop(Stop::Broken(broken)),
            Some(why) if self.own_faults.is_to_be_said(now_us) => self.core.env.world.say(format_args!(
                "this replica would end, because {broken}. It goes on and is repaired, because the group cannot do \
                    without it: {why}. Bring that in order; this replica then ends by itself"
            )),
            Some(_) => {}
        }
    }

    /// Why the group cannot do without this replica, if that is so.
    fn needed_because(&self) -> Option<String> {
        let tolerates = self.tolerates(&self.agreement.progress(&self.core));
        // Its absence counts only once it has ended.
        let stop = self.core.group.ending().0 & bits(self.core.env.peers.connected());
        match tolerates.failures {
            0 => Some(tolerates.why.unwrap_or_else(|| "no replica may fail".to_owned())),
            _ if stop != 0 => Some(format!("{} about to stop", are(stop))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_count_for_ten_seconds_and_a_corrupted_count_as_few() {
        let mut faults = OwnFaults::default();
        let second = 1_000_000;
        assert_eq!(faults.note(0, 0), 0);
        assert_eq!((1..=8).map(|at| faults.note(at * 3, at * second)).collect::<Vec<_>>().last(), Some(&24));
        assert_eq!(faults.note(24, 11 * second), 24);
        assert_eq!(faults.note(24, 11 * second + 1), 21, "the first three are too old");
        faults.seen ^= 1 << 40;
        assert_eq!(faults.note(24, 12 * second), 21, "none is new");
        let corrupted = 24 + (1 << 40);
        assert_eq!(faults.note(corrupted, 13 * second), 18 + limits::FAULTS_PER_TICK);
    }

    #[test]
    fn that_it_cannot_be_spared_is_said_once_a_minute() {
        let mut faults = OwnFaults::default();
        let said = [5, 6, 64, 65, 66].map(|second| faults.is_to_be_said(second * 1_000_000));
        assert_eq!(said, [true, false, false, true, false]);
    }
}
