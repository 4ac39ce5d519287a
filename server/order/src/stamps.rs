//! A leader or primary whose stamps are refused is deposed: the time of a batch decides which items expire, on every
//! replica.

use crate::limits;

/// A follower's record of refused stamps.
#[derive(Debug, Default)]
pub(crate) struct RefusedStamps {
    /// The leader they came from: its id in the engine, from 1.
    leader: u64,
    /// Tick of the first one after which no entry was accepted.
    since: Option<u64>,
    /// Failed elections that this replica called.
    called: u32,
    /// How much too late the last one was, in microseconds.
    pub ahead_us: u64,
}

impl RefusedStamps {
    /// An entry of this leader was refused, because its stamp is this much later than any that is accepted.
    pub fn refused(&mut self, leader: u64, ahead_us: u64, tick: u64) {
        if self.leader != leader {
            *self = RefusedStamps { leader, ..RefusedStamps::default() };
        }
        self.since.get_or_insert(tick);
        self.ahead_us = ahead_us;
    }

    /// Entries of the leader were accepted.
    pub fn believed(&mut self) {
        (self.since, self.called) = (None, 0);
    }

    /// Whether it is time to call an election against that leader: it has been refused for a while. Half as often after
    /// each failed attempt, because then this replica may be the wrong one.
    pub fn is_due(&mut self, leader: u64, tick: u64) -> bool {
        let Some(since) = self.since.filter(|_| leader == self.leader) else { return false };
        if tick < since + (limits::REFUSED_STAMPS_TICKS << self.called.min(limits::MOST_DOUBLINGS)) {
            return false;
        }
        (self.since, self.called) = (Some(tick), self.called + 1);
        true
    }
}

/// Which stamps of a primary a replica accepts.
#[derive(Debug)]
pub(crate) struct StampLimit {
    /// Later ones are refused.
    pub latest_us: u64,
    /// The refused ones.
    pub refused_stamps: RefusedStamps,
}

impl Default for StampLimit {
    /// Every stamp is accepted.
    fn default() -> Self {
        StampLimit { latest_us: u64::MAX, refused_stamps: RefusedStamps::default() }
    }
}

impl StampLimit {
    /// Whether to accept a batch of the primary in this slot, whose latest stamp is this.
    pub fn accepts(&mut self, slot: u8, stamp_us: u64, tick: u64) -> bool {
        match stamp_us.checked_sub(self.latest_us).filter(|ahead_us| *ahead_us > 0) {
            Some(ahead_us) => self.refused_stamps.refused(u64::from(slot) + 1, ahead_us, tick),
            None => self.refused_stamps.believed(),
        }
        stamp_us <= self.latest_us
    }

    /// How much too late the stamps of the primary in this slot are, if it is time to ask for another one.
    pub fn is_due(&mut self, slot: u8, tick: u64) -> Option<u64> {
        self.refused_stamps.is_due(u64::from(slot) + 1, tick).then_some(self.refused_stamps.ahead_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_replaced_after_a_while_and_less_and_less_often() {
        let mut refused_stamps = RefusedStamps::default();
        let called = |refused_stamps: &mut RefusedStamps, ticks: std::ops::Range<u64>| {
            ticks.filter(|tick| refused_stamps.is_due(7, *tick)).collect::<Vec<_>>()
        };
        assert_eq!(called(&mut refused_stamps, 0..1000), []);
        refused_stamps.refused(7, 5, 1000);
        let first = 1000 + limits::REFUSED_STAMPS_TICKS;
        let then =
            |nth: u32| first + (2..=nth).map(|nth| limits::REFUSED_STAMPS_TICKS << (nth - 1)).sum::<u64>();
        assert_eq!(called(&mut refused_stamps, 1000..then(3) + 1), [first, then(2), then(3)]);
        refused_stamps.believed();
        assert_eq!(called(&mut refused_stamps, 5000..6000), []);
        refused_stamps.refused(7, 5, 6000);
        assert!(!refused_stamps.is_due(8, 7000), "another leads by now");
        assert!(refused_stamps.is_due(7, 7000));
    }
}
