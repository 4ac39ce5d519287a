//! Episodes that hit a copy of the state at each of its steps (`copy_strikes.rs`).
//!
//! *Why a correct copy still exists.* No more than f replicas are away, have lost their memory, or have corrupted
//! objects: of three replicas no donor's objects are corrupted. What is corrupted in a copy is in no state: without f+1
//! equal copies the receiver waits for the next one. So besides the receiver no more than f replicas are hit, and the
//! leader is not left alone with a corrupted copy: its word would do.
//!
//! With logs on disk every replica writes the copy that it makes there. If it is corrupted, nobody sees that before
//! this replica starts again, with a wrong state. Until its disk is lost, which an episode does next, its end counts as
//! that.

use std::collections::{BTreeSet, VecDeque};

use crosscheck::admin::{Corruption, Inject};
use crosscheck::stepped::Marks;
use wire::{ReplicaId, SplitMix64};

use super::{Event, Phase, ReplicaSlot, Run};
use crate::copy_strikes::{self, CopyBlow, CopyMoment, CopyStrike, CopyVictim};
use crate::fault::{SimFault, rests};
use crate::rng::stream;
use crate::workload::Workload;

/// Microseconds for which an episode waits for the step of a strike: not every copy comes to each.
const STEP_US: u64 = 3_000_000;

/// The corruptions of a copy: one that has found no occasion is disarmed when all heals.
pub(super) const OF_COPIES: [Corruption; 6] = [
    Corruption::Unnamed,
    Corruption::Cursor,
    Corruption::Part,
    Corruption::Piece,
    Corruption::Skip,
    Corruption::Twice,
];

/// The strikes at a copy in an episode.
#[derive(Debug, Default)]
pub(super) struct CopyStrikes {
    is_running: bool,
    rest: VecDeque<CopyStrike>,
    /// What makes the receiver need a state, and when.
    first: Option<(CopyBlow, u64)>,
    /// Since when the next one waits; when it comes, once its step has come.
    since_us: u64,
    due_us: Option<u64>,
    /// The replica that needs a state.
    receiver: u8,
    /// Other replicas that were hit.
    others: BTreeSet<u8>,
    /// Replicas that have lost their state, or whose objects are corrupted.
    lost: BTreeSet<u8>,
    /// Replicas that have written a corrupted copy to their own disks. Their memories are right.
    unsound: BTreeSet<u8>,
    /// Marks of all replicas before the last strike.
    then: Vec<Marks>,
}

impl<W: Workload> Run<W> {
    /// The episode `number` hits a copy of the state.
    pub(super) fn begin_copy(&mut self, number: u64) {
        let mut episode = copy_strikes::episode(self.seed, number, &self.options);
        let unsound = std::mem::take(&mut self.copy_strikes.unsound);
        let mut receiver = (episode.receiver % self.slots.len() as u64) as u8;
        if let Some(victim) = unsound.first() {
            (receiver, episode.first) = (*victim, CopyBlow::Lose);
        }
        self.copy_strikes = CopyStrikes {
            is_running: true,
            rest: episode.strikes.into(),
            since_us: self.now_us,
            receiver,
            unsound,
            then: self.chain.marks.clone(),
            ..CopyStrikes::default()
        };
        self.facts.only_computes = false;
        self.lasting += 1;
        self.phase = Phase::Episode { ends_us: self.now_us };
        // Where too many verifiers have no memory yet, the first one that ends would be one too many.
        let after_us = if self.options.verified { 300_000 + episode.receiver % 700_000 } else { 0 };
        self.copy_strikes.first = Some((episode.first, self.now_us + after_us));
        if after_us > 0 {
            self.at(after_us, Event::Nothing);
        }
        self.strike_first(episode.receiver);
    }

    /// From now on the receiver needs a state, if it is time. False before.
    fn strike_first(&mut self, seed: u64) -> bool {
        match self.copy_strikes.first {
            Some((_, at_us)) if self.now_us < at_us => false,
            Some((blow, _)) => {
                (self.copy_strikes.first, self.copy_strikes.since_us) = (None, self.now_us);
                self.land(self.copy_strikes.receiver, blow, "first", &mut stream(seed, 8));
                true
            }
            None => true,
        }
    }

    /// The strikes go on, if it is time.
    pub(super) fn go_on_with_copy(&mut self) {
        if !self.copy_strikes.is_running {
            return;
        }
        if !self.strike_first(self.seed) {
            return;
        }
        let Some(strike) = self.copy_strikes.rest.front().copied() else {
            if self.slots.iter().all(|slot| slot.paused_us <= self.now_us) {
                self.copy_strikes.is_running = false;
                self.lasting -= 1;
            }
            return;
        };
        let CopyStrikes { due_us, since_us, .. } = self.copy_strikes;
        match due_us {
            Some(due_us) if self.now_us >= due_us => {
                self.copy_strikes.rest.pop_front();
                (self.copy_strikes.due_us, self.copy_strikes.since_us) = (None, self.now_us);
                self.strike_copy(&strike);
            }
            Some(_) => {}
            None if self.copy_has_come_to(strike.at) => {
                self.copy_strikes.due_us = Some(self.now_us + strike.delay_us);
                self.at(strike.delay_us, Event::Nothing);
            }
            None if self.now_us > since_us + STEP_US => {
                self.copy_strikes.rest.pop_front();
                self.copy_strikes.since_us = self.now_us;
            }
            None => {}
        }
    }

    /// Whether some copy that was not over before the last strike has come so far.
    fn copy_has_come_to(&self, moment: CopyMoment) -> bool {
        let (strikes, marks) = (&self.copy_strikes, &self.chain.marks);
        let Some(receiver) = marks.get(usize::from(strikes.receiver)) else { return false };
        match moment {
            CopyMoment::Parts(count) => {
                marks.iter().any(|one| one.copied.is_some_and(|(_, parts)| parts >= count))
            }
            CopyMoment::Made => {
                let before = strikes.then.iter().map(|one| one.offered).max().flatten();
                marks.iter().any(|one| one.offered > before)
            }
            CopyMoment::Arriving => receiver.arrived.is_some_and(|(some, all)| some > 0 && some < all),
            CopyMoment::Joining => {
                let leads = self.leader().map(|leader| marks[usize::from(leader)].engine_status.members);
                let is_voter = leads.is_some_and(|members| members.voters >> strikes.receiver & 1 == 1);
                receiver.executed > 0 && !is_voter
            }
        }
    }

    /// A strike comes, if so many replicas may be hit.
    fn strike_copy(&mut self, strike: &CopyStrike) {
        let Some(victim) = self.copy_victim(strike.whom) else { return };
        let CopyStrikes { receiver, others, lost, unsound, .. } = &self.copy_strikes;
        let faults = self.facts.faults();
        let loses = match strike.blow {
            CopyBlow::Kill => !self.options.disk || unsound.contains(&victim),
            CopyBlow::Lose => true,
            CopyBlow::Pause(_) | CopyBlow::Corrupt(_) => false,
        };
        let is_other = victim != *receiver && !others.contains(&victim);
        if others.len() + usize::from(is_other) > faults {
            return;
        }
        let is_lost = loses && !lost.contains(&victim);
        let is_spared = is_lost && lost.len() >= faults;
        let blow = match strike.blow {
            // While the receiver is away, or votes on nothing yet, it is one of f.
            CopyBlow::Corrupt(kind) if rests(kind) => {
                let faulty: BTreeSet<u8> = lost.iter().copied().chain([*receiver, victim]).collect();
                if faulty.len() > faults {
                    return;
                }
                strike.blow
            }
            _ if is_spared => CopyBlow::Pause(300_000 + strike.seed % 2_500_000),
            blow => blow,
        };
        self.land(victim, blow, strike.at.name(), &mut stream(strike.seed, 8));
    }

    fn copy_victim(&self, whom: CopyVictim) -> Option<u8> {
        let CopyStrikes { receiver, .. } = self.copy_strikes;
        let leader = self.leader();
        let is_there = |one: &u8| self.slots[usize::from(*one)].process.is_some();
        match whom {
            CopyVictim::Receiver => Some(receiver),
            CopyVictim::Leader => leader,
            CopyVictim::Follower => (0..self.options.replicas)
                .filter(|one| *one != receiver && Some(*one) != leader)
                .filter(is_there)
                .max_by_key(|one| self.chain.marks[usize::from(*one)].copied),
        }
    }

    fn land(&mut self, victim: u8, blow: CopyBlow, at: &str, draws: &mut SplitMix64) {
        let leader = self.leader();
        let whom = match victim {
            _ if victim == self.copy_strikes.receiver => "receiver",
            _ if Some(victim) == leader => "leader",
            _ => "donor",
        };
        let what = format!("{} of the {whom} at {at}", blow.name());
        self.trace.record(self.now_us, format_args!("STRIKE {what}: replica {}", ReplicaId(victim)));
        *self.summary.chains.strikes.entry(what).or_default() += 1;
        self.facts.disturbed = true;
        self.facts.chain_victims.insert(victim);
        self.copy_strikes.then = self.chain.marks.clone();
        if victim != self.copy_strikes.receiver {
            self.copy_strikes.others.insert(victim);
        }
        self.slots.iter_mut().for_each(|slot| slot.calm_us = slot.calm_us.max(self.now_us));
        self.slots[usize::from(victim)].faults_since_equal.insert(SimFault::Crash);
        match blow {
            CopyBlow::Kill | CopyBlow::Lose => {
                self.stop(victim, draws.modulo(500_000));
                let storage = self.slots[usize::from(victim)].storage.as_ref();
                let keeps_state = storage.is_some() && blow == CopyBlow::Kill;
                storage.filter(|_| !keeps_state).into_iter().for_each(|storage| storage.wipe());
                if !keeps_state || self.copy_strikes.unsound.contains(&victim) {
                    self.copy_strikes.lost.insert(victim);
                }
                if !keeps_state {
                    self.copy_strikes.unsound.remove(&victim);
                }
            }
            CopyBlow::Pause(us) => {
                let until_us = self.now_us + us;
                let slot = &mut self.slots[usize::from(victim)];
                slot.paused_us = slot.paused_us.max(until_us);
                slot.calm_us = slot.calm_us.max(until_us);
                self.at(us, Event::Nothing);
            }
            CopyBlow::Corrupt(kind) => self.corrupt_copy(victim, kind, draws),
        }
    }

    /// Corrupts what a replica makes of a copy, or an object that it copies.
    fn corrupt_copy(&mut self, victim: u8, kind: Corruption, draws: &mut SplitMix64) {
        let fault = SimFault::Corruption(kind);
        self.facts.corrupted.insert(victim);
        self.facts.victims.insert(victim);
        let count = self.summary.faults.entry(fault).or_default();
        count.tried += 1;
        if rests(kind) {
            self.copy_strikes.lost.insert(victim);
            let (object, seed) = (self.workload.object(draws), draws.next_u64());
            self.inject(victim, fault, Inject { kind, object, bit: None, member: None, seed });
        } else if let Some(process) = &self.slots[usize::from(victim)].process {
            count.injected += 1;
            process.replica.arm_next(kind, draws.next_u64());
            if self.options.disk && kind != Corruption::Piece {
                self.copy_strikes.unsound.insert(victim);
            }
        }
    }

    /// The copies of the state that are not over yet, as text: each one ends, whatever has happened to it.
    pub(super) fn open_copies(&self) -> String {
        let copied = |slot: &ReplicaSlot<W>| slot.process.as_ref()?.replica.marks().copied;
        let open = (1..).zip(self.slots.iter().map(copied)).filter(|_| self.options.copies);
        let shown =
            |(number, (_, parts)): (u8, (u64, u32))| format!("replica {number} has made {parts} parts; ");
        open.filter_map(|(number, copied)| Some((number, copied?))).map(shown).collect()
    }
}
