//! How many further replicas may fail, the rest going on by itself: the leader finds it and tells the others with its
//! heartbeat. Whoever does not hear it says that none may.

use order::Tolerance;
use verify::Layout;

use super::replica_sets::are;
use crate::limits;

/// What a leader told last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported {
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

    /// What `tolerance` means for replica `me`, from 0, of a group that tolerates `most` failures with all replicas.
    pub(super) fn of(tolerance: &Tolerance, me: u8, most: u8) -> Self {
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
            why.push("a leader, or a view, that has just begun".to_owned());
        }
        let is_short = tolerance.failures < most;
        let why = is_short.then(|| why.join(", "));
        Tolerates { failures: tolerance.failures, why, is_level: Some(tolerance.level >> me & 1 == 1) }
    }
}

impl Reported {
    /// Whether it still holds at `now_us`, with this leader.
    pub(super) fn is_fresh(&self, leader: Option<u8>, now_us: u64) -> bool {
        leader == Some(self.by)
            && now_us.saturating_sub(self.at_us) <= limits::TOLERANCE_HOLDS.as_micros() as u64
    }
}

/// In verified mode: what a primary knows of another process of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherProcess {
    /// It was heard lately.
    pub(super) is_here: bool,
    /// Its verifier has its memory.
    pub(super) verifies: bool,
    /// It executes, has every batch that was agreed on, or is about to have it, and sends tokens for the next ones. A
    /// witness executes nothing.
    pub(super) has_state: Option<bool>,
}

/// In verified mode, at the primary, replica `me` from 0: how many further processes may fail. Each of them votes on
/// views; those that execute have the data, too.
pub(super) fn of_view(layout: Layout, me: u8, others: &[(u8, OtherProcess)], is_changing: bool) -> Tolerance {
    let mut found = Tolerance { level: 1 << me, unproven: is_changing, ..Tolerance::default() };
    for (replica, other) in others {
        let set = match other {
            OtherProcess { is_here: false, .. } => &mut found.away,
            OtherProcess { verifies: false, .. } => &mut found.joining,
            OtherProcess { has_state: Some(false), .. } => &mut found.behind,
            _ => &mut found.level,
        };
        *set |= 1 << replica;
    }
    let level = found.level.count_ones() as u8;
    let spare = match layout {
        Layout::Crash { failures } => level.saturating_sub(failures + 1).min(failures),
        // Either executor can go on alone, the one with a witness only if that is there.
        Layout::Pair => level / 2,
        Layout::PairWithWitness => level / 3,
    };
    found.failures = if is_changing { 0 } else { spare };
    found
}

/// In verified mode: what each replica tells of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verifying {
    /// Its verifier has its memory.
    pub(super) verifies: bool,
    /// Its executor sends no token for the next batch: an earlier process of the replica may have sent one.
    pub(super) abstains: bool,
}

/// What each replica tells of its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StopNews {
    /// It was asked to stop, or stops by itself.
    pub(super) stops: bool,
    /// It stops, and clients of it wait for replies, which take a majority.
    pub(super) owes: bool,
}

/// A leader's finding as a word of its heartbeat, and from everybody what it tells of itself.
pub(super) fn to_word(tolerance: Option<Tolerance>, own: Verifying, end: StopNews) -> u64 {
    let verifying = u64::from(own.verifies) << 53 | u64::from(own.abstains) << 54;
    finding(tolerance) | verifying | u64::from(end.stops) << 55 | u64::from(end.owes) << 56
}

/// What the sender of this word tells of its end.
pub(super) fn ending(word: u64) -> StopNews {
    StopNews { stops: word >> 55 & 1 == 1, owes: word >> 56 & 1 == 1 }
}

/// What the sender of this word tells of itself.
pub(super) fn verifying(word: u64) -> Verifying {
    Verifying { verifies: word >> 53 & 1 == 1, abstains: word >> 54 & 1 == 1 }
}

fn finding(tolerance: Option<Tolerance>) -> u64 {
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
        let (yes, no) = (Verifying { verifies: true, abstains: true }, Verifying::default());
        let goes_on = StopNews::default();
        assert_eq!(of_word(to_word(Some(found), yes, goes_on), 5), Some(found));
        let unproven = Tolerance { failures: 0, unproven: true, ..found };
        assert_eq!(of_word(to_word(Some(unproven), no, goes_on), 5), Some(unproven));
        assert_eq!((to_word(None, no, goes_on), of_word(0, 5)), (0, None));
        let word = to_word(None, yes, goes_on);
        assert_eq!((verifying(word), ending(word), of_word(word, 5)), (yes, goes_on, None));
        for (stops, owes) in [(true, false), (true, true)] {
            let end = StopNews { stops, owes };
            let word = to_word(Some(found), no, end);
            assert_eq!((verifying(word), ending(word), of_word(word, 5)), (no, end, Some(found)));
        }
    }

    #[test]
    fn with_views_each_process_votes_and_each_executor_has_the_data() {
        let good = OtherProcess { is_here: true, verifies: true, has_state: Some(true) };
        let witness = OtherProcess { has_state: None, ..good };
        let (away, behind) =
            (OtherProcess { is_here: false, ..good }, OtherProcess { has_state: Some(false), ..good });
        let forgetful = OtherProcess { verifies: false, ..good };
        let failures = |layout, others: &[OtherProcess]| {
            let others: Vec<_> = (1..).zip(others.iter().copied()).collect();
            of_view(layout, 0, &others, false).failures
        };
        let three = Layout::Crash { failures: 1 };
        assert_eq!(failures(three, &[good, good]), 1);
        for other in [away, behind, forgetful] {
            assert_eq!(failures(three, &[good, other]), 0);
            assert_eq!(failures(Layout::Pair, &[other]), 0);
            assert_eq!(failures(Layout::PairWithWitness, &[other, witness]), 0);
        }
        assert_eq!(failures(Layout::Crash { failures: 2 }, &[good, away, good, good]), 1);
        assert_eq!(
            (failures(Layout::Pair, &[good]), failures(Layout::PairWithWitness, &[good, witness])),
            (1, 1)
        );
        assert_eq!(failures(Layout::PairWithWitness, &[good, OtherProcess { is_here: false, ..witness }]), 0);
        assert_eq!(
            of_view(three, 0, &[(1, good), (2, good)], true).failures,
            0,
            "the next view may leave one out"
        );
    }

    #[test]
    fn it_says_who_is_missing_and_nothing_when_nobody_is() {
        let all = Tolerance { failures: 1, level: 0b111, ..Tolerance::default() };
        assert_eq!(Tolerates::of(&all, 0, 1), Tolerates { failures: 1, why: None, is_level: Some(true) });
        let few = Tolerance { failures: 0, level: 0b001, away: 0b010, behind: 0b100, ..all };
        let reported = Tolerates::of(&few, 2, 1);
        assert_eq!(reported.why.as_deref(), Some("replica 2 is not heard, replica 3 is catching up"));
        assert_eq!(reported.is_level, Some(false));
    }

    #[test]
    fn what_another_leader_reported_or_one_long_ago_does_not_hold() {
        let reported = Reported { by: 1, tolerance: Tolerance::default(), at_us: 5_000_000 };
        let limit_us = limits::TOLERANCE_HOLDS.as_micros() as u64;
        assert!(reported.is_fresh(Some(1), 5_000_000 + limit_us));
        assert!(!reported.is_fresh(Some(1), 5_000_001 + limit_us));
        assert!(!reported.is_fresh(Some(0), 5_000_000) && !reported.is_fresh(None, 5_000_000));
    }
}
