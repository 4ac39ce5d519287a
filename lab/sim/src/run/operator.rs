//! Losses of more memories than the group survives, and the operator's decision: as with `crosscheck group`, after a
//! check of every replica.

use std::collections::BTreeSet;

use crosscheck::admin::{AdminCommand, ReplicaPhase, SettingChange, Status};
use crosscheck::faults::Sabotage;
use wire::ReplicaId;

use super::{Breach, Event, ReplicaSlot, Run};
use crate::fault::SimFault;
use crate::plan::Stroke;
use crate::promises;
use crate::reference::Reference;
use crate::rng::stream;
use crate::workload::{CommandSource, Workload};

/// Time for which all replicas are up and some do not serve before the operator decides: replicas that can come back by
/// themselves have done so.
const PATIENCE_US: u64 = 5_000_000;
/// Time between two checks of the operator.
const LOOK_US: u64 = 100_000;

/// The operator of a group that may have lost more than it survives.
#[derive(Debug, Default)]
pub(super) struct Operator {
    /// More may be lost than the group survives: an operator decides, and the decision breaks no promise.
    may_decide: bool,
    /// The operator checks the replicas although no decision should be needed.
    looks: bool,
    looks_us: u64,
    /// The time since which waiting has had no effect.
    since_us: Option<u64>,
    /// The replica, from 0, with whose data the group continues.
    kept: Option<u8>,
    /// A machine that serves was to be replaced.
    has_moved: bool,
    /// Processes of replicas that got this decision.
    reported: BTreeSet<(u8, u64)>,
}

impl<W: Workload> Run<W> {
    /// A replica is about to lose its memory, and its disk.
    pub(super) fn lose_memory(&mut self, stroke: &Stroke) {
        let Stroke { victim, fault, seed, .. } = *stroke;
        let mut draws = stream(seed, 8);
        self.operator.may_decide = true;
        let longest_us = match fault {
            SimFault::Memories if !self.leaves_everything(victim) => {
                self.lasting += 1;
                return self.at(1_000, Event::Lost(stroke.clone()));
            }
            SimFault::Memories => 2_000_000,
            _ => 500_000,
        };
        self.stop(victim, draws.modulo(longest_us));
        let is_lost = fault == SimFault::Memories || draws.chance(500);
        if let (Some(storage), true) = (&self.slots[usize::from(victim)].storage, is_lost) {
            storage.wipe();
        }
    }

    /// `crosscheck group replace 1` at the last replica, if that vouches for what it has not seen: the machine of
    /// replica 1 serves, and there is no other one. The others have to see that.
    fn replace_a_machine(&mut self) {
        let vouches = |breach: Breach| matches!(breach, Breach::Pipeline(Sabotage::VouchesUnseen));
        let is_due =
            !self.operator.has_moved && self.options.sabotage.iter().any(|(breach, _)| vouches(*breach));
        let serves =
            |slot: &ReplicaSlot<W>| slot.process.as_ref().is_some_and(|process| process.replica.serves());
        if is_due && self.slots.iter().all(serves) {
            self.operator.has_moved = true;
            self.trace.record(self.now_us, format_args!("operator: group replace 1"));
            let command = AdminCommand::ReplaceMachine { replica: 1, address: "10.9.9.9:9".into() };
            self.send_admin(self.options.replicas - 1, command);
        }
    }

    /// Whether a majority is left without this replica, or a replica that has every batch that any replica has taken
    /// from the order: only then can an operator keep all acknowledged data. If it is not so, the loss is tried again a
    /// moment later.
    fn leaves_everything(&self, victim: u8) -> bool {
        let others = (0u8..).zip(&self.slots).filter(|(number, _)| *number != victim);
        let left: Vec<u64> = others
            .filter_map(|(_, slot)| Some(slot.process.as_ref()?.replica.status()))
            .filter(|status| status.phase == ReplicaPhase::Serving)
            .map(|status| status.executed)
            .collect();
        let most = left.iter().max().copied().unwrap_or(u64::MAX);
        left.len() > self.facts.faults() || most >= self.facts.last_batch
    }

    /// An operator checks the replicas, and makes the decision that they cannot make.
    pub(super) fn decide(&mut self) {
        self.replace_a_machine();
        let Operator { may_decide, looks, looks_us, .. } = self.operator;
        if !(may_decide || looks) || self.now_us < looks_us {
            return;
        }
        self.operator.looks_us = self.now_us + LOOK_US;
        let seen: Option<Vec<Status>> =
            self.slots.iter().map(|slot| Some(slot.process.as_ref()?.replica.status())).collect();
        let serves = |status: &Status| status.phase == ReplicaPhase::Serving && status.leader.is_some();
        let Some(seen) = seen.filter(|seen| self.lasting == 0 && !seen.iter().all(serves)) else {
            self.operator.since_us = None;
            return;
        };
        if let Some(kept) = self.operator.kept {
            return self.send_kept(kept, &seen);
        }
        if self.now_us < *self.operator.since_us.get_or_insert(self.now_us) + PATIENCE_US {
            return;
        }
        self.operator.since_us = None;
        if !may_decide {
            return self.miss_all_data(&seen);
        }
        let with_data = || seen.iter().filter(|status| status.incarnation > 0);
        let has_most =
            with_data().max_by_key(|status| (status.phase == ReplicaPhase::Serving, status.executed));
        let all_data = |most: &Status| most.executed >= self.facts.last_batch;
        if let Some(advised) = has_most.filter(|most| all_data(most)).and_then(|_| advised(&seen)) {
            self.judge_advice(advised);
            return self.keep(advised, &seen);
        }
        match (seen.iter().find_map(|status| status.leader), has_most) {
            // It leads those that have no state, and is the only one that has it.
            (Some(leader), _) => self.keep(leader - 1, &seen),
            (None, Some(most))
                if most.phase == ReplicaPhase::Serving && most.executed >= self.facts.last_batch =>
            {
                self.keep(most.replica - 1, &seen);
            }
            (None, Some(_)) => {
                // Not all acknowledged data is there: this operator begins the group again.
                let with_data: Vec<u8> = with_data().map(|status| status.replica - 1).collect();
                with_data.into_iter().for_each(|replica| self.give_up_data(replica));
            }
            (None, None) => self.begin_group(),
        }
    }

    /// All power was lost at once: the operator checks, although logs on disk survive that.
    pub(super) fn look_after_blackout(&mut self) {
        self.operator.looks = true;
    }

    /// Whether no replica has more than the one that is to be kept.
    fn judge_advice(&mut self, advised: u8) {
        let end = |slot: &ReplicaSlot<W>| {
            let engine_status = slot.process.as_ref().map(|process| process.replica.marks().engine_status)?;
            Some((engine_status.incarnation?, engine_status.last_term, engine_status.last_index))
        };
        let ends: Vec<Option<(u64, u64)>> =
            self.slots.iter().map(|slot| end(slot).map(|(_, term, index)| (term, index))).collect();
        let has = ends[usize::from(advised)];
        let most = ends.iter().max().copied().flatten();
        if has < most {
            let replica = ReplicaId(advised);
            let how = format!(
                "the operator is told that no replica has more than {replica}: it has {has:?} (term, entry), and \
                    one has {most:?}"
            );
            self.broken(promises::ADVICE, how);
        }
    }

    /// There is nothing to decide, unless no replica has any data.
    fn miss_all_data(&mut self, seen: &[Status]) {
        if seen.iter().all(|status| status.incarnation == 0) {
            self.broken(promises::about("survives"), "no replica has any data any more".to_owned());
        }
    }

    /// `crosscheck group keep`, for the first time.
    fn keep(&mut self, kept: u8, seen: &[Status]) {
        self.trace.record(self.now_us, format_args!("operator: group keep {}", ReplicaId(kept)));
        self.operator.kept = Some(kept);
        self.send_admin(kept, AdminCommand::KeepState { replica: kept + 1 });
        self.send_kept(kept, seen);
    }

    /// Each process that does not serve gets the decision once.
    fn send_kept(&mut self, kept: u8, seen: &[Status]) {
        for status in seen {
            let replica = status.replica - 1;
            let incarnation = (replica, self.slots[usize::from(replica)].incarnation);
            let needs_it = status.leader.is_none()
                || matches!(status.phase, ReplicaPhase::Starting | ReplicaPhase::Joining);
            if replica != kept && needs_it && self.operator.reported.insert(incarnation) {
                self.send_admin(replica, AdminCommand::KeepState { replica: kept + 1 });
            }
        }
    }

    /// `crosscheck group begin`. The earlier data is lost, and is not expected any more.
    fn begin_group(&mut self) {
        self.trace.record(self.now_us, format_args!("operator: group begin"));
        self.send_admin(0, AdminCommand::BeginGroup);
        self.facts.begin_anew();
        if let Err(how) = self.model.compare_rest() {
            self.broken(promises::about("replies"), how);
        }
        self.model.clear();
        self.clients.iter_mut().for_each(|client| client.source.forget());
        self.digests.clear();
        self.promises = self.workload.promises();
    }

    /// A process ends, and the next one starts empty.
    fn give_up_data(&mut self, replica: u8) {
        self.trace
            .record(self.now_us, format_args!("operator: gives up what replica {} has", ReplicaId(replica)));
        self.stop(replica, 0);
        if let Some(storage) = &self.slots[usize::from(replica)].storage {
            storage.wipe();
        }
    }

    /// `crosscheck group set reads`, in runs whose group is founded with reads that take no batch: each of the two
    /// values, while faults are injected and requests are under way.
    pub(super) fn set_reads(&mut self, more: u64) {
        let mut draws = stream(self.seed, 300 + self.facts.last_batch);
        let value = ["batch", "local"][usize::from(more.is_multiple_of(2))];
        let replica = draws.modulo(u64::from(self.options.replicas)) as u8;
        self.trace
            .record(self.now_us, format_args!("operator: group set reads {value} at {}", ReplicaId(replica)));
        let change = Some(SettingChange { name: "reads".to_owned(), value: value.to_owned() });
        self.send_admin(replica, AdminCommand::Settings { change });
        if more > 0 {
            self.at(draws.within(1_000, 400_000), Event::SetReads { more: more - 1 });
        }
    }

    fn send_admin(&mut self, replica: u8, command: AdminCommand) {
        let slot = &mut self.slots[usize::from(replica)];
        if let Some(process) = &mut slot.process {
            // The answer is ignored; the next check shows the result.
            let _answer = process.replica.call(command);
            slot.wake_us = slot.wake_us.min(self.now_us);
        }
    }
}

/// The replica, from 0, that the status of one of them names for `crosscheck group keep`.
fn advised(seen: &[Status]) -> Option<u8> {
    const COMMAND: &str = "`crosscheck group keep ";
    seen.iter().find_map(|status| {
        let (_, rest) = status.waits_for.as_deref()?.split_once(COMMAND)?;
        rest.split_once('`')?.0.parse::<u8>().ok()?.checked_sub(1)
    })
}
