//! A replica that is wrong goes back and runs batches again; objects that are corrupted at rest come from another
//! replica before.
//!
//! A request that enters a corrupted object fails, and the replica knows that it is wrong before it sends a token: it
//! rolls back to the batch before. Otherwise it learns of it from the verifiers, and rolls back to the stable version.
//! A fault in the execution does not occur twice, so running again, one request at a time, is enough for it. If the
//! results differ again, all objects are checked, and the batches run some more times.
//!
//! A peer packs each object as it was after the batch to which this replica has rolled back
//! ([`Speculation::object_after`]). No peer is trusted: replaced objects have to fit the tree of that version. Only if
//! all of this fails, the replica takes a whole state: in place if possible (`whole_state.rs`), or else it replaces
//! itself.

use execute::Speculation;
use object::{ObjectId, RegionId};
use order::FrameKind;
use verify::{ExecutorEvent, Slots, Version};
use vote::Packed;

use super::repairing::{
    RepairStep, Repairing, in_one_message, is_among, is_answer_to, suspects, whole_regions,
};
use super::{RollingBack, Speculator, Verified, are_two, takes_states, unstable};
use crate::boundary::{BoundaryWork, PackingObjects, ReplacingObjects, Scrubbed, Scrubbing};
use crate::replica::core::Core;
use crate::service::Service;
use crate::transfer::Message;
use crate::world::{Observation, World};
use crate::{ReplaceReason, Stop, evidence, limits};

/// Why a replica is not repaired.
const DIFFERS: &str = "run again it differs too";

impl Verified {
    /// Whether batches run again to be compared with a version that was agreed on.
    pub(super) fn is_compared(&self) -> bool {
        self.repairing.as_ref().is_some_and(Repairing::is_compared)
    }

    /// The objects at which requests of unstable batches have failed.
    fn suspects(&self) -> Vec<(RegionId, ObjectId)> {
        suspects(self.unstable.iter().filter_map(|batch| batch.results.as_ref()).flatten())
    }
}

/// What the repair of objects acts on.
pub(super) struct ObjectRepair<'r, S: Service, W: World> {
    pub(super) stage: &'r mut Verified,
    pub(super) core: &'r mut Core<S, W>,
}

impl<S: Service, W: World> Speculator<'_, S, W> {
    /// The repair of objects.
    pub(super) fn repair(&mut self) -> ObjectRepair<'_, S, W> {
        ObjectRepair { stage: &mut *self.stage, core: &mut *self.core }
    }

    /// Whether the next batch is not folded, because requests of it have failed at corrupted objects. They are replaced
    /// first, and the batch runs again. After some attempts it is folded as it is: no other replica has its token.
    pub(super) fn finds_itself_wrong(&mut self) -> bool {
        let stage = &mut *self.stage;
        let Some(before) = stage.speculation.as_ref().map(Speculation::version) else { return false };
        let next = unstable(&mut stage.unstable, before.number + 1);
        let Some(next) = next.filter(|batch| batch.ended.is_some()) else { return false };
        let failed = suspects(next.results.iter().flatten());
        let objects = if failed.is_empty() { next.damaged.clone() } else { failed };
        let attempts = if stage.past.found_wrong.0 == before.number { stage.past.found_wrong.1 } else { 0 };
        if objects.is_empty() || stage.repairing.is_some() {
            return false;
        }
        if attempts >= limits::RUNS_AGAIN {
            return self.repair().yields_at(before.number + 1);
        }
        stage.past.found_wrong = (before.number, attempts + 1);
        if attempts >= limits::RUNS_AGAIN / 2 {
            // It may have to yield soon.
            self.repair().ask_health();
        }
        self.repair_at(before.number, Scrubbed { objects, fit: false });
        true
    }

    /// Goes back to the end of a batch that was folded, and replaces objects there that were found corrupted here.
    fn repair_at(&mut self, batch: u64, Scrubbed { objects, fit }: Scrubbed) {
        let since_us = self.core.env.world.now_us();
        self.stage.repairing =
            Some(Repairing { fit, ..Repairing::at(RepairStep::RollBack(objects), since_us) });
        self.roll_back(RollingBack { to: batch, view: None });
    }

    /// The own state after a batch is not the one that was agreed on.
    pub(super) fn on_diverged(&mut self, version: Version) {
        self.core.env.tally.mismatches += 1;
        self.core.env.world.see(Observation::Diverged(version));
        if self.stage.is_taking_state() {
            return;
        }
        let stage = &mut *self.stage;
        let stable = stage.stable();
        if stage.speculation.as_ref().is_some_and(|speculation| speculation.stable().number > stable) {
            return self.repair().give_up(Some(version), "it lags too far to go back");
        }
        let misplaced = stage.repairing.take().map_or_else(Vec::new, |repairing| repairing.misplaced);
        let step = RepairStep::RollBack([stage.suspects(), misplaced.clone()].concat());
        let since_us = self.core.env.world.now_us();
        let ran = unstable(&mut stage.unstable, version.number).map(|batch| batch.order.clone());
        stage.repairing = Some(Repairing { step, misplaced, ran, ..Repairing::of(Some(version), since_us) });
        self.roll_back(RollingBack { to: stable, view: None });
    }

    /// A batch has ended that ran again because this replica's state was not the agreed one.
    pub(super) fn on_ran_again(&mut self, version: Version) {
        let stage = &mut *self.stage;
        let wanted = stage.repairing.as_ref().and_then(|repairing| repairing.wanted);
        if wanted.is_none_or(|wanted| wanted.number > version.number) {
            return;
        }
        let suspects = stage.suspects();
        let order = unstable(&mut stage.unstable, version.number).map(|batch| batch.order.clone());
        let Some(repairing) = &mut stage.repairing else { return };
        let me = self.core.env.settings.me;
        if wanted == Some(version) {
            let was_this_batch = repairing.ran.is_none() || repairing.ran == order;
            let was_wrong = was_this_batch || repairing.replaced || repairing.runs > 0;
            self.core.env.tally.repairs += u64::from(was_wrong && !repairing.replaced);
            self.core.env.tally.own_faults += u64::from(was_wrong && !repairing.replaced);
            stage.repairing = None;
            if was_wrong {
                let outcome = "masked: the others agreed, and run again it has their state";
                self.core.env.keep_evidence(evidence::diverged(me, version.number, outcome));
            }
            return self.on_executor_event(ExecutorEvent::Installed(version));
        }
        repairing.runs += 1;
        repairing.step = if repairing.runs > limits::RUNS_AGAIN {
            return self.repair().give_up(Some(version), DIFFERS);
        } else if !suspects.is_empty() {
            RepairStep::RollBack(suspects)
        } else if repairing.scrubbed {
            // The state is right: a fault has hit the execution once more.
            RepairStep::RollBack(Vec::new())
        } else {
            RepairStep::RollBackAndScrub
        };
        let to = stage.stable();
        self.roll_back(RollingBack { to, view: None });
    }

    /// The objects of a region, or of all, were checked. Those that are corrupted are replaced.
    pub(super) fn on_scrubbed(&mut self, region_id: Option<RegionId>, Scrubbed { objects, fit }: Scrubbed) {
        if region_id.is_none() {
            self.repair().on_checked_for_the_other(&objects);
        }
        let stage = &mut *self.stage;
        let newest = stage.speculation.as_ref().map(|speculation| speculation.version().number);
        let Some(repairing) = &mut stage.repairing else {
            // If batches are being rolled back, the next scrub finds what is still there.
            if let (false, None, Some(newest)) = (objects.is_empty(), stage.rolling_back, newest) {
                self.repair_at(newest, Scrubbed { objects, fit });
            }
            return;
        };
        if region_id.is_some() || !matches!(repairing.step, RepairStep::RollBackAndScrub) {
            return;
        }
        repairing.fit = fit;
        match repairing.wanted {
            _ if !objects.is_empty() => self.repair().ask(objects),
            Some(_) => repairing.step = RepairStep::Runs,
            None => {
                stage.repairing = None;
                self.repair().count_in_vain();
            }
        }
    }
}

impl<S: Service, W: World> Speculator<'_, S, W> {
    /// Objects that were to be packed behind a batch are corrupted: they are replaced, and the batch runs again. A
    /// stable one does not.
    pub(super) fn on_damaged(&mut self, batch: u64, objects: Vec<(RegionId, ObjectId)>) {
        match unstable(&mut self.stage.unstable, batch) {
            Some(batch) => batch.damaged = objects,
            None => {
                let region_id = objects.first().map(|(region_id, _)| *region_id);
                self.on_scrubbed(region_id, Scrubbed { objects, fit: false });
            }
        }
    }
}

impl<S: Service, W: World> ObjectRepair<'_, S, W> {
    /// A peer's message about objects; others are returned.
    pub(super) fn on_message(&mut self, from: u8, message: Message) -> Option<Message> {
        match message {
            Message::AskObjects { batch, objects } => self.on_ask_objects(from, batch, objects),
            Message::Objects { batch, objects } => self.on_objects(from, batch, objects),
            Message::AskHealth { requested_us } => self.on_ask_health(from, requested_us),
            Message::Healthy { requested_us } => self.on_healthy(from, requested_us),
            other => return Some(other),
        }
        None
    }

    /// It cannot be repaired, and takes a whole state.
    fn give_up(&mut self, wanted: Option<Version>, why: &str) {
        if !self.is_dispensable() {
            return self.stay_wrong(wanted);
        }
        if let Some(version) = wanted {
            let outcome = format!("masked: the others agreed; {why}, and the replica takes their state");
            self.core.env.keep_evidence(evidence::diverged(
                self.core.env.settings.me,
                version.number,
                &outcome,
            ));
        }
        if takes_states(&self.core.env.settings) {
            return self.stage.give_up_state(true);
        }
        let diverged = |version: Version| ReplaceReason::Diverged { batch: version.number };
        let why = wanted.map_or(ReplaceReason::RepairsMissing, diverged);
        self.core.env.stop_with(Ok(Stop::Replace(why)));
    }

    /// It cannot be repaired, and no replica has a state to take now.
    fn stay_wrong(&mut self, wanted: Option<Version>) {
        if wanted.is_some() {
            let since_us = self.core.env.world.now_us();
            let repairing = self.stage.repairing.get_or_insert_with(|| Repairing::of(wanted, since_us));
            repairing.step = RepairStep::Waits;
        }
    }

    /// A repair has repaired nothing, for example because a store has an object too many and it is unknown which.
    fn count_in_vain(&mut self) {
        self.stage.past.in_vain += 1;
        self.ask_health();
        if self.stage.past.in_vain >= limits::REPAIRS_GIVEN_UP && self.is_dispensable() {
            self.stage.past.in_vain = 0;
            self.give_up(None, "repairs have repaired nothing");
        }
    }

    /// This replica has rolled back. Corrupted objects are replaced before batches run again.
    pub(super) fn seek_right_objects(&mut self) {
        let stage = &mut *self.stage;
        let Some(repairing) = &mut stage.repairing else { return };
        match &mut repairing.step {
            RepairStep::RollBack(objects) if objects.is_empty() => repairing.step = RepairStep::Runs,
            RepairStep::RollBack(objects) => {
                let objects = std::mem::take(objects);
                self.ask(objects);
            }
            RepairStep::RollBackAndCheck => self.check_oneself(),
            RepairStep::RollBackAndScrub => self.check_all(),
            _ => {}
        }
    }

    /// Checks all objects. Those that are found corrupted are asked for.
    fn check_all(&mut self) {
        if let Some(repairing) = &mut self.stage.repairing {
            (repairing.scrubbed, repairing.step) = (true, RepairStep::RollBackAndScrub);
            self.scrub(None);
        }
    }

    /// Checks a region, or all.
    pub(super) fn scrub(&mut self, region_id: Option<RegionId>) {
        let running = self.stage.running();
        self.lend(|speculation| BoundaryWork::Scrub(Box::new(Scrubbing { speculation, running, region_id })));
    }

    /// Asks for objects as they were after the batch to which this replica has rolled back.
    fn ask(&mut self, objects: Vec<(RegionId, ObjectId)>) {
        let (batch, at_us) = (self.stage.newest(), self.core.env.world.now_us());
        let objects = in_one_message(objects);
        if let Some(repairing) = &mut self.stage.repairing {
            let (asked, awaited) = (Slots::EMPTY, Slots::EMPTY);
            repairing.step = RepairStep::Asks { batch, objects, asked, awaited, at_us };
        }
        self.ask_next();
    }

    /// A connected peer that may have the objects and was not asked.
    fn next_to_ask(&self, asked: Slots) -> Option<u8> {
        let executors = self.core.env.settings.executors();
        let may_know = |peer: &u8| usize::from(*peer) < executors && !asked.contains(*peer);
        self.core.env.peers.connected().find(may_know)
    }

    /// Asks the next peer too. If all were asked and have answered, it asks them again after a while.
    fn ask_next(&mut self) {
        let now_us = self.core.env.world.now_us();
        let Some(Repairing { step: RepairStep::Asks { asked, .. }, .. }) = &self.stage.repairing else {
            return;
        };
        let next = self.next_to_ask(*asked);
        let Some(repairing) = &mut self.stage.repairing else { return };
        let RepairStep::Asks { batch, objects, asked, awaited, at_us } = &mut repairing.step else { return };
        if let Some(peer) = next {
            (*asked, *awaited, *at_us) = (asked.with(peer), awaited.with(peer), now_us);
            let message = Message::AskObjects { batch: *batch, objects: objects.clone() };
            return self.core.env.peers.send(peer, FrameKind::Transfer, &[&message.encode()]);
        }
        if !awaited.is_empty() {
            return;
        }
        let wanted = repairing.wanted;
        let is_alone = asked.is_empty();
        let objects = std::mem::take(objects);
        // Requests would not find misplaced objects wrong: with them it waits for another replica.
        let may_go_on = wanted.is_none() && repairing.misplaced.is_empty();
        if may_go_on && (is_alone || self.is_the_last()) {
            return self.go_on_as_the_last(&objects);
        }
        let Some(repairing) = &mut self.stage.repairing else { return };
        // The others may be repaired themselves, or not have come so far.
        repairing.runs += 1;
        let runs = repairing.runs;
        repairing.step = RepairStep::Pauses { objects, since_us: now_us };
        if runs > limits::RUNS_AGAIN * self.turns_to_yield() {
            self.give_up(wanted, "no other replica has the right objects");
        }
    }

    /// No peer had the right objects, and a while has passed: they are asked again. The other one of two is asked for
    /// the objects after the returned stable batch, to which this replica has to go back: it may not come to a later
    /// one, if it is wrong too.
    pub(super) fn seek_again(&mut self) -> Option<u64> {
        let (now_us, stable) = (self.core.env.world.now_us(), self.stage.stable());
        let Repairing { step, .. } = self.stage.repairing.as_mut()?;
        let RepairStep::Pauses { objects, since_us } = step else { return None };
        if now_us.saturating_sub(*since_us) <= limits::OBJECTS_PAUSE.as_micros() as u64 {
            return None;
        }
        if !are_two(&self.core.env.settings) {
            let objects = std::mem::take(objects);
            self.ask(objects);
            return None;
        }
        *step = RepairStep::RollBack(std::mem::take(objects));
        Some(stable)
    }

    /// The next scrub may be due, and a peer that does not answer is not waited for.
    pub(super) fn tick(&mut self) {
        self.scrub_next();
        self.tick_of_two();
        let now_us = self.core.env.world.now_us();
        let patience_us = limits::OBJECTS_PATIENCE.as_micros() as u64;
        self.answer_next();
        let Some(Repairing { step, wanted, .. }) = &mut self.stage.repairing else { return };
        if let RepairStep::Waits = step {
            let wanted = *wanted;
            return self.give_up(wanted, DIFFERS);
        }
        if let RepairStep::Asks { asked, awaited, at_us, .. } = step {
            let quiet_us = now_us.saturating_sub(*at_us);
            // It takes longer where a request does.
            let is_over = quiet_us > limits::OBJECTS_AGAIN.as_micros() as u64 && !self.stage.is_lent;
            *awaited = if is_over { Slots::EMPTY } else { *awaited };
            let asked = *asked;
            if is_over || (quiet_us > patience_us && self.next_to_ask(asked).is_some()) {
                self.ask_next();
            }
        }
    }

    /// A peer's answer.
    fn on_objects(&mut self, from: u8, batch: u64, objects: Vec<Packed>) {
        let Some(Repairing { step, .. }) = &mut self.stage.repairing else { return };
        let RepairStep::Asks { batch: wanted, objects: asked_for, awaited, at_us, .. } = step else { return };
        if batch != *wanted || !awaited.contains(from) {
            return;
        }
        if self.stage.is_lent {
            // It packs objects for another replica: the answer is handled when the boundary has ended.
            self.stage.answer = Some((from, batch, objects));
            return;
        }
        *awaited = awaited.without(from);
        if !is_answer_to(asked_for, &objects) {
            return self.ask_next();
        }
        // The boundary takes no longer than a batch.
        *at_us = self.core.env.world.now_us();
        let whole =
            asked_for.iter().filter(|(_, id)| id.is_none()).map(|(region_id, _)| *region_id).collect();
        self.lend(|speculation| {
            BoundaryWork::Replace(Box::new(ReplacingObjects { speculation, objects, whole }))
        });
    }

    /// These objects are others than the right ones now. That may be known only when the repair they were for is over,
    /// because a view has begun meanwhile: then another one begins, before any batch runs. Returns whether it does.
    pub(super) fn begins_for(&mut self, objects: Vec<(RegionId, ObjectId)>) -> bool {
        if objects.is_empty() || self.stage.is_taking_state() {
            return false;
        }
        let since_us = self.core.env.world.now_us();
        let begins = self.stage.repairing.is_none();
        let begin = || Repairing::at(RepairStep::RollBack(Vec::new()), since_us);
        let Repairing { misplaced, step, .. } = self.stage.repairing.get_or_insert_with(begin);
        misplaced.extend(objects);
        misplaced.sort_unstable();
        misplaced.dedup();
        if let RepairStep::RollBack(objects) = step {
            objects.extend(misplaced.iter().copied());
            objects.sort_unstable();
            objects.dedup();
        }
        begins
    }

    /// The objects of a peer were put in place.
    pub(super) fn on_replaced(&mut self, are_right: bool, misnamed: &[RegionId], notes: Vec<String>) {
        let Some(repairing) = &mut self.stage.repairing else { return };
        let Repairing { step, since_us, replaced, scrubbed, fit, misplaced, .. } = repairing;
        let RepairStep::Asks { objects, .. } = step else { return };
        if are_right {
            misplaced.retain(|object| !is_among(object, objects));
        }
        let is_of_two = are_two(&self.core.env.settings);
        if let Some(objects) = whole_regions(objects, misnamed).filter(|_| is_of_two) {
            return self.ask(objects);
        }
        if !are_right {
            return self.ask_next();
        }
        if !misplaced.is_empty() {
            let objects = misplaced.clone();
            return self.ask(objects);
        }
        if is_of_two && notes.is_empty() && !*scrubbed {
            // A request that lacks an object does not know in which of its regions that is.
            return self.check_all();
        }
        *step = RepairStep::Runs;
        *replaced = true;
        let (took_us, fitted) = (self.core.env.world.now_us().saturating_sub(*since_us), *fit);
        self.stage.repairing.take_if(|repairing| repairing.wanted.is_none());
        self.core.env.tally.failed_checks += notes.len() as u64;
        self.core.env.tally.repairs += notes.len() as u64;
        self.core.env.tally.own_faults += u64::from(!notes.is_empty());
        if notes.is_empty() {
            self.count_in_vain();
        } else {
            self.stage.past.in_vain = 0;
            self.stage.past.other_health.note_replaced();
            self.core.env.keep_evidence(evidence::replaced(
                self.core.env.settings.me,
                notes,
                fitted,
                took_us,
            ));
        }
    }

    /// Gives the batches that have ended to a boundary, which returns them.
    pub(super) fn lend(&mut self, work: impl FnOnce(Speculation) -> BoundaryWork) {
        let stage = &mut *self.stage;
        let Some(execution) = &mut self.core.executor.running else { return };
        if let Some(speculation) = stage.speculation.take() {
            stage.is_lent = true;
            execution.between_batches(work(speculation));
        }
    }

    /// A peer asks for objects as they were after a batch. Only its last question is answered.
    fn on_ask_objects(&mut self, from: u8, batch: u64, objects: Vec<(RegionId, ObjectId)>) {
        let of_two = self.core.env.settings.executors() == 2;
        if let Some(repairing) = self.stage.repairing.as_mut().filter(|_| of_two) {
            repairing.both_ask |= repairing.step.has_one_of(&objects);
        }
        self.stage.questions.insert(from, (batch, objects));
        self.answer_next();
    }

    /// Answers a question, unless a boundary has the batches.
    pub(super) fn answer_next(&mut self) {
        let stage = &mut *self.stage;
        if stage.is_lent || stage.rolling_back.is_some() {
            return;
        }
        // One that is ahead asks about a batch that has not ended here. It need not wait for a replica that is wrong.
        let newest = stage.speculation.as_ref().map(|speculation| speculation.version().number);
        let goes_on = newest.is_some() && stage.repairing.is_none();
        let is_due = |batch: u64| !goes_on || newest.is_some_and(|newest| batch <= newest);
        let next = stage.questions.iter().find(|(_, (batch, _))| is_due(*batch)).map(|(peer, _)| *peer);
        let next = next.and_then(|peer| stage.questions.remove_entry(&peer));
        let Some((to, (batch, objects))) = next else { return };
        if newest.is_none_or(|newest| batch > newest) || self.core.executor.running.is_none() {
            return self.answer(to, batch, Vec::new());
        }
        let running = stage.running();
        self.lend(|speculation| {
            BoundaryWork::Pack(Box::new(PackingObjects { speculation, running, batch, objects, to }))
        });
    }

    /// Sends what a peer asked for.
    pub(super) fn answer(&mut self, to: u8, batch: u64, objects: Vec<Packed>) {
        let message = Message::Objects { batch, objects };
        self.core.env.peers.send(to, FrameKind::Transfer, &[&message.encode()]);
        if let Some((from, batch, objects)) = self.stage.answer.take() {
            self.on_objects(from, batch, objects);
        }
        self.answer_next();
    }

    /// Checks the next region, if that is due and nothing else is in the way.
    fn scrub_next(&mut self) {
        let stage = &*self.stage;
        let Some(execution) = &self.core.executor.running else { return };
        let is_idle = stage.speculation.is_some() && stage.is_whole();
        if !self.core.env.settings.mode.guarded || !is_idle {
            return;
        }
        let region_id = self.core.scrubs.next_due(execution.locks(), self.core.env.world.now_us());
        if region_id.is_some() {
            self.scrub(region_id);
        }
    }
}
