//! Membership: which replicas are connected, which ones vote, and the heartbeats that they exchange.

use std::collections::BTreeMap;
use std::time::Duration;

use order::{FrameKind, ReplicaProcess, Tolerance};
use vote::Event;
use wire::Reader;

use super::clocks::Timekeeper;
use super::environment::Environment;
use super::tolerance::{self, OtherProcess, Reported, StopNews, Verifying};
use crate::clock::ClockWords;
use crate::limits;
use crate::peers::probe::PeerProgress;
use crate::world::World;

/// The data on the other replicas.
#[derive(Debug)]
pub(super) struct Group {
    me: u8,
    /// Distinguishes this process of the replica from earlier ones.
    incarnation: u64,
    others: Vec<Other>,
    /// How many of them execute, this one included: the first ones.
    executors: usize,
    /// Last entry of the own log when this process began, and the last batch from there: those that an earlier process
    /// had in its log.
    replayed_index: u64,
    replayed_batch: u64,
    next_heartbeat_us: u64,
    /// When this process sent its first heartbeat.
    began_us: Option<u64>,
    /// How many further replicas may fail, as the leader told it last.
    reported: Option<Reported>,
    /// The processes that replicas had when they were held for gone, until they have come back.
    departed: BTreeMap<u8, u64>,
}

/// What a heartbeat tells of the replica that sends it.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnProgress {
    /// The first batch that this process executed, and the last one, in verified mode the last stable one.
    pub(super) batches: (u64, u64),
    pub(super) log_end: LogEnd,
    /// As a leader: how many further replicas may fail.
    pub(super) tolerance: Option<Tolerance>,
    /// In verified mode: what it tells of its verifier and executor.
    pub(super) verifying: Verifying,
    /// Whether it stops.
    pub(super) ending: StopNews,
}

/// The end of a replica's log. The later one of two logs of a group has what the group has acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogEnd {
    pub(super) term: u64,
    /// The last entry; 0 for no data.
    pub(super) index: u64,
}

/// What another process that is here has reported of its verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherVerifier {
    /// From 0.
    pub(super) replica: u8,
    /// The incarnation of its process that reported it.
    pub(super) incarnation: u64,
    /// It has its memory.
    pub(super) verifies: bool,
    /// Its last stable batch, if it executes.
    pub(super) has: Option<u64>,
}

/// One other replica.
#[derive(Clone, Copy, Debug, Default)]
struct Other {
    received_us: u64,
    /// Its heartbeat, once it executes.
    voting: Option<Heartbeat>,
    /// Last batch that it has reported as executed, in verified mode as stable; and how slow it says it has been.
    progress: PeerProgress,
    /// Batches that it was behind this replica when it told that.
    behind_by: u64,
    /// In verified mode: what it has told of itself over the present connection.
    verifying: Option<Verifying>,
    /// What it has reported of its end over the present connection.
    ending: StopNews,
    /// The newest behavior that it can act as, once it has told over the present connection.
    newest_behavior: Option<u16>,
    /// Its process, once it is known; and whether an earlier one is known to have ended.
    incarnation: u64,
    has_ended: bool,
    /// The end of its log, once it has told over the present connection.
    log_end: Option<LogEnd>,
    /// When it was connected, disconnected or refused last.
    changed_us: Option<u64>,
    /// The last report to the voter: whether to wait for this peer, and which process of it.
    counted: bool,
    reported: Option<Heartbeat>,
    /// Messages of it that were dropped and not reported, and when they may be reported.
    dropped: u64,
    next_report_us: u64,
}

/// The identity of a replica that executes, in its periodic message to peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heartbeat {
    /// First batch that this process executed.
    since: u64,
    /// Distinguishes this process of the replica from earlier ones.
    incarnation: u64,
}

impl Group {
    /// Replica `me` of so many `replicas`, of which the first `executors` execute, of this `incarnation`, with a log of
    /// its own up to `last_index`.
    pub(super) fn new(
        me: u8,
        (replicas, executors): (usize, usize),
        incarnation: u64,
        last_index: u64,
    ) -> Self {
        Group {
            me,
            incarnation,
            others: vec![Other::default(); replicas],
            executors,
            replayed_index: last_index,
            replayed_batch: 0,
            next_heartbeat_us: 0,
            began_us: None,
            reported: None,
            departed: BTreeMap::new(),
        }
    }

    /// There are so many replicas from now on, of which the first `voting` vote.
    pub(super) fn resize(&mut self, known: usize, voting: usize) {
        self.others.resize(known, Other::default());
        self.executors = voting;
    }

    /// Whether this one has reported that it has executed this batch, and lacks few that this replica has.
    pub(super) fn is_level(&self, peer: u8, batch: u64) -> bool {
        let other = self.others.get(usize::from(peer));
        let has = |other: &Other| other.progress.executed >= batch && other.behind_by <= limits::LEVEL_LAG;
        other.is_some_and(|other| other.progress.executed > 0 && has(other))
    }

    /// A peer was connected, disconnected or refused: another process of it may be there now.
    pub(super) fn on_changed(&mut self, peer: u8, now_us: u64) {
        if let Some(other) = self.others.get_mut(usize::from(peer)) {
            // The next process of it may have lost both.
            (other.changed_us, other.log_end, other.verifying) = (Some(now_us), None, None);
            (other.ending, other.newest_behavior) = (StopNews::default(), None);
        }
    }

    /// The ends of the others' logs, by replica, as far as they are known.
    pub(super) fn log_ends(&self) -> Vec<Option<LogEnd>> {
        self.others.iter().map(|other| other.log_end).collect()
    }

    /// Whether an operator can judge the group: for so long ([`limits::UNTIL_ADVICE`]) this process runs, and no peer
    /// was connected, disconnected, refused, or fell silent.
    pub(super) fn is_steady(&self, now_us: u64, until_advice: Duration) -> bool {
        let is_old = |since_us: u64| now_us >= since_us + until_advice.as_micros() as u64;
        let is_steady = |other: &Other| {
            let speaks = other.received_us > 0 && !other.is_silent(now_us, limits::QUIET);
            other.changed_us.is_none_or(is_old) && (speaks || is_old(other.received_us))
        };
        let others = self.others.iter().enumerate().filter(|(peer, _)| *peer != usize::from(self.me));
        self.began_us.is_some_and(is_old) && others.map(|(_, other)| other).all(is_steady)
    }

    /// A batch is delivered, which is entry `index` of the log.
    pub(super) fn on_delivered(&mut self, index: u64, batch: u64) {
        if index <= self.replayed_index {
            self.replayed_batch = batch;
        }
    }

    /// Whether an earlier process of this replica had this batch in its log. A repair in it applied to objects in that
    /// process's memory: they are gone, no peer keeps the right ones for it any more, and executing the batch again is
    /// correct without it.
    pub(super) fn is_replayed(&self, batch: u64) -> bool {
        batch <= self.replayed_batch
    }

    /// A peer connected, or a frame of it arrived.
    pub(super) fn on_received(&mut self, peer: u8, now_us: u64) {
        self.others[usize::from(peer)].received_us = now_us;
    }

    /// This replica begins to execute: its voter has no information about the others, and theirs have none about it.
    pub(super) fn begin(&mut self) {
        self.others.iter_mut().for_each(|other| other.counted = false);
        self.next_heartbeat_us = 0;
    }

    /// What the others have reported, combined: the last batch that f+1 of them have executed, in verified mode a
    /// stable one, so that at least one of the reports is right; and how slow f of them have been. No batch unless all
    /// others were heard just now: a replica that hears only a part of the group may be partitioned, and its memory may
    /// still be needed.
    pub(super) fn others_progress(&self, now_us: u64) -> PeerProgress {
        let reported: Vec<PeerProgress> = self.all_others().map(|other| other.progress).collect();
        let others = PeerProgress::of_others(&reported, self.faults());
        PeerProgress { executed: if self.receives_all(now_us) { others.executed } else { 0 }, ..others }
    }

    /// Whether all others were heard just now, and vote: then this replica's memory is not needed.
    pub(super) fn receives_all(&self, now_us: u64) -> bool {
        self.all_others().all(|other| other.votes_now(now_us))
    }

    /// The newest behavior that all others can act as, where all are here and vote; the largest number where there is
    /// no other one.
    pub(super) fn newest_of_others(&self, now_us: u64) -> Option<u16> {
        let newest = |other: &Other| other.newest_behavior.filter(|_| other.votes_now(now_us));
        self.all_others().map(newest).try_fold(u16::MAX, |least, newest| Some(least.min(newest?)))
    }

    /// Whether f+1 or fewer replicas vote, including this one: a vote then shows that one is wrong, but not which one.
    /// Each replica must then check itself.
    pub(super) fn is_alone(&self, now_us: u64) -> bool {
        let others = self.all_others().filter(|other| other.votes_now(now_us)).count();
        others <= self.faults()
    }

    fn all_others(&self) -> impl Iterator<Item = &Other> {
        let me = usize::from(self.me);
        self.others
            .iter()
            .take(self.executors)
            .enumerate()
            .filter(move |(peer, _)| *peer != me)
            .map(|(_, other)| other)
    }

    /// f, of 2f+1 replicas; of two 0.
    pub(super) fn faults(&self) -> usize {
        (self.executors - 1) / 2
    }

    /// Whether f+1 others could give this replica a state or a repair.
    pub(super) fn has_donors(&self) -> bool {
        let others = self.others.iter().filter(|other| other.counted).count();
        others > self.faults()
    }

    /// The events about a peer for the voter. It waits for every peer that executes and was heard recently.
    ///
    /// A lost connection alone does not count: it is soon back, and a voter that takes a peer for absent finds no
    /// majority where there is one. No reply waits for this: f+1 replicas are enough.
    pub(super) fn news_of(&mut self, peer: u8, now_us: u64) -> [Option<Event>; 2] {
        let other = &mut self.others[usize::from(peer)];
        let counts = other.voting.is_some() && !other.is_silent(now_us, limits::SILENCE);
        if peer == self.me {
            return [None, None];
        }
        let reborn = counts && other.reported != other.voting;
        if counts == other.counted && !reborn {
            return [None, None];
        }
        other.counted = counts;
        let mut replaced = None;
        if let (true, Some(heartbeat)) = (reborn, other.voting) {
            other.reported = Some(heartbeat);
            replaced = Some(Event::PeerReplaced { replica: peer, first_batch: heartbeat.since });
        }
        [replaced, Some(if counts { Event::PeerUp(peer) } else { Event::PeerDown(peer) })]
    }

    /// Sends a heartbeat from time to time: that this replica is alive, since which batch it votes, its progress, and
    /// as a leader how many further replicas may fail. Also compares the clocks of the others.
    pub(super) fn send_heartbeats<W: World>(
        &mut self,
        own: OwnProgress,
        time: &mut Timekeeper,
        env: &mut Environment<W>,
    ) {
        let now_us = env.world.now_us();
        self.began_us.get_or_insert(now_us);
        if now_us >= self.next_heartbeat_us {
            self.next_heartbeat_us = now_us + limits::HEARTBEAT_EVERY.as_micros() as u64;
            for peer in 0..env.settings.peers.len() as u8 {
                self.send_heartbeat(peer, own, time, env);
            }
            time.correct_clocks(self.faults(), env);
        }
    }

    /// Sends the heartbeat to one peer.
    pub(super) fn send_heartbeat<W: World>(
        &self,
        peer: u8,
        OwnProgress { batches: (first, last), log_end, tolerance, verifying, ending }: OwnProgress,
        time: &mut Timekeeper,
        env: &mut Environment<W>,
    ) {
        if peer != self.me {
            let ClockWords { now_us, sent_us, echo_us, held_us } =
                time.clock.words_for(peer, env.world.now_us());
            let slowest_ms = env.peers.progress.slowest_ms;
            let LogEnd { term, index } = log_end;
            let reported = tolerance::to_word(tolerance, verifying, ending);
            let words = [
                first,
                self.incarnation,
                last,
                slowest_ms,
                now_us,
                sent_us,
                echo_us,
                held_us,
                term,
                index,
                reported,
                u64::from(env.settings.behaviors.newest),
            ];
            let words = words.map(u64::to_le_bytes);
            env.peers.send(peer, FrameKind::Admin, &[words.as_flattened()]);
        }
    }

    /// Handles a peer's heartbeat; `own_last` is the last batch executed here, in verified mode the last stable one.
    /// False if the message is none.
    pub(super) fn on_heartbeat(
        &mut self,
        from: u8,
        body: &[u8],
        own_last: u64,
        time: &mut Timekeeper,
        now_us: u64,
    ) -> bool {
        let mut reader = Reader::new(body);
        let mut word = || reader.u64();
        let (Ok(since), Ok(incarnation), Ok(executed), Ok(slowest_ms)) = (word(), word(), word(), word())
        else {
            return false;
        };
        if let (Ok(their_us), Ok(sent_us), Ok(echo_us), Ok(held_us)) = (word(), word(), word(), word()) {
            time.clock.receive(from, ClockWords { now_us: their_us, sent_us, echo_us, held_us }, now_us);
        }
        let log_end = match (word(), word()) {
            (Ok(term), Ok(index)) => Some(LogEnd { term, index }),
            _ => None,
        };
        let last = word().unwrap_or_default();
        if let Some(tolerance) = tolerance::of_word(last, self.others.len()) {
            self.reported = Some(Reported { by: from, tolerance, at_us: now_us });
        }
        let newest_behavior = word().ok().and_then(|newest| u16::try_from(newest).ok());
        let other = &mut self.others[usize::from(from)];
        other.newest_behavior = newest_behavior;
        other.verifying = Some(tolerance::verifying(last));
        other.ending = tolerance::ending(last);
        other.behind_by = own_last.saturating_sub(executed);
        other.log_end = log_end;
        other.has_ended |= other.incarnation != 0 && other.incarnation != incarnation;
        other.incarnation = incarnation;
        other.voting = (since > 0).then_some(Heartbeat { since, incarnation });
        other.progress = PeerProgress { executed, slowest_ms };
        true
    }

    /// The others that have reported that they stop, and those of them whose clients wait for replies; over the
    /// connections that there are.
    pub(super) fn ending(&self) -> (u16, u16) {
        let of = |tells: fn(&StopNews) -> bool| {
            let reporting = self.others.iter().zip(0..).filter(|(other, _)| tells(&other.ending));
            reporting.fold(0, |replicas, (_, replica)| replicas | 1u16 << replica)
        };
        (of(|ending| ending.stops), of(|ending| ending.owes))
    }

    /// How many replicas there are.
    pub(super) fn replicas(&self) -> u8 {
        self.others.len() as u8
    }

    /// Whether this replica has sent nothing for so long that it is held for gone; a process that has just begun says
    /// of none that it is.
    pub(super) fn is_gone(&self, replica: u8, now_us: u64) -> bool {
        let long_us = limits::GONE.as_micros() as u64;
        let began_us = self.began_us.unwrap_or(now_us);
        let other = self.others.get(usize::from(replica));
        other.is_some_and(|other| now_us.saturating_sub(other.received_us.max(began_us)) > long_us)
    }

    /// This process was held for gone.
    pub(super) fn departs(&mut self, process: ReplicaProcess) {
        self.departed.insert(process.replica, process.incarnation);
    }

    /// Whether it was, and its replica has no other one since.
    pub(super) fn has_departed(&self, process: ReplicaProcess) -> bool {
        self.departed.get(&process.replica) == Some(&process.incarnation)
    }

    /// A replica has a new process.
    pub(super) fn has_come(&mut self, replica: u8) {
        self.departed.remove(&replica);
    }

    /// The next heartbeats are due.
    pub(super) fn hurry(&mut self) {
        self.next_heartbeat_us = 0;
    }

    /// How many further replicas may fail, if this `leader` told it lately.
    pub(super) fn reported_tolerance(&self, leader: Option<u8>, now_us: u64) -> Option<&Tolerance> {
        self.reported
            .as_ref()
            .filter(|reported| reported.is_fresh(leader, now_us))
            .map(|reported| &reported.tolerance)
    }

    /// In verified mode, at the primary: what is known of the other processes. Those in `copies` have what is recorded.
    pub(super) fn of_view(&self, copies: verify::Slots, now_us: u64) -> Vec<(u8, OtherProcess)> {
        let of = |(peer, other): (u8, &Other)| {
            let Verifying { verifies, abstains } = other.verifying.unwrap_or_default();
            let keeps_pace = other.behind_by <= limits::LEVEL_LAG && copies.contains(peer) && !abstains;
            let process = OtherProcess {
                is_here: !other.is_silent(now_us, limits::QUIET),
                verifies,
                has_state: (usize::from(peer) < self.executors).then(|| other.voting.is_some() && keeps_pace),
            };
            (peer, process)
        };
        (0..).zip(&self.others).filter(|(peer, _)| *peer != self.me).map(of).collect()
    }

    /// In verified mode: what the others that were heard just now have told of their verifiers.
    pub(super) fn verifiers(&self, now_us: u64) -> impl Iterator<Item = OtherVerifier> {
        let is_here = move |other: &Other| other.incarnation != 0 && !other.is_silent(now_us, limits::QUIET);
        let others = (0..).zip(&self.others).filter(move |(peer, other)| *peer != self.me && is_here(other));
        others.filter_map(|(replica, other)| {
            let has = other.voting.map(|_| other.progress.executed);
            Some(OtherVerifier {
                replica,
                incarnation: other.incarnation,
                verifies: other.verifying?.verifies,
                has,
            })
        })
    }

    /// In verified mode: whether another replica executes and sends no token for the next batch, because an earlier
    /// process of it may have sent one.
    pub(super) fn is_any_abstaining(&self, now_us: u64) -> bool {
        let abstains = |other: &Other| other.verifying.is_some_and(|verifying| verifying.abstains);
        self.others.iter().any(|other| other.votes_now(now_us) && abstains(other))
    }

    /// When something came from this peer last, in microseconds of the world's clock; 0 if nothing did.
    pub(super) fn received_us(&self, peer: u8) -> u64 {
        self.others.get(usize::from(peer)).map_or(0, |other| other.received_us)
    }

    /// Whether nothing came from this peer lately.
    pub(super) fn is_quiet(&self, peer: u8, now_us: u64) -> bool {
        self.others.get(usize::from(peer)).is_none_or(|other| other.is_silent(now_us, limits::QUIET))
    }

    /// Whether a later process of this peer has sent a heartbeat since the last call: then the one before has ended.
    pub(super) fn take_ended(&mut self, peer: u8) -> bool {
        self.others.get_mut(usize::from(peer)).is_some_and(|other| std::mem::take(&mut other.has_ended))
    }

    /// A peer's message was dropped. A peer whose messages are wrong repeatedly is reported once a second.
    pub(super) fn on_dropped<W: World>(&mut self, blame: order::Blame, env: &mut Environment<W>) {
        env.tally.dropped_frames += 1;
        let now_us = env.world.now_us();
        let Some(other) = self.others.get_mut(usize::from(blame.peer)) else { return };
        other.dropped += 1;
        if now_us < other.next_report_us {
            return;
        }
        other.next_report_us = now_us + limits::REPORTED_AGAIN.as_micros() as u64;
        match std::mem::take(&mut other.dropped) {
            1 => env.world.say(format_args!("{blame}; the message is dropped")),
            count => env.world.say(format_args!("{blame}; {count} messages from there were dropped")),
        }
    }
}

impl Other {
    /// Whether nothing was received from it for longer than `limit`.
    fn is_silent(&self, now_us: u64, limit: Duration) -> bool {
        now_us.saturating_sub(self.received_us) > limit.as_micros() as u64
    }

    /// Whether it votes, and was heard recently.
    fn votes_now(&self, now_us: u64) -> bool {
        self.voting.is_some() && !self.is_silent(now_us, limits::QUIET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADVICE_US: u64 = limits::UNTIL_ADVICE.as_micros() as u64;
    const START_US: u64 = 1_000_000;

    /// Replica 3 of 3, which began at [`START_US`].
    fn group() -> Group {
        Group { began_us: Some(START_US), ..Group::new(2, (3, 3), 7, 0) }
    }

    /// Both peers are heard at this time.
    fn receive(group: &mut Group, now_us: u64) {
        (0..2).for_each(|peer| group.on_received(peer, now_us));
    }

    #[test]
    fn nothing_is_advised_until_a_minute_has_passed_since_the_start_and_each_change() {
        assert!(!Group::new(2, (3, 3), 7, 0).is_steady(1 << 40, limits::UNTIL_ADVICE), "it has not begun");
        let mut group = group();
        let first_us = START_US + ADVICE_US;
        receive(&mut group, first_us - 1);
        assert!(!group.is_steady(first_us - 1, limits::UNTIL_ADVICE));
        assert!(group.is_steady(first_us, limits::UNTIL_ADVICE), "the others are there");
        group.on_changed(1, first_us);
        receive(&mut group, first_us + ADVICE_US - 1);
        assert!(
            !group.is_steady(first_us + ADVICE_US - 1, limits::UNTIL_ADVICE),
            "connected, gone or refused since less than that"
        );
        assert!(group.is_steady(first_us + ADVICE_US, limits::UNTIL_ADVICE));
    }

    /// A peer that is stopped sends nothing: for a minute it counts as one that soon goes on.
    #[test]
    fn a_peer_that_falls_silent_counts_as_restarted_for_a_minute() {
        let mut group = group();
        let silent_us = 10 * ADVICE_US;
        let quiet_us = limits::QUIET.as_micros() as u64;
        receive(&mut group, silent_us);
        assert!(group.is_steady(silent_us + quiet_us, limits::UNTIL_ADVICE));
        group.on_received(0, silent_us + ADVICE_US);
        assert!(
            !group.is_steady(silent_us + quiet_us + 1, limits::UNTIL_ADVICE)
                && !group.is_steady(silent_us + ADVICE_US - 1, limits::UNTIL_ADVICE)
        );
        assert!(group.is_steady(silent_us + ADVICE_US, limits::UNTIL_ADVICE));
    }

    #[test]
    fn the_end_of_a_peers_log_is_known_once_it_tells_over_this_connection() {
        let mut group = group();
        let mut time = Timekeeper::new(crate::clock::GroupClock::new(2, 3, 0, 0));
        let words = |term: u64, index: u64| [0, 5, 0, 0, 0, 0, 0, 0, term, index].map(u64::to_le_bytes);
        assert!(group.on_heartbeat(0, words(4, 331).as_flattened(), 0, &mut time, START_US));
        assert_eq!(group.log_ends(), [Some(LogEnd { term: 4, index: 331 }), None, None]);
        group.on_changed(0, START_US);
        assert_eq!(group.log_ends(), [None; 3], "the next process of it may have lost it");
        assert!(LogEnd { term: 5, index: 1 } > LogEnd { term: 4, index: 900 });
    }

    #[test]
    fn a_verifier_counts_once_the_process_of_this_connection_has_reported_of_its_memory() {
        let mut group = group();
        let mut time = Timekeeper::new(crate::clock::GroupClock::new(2, 3, 0, 0));
        let reported =
            tolerance::to_word(None, Verifying { verifies: true, abstains: false }, StopNews::default());
        let words = [1, 5, 9, 0, 0, 0, 0, 0, 1, 9, reported].map(u64::to_le_bytes);
        assert!(group.on_heartbeat(0, words.as_flattened(), 9, &mut time, START_US));
        group.on_received(0, START_US);
        let verifies = |group: &Group| group.of_view(verify::Slots(0b111), START_US)[0].1.verifies;
        assert!(verifies(&group));
        group.on_changed(0, START_US);
        group.on_received(0, START_US);
        assert!(!verifies(&group), "the next process of it may have lost it");
        assert_eq!(group.verifiers(START_US).count(), 0, "nor is it known to be without");
    }
}
