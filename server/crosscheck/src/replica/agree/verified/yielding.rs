//! When one of two replicas gives up its state: never before the other one has checked its own.
//!
//! A replica yields that knows that it is wrong, and is not repaired by object. But an error may rest unnoticed in an
//! object of the other replica that no request enters, and the only right copy of that object is then here. So a
//! replica that is about to yield asks first. The other one checks all of its objects, has the corrupted ones replaced,
//! which come from here, and answers once all are right.
//!
//! Both must not yield: with both states, all that was acknowledged would be lost. So none yields while the other one
//! is not there, does not take part in the view, or asks for the same objects; and the primary waits some times longer
//! than the backup, so that it knows by then whether the backup has yielded.
//!
//! What is corrupted in the last state that is left cannot be replaced. The replica goes on with it, and replies of
//! requests that need these objects are withheld.

use object::{ObjectId, RegionId};
use order::FrameKind;

use super::other_health::{OtherHealth, turns_to_yield};
use super::repair::ObjectRepair;
use super::repairing::Repairing;
use super::{Verified, are_two, other_than, takes_states};
use crate::service::Service;
use crate::transfer::Message;
use crate::world::World;
use crate::{ReplaceReason, Stop, limits};

impl Verified {
    fn health(&mut self) -> &mut OtherHealth {
        &mut self.past.other_health
    }
}

impl<S: Service, W: World> ObjectRepair<'_, S, W> {
    /// This replica is one of two, and knows that it is wrong.
    pub(super) fn yield_to_the_other(&mut self, batch: u64) {
        self.stage.health().yields = Some(batch);
        if !self.is_dispensable() {
            return;
        }
        self.stage.health().yields = None;
        if takes_states(&self.core.env.settings) {
            self.stage.give_up_state(true);
        } else {
            self.core.env.stop_with(Ok(Stop::Replace(ReplaceReason::Diverged { batch })));
        }
    }

    /// Whether this replica is the backup of two, is to fold a batch in which it has found itself wrong, and yields
    /// instead. The primary folds it: it doubts itself later.
    pub(super) fn yields_at(&mut self, batch: u64) -> bool {
        let yields = are_two(&self.core.env.settings) && !self.leads() && self.is_dispensable();
        if yields {
            self.yield_to_the_other(batch);
        }
        yields
    }

    /// How many times as long as a backup this replica waits before it yields.
    pub(super) fn turns_to_yield(&self) -> u32 {
        turns_to_yield(are_two(&self.core.env.settings) && self.leads())
    }

    fn leads(&self) -> bool {
        let me = self.core.env.settings.me;
        self.stage.verifier.record().is_none_or(|record| record.lineup.primary == me)
    }

    /// Whether the group goes on without this replica's state, and without its process. Its verifier has a memory that
    /// is lost with it: if another replica is away at the same time, no majority would have one. Of two, the other one
    /// is asked whether all of its objects are right; until it has answered, this one is needed.
    pub(super) fn is_dispensable(&mut self) -> bool {
        if !self.core.group.receives_all(self.core.env.world.now_us()) || self.is_the_last() {
            return false;
        }
        !are_two(&self.core.env.settings) || self.other_is_healthy()
    }

    fn other_is_healthy(&mut self) -> bool {
        self.ask_health();
        let lasts_us = limits::HEALTH_LASTS.as_micros() as u64;
        let now_us = self.core.env.world.now_us();
        self.stage.health().confirmed_us.is_some_and(|requested_us| now_us < requested_us + lasts_us)
    }

    /// Asks the other one of two whether all of its objects are right, unless it was just asked.
    pub(super) fn ask_health(&mut self) {
        if !are_two(&self.core.env.settings) {
            return;
        }
        let (now_us, again_us) = (self.core.env.world.now_us(), limits::OBJECTS_AGAIN.as_micros() as u64);
        let health = self.stage.health();
        if health.requested_us.is_some_and(|requested_us| now_us < requested_us + again_us) {
            return;
        }
        health.requested_us = Some(now_us);
        let ask = Message::AskHealth { requested_us: now_us }.encode();
        self.core.env.peers.send(self.other(), FrameKind::Transfer, &[&ask]);
    }

    /// The other one of two asks whether all objects here are right.
    pub(super) fn on_ask_health(&mut self, from: u8, requested_us: u64) {
        if are_two(&self.core.env.settings) && from == self.other() {
            self.stage.health().awaited = Some(requested_us);
            self.check_for_the_other();
        }
    }

    /// All objects of the other one were right some time after it was asked.
    pub(super) fn on_healthy(&mut self, from: u8, requested_us: u64) {
        if from == self.other() {
            self.stage.health().note_answer(requested_us);
        }
    }

    /// Checks all objects here, if the other one waits for that, and nothing else has the state.
    fn check_for_the_other(&mut self) {
        let stage = &mut *self.stage;
        let is_free = stage.speculation.is_some() && stage.is_whole();
        let is_free = is_free && self.core.executor.running.is_some();
        let health = stage.health();
        if health.awaited.is_some() && health.checks.is_none() && is_free {
            health.checks = health.awaited;
            self.scrub(None);
        }
    }

    /// All objects here were checked. Corrupted ones are replaced; then all are checked again.
    pub(super) fn on_checked_for_the_other(&mut self, corrupted: &[(RegionId, ObjectId)]) {
        let are_right = corrupted.is_empty() && self.stage.is_whole();
        if let Some(requested_us) = self.stage.health().answer(are_right) {
            let healthy = Message::Healthy { requested_us }.encode();
            self.core.env.peers.send(self.other(), FrameKind::Transfer, &[&healthy]);
        }
    }

    /// Does what it could not do when it was asked.
    pub(super) fn tick_of_two(&mut self) {
        self.check_for_the_other();
        if let Some(batch) = self.stage.health().yields {
            self.yield_to_the_other(batch);
        }
    }

    /// The other one of two.
    fn other(&self) -> u8 {
        other_than(self.core.env.settings.me)
    }

    /// Whether this replica is one of two, and the other one has no state from which the group could go on, as far as
    /// is known here.
    pub(super) fn is_the_last(&self) -> bool {
        let settings = &self.core.env.settings;
        let other = self.other();
        let is_there = self.core.env.peers.connected().any(|peer| peer == other);
        let executors = self.stage.verifier.record().map(|record| record.lineup.executors);
        let takes_part = executors.is_some_and(|executors| executors.contains(other));
        let has_state = !self.core.transfer.donor.is_awaited_by(other);
        let is_right = has_state && !self.both_ask() && !self.stage.past.doubt.both_are_wrong();
        are_two(settings) && !(is_there && takes_part && is_right)
    }

    /// Whether the other one of two asks for objects that this one seeks.
    pub(super) fn both_ask(&self) -> bool {
        self.stage.repairing.as_ref().is_some_and(Repairing::both_ask)
    }

    /// It goes on with its own state, the last one that is left, although these objects are corrupted.
    pub(super) fn go_on_as_the_last(&mut self, objects: &[(RegionId, ObjectId)]) {
        let both_ask = self.both_ask();
        let stage = &mut *self.stage;
        stage.past.doubt.note_both_wrong(both_ask);
        stage.repairing = None;
        let newest = stage.speculation.as_ref().map_or(0, |speculation| speculation.version().number);
        stage.past.found_wrong = (newest, limits::RUNS_AGAIN);
        // One of more replicas is only cut off, and has them replaced later.
        let is_reported =
            !are_two(&self.core.env.settings) || std::mem::replace(&mut stage.health().reported_last, true);
        if let (Some((region_id, id)), false) = (objects.first(), is_reported) {
            self.core.env.world.say(format_args!(
                "object {region_id}:{id} is corrupted here ({} objects), and no other replica has a state that could \
                    repair it: requests that need it get no reply, and no replica can be filled from this one. Copy \
                    what clients can still read, and start the group again",
                objects.len()
            ));
        }
    }
}
