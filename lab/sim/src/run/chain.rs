//! Chains of strikes (`strikes.rs`): each comes while the victim of the one before recovers, and hits as many replicas
//! as the group says at that step that may fail. Then the rest has to serve (`promises/tolerates.rs`).
//!
//! *Why a correct copy still exists.* No strike of a chain corrupts anything, and the group itself has said that it can
//! spare the victims. That this is true is what is checked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crosscheck::stepped::Marks;
use serde::{Deserialize, Serialize};
use wire::ReplicaId;

use super::{Breach, Event, Phase, Run};
use crate::fault::SimFault;
use crate::promises::tolerates::{ChainStrike, Tolerates};
use crate::rng::stream;
use crate::strikes::{self, Blow, Strike, Trigger, Whom};
use crate::workload::Workload;

/// Microseconds for which a chain waits until a trigger comes: not every victim needs a state, for example.
const TRIGGER_US: u64 = 4_000_000;
/// Microseconds after which a chain ends if no replica may fail.
const GIVES_UP_US: u64 = 40_000_000;
/// Microseconds between two questions how many replicas may fail, and between two moves of clients.
const ASK_US: u64 = 1_000;
const MOVE_US: u64 = 100_000;
/// Microseconds until a killed replica is started.
const FOR_GOOD_US: u64 = 3_600_000_000;

/// What chains of strikes came to, and how often replicas dropped and took what only lagging ones need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chains {
    /// Strikes, by trigger.
    pub strikes: BTreeMap<String, u64>,
    /// Chains that were cut short, since the group never said that another replica may fail.
    pub given_up: u64,
    /// Times a leader's log began beyond what a voter had.
    pub past_log: u64,
    /// States that were offered.
    pub offered: u64,
    /// States that arrived whole, in several pieces.
    pub installed: u64,
    /// Replicas that became voters or executors while they lacked batches.
    pub joined_behind: u64,
    /// Longest time from a strike to the first answer to a later command, in simulated microseconds.
    pub longest_gap_us: u64,
}

impl Chains {
    /// Adds another run.
    pub fn add(&mut self, other: &Chains) {
        for (after, count) in &other.strikes {
            *self.strikes.entry(after.clone()).or_default() += count;
        }
        self.given_up += other.given_up;
        self.past_log += other.past_log;
        self.offered += other.offered;
        self.installed += other.installed;
        self.joined_behind += other.joined_behind;
        self.longest_gap_us = self.longest_gap_us.max(other.longest_gap_us);
    }
}

/// Where a chain is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChainStage {
    /// There is none.
    #[default]
    Idle,
    /// It waits for the trigger of its next strike.
    Waiting { since_us: u64 },
    /// No replica may fail now: it waits until the status allows one.
    Rising { since_us: u64, requested_us: u64 },
    /// The next strike comes then.
    Due { at_us: u64, after: Trigger },
    /// The group has to serve again.
    Watching { moved_us: u64 },
    /// It serves; who was killed stays away until then.
    Holding { until_us: u64 },
    /// All strikes were made: the victims come back.
    Ending,
}

/// The chain of an episode.
#[derive(Debug, Default)]
pub(super) struct Chain {
    rest: VecDeque<Strike>,
    stage: ChainStage,
    /// How long the victims of the last strike stay away after the group serves.
    holds_us: u64,
    /// The victims of the strike before.
    before: BTreeSet<u8>,
    /// Killed replicas that are not started.
    killed: BTreeSet<u8>,
    /// Replicas that are cut off, until when.
    cut: BTreeMap<u8, u64>,
    /// Marks of all replicas at the last strike, and now.
    then: Vec<Marks>,
    pub(super) marks: Vec<Marks>,
    leader_then: Option<u8>,
    pub(super) promise: Tolerates,
}

impl<W: Workload> Run<W> {
    /// The episode `number` is a chain of strikes.
    pub(super) fn begin_chain(&mut self, number: u64) {
        self.chain.rest = strikes::chain(self.seed, number, &self.options).into();
        self.chain.before.clear();
        self.facts.only_computes = false;
        self.lasting += 1;
        let after_us = stream(self.seed, 3000 + number).within(50_000, 1_000_000);
        self.chain.stage = ChainStage::Due { at_us: self.now_us + after_us, after: Trigger::AtOnce };
        self.at(after_us, Event::Nothing);
        self.phase = Phase::Episode { ends_us: self.now_us };
    }

    /// A replica made a step, or ended.
    pub(super) fn mark(&mut self, replica: u8) {
        if !self.options.chains && !self.options.copies {
            return;
        }
        self.chain.marks.resize_with(self.slots.len(), Marks::default);
        let process = self.slots[usize::from(replica)].process.as_ref();
        let now = process.map_or_else(Marks::default, |process| process.replica.marks());
        let leads = self.leader().map(|leader| self.chain.marks[usize::from(leader)].clone());
        let before = std::mem::replace(&mut self.chain.marks[usize::from(replica)], now.clone());
        if now.copied != before.copied {
            self.trace.record(self.now_us, format_args!("{} copies {:?}", ReplicaId(replica), now.copied));
        }
        let (sum, bit) = (&mut self.summary.chains, 1_u16 << replica);
        sum.offered += u64::from(now.offered > before.offered);
        let had_some = before.arrived.is_some_and(|(_, all)| all > 1);
        sum.installed += u64::from(had_some && now.arrived.is_none() && process.is_some());
        let Some(leads) = leads else { return };
        let is_past = |one: &Marks| {
            let engine_status = &one.engine_status;
            engine_status.last_index > 0 && engine_status.last_index + 1 < leads.engine_status.first_index
        };
        sum.past_log += u64::from(is_past(&now) && !is_past(&before));
        let joined = |one: &Marks| one.executors & bit != 0 || one.engine_status.members.voters & bit != 0;
        let is_new = joined(&now) && !joined(&before);
        sum.joined_behind += u64::from(is_new && now.executed < leads.executed);
    }

    /// The replica that leads, of those that are there.
    pub(super) fn leader(&self) -> Option<u8> {
        let leads = |replica: &u8| {
            let marks = self.chain.marks.get(usize::from(*replica));
            self.is_there(*replica) && marks.is_some_and(|marks| marks.engine_status.is_leader)
        };
        let term = |replica: &u8| self.chain.marks[usize::from(*replica)].engine_status.term;
        (0..self.options.replicas).filter(leads).max_by_key(term)
    }

    /// Whether a replica runs and is connected.
    fn is_there(&self, replica: u8) -> bool {
        let slot = &self.slots[usize::from(replica)];
        slot.process.is_some() && slot.paused_us <= self.now_us && !self.chain.cut.contains_key(&replica)
    }

    /// How many further replicas may fail, as the group says; no more than f can be away at a time, also before
    /// another one has noticed that one is.
    fn spared(&self) -> u64 {
        let away = (0..self.options.replicas).filter(|replica| !self.is_there(*replica)).count();
        if self.options.sabotage.iter().any(|(breach, _)| *breach == Breach::Boasts) {
            return self.facts.faults() as u64;
        }
        let (said, _) = self.said();
        said.min((self.facts.faults().saturating_sub(away)) as u64)
    }

    /// How many further replicas may fail, as the leader says, and why not more; none may without a leader.
    pub(super) fn said(&self) -> (u64, Option<String>) {
        let leads = self.leader().and_then(|leader| self.slots[usize::from(leader)].process.as_ref());
        let Some(process) = leads else { return (0, Some("nobody leads".to_owned())) };
        let status = process.replica.status();
        (u64::from(status.tolerates), status.tolerates_why)
    }

    /// The chain goes on, if it is time.
    pub(super) fn go_on_with_chain(&mut self) {
        if self.chain.stage == ChainStage::Idle {
            return;
        }
        self.end_cuts();
        match self.chain.stage {
            ChainStage::Idle => {}
            ChainStage::Waiting { since_us } => self.wait_for_trigger(since_us),
            ChainStage::Rising { since_us, requested_us } if self.now_us >= requested_us + ASK_US => {
                self.chain.stage = ChainStage::Rising { since_us, requested_us: self.now_us };
                if self.spared() > 0 {
                    self.due(Trigger::Tolerated);
                } else if self.now_us > since_us + GIVES_UP_US {
                    self.summary.chains.given_up += 1;
                    self.chain.rest.clear();
                    self.chain.stage = ChainStage::Holding { until_us: self.now_us };
                }
            }
            ChainStage::Rising { .. } => {}
            ChainStage::Due { at_us, after } if self.now_us >= at_us => self.strike_of_chain(after),
            ChainStage::Due { .. } => {}
            ChainStage::Watching { moved_us } => {
                if self.now_us >= moved_us + MOVE_US {
                    self.chain.stage = ChainStage::Watching { moved_us: self.now_us };
                    self.move_clients(false);
                }
                self.watch_chain();
            }
            ChainStage::Holding { until_us } if self.now_us >= until_us => self.let_back(),
            ChainStage::Holding { .. } => {}
            ChainStage::Ending => {
                let all = 0..self.options.replicas;
                if all.into_iter().all(|replica| self.slots[usize::from(replica)].paused_us <= self.now_us)
                    && self.chain.cut.is_empty()
                {
                    self.lasting -= 1;
                    self.chain.stage = ChainStage::Idle;
                }
            }
        }
    }

    fn due(&mut self, after: Trigger) {
        let delay_us = self.chain.rest.front().map_or(0, |strike| strike.delay_us);
        self.chain.stage = ChainStage::Due { at_us: self.now_us + delay_us, after };
        self.at(delay_us, Event::Nothing);
    }

    fn wait_for_trigger(&mut self, since_us: u64) {
        let Some(strike) = self.chain.rest.front() else { return };
        let after = strike.after;
        if self.has_come(after) {
            self.trace.record(self.now_us, format_args!("chain: {}", after.name()));
            self.due(after);
        } else if !self.chain.before.iter().all(|one| self.is_there(*one)) {
            self.chain.stage = ChainStage::Waiting { since_us: self.now_us };
        } else if self.now_us > since_us + TRIGGER_US {
            self.chain.stage = ChainStage::Rising { since_us: self.now_us, requested_us: 0 };
        }
    }

    /// Whether the group has come so far.
    fn has_come(&self, trigger: Trigger) -> bool {
        let Chain { before, marks, then, leader_then, .. } = &self.chain;
        let leader = self.leader();
        let Some(leads) = leader.map(|leader| &marks[usize::from(leader)]) else { return false };
        let of = |one: u8| (&marks[usize::from(one)], &then[usize::from(one)], 1_u16 << one);
        let back = || before.iter().copied().filter(|one| self.is_there(*one));
        let lags = |one: u8, most: u64| {
            let (now, _, _) = of(one);
            now.executed > 0 && now.executed + most >= leads.executed
        };
        let is_voter = |one: &Marks, bit: u16| (one.engine_status.members.voters | one.executors) & bit != 0;
        match trigger {
            Trigger::AtOnce | Trigger::Tolerated => true,
            Trigger::Resumed => back().next().is_some(),
            Trigger::Lags(most) => back().any(|one| lags(one, most)),
            Trigger::PastLog => back().any(|one| {
                let last = of(one).0.engine_status.last_index;
                last > 0 && last + 1 < leads.engine_status.first_index
            }),
            Trigger::Offered => marks.iter().zip(then).any(|(now, then)| now.offered > then.offered),
            Trigger::Pieces => marks.iter().any(|one| one.arrived.is_some_and(|(some, _)| some > 0)),
            Trigger::Installed => back().any(|one| {
                let (now, then, _) = of(one);
                now.arrived.is_none() && now.executed > then.executed + 8
            }),
            Trigger::Removed => before.iter().any(|one| {
                let members = leads.engine_status.members;
                (members.voters | members.learners) >> one & 1 == 0
            }),
            Trigger::Learner => before.iter().any(|one| leads.engine_status.members.learners >> one & 1 == 1),
            Trigger::Joined => back().any(|one| is_voter(leads, of(one).2)),
            Trigger::Promised => marks.iter().any(|one| one.has_promised),
            Trigger::NewLeader => leader != *leader_then,
        }
    }

    /// The next strike, at as many replicas as may fail now.
    fn strike_of_chain(&mut self, after: Trigger) {
        let most = self.spared();
        let unpermitted = if most == 0 { self.unpermitted_victim() } else { None };
        if most == 0 && unpermitted.is_none() {
            self.chain.stage = ChainStage::Rising { since_us: self.now_us, requested_us: self.now_us };
            return;
        }
        let Some(strike) = self.chain.rest.pop_front() else { return };
        let victims = unpermitted.map_or_else(|| self.victims_of(&strike, most), |one| BTreeSet::from([one]));
        self.strike_at(victims, &strike, most, after);
    }

    /// The victims of a strike where `most` may fail.
    fn victims_of(&self, strike: &Strike, most: u64) -> BTreeSet<u8> {
        let leader = self.leader();
        let mut order: Vec<u8> = (0..self.options.replicas).filter(|one| self.is_there(*one)).collect();
        let is_last = |one: &u8| match strike.whom {
            Whom::Leader => Some(*one) != leader,
            Whom::Follower => Some(*one) == leader,
            Whom::Before => !self.chain.before.contains(one),
        };
        order.sort_by_key(is_last);
        order.truncate(if strike.all { most as usize } else { 1 });
        BTreeSet::from_iter(order)
    }

    /// The victim of a strike that comes at times although the group says that none may fail: without it, f+1 voters
    /// are left which are there with their memory, and one of them has every committed entry.
    fn unpermitted_victim(&self) -> Option<u8> {
        let strike = self.chain.rest.front()?;
        let mut draws = stream(self.seed, 4000 + self.next_episode * 16 + self.chain.rest.len() as u64);
        if self.options.verified || !draws.chance(500) || strike.blow == Blow::Lose {
            return None;
        }
        let leader = self.leader()?;
        let leads = &self.chain.marks[usize::from(leader)].engine_status;
        let is_voter = |one: &u8| {
            let process = self.slots[usize::from(*one)].process.as_ref();
            let has_memory = process.is_some_and(|process| process.replica.status().incarnation > 0);
            self.is_there(*one) && has_memory && leads.members.voters >> one & 1 == 1
        };
        let there: Vec<u8> = (0..self.options.replicas).filter(is_voter).collect();
        let goes_on_without = |victim: &u8| {
            let left = || there.iter().filter(|one| *one != victim);
            let last = |one: &u8| self.chain.marks[usize::from(*one)].engine_status.last_index;
            left().count() > self.facts.faults() && left().any(|one| last(one) >= leads.last_index)
        };
        let preferred = self.victims_of(strike, self.slots.len() as u64);
        let mut candidates: Vec<u8> = preferred.into_iter().collect();
        candidates.sort_by_key(|one| (*one == leader) != (strike.whom == Whom::Leader));
        candidates.into_iter().find(goes_on_without)
    }

    fn strike_at(&mut self, victims: BTreeSet<u8>, strike: &Strike, most: u64, after: Trigger) {
        let leader = self.leader();
        let named: Vec<String> = victims.iter().map(|one| ReplicaId(*one).to_string()).collect();
        let what = format!("{:?} after {}", strike.blow, after.name());
        self.trace.record(
            self.now_us,
            format_args!("STRIKE {what} at {}: the group says that {most} may fail", named.join(", ")),
        );
        *self.summary.chains.strikes.entry(after.name().to_owned()).or_default() += 1;
        self.chain.leader_then = leader;
        self.chain.then = self.chain.marks.clone();
        self.chain.promise.disturb();
        self.facts.disturbed = true;
        self.facts.chain_victims.extend(&victims);
        self.slots.iter_mut().for_each(|slot| slot.calm_us = slot.calm_us.max(self.now_us));
        victims.iter().for_each(|victim| self.hit(*victim, strike));
        self.chain.holds_us = if strike.blow == Blow::Kill { strike.lasts_us } else { 0 };
        let first = self.facts.sent_commands.len();
        self.chain.before = victims.clone();
        self.chain.promise.strike(ChainStrike {
            at_us: self.now_us,
            first,
            victims,
            said: most,
            after: what,
        });
        self.chain.stage = ChainStage::Watching { moved_us: self.now_us };
        self.move_clients(true);
    }

    fn hit(&mut self, victim: u8, strike: &Strike) {
        self.slots[usize::from(victim)].faults_since_equal.insert(SimFault::Crash);
        match strike.blow {
            Blow::Kill => {
                self.chain.killed.insert(victim);
                self.stop(victim, FOR_GOOD_US);
            }
            Blow::Lose => {
                self.stop(victim, 0);
                if let Some(storage) = &self.slots[usize::from(victim)].storage {
                    storage.wipe();
                }
            }
            Blow::Pause => {
                let until_us = self.now_us + strike.lasts_us;
                let slot = &mut self.slots[usize::from(victim)];
                slot.paused_us = slot.paused_us.max(until_us);
                slot.calm_us = slot.calm_us.max(until_us);
                self.at(strike.lasts_us, Event::Nothing);
            }
            Blow::Cut => {
                self.set_blocked(victim, SimFault::Partition, true);
                self.chain.cut.insert(victim, self.now_us + strike.lasts_us);
                self.slots[usize::from(victim)].calm_us = self.now_us + strike.lasts_us;
                self.at(strike.lasts_us, Event::Nothing);
            }
        }
    }

    fn end_cuts(&mut self) {
        let now_us = self.now_us;
        let over: Vec<u8> =
            self.chain.cut.iter().filter(|(_, at)| **at <= now_us).map(|(one, _)| *one).collect();
        for victim in over {
            self.chain.cut.remove(&victim);
            self.set_blocked(victim, SimFault::Partition, false);
            // The other victims that are still cut off stay so.
            let cut: Vec<u8> = self.chain.cut.keys().copied().collect();
            cut.into_iter().for_each(|other| self.set_blocked(other, SimFault::Partition, true));
        }
    }

    /// Clients of the victims go to the others, whose addresses they know; after a strike every second client does, so
    /// that somebody asks for something new.
    fn move_clients(&mut self, all: bool) {
        let there: Vec<u8> = (0..self.options.replicas).filter(|one| self.is_there(*one)).collect();
        for number in 0..self.clients.len() {
            let at = self.clients[number].replica;
            let leaves = !there.contains(&at) || (all && number % 2 == 0);
            if leaves && !there.is_empty() {
                let to = there[number / 2 % there.len()];
                self.hang_up(number);
                self.move_on(number);
                self.clients[number].replica = to;
            }
        }
    }

    /// A command's answer has reached its client.
    pub(super) fn answer_in_chain(&mut self, number: usize, replica: u8) {
        if let Some(gap_us) = self.chain.promise.answered(number, replica, self.now_us) {
            let longest_us = &mut self.summary.chains.longest_gap_us;
            *longest_us = gap_us.max(*longest_us);
            self.trace.record(self.now_us, format_args!("chain: the group serves after {gap_us} us"));
        }
    }

    /// Whether the rest of the group serves by now.
    fn watch_chain(&mut self) {
        let mut promise = std::mem::take(&mut self.chain.promise);
        let about = promise.about();
        let looked = promise.look(self.now_us, || self.stands());
        self.chain.promise = promise;
        self.judge(about, looked);
        if !self.chain.promise.waits() {
            let holds_us = self.chain.holds_us;
            self.chain.stage = ChainStage::Holding { until_us: self.now_us + holds_us };
            self.at(holds_us, Event::Nothing);
        }
    }

    /// The state of each replica, as text.
    fn stands(&self) -> String {
        let of = |replica: u8| {
            let name = ReplicaId(replica);
            let Some(process) = &self.slots[usize::from(replica)].process else {
                return format!("{name} is not there");
            };
            if !self.is_there(replica) {
                return format!("{name} is stopped or cut off");
            }
            let (status, marks) = (process.replica.status(), process.replica.marks());
            format!(
                "{name} is {:?}, leader {:?}, log {}..{}, committed {}, executed {}, view {:?}, executors {:b}, \
                    waits {:?}",
                status.phase,
                status.leader,
                marks.engine_status.first_index,
                marks.engine_status.last_index,
                marks.engine_status.commit_index,
                status.executed,
                status.verification.as_ref().map(|one| one.view),
                marks.executors,
                status.waits_for
            )
        };
        (0..self.options.replicas).map(of).collect::<Vec<_>>().join("; ")
    }

    /// The group serves without the killed replicas: they start again, or never.
    fn let_back(&mut self) {
        if self.chain.rest.is_empty() && self.ends_with_core() {
            return self.leave_core();
        }
        for replica in std::mem::take(&mut self.chain.killed) {
            self.slots[usize::from(replica)].starts_us = self.now_us + 1;
            let slot = &mut self.slots[usize::from(replica)];
            slot.calm_us = slot.calm_us.max(self.now_us);
        }
        self.chain.stage = match self.chain.rest.is_empty() {
            true => ChainStage::Ending,
            false => ChainStage::Waiting { since_us: self.now_us },
        };
    }

    /// Whether the victims of the last chain stay away for ever: after one seed in three.
    fn ends_with_core(&self) -> bool {
        self.seed.is_multiple_of(3)
            && self.next_episode >= self.options.episodes
            && self.options.until.is_none()
    }

    /// The liveness phase: what is away stays away, and the rest answers every client.
    fn leave_core(&mut self) {
        let gone: BTreeSet<u8> = (0..self.options.replicas).filter(|one| !self.is_there(*one)).collect();
        self.trace.record(self.now_us, format_args!("{} replicas stay away for ever", gone.len()));
        for replica in &gone {
            let slot = &mut self.slots[usize::from(*replica)];
            (slot.paused_us, slot.starts_us) = (u64::MAX / 2, u64::MAX / 2);
        }
        self.chain.cut.values_mut().for_each(|until_us| *until_us = u64::MAX / 2);
        self.facts.gone = gone;
        self.lasting -= 1;
        self.chain.stage = ChainStage::Idle;
        self.move_clients(false);
        self.finish_up();
    }
}
