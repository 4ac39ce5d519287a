//! What the verification stage has decided: replies leave, batches are rolled back, a state is fetched.

use execute::{NotRolledBack, Speculation};
use order::PrimaryView;
use verify::limits::IDENTITY_VIEWS;
use verify::{ExecutorCommand, ExecutorEvent, Slot, Slots, VerifierCommand, VerifyMessage, Version};
use vote::{Place, RequestResult, Withheld};
use wire::ReplicaId;

use super::repairing::Repairing;
use super::{RollingBack, Speculator, UnstableBatch, are_two};
use crate::boundary::BoundaryDone;
use crate::hooks::{FaultPoint, Hooks, Rule};
use crate::replica::core::started_replies;
use crate::replica::pending::PendingReply;
use crate::service::{Service, kind_in_words};
use crate::state::StateProof;
use crate::world::{Observation, World};
use crate::{Corrupted, ReplaceReason, Stop, evidence};

impl<S: Service, W: World> Speculator<'_, S, W> {
    /// Performs a command of this replica's verifier.
    pub(super) fn perform_of_verifier(&mut self, command: VerifierCommand) {
        match command {
            VerifierCommand::Send { to, message } => {
                if let VerifyMessage::Recorded { record, .. } = &message {
                    self.core.env.world.see(Observation::Recorded(record));
                }
                self.stage.send(to, &message, &mut self.core.env);
            }
            // Without a disk there is nothing to write.
            VerifierCommand::Persist(_) => {}
            VerifierCommand::Founded => self.core.env.world.say(format_args!("the group begins")),
            VerifierCommand::Recovered => {
                self.core.env.world.say(format_args!(
                    "the verifier of this replica had lost its memory, and takes part again"
                ))
            }
            VerifierCommand::ViewBegan { record } => self.on_view_began(record),
            VerifierCommand::Differed { version, executors } => {
                let batch = version.number + 1;
                if are_two(&self.core.env.settings) {
                    self.on_two_differ(batch);
                } else if executors.is_empty() {
                    self.core.env.keep_evidence(evidence::differed(None, batch));
                }
                executors
                    .iter()
                    .for_each(|slot| self.core.env.keep_evidence(evidence::differed(Some(slot), batch)));
            }
            VerifierCommand::Undecided { version } => {
                self.stage.undecided = Some(version.number);
                let why = match are_two(&self.core.env.settings) {
                    true => {
                        "Which of the two is wrong is not known: each checks itself, and one that finds something \
                        gives up its state"
                    }
                    false => {
                        "The service is not deterministic, or more replicas are faulty than the group tolerates"
                    }
                };
                self.core.env.world.say(format_args!(
                    "the batch after {} ran one request at a time, and its results differ all the same: no reply of \
                        it leaves. {why}. `crosscheck evidence` has what is known",
                    version.number
                ));
            }
            // The replica tells what it waits for as long as that lasts (`operator.rs`).
            VerifierCommand::WaitsForPeer { version: _ } => self.stage.losses.peer_has_ended = true,
        }
    }

    fn on_view_began(&mut self, record: verify::TokenRecord) {
        let (view, lineup) = (record.view, record.lineup);
        (self.stage.undecided, self.stage.losses.peer_has_ended) = (None, false);
        if view > 0 {
            let how = if lineup.sequential { ", and the next batch runs one request at a time" } else { "" };
            self.core.env.world.say(format_args!(
                "view {view} begins after batch {} with replica {} as its primary{how}",
                record.version.number,
                ReplicaId(lineup.primary)
            ));
        }
    }

    /// Performs a command of this replica's executor.
    pub(super) fn perform_of_executor(&mut self, command: ExecutorCommand) {
        match command {
            ExecutorCommand::Send { to, message } => {
                self.stage.send_of_executor(to, &message, &mut self.core.env);
                if let VerifyMessage::Verify { view, version, parent, incarnation } = message {
                    let mut second = None;
                    self.core.env.hooks.at(FaultPoint::Token(version.token, &mut second));
                    if let Some(token) = second {
                        let version = Version { token, ..version };
                        let message = VerifyMessage::Verify { view, version, parent, incarnation };
                        self.stage.send_of_executor(to, &message, &mut self.core.env);
                    }
                }
            }
            ExecutorCommand::Stable(version) => self.on_stable(version),
            ExecutorCommand::Rewind { to, view, primary, executors, sequential } => {
                self.on_rewind(to, view_of(view, primary, executors, to, sequential));
            }
            ExecutorCommand::Diverged { version, donors: _ } => self.on_diverged(version),
            ExecutorCommand::Behind { version, donors: _ } => self.on_behind(version),
            ExecutorCommand::ReadFrom { number } => self.reads().bind(number),
            ExecutorCommand::Contradiction { stable, received }
                if received.view / IDENTITY_VIEWS > self.stage.view / IDENTITY_VIEWS =>
            {
                self.core.env.world.say(format_args!(
                    "an operator has let the group go on after batch {}, without what this replica has up to batch {}: \
                        it gives that up, and the others fill it",
                    received.version.number, stable.number
                ));
                self.core.env.stop_with(Ok(Stop::Replace(ReplaceReason::TooFarBehind)));
            }
            ExecutorCommand::Contradiction { stable, received } => {
                self.core.env.world.say(format_args!(
                    "verifiers have recorded another state of batch {} than the one that was agreed on before \
                        (here: batch {}). This breaks a rule of the protocol; this replica replaces itself",
                    received.version.number, stable.number
                ));
                self.core.env.replace(Corrupted::Verification);
            }
        }
    }

    /// The replicas have agreed on the state after a batch, and on that of all before.
    pub(super) fn on_stable(&mut self, version: Version) {
        while let Some(batch) = self.stage.unstable.pop_front_if(|batch| batch.number <= version.number) {
            if let Some(of_batch) = batch.version {
                let is_agreed = of_batch.number == version.number;
                self.core.env.world.see(Observation::Stable { version: of_batch, is_agreed });
            }
            self.release_batch(batch);
        }
        self.close_differences(version.number);
        let stage = &mut *self.stage;
        stage.past.doubt.is_over();
        stage.past.other_health.is_over();
        if let Some(speculation) = &mut stage.speculation {
            speculation.agree(version.number);
        }
        self.core.order.orderer.stable(version.number);
        if let Some(execution) = &mut self.core.executor.running {
            execution.agree(version.number);
        }
        self.reads().release();
    }

    /// The replies of a batch leave.
    fn release_batch(&mut self, batch: UnstableBatch) {
        let UnstableBatch { number, order, tags, results, version, parts, started_replies: made, .. } = batch;
        self.stage.stable_order = order;
        if let Some(Version { token, .. }) = version {
            let proof = StateProof { token, parts };
            self.stage.stable_parts = parts;
            self.checkpoint().on_stable(number, proof);
        }
        let mut results = results.unwrap_or_default();
        for (request, tag) in tags {
            let owner = match self.core.order.recipients(&[tag]) {
                Ok(owners) => owners.first().copied(),
                Err(what) => return self.core.env.replace(what),
            };
            let (Some(owner), Some(result)) = (owner, results.get_mut(usize::from(request))) else {
                continue;
            };
            let owed = PendingReply { owner, request_checksum: result.request_info.checksum };
            self.release(owed, Place::new(number, request), result);
            result.request_info.mine = false;
        }
        // What is left has parts for clients of this replica, and was ordered by another one.
        for (request, result) in results.iter_mut().enumerate().filter(|(_, of)| of.request_info.mine) {
            self.release(PendingReply::NOTHING, Place::new(number, request as u16), result);
        }
        for (reply, digest) in made {
            let (replies, around) = started_replies(self.core);
            replies.on_made(reply, digest, around);
        }
    }

    /// A reply leaves.
    fn release(&mut self, owed: PendingReply, place: Place, result: &mut RequestResult) {
        match (vote::verified_may_leave(result, result.digest), result.reply.take()) {
            (Ok(digest), Some(reply)) => {
                self.core.clients.release_to(owed, place, reply, Some(digest), &mut self.core.env);
            }
            (Err(Withheld::Corrupt), _) if result.failure.is_none() => {
                self.core.env.tally.failed_checks += 1;
                self.core.env.tally.own_faults += 1;
                let kind = kind_in_words::<S>(result.request_info.kind);
                self.core.env.keep_evidence(evidence::changed_after_agreement(
                    self.core.env.settings.me,
                    place,
                    kind,
                ));
                self.core.clients.lose_reply(owed.owner);
            }
            _ => self.core.clients.lose_reply(owed.owner),
        }
    }

    /// A view begins after version `to`: later batches are rolled back, if there are any.
    fn on_rewind(&mut self, to: Version, view: PrimaryView) {
        let sequential = view.sequential;
        self.core.env.world.see(Observation::Followed { view: view.number - 1, version: to, sequential });
        if self.stage.begins_later(view) {
            return;
        }
        let stage = &mut *self.stage;
        stage.repairing = stage.repairing.take().and_then(Repairing::in_next_view);
        stage.past.other_health.on_view();
        // Up to `to` only what is known to be the same is kept. Batches of this replica that are not stable may have
        // been numbered in an earlier view, and others were agreed on under their numbers.
        let to = stage.executor.newest().number.min(to.number);
        self.roll_back(RollingBack { to, view: Some(view) });
    }

    pub(super) fn roll_back(&mut self, rolling_back: RollingBack) {
        let stage = &mut *self.stage;
        stage.parts.clear();
        stage.reads.iter_mut().for_each(|reads| reads.roll_back(rolling_back.to));
        if let Some(before) = stage.rolling_back.replace(rolling_back) {
            // A boundary is on its way. It goes back as far as it was told, and then this one's turn comes. A view that
            // was to begin begins all the same.
            if rolling_back.view.is_none() {
                let to = rolling_back.to.min(before.to);
                stage.rolling_back = Some(RollingBack { to, view: before.view });
            }
            return;
        }
        let Some(execution) = &mut self.core.executor.running else {
            // There is no state yet: it comes from another replica, or this is the beginning.
            return self.on_gone_back();
        };
        if stage.is_lent {
            // The boundary that has the batches ends soon.
            return;
        }
        let begun = stage.unstable.iter().any(|batch| batch.number > rolling_back.to);
        let given_up = stage.speculation.as_ref().map_or(0, |speculation| speculation.stable().number);
        if begun && rolling_back.to < given_up {
            // What takes these batches back was given up.
            return self.whole_state().take(ReplaceReason::TooFarBehind);
        }
        match stage.speculation.take_if(|_| begun) {
            Some(speculation) => {
                // Batches up to `to` that have not ended run again too, from the bodies that the order has.
                let back = rolling_back.to.min(speculation.version().number);
                self.core.env.tally.rollbacks += 1;
                self.core.copies.on_rolled_back(back);
                execution.roll_back(back, speculation);
            }
            None => self.on_gone_back(),
        }
    }

    /// A boundary has had the state alone.
    pub(super) fn on_boundary(&mut self, done: BoundaryDone) {
        match done {
            BoundaryDone::TookBack { speculation, version, is_right } => {
                self.on_rolled_back(*speculation, version, is_right);
            }
            BoundaryDone::Packed { speculation, to, batch, objects } => {
                self.on_returned(*speculation);
                self.repair().answer(to, batch, objects);
            }
            BoundaryDone::Replaced { speculation, are_right, misplaced, misnamed, notes } => {
                let newest = speculation.version().number;
                if self.repair().begins_for(misplaced) && self.stage.rolling_back.is_none() {
                    self.stage.rolling_back = Some(RollingBack { to: newest, view: None });
                }
                self.on_returned(*speculation);
                self.repair().on_replaced(are_right, &misnamed, notes);
            }
            BoundaryDone::Checked { speculation, objects, fits_tree } => {
                self.on_returned(*speculation);
                self.undecided().on_checked(&objects, fits_tree);
            }
            BoundaryDone::Installed { state } => self.whole_state().on_installed(state),
            BoundaryDone::Scrubbed { speculation, region_id, found, took } => {
                self.on_returned(*speculation);
                self.core.scrubs.on_done(self.core.env.world.measured(took));
                self.on_scrubbed(region_id, found);
            }
            BoundaryDone::Read(done) => self.reads().on_done(done),
        }
    }

    fn on_rolled_back(
        &mut self,
        mut speculation: Speculation,
        version: Result<Version, NotRolledBack>,
        is_right: Option<bool>,
    ) {
        if self.stage.is_taking_state() {
            return;
        }
        match version {
            Ok(version) => {
                self.core.env.world.see(Observation::TookBack { version, is_right });
                let stage = &mut *self.stage;
                let (stable, newest) = (stage.executor.stable(), stage.executor.newest());
                speculation.agree(stable.number);
                stage.speculation = Some(speculation);
                while stage.unstable.pop_back_if(|batch| batch.number > version.number).is_some() {}
                if version.number == stable.number && newest.number > stable.number {
                    // Batches whose tokens the machine knows run again, perhaps to other tokens.
                    self.on_executor_event(ExecutorEvent::Installed(stable));
                }
                self.on_gone_back();
            }
            Err(why) => self.on_not_rolled_back(why),
        }
    }

    /// A boundary that took nothing back has returned the batches. What was to be done meanwhile is done now.
    fn on_returned(&mut self, mut speculation: Speculation) {
        let stage = &mut *self.stage;
        stage.is_lent = false;
        if stage.taking.is_some() {
            return self.whole_state().install();
        }
        speculation.agree(stage.executor.stable().number);
        stage.speculation = Some(speculation);
        match stage.rolling_back.take() {
            Some(rolling_back) => self.roll_back(rolling_back),
            None => self.fold_ended(),
        }
    }

    /// The state is one of a version that the next view continues, or of an earlier one.
    fn on_gone_back(&mut self) {
        let stage = &mut *self.stage;
        let Some(rolling_back) = stage.rolling_back.take() else { return };
        if stage.unstable.iter().any(|batch| batch.number > rolling_back.to) {
            // A later view has begun meanwhile, from an earlier batch.
            return self.roll_back(rolling_back);
        }
        if self.core.executor.running.is_some() {
            let order = stage.unstable.back().map_or(&stage.stable_order, |batch| &batch.order).clone();
            let batch = stage.newest();
            let order = if self.core.env.hooks.keeps(Rule::RewindsSessions) {
                order
            } else {
                order::State { index: order.index, ..self.core.order.orderer.state().clone() }
            };
            self.core.order.orderer.rewind(order);
            self.core.act_as_ordered();
            self.core.env.world.see(Observation::Rewound { batch, order: self.core.order.orderer.state() });
        }
        if let Some(view) = rolling_back.view {
            stage.view = view.number - 1;
            self.core.order.orderer.begin_view(view);
        }
        self.repair().seek_right_objects();
        self.repair().answer_next();
    }

    /// What was to be rolled back could not be: the state is of no use any more.
    fn on_not_rolled_back(&mut self, why: NotRolledBack) {
        let was_kept = !matches!(why, NotRolledBack::Stable(_));
        self.core.env.world.see(Observation::NotRolledBack { was_kept });
        self.core.env.world.say(format_args!(
            "batches could not be taken back: {why}. Before-images or objects were corrupted; this replica gives up \
                its state, and its peers fill it"
        ));
        self.whole_state().take(ReplaceReason::Corrupted(Corrupted::NotUndone));
    }

    /// The group is further than this replica, and its batches are not to be had.
    fn on_behind(&mut self, version: Version) {
        if self.core.executor.running.is_some() && version.number > 0 {
            self.whole_state().take(ReplaceReason::TooFarBehind);
        }
    }
}

/// The same view for the engine, which counts views from 1.
fn view_of(view: u64, primary: Slot, executors: Slots, to: Version, sequential: bool) -> PrimaryView {
    PrimaryView { number: view + 1, primary, executors: executors.0, next: to.number + 1, sequential }
}
