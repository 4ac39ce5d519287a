//! How many further replicas may fail, the rest going on by itself: the leader finds it and tells the others with its
//! heartbeat. Whoever does not hear it says that none may.

use order::Tolerance;

use super::waits::{are, names};
use crate::limits;

/// What a leader told last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// The leader, from 0.
    pub(super) by: u8,
    pub(super) tolerance: Tolerance,
    pub(super) at_us: u64,
}

/// How many further replicas may fail, as this replica knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tolerates {
    /// The number.
    pub(super) failures: u8,
    /// Why not more; none at the most that the group can tolerate.
    pub(super) why: Option<String>,
    /// Whether this replica counts: it has, or can get from any other one that counts, every acknowledged batch. None
    /// where that is not known.
    pub(super) is_level: Option<bool>,
}

impl Tolerates {
    /// Where no leader is known, or none has told anything lately.
    pub(super) fn unknown(why: &str) -> Self {
        Tolerates { failures: 0, why: Some(why.to_owned()), is_level: None }
    }

    /// What `tolerance` means for replica `me` of so many `replicas`, both from 0.
    pub(super) fn of(tolerance: &Tolerance, me: u8, replicas: usize) -> Self {
        let most = (replicas.saturating_sub(1) / 2) as u8;
        let mut why = Vec::new();
        if tolerance.away != 0 {
            why.push(format!("{} not heard", are(tolerance.away)));
        }
        if tolerance.behind != 0 {
            why.push(format!("{} catching up", are(tolerance.behind)));
        }
        if tolerance.joining != 0 {
            why.push(format!("{} joining", are(tolerance.joining)));
        }
        if tolerance.unproven {
            why.push(format!("{} can be counted on only when the leader has committed an entry", {
                names(tolerance.level)
            }));
        }
        let is_short = tolerance.failures < most;
        let why = is_short.then(|| why.join(", "));
        Tolerates { failures: tolerance.failures, why, is_level: Some(tolerance.level >> me & 1 == 1) }
    }
}

impl Told {
    /// Whether it still holds at `now_us`, with this leader.
    pub(super) fn is_fresh(&self, leader: Option<u8>, now_us: u64) -> bool {
        leader == Some(self.by)
            && now_us.saturating_sub(self.at_us) <= limits::TOLERANCE_HOLDS.as_micros() as u64
    }
}

/// A leader's finding as a word of its heartbeat; 0 from any other replica.
pub(super) fn to_word(tolerance: Option<Tolerance>) -> u64 {
    let Some(found) = tolerance else { return 0 };
    let sets = u64::from(found.level) | u64::from(found.away) << 16 | u64::from(found.behind) << 32;
    sets | u64::from(found.failures.min(7)) << 48 | u64::from(found.unproven) << 51 | 1 << 52
}

/// The finding in the heartbeat of one of so many `replicas`, if it has one.
pub(super) fn of_word(word: u64, replicas: usize) -> Option<Tolerance> {
    let all = (1u16 << replicas) - 1;
    let (level, away, behind) = (word as u16 & all, (word >> 16) as u16 & all, (word >> 32) as u16 & all);
    let joining = all & !(level | away | behind);
    let failures = (word >> 48 & 7) as u8;
    (word >> 52 & 1 == 1).then_some(Tolerance {
        failures,
        level,
        away,
        behind,
        joining,
        unproven: word >> 51 & 1 == 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_survives_the_heartbeat() {
        let found = Tolerance {
            failures: 1,
            level: 0b01011,
            away: 0b00100,
            behind: 0,
            joining: 0b10000,
            unproven: false,
        };
        assert_eq!(of_word(to_word(Some(found)), 5), Some(found));
        let unproven = Tolerance { failures: 0, unproven: true, ..found };
        assert_eq!(of_word(to_word(Some(unproven)), 5), Some(unproven));
        assert_eq!((to_word(None), of_word(0, 5)), (0, None));
    }

    #[test]
    fn it_says_who_is_missing_and_nothing_when_nobody_is() {
        let all = Tolerance { failures: 1, level: 0b111, ..Tolerance::default() };
        assert_eq!(Tolerates::of(&all, 0, 3), Tolerates { failures: 1, why: None, is_level: Some(true) });
        let few = Tolerance { failures: 0, level: 0b001, away: 0b010, behind: 0b100, ..all };
        let told = Tolerates::of(&few, 2, 3);
        assert_eq!(told.why.as_deref(), Some("replica 2 is not heard, replica 3 is catching up"));
        assert_eq!(told.is_level, Some(false));
    }

    #[test]
    fn what_another_leader_told_or_one_long_ago_does_not_hold() {
        let told = Told { by: 1, tolerance: Tolerance::default(), at_us: 5_000_000 };
        let limit_us = limits::TOLERANCE_HOLDS.as_micros() as u64;
        assert!(told.is_fresh(Some(1), 5_000_000 + limit_us));
        assert!(!told.is_fresh(Some(1), 5_000_001 + limit_us));
        assert!(!told.is_fresh(Some(0), 5_000_000) && !told.is_fresh(None, 5_000_000));
    }
}
