//! The clock that a replica stamps with, compared with the clocks of the others: a wrong clock is a single fault.
//!
//! Ordered time decides what has expired, so no single clock may decide it. A replica reads its machine's wall clock
//! once, when it starts. From then on its clock is the monotonic clock plus an offset, and steps of the wall clock have
//! no effect (as in stock memcached). Replicas exchange their clocks with their heartbeats, as NTP does: each measures
//! how far ahead every other one is, up to half of the time that a message and its echo take.
//!
//! - A replica whose clock is [`limits::CLOCK_TOLERANCE`] away from each of f+1 others that agree with one another is
//!   set to the nearest of these.
//! - Smaller differences are corrected slowly, towards the clock in the middle, so that clocks that drift stay
//!   together.
//! - A leader stamps with its own clock, but not beyond what f+1 clocks have reached, and a follower refuses a stamp
//!   that is beyond it ([`GroupClock::latest_us`]): whatever the value of a single clock or a corrupted stamp, time
//!   does not run ahead.
//!
//! This module owns no clock: the pipeline passes the monotonic time to it.

use crate::limits;

/// Another replica's clock, as an offset to this machine's monotonic time: a change of this replica's clock does not
/// affect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    offset_us: i64,
    /// Time that the messages took, there and back: twice the largest error.
    round_trip_us: u64,
}

/// The measurements of one other replica's clock.
#[derive(Clone, Copy, Debug, Default)]
struct Other {
    /// The monotonic time in its last heartbeat, and the local one when that came: the echo.
    last_received: Option<(u64, u64)>,
    /// The best sample of this period and of the one before.
    best: [Option<Sample>; 2],
    period: u64,
    /// Monotonic time of the last sample.
    sampled_us: u64,
    /// Since when it has been away from the clocks of f+1 others, in monotonic time.
    away_since_us: Option<u64>,
}

/// The numbers about clocks in a heartbeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClockWords {
    /// The sender's clock now; microseconds since 1970.
    pub now_us: u64,
    /// The sender's monotonic time, to be echoed.
    pub sent_us: u64,
    /// The receiver's monotonic time in its last heartbeat; 0 for none.
    pub echo_us: u64,
    /// How long ago that heartbeat came.
    pub held_us: u64,
}

/// Something about a clock that the operator should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockFault {
    /// This replica's own clock was so far ahead of f+1 others (behind, if negative), and was set by theirs.
    Own(i64),
    /// That replica's clock is so far ahead of f+1 others.
    Other(u8, i64),
}

/// This replica's clock, and its measurements of the others.
#[derive(Clone, Debug)]
pub(crate) struct GroupClock {
    me: usize,
    offset_us: i64,
    /// The same for the machine's wall clock, as of the last check.
    wall_offset_us: i64,
    /// The same for the latest stamp to accept.
    latest_offset_us: i64,
    others: Vec<Other>,
}

impl GroupClock {
    /// The clock of replica `me` of so many, which agrees with the wall clock at this moment.
    pub fn new(me: u8, replicas: usize, monotonic_us: u64, wall_us: u64) -> Self {
        let offset_us = difference(wall_us, monotonic_us);
        let others = vec![Other::default(); replicas];
        let me = usize::from(me);
        let mut clock =
            GroupClock { me, offset_us, wall_offset_us: offset_us, latest_offset_us: offset_us, others };
        clock.reckon(monotonic_us);
        clock
    }

    /// So many replicas vote from now on: their clocks count.
    pub fn resize(&mut self, replicas: usize) {
        self.others.resize(replicas, Other::default());
    }

    /// Microseconds since 1970, by this replica's clock.
    pub fn now_us(&self, monotonic_us: u64) -> u64 {
        monotonic_us.saturating_add_signed(self.offset_us)
    }

    /// The latest stamp to accept or to give: [`limits::CLOCK_TOLERANCE`] beyond the time that f+1 clocks have reached;
    /// while fewer are known, beyond the earliest of them. It is as of the last heartbeat: a clock that was corrupted
    /// since then does not affect it.
    pub fn latest_us(&self, monotonic_us: u64) -> u64 {
        monotonic_us.saturating_add_signed(self.latest_offset_us)
    }

    fn reckon(&mut self, monotonic_us: u64) {
        let mut ahead = self.known(monotonic_us);
        ahead.sort_unstable_by(|a, b| b.cmp(a));
        let reached = ahead.get(self.faults()).or(ahead.last()).copied().unwrap_or(0);
        let tolerance_us = limits::CLOCK_TOLERANCE.as_micros() as i64;
        self.latest_offset_us = self.offset_us.saturating_add(reached).saturating_add(tolerance_us);
    }

    /// The time that f+1 clocks have reached; while fewer are known, the time that all of them have reached.
    pub fn reached_us(&self, monotonic_us: u64) -> u64 {
        self.latest_us(monotonic_us).saturating_sub(limits::CLOCK_TOLERANCE.as_micros() as u64)
    }

    /// Whether f+1 clocks, this one and others than that of `leader`, agree with one another: only these together can
    /// say that its stamps are wrong. This clock alone may be the wrong one.
    pub fn can_judge(&self, leader: u8, monotonic_us: u64) -> bool {
        let tolerance_us = limits::CLOCK_TOLERANCE.as_micros() as u64;
        let others = (0..self.others.len()).filter(|other| *other != usize::from(leader));
        let ahead = others.filter_map(|other| self.ahead_us(other, monotonic_us));
        ahead.filter(|ahead_us| ahead_us.unsigned_abs() <= tolerance_us).count() >= self.faults()
    }

    /// Whether the clock of this replica was measured just now, and is behind this one.
    pub fn is_behind(&self, replica: u8, monotonic_us: u64) -> bool {
        let tolerance_us = limits::CLOCK_TOLERANCE.as_micros() as i64;
        self.ahead_us(usize::from(replica), monotonic_us).is_some_and(|ahead_us| ahead_us < -tolerance_us)
    }

    /// The step of the machine's wall clock since the last call, if it was a large one.
    pub fn wall_stepped(&mut self, monotonic_us: u64, wall_us: u64) -> Option<i64> {
        let offset_us = difference(wall_us, monotonic_us);
        let before_us = std::mem::replace(&mut self.wall_offset_us, offset_us);
        let stepped_us = offset_us.saturating_sub(before_us);
        (stepped_us.unsigned_abs() > limits::CLOCK_STEP.as_micros() as u64).then_some(stepped_us)
    }

    /// The stamp to give now.
    pub fn stamp_us(&self, monotonic_us: u64) -> u64 {
        self.now_us(monotonic_us).min(self.latest_us(monotonic_us))
    }

    /// The numbers for a heartbeat to `peer`.
    pub fn words_for(&self, peer: u8, monotonic_us: u64) -> ClockWords {
        let last_received = self.others.get(usize::from(peer)).and_then(|other| other.last_received);
        let (echo_us, came_us) = last_received.unwrap_or((0, monotonic_us));
        let held_us = monotonic_us.saturating_sub(came_us);
        ClockWords { now_us: self.now_us(monotonic_us), sent_us: monotonic_us, echo_us, held_us }
    }

    /// Records the numbers of a heartbeat from `peer`.
    pub fn receive(&mut self, peer: u8, words: ClockWords, monotonic_us: u64) {
        let Some(other) = self.others.get_mut(usize::from(peer)) else { return };
        other.last_received = Some((words.sent_us, monotonic_us));
        let since_us = monotonic_us.checked_sub(words.echo_us).filter(|_| words.echo_us > 0);
        // Without a round trip, the echo is that of another process, or none.
        let Some(round_trip_us) = since_us.and_then(|since_us| since_us.checked_sub(words.held_us)) else {
            return;
        };
        if u128::from(round_trip_us) > limits::CLOCK_TOLERANCE.as_micros() {
            return;
        }
        let sample =
            Sample { offset_us: difference(words.now_us, monotonic_us - round_trip_us / 2), round_trip_us };
        let period = monotonic_us / limits::CLOCK_PERIOD.as_micros() as u64;
        if period != other.period {
            other.best = [None, other.best[0].filter(|_| period == other.period + 1)];
            other.period = period;
        }
        let is_better = |best: Sample| round_trip_us <= best.round_trip_us;
        // A sample that contradicts the best one is a change of the clock, and no measurement error.
        let is_news = |best: Sample| {
            let apart_us = sample.offset_us.abs_diff(best.offset_us);
            apart_us > round_trip_us + best.round_trip_us
        };
        if other.best[0].is_none_or(|best| is_better(best) || is_news(best)) {
            other.best[0] = Some(sample);
        }
        if other.best[1].is_some_and(is_news) {
            other.best[1] = None;
        }
        other.sampled_us = monotonic_us;
        self.reckon(monotonic_us);
    }

    /// A new connection to `peer`, perhaps to another process with another clock.
    pub fn forget(&mut self, peer: u8) {
        if let Some(other) = self.others.get_mut(usize::from(peer)) {
            *other = Other::default();
        }
    }

    /// Sets or slews this clock by the others', and returns the wrong clocks. Called with every round of heartbeats.
    pub fn discipline(&mut self, monotonic_us: u64) -> Vec<ClockFault> {
        let mut faults = Vec::new();
        if let Some(theirs_us) = self.agreed_by_others(monotonic_us) {
            let tolerance_us = limits::CLOCK_TOLERANCE.as_micros() as i64;
            if theirs_us.saturating_abs() > tolerance_us {
                self.offset_us = self.offset_us.saturating_add(theirs_us);
                faults.push(ClockFault::Own(theirs_us.saturating_neg()));
            }
        }
        self.slew(monotonic_us);
        self.reckon(monotonic_us);
        faults.extend(self.others_away(monotonic_us));
        faults
    }

    /// How far f+1 others that agree with one another are ahead: the nearest one of the closest f+1, so that a clock is
    /// wrong only where all of these say so; 0 if it is between them.
    fn agreed_by_others(&self, monotonic_us: u64) -> Option<i64> {
        let mut ahead: Vec<i64> =
            (0..self.others.len()).filter_map(|other| self.ahead_us(other, monotonic_us)).collect();
        ahead.sort_unstable();
        let quorum = self.faults() + 1;
        let spread = |of: &&[i64]| of[quorum - 1].saturating_sub(of[0]);
        let closest = ahead.windows(quorum).min_by_key(spread)?;
        let agree = spread(&closest) <= limits::CLOCK_TOLERANCE.as_micros() as i64;
        agree.then(|| 0.clamp(closest[0], closest[quorum - 1]))
    }

    /// Corrects a small difference to the clock in the middle.
    fn slew(&mut self, monotonic_us: u64) {
        let mut ahead = self.known(monotonic_us);
        ahead.sort_unstable();
        let middle_us = ahead[(ahead.len() - 1) / 2];
        let (dead_us, tolerance_us) =
            (limits::CLOCK_DEAD_ZONE.as_micros() as i64, limits::CLOCK_TOLERANCE.as_micros() as i64);
        if middle_us.saturating_abs() > dead_us && middle_us.saturating_abs() <= tolerance_us {
            let step_us = limits::CLOCK_SLEW.as_micros() as i64;
            self.offset_us = self.offset_us.saturating_add(middle_us.clamp(-step_us, step_us));
        }
    }

    /// The others whose clocks have for a while been away from f+1 others, including this one. Each is reported once.
    fn others_away(&mut self, monotonic_us: u64) -> Vec<ClockFault> {
        let known = self.known(monotonic_us);
        let tolerance_us = limits::CLOCK_TOLERANCE.as_micros() as i64;
        let (quorum, patience_us) = (self.faults() + 1, limits::CLOCK_PATIENCE.as_micros() as u64);
        let mut away = Vec::new();
        for other in 0..self.others.len() {
            let ahead_us = self.ahead_us(other, monotonic_us);
            let near = |at: i64| known.iter().filter(|one| one.abs_diff(at) <= tolerance_us as u64).count();
            let agreed_us = known.iter().copied().find(|at| near(*at) >= quorum && ahead_us != Some(*at));
            let off_us = match (ahead_us, agreed_us) {
                (Some(ahead_us), Some(agreed_us)) => ahead_us.saturating_sub(agreed_us),
                _ => 0,
            };
            let state = &mut self.others[other];
            if off_us.saturating_abs() <= 2 * tolerance_us {
                state.away_since_us = None;
                continue;
            }
            let since_us = *state.away_since_us.get_or_insert(monotonic_us);
            if since_us != u64::MAX && monotonic_us.saturating_sub(since_us) >= patience_us {
                state.away_since_us = Some(u64::MAX);
                away.push(ClockFault::Other(other as u8, off_us));
            }
        }
        away
    }

    /// How far a replica's clock is ahead, if it was measured recently.
    fn ahead_us(&self, other: usize, monotonic_us: u64) -> Option<i64> {
        let fresh_us = limits::SILENCE.as_micros() as u64;
        let state = self.others.get(other).filter(|_| other != self.me)?;
        if monotonic_us.saturating_sub(state.sampled_us) > fresh_us {
            return None;
        }
        let samples = state.best.iter().flatten();
        let best = samples.min_by_key(|sample| sample.round_trip_us)?;
        Some(best.offset_us.saturating_sub(self.offset_us))
    }

    /// All known clocks, including this one, as differences to this one.
    fn known(&self, monotonic_us: u64) -> Vec<i64> {
        let others = (0..self.others.len()).filter_map(|other| self.ahead_us(other, monotonic_us));
        others.chain([0]).collect()
    }

    /// f, of 2f+1 replicas.
    fn faults(&self) -> usize {
        self.others.len() / 2
    }

    /// Flips a bit of the offset, for tests and fault injection.
    #[cfg(any(test, feature = "inject"))]
    pub fn corrupt(&mut self, bit: u32) {
        self.offset_us ^= 1 << (bit % 64);
    }
}

fn difference(of_us: u64, to_us: u64) -> i64 {
    if of_us >= to_us {
        i64::try_from(of_us - to_us).unwrap_or(i64::MAX)
    } else {
        i64::try_from(to_us - of_us).map_or(i64::MIN, |apart| -apart)
    }
}

/// A difference between clocks, as text.
pub(crate) fn apart(ahead_us: i64) -> String {
    let seconds = ahead_us.unsigned_abs() as f64 / 1e6;
    format!("{seconds:.3} s {}", if ahead_us < 0 { "behind" } else { "ahead of" })
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;
    const HOUR: i64 = 3_600_000_000;
    const WALL: u64 = 1_800_000_000 * S;

    /// Clocks of a group; each receives the monotonic time of its machine. Messages take 1 to 3 ms.
    struct Group {
        clocks: Vec<GroupClock>,
        /// The first value of each machine's monotonic clock.
        begun: Vec<u64>,
        true_us: u64,
        received: Vec<bool>,
        faults: Vec<(u8, ClockFault)>,
    }

    impl Group {
        /// A group of replicas whose wall clocks are wrong by so much.
        fn new(wrong: &[i64]) -> Group {
            let begun: Vec<u64> = (1..).map(|number| number * 77 * S).take(wrong.len()).collect();
            let clock = |(number, wrong): (usize, &i64)| {
                let wall_us = WALL.saturating_add_signed(*wrong);
                GroupClock::new(number as u8, begun.len(), begun[number], wall_us)
            };
            let clocks = wrong.iter().enumerate().map(clock).collect();
            Group { clocks, received: vec![true; begun.len()], begun, true_us: 0, faults: Vec::new() }
        }

        fn monotonic(&self, number: usize) -> u64 {
            self.begun[number] + self.true_us
        }

        /// Heartbeats for so many tenths of a second.
        fn exchange_heartbeats(&mut self, tenths: u64) {
            for tenth in 0..tenths {
                for from in 0..self.clocks.len() {
                    for to in (0..self.clocks.len()).filter(|to| *to != from) {
                        let words = self.clocks[from].words_for(to as u8, self.monotonic(from));
                        self.true_us += 1_000 + 500 * ((tenth + from as u64 + to as u64) % 5);
                        if self.received[from] && self.received[to] {
                            let at = self.monotonic(to);
                            self.clocks[to].receive(from as u8, words, at);
                        }
                    }
                }
                for number in 0..self.clocks.len() {
                    let at = self.monotonic(number);
                    let faults = self.clocks[number].discipline(at);
                    self.faults.extend(faults.into_iter().map(|fault| (number as u8, fault)));
                }
                self.true_us += S / 10;
            }
        }

        /// How wrong each clock is.
        fn wrong(&self) -> Vec<i64> {
            let right = WALL + self.true_us;
            let now = |number: usize| self.clocks[number].now_us(self.monotonic(number));
            (0..self.clocks.len()).map(|number| difference(now(number), right)).collect()
        }

        fn stamp(&self, number: usize) -> i64 {
            difference(self.clocks[number].stamp_us(self.monotonic(number)), WALL + self.true_us)
        }

        fn latest(&self, number: usize) -> i64 {
            difference(self.clocks[number].latest_us(self.monotonic(number)), WALL + self.true_us)
        }
    }

    fn is_near(wrong: i64) -> bool {
        wrong.abs() <= limits::CLOCK_TOLERANCE.as_micros() as i64
    }

    #[test]
    fn clocks_that_agree_are_left_alone() {
        let mut group = Group::new(&[0, 5_000, -8_000]);
        group.exchange_heartbeats(300);
        let wrong = group.wrong();
        assert!(wrong.iter().zip([0, 5_000, -8_000]).all(|(is, was)| (is - was).abs() < 3_000), "{wrong:?}");
        assert_eq!(group.faults, []);
    }

    #[test]
    fn a_wrong_clock_takes_over_what_the_others_agree_on_and_is_named() {
        for wrong in [HOUR, -24 * HOUR, 2_000_000, -2_000_000, 1 << 62, -(1 << 50)] {
            for replicas in [3, 5] {
                let mut all = vec![0; replicas];
                all[0] = wrong;
                let mut group = Group::new(&all);
                group.exchange_heartbeats(5);
                assert!(group.wrong().iter().all(|wrong| is_near(*wrong)), "{wrong}: {:?}", group.wrong());
                assert!(group.faults.iter().any(|fault| matches!(fault, (0, ClockFault::Own(_)))), "{wrong}");
                assert!(!group.faults.iter().any(|(by, _)| *by != 0), "{:?}", group.faults);
            }
        }
    }

    #[test]
    fn a_clock_that_is_corrupted_stamps_nothing_ahead_of_the_others() {
        for bit in 0..64 {
            let mut group = Group::new(&[0, 0, 0]);
            group.exchange_heartbeats(20);
            group.clocks[0].corrupt(bit);
            assert!(group.stamp(0) <= 2 * limits::CLOCK_TOLERANCE.as_micros() as i64, "bit {bit}");
            group.exchange_heartbeats(5);
            assert!(group.wrong().iter().all(|wrong| is_near(*wrong)), "bit {bit}: {:?}", group.wrong());
        }
    }

    /// This clock and the leader's are two of three: which one is wrong is unknown, and so is whether the leader's is.
    #[test]
    fn only_f_plus_1_clocks_that_agree_accuse_a_leader() {
        let judges =
            |group: &Group, number: usize| group.clocks[number].can_judge(1, group.monotonic(number));
        let mut group = Group::new(&[0, 0, 0]);
        assert!(!judges(&group, 0), "no other clock is known");
        group.exchange_heartbeats(20);
        assert!(judges(&group, 0) && judges(&group, 2));
        assert!(!group.clocks[0].is_behind(1, group.monotonic(0)));
        // It was stopped, or its clock jumped: it is the one that is wrong.
        group.clocks[0].corrupt(24);
        assert!(!judges(&group, 0) && judges(&group, 2));
        group.exchange_heartbeats(5);
        assert!(judges(&group, 0), "it follows the others again");
        // The leader's clock is wrong, and the two others agree.
        group.clocks[1].corrupt(24);
        let words = group.clocks[1].words_for(0, group.monotonic(1));
        group.true_us += 1_000;
        let at = group.monotonic(0);
        group.clocks[0].receive(1, words, at);
        let is_behind = difference(words.now_us, WALL + group.true_us) < 0;
        assert!(judges(&group, 0) && group.clocks[0].is_behind(1, at) == is_behind);
        // Nothing is heard of the third one.
        group.received[2] = false;
        group.exchange_heartbeats(40);
        assert!(!judges(&group, 0));
    }

    #[test]
    fn a_stamp_beyond_what_a_quorum_has_reached_is_not_believed() {
        let mut group = Group::new(&[HOUR, 0, 0]);
        group.exchange_heartbeats(1);
        assert!(
            (0..3).all(|number| number == 0 || is_near(group.latest(number) - 500_000)),
            "own clock alone"
        );
        // Two of three clocks are known, one of them an hour ahead: it is unknown which is right, so the later one is
        // not accepted.
        let mut group = Group::new(&[HOUR, 0, 0]);
        group.received[2] = false;
        group.exchange_heartbeats(50);
        assert!(group.latest(1) <= 2 * S as i64 && group.stamp(0) <= 2 * S as i64);
        assert!(group.faults.is_empty(), "{:?}", group.faults);
    }

    /// A machine that was suspended for a minute: its monotonic clock stood still.
    #[test]
    fn a_replica_that_was_asleep_catches_up_with_the_others() {
        let mut group = Group::new(&[0, 0, 0]);
        group.exchange_heartbeats(20);
        group.begun[1] -= 60 * S;
        group.exchange_heartbeats(30);
        assert!(group.wrong().iter().all(|wrong| is_near(*wrong)), "{:?}", group.wrong());
    }

    /// A short sleep leaves a clock almost wrong: of the others, the one that is a little ahead is not wrong therefore.
    #[test]
    fn a_clock_that_agrees_with_one_of_f_plus_one_is_not_wrong() {
        let mut group = Group::new(&[0, 10_000, -495_000]);
        group.exchange_heartbeats(30);
        assert_eq!(group.faults, []);
        assert!(group.wrong().iter().all(|wrong| is_near(*wrong)), "{:?}", group.wrong());
    }

    #[test]
    fn clocks_that_drift_apart_stay_together() {
        let mut group = Group::new(&[0, 0, 0]);
        for step in 0..3_000 {
            group.exchange_heartbeats(1);
            // One machine gains, and one loses, 200 us in a tenth of a second: far more than a quartz clock does.
            group.begun[0] += 200;
            group.begun[2] -= 200;
            let wrong = group.wrong();
            let spread = wrong.iter().max().unwrap() - wrong.iter().min().unwrap();
            assert!(spread < 300_000, "{step}: {wrong:?}");
        }
        assert_eq!(group.faults, []);
    }

    /// A replica that answers heartbeats, and whose clock stays wrong: the others report it.
    #[test]
    fn a_clock_that_stays_wrong_is_named_once() {
        let mut group = Group::new(&[0, 0, 0]);
        group.exchange_heartbeats(20);
        for _ in 0..40 {
            group.clocks[0].offset_us += 10 * HOUR;
            group.exchange_heartbeats(1);
        }
        let named = |by: u8| {
            group
                .faults
                .iter()
                .filter(|(one, fault)| *one == by && matches!(fault, ClockFault::Other(0, _)))
                .count()
        };
        assert_eq!((named(1), named(2)), (1, 1), "{:?}", group.faults);
        assert!(group.wrong()[1..].iter().all(|wrong| is_near(*wrong)));
    }

    #[test]
    fn nonsense_from_a_peer_does_no_harm() {
        let mut group = Group::new(&[0, 0, 0]);
        group.exchange_heartbeats(10);
        for seed in 0..10_000u64 {
            let word = |shift: u32| seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(shift);
            let words = ClockWords {
                now_us: word(3),
                sent_us: word(29),
                echo_us: word(17),
                held_us: word(40) >> (seed % 64),
            };
            let at = group.monotonic(1);
            group.clocks[1].receive(0, words, at);
            group.clocks[1].discipline(at);
        }
        assert!(is_near(group.wrong()[1]) && group.latest(1) <= 2 * S as i64);
    }
}
