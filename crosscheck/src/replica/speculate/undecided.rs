//! Two executors whose states differ: the one that knows that it is wrong yields to the other.
//!
//! Two tokens that differ do not tell which replica is wrong. The batch runs again at both, one request at a time; if
//! the tokens differ then too, no batch becomes stable any more. Each of the two then goes back to the batch that it
//! has folded last, and checks itself: all objects against their checksums, and its tree against all objects. One that
//! finds something wrong yields: without a third verifier it ends its process, so that the other one goes on alone and
//! fills it; with a witness it takes the other one's state in place. If both find nothing, an operator decides
//! (`operator.rs`).
//!
//! A replica yields too when it knows of corrupted objects and gets no right ones. Both must not yield: with both
//! states, all that was acknowledged would be lost. So none yields while the other one is not there, does not take part
//! in the view, or asks for the same objects; and the primary waits some times longer than the backup, so that it knows
//! by then whether the backup has yielded.

use execute::Speculation;
use object::{Home, ObjectId};
use order::OrderEngine;

use super::repair::{ObjectRepair, RepairStep, Repairing};
use super::{GoingBack, SpeculateStage, Speculator, whole_state};
use crate::boundary::BoundaryWork;
use crate::service::Service;
use crate::settings::Settings;
use crate::world::World;
use crate::{ReplaceReason, Stop, evidence, limits};

/// What a replica does about states of two executors that differ.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SelfDoubt {
    /// The oldest batch that ran one request at a time and is not stable, and since when.
    waits: Option<(u64, u64)>,
    /// The view and the batch for which this replica has checked itself.
    checked: Option<(u64, u64)>,
    /// Both lack the same right objects. Neither yields any more, until a batch is stable again.
    both_are_wrong: bool,
}

impl SelfDoubt {
    /// Both have found the same objects corrupted: a check would tell them nothing.
    pub(super) fn note_both_wrong(&mut self, both_ask: bool) {
        self.both_are_wrong |= both_ask;
    }

    /// A batch has become stable.
    pub(super) fn is_over(&mut self) {
        self.both_are_wrong = false;
    }
}

/// How many times as long as a backup a replica waits before it yields.
fn turns_to_yield(leads: bool) -> u32 {
    if leads { limits::PRIMARY_YIELDS_LATER } else { 1 }
}

/// Whether the group has two executors.
fn are_two(settings: &Settings) -> bool {
    settings.executors() == 2
}

impl SpeculateStage {
    /// The batch that both executors have to agree on and do not, if it has waited for too long.
    fn doubted(&mut self, me: u8, now_us: u64) -> Option<u64> {
        let lineup = self.verifier.record().map(|record| record.lineup)?;
        let oldest = self.unstable.front()?;
        let is_left = lineup.sequential && lineup.executors.len() == 2 && oldest.version.is_some();
        let batch = oldest.number;
        let is_idle = self.repairing.is_none() && !self.is_going_back() && self.speculation.is_some();
        if !is_left
            || !is_idle
            || self.past.doubt.both_are_wrong
            || self.past.doubt.checked == Some((self.view, batch))
        {
            self.past.doubt.waits = None;
            return None;
        }
        let (_, since_us) = *self.past.doubt.waits.get_or_insert((batch, now_us));
        let turns = turns_to_yield(lineup.primary == me);
        let patience_us = limits::DOUBT_PATIENCE.as_micros() as u64 * u64::from(turns);
        (now_us.saturating_sub(since_us) >= patience_us).then_some(batch)
    }
}

/// Checks this replica, if two executors have come to different states one request at a time.
pub(super) fn doubt_oneself<S: Service, E: OrderEngine, W: World>(this: &mut Speculator<'_, S, E, W>) {
    if !are_two(&this.env.settings) {
        return;
    }
    let now_us = this.env.world.now_us();
    let Some(batch) = this.stage.doubted(this.env.settings.me, now_us) else { return };
    let stage = &mut *this.stage;
    (stage.past.doubt.waits, stage.past.doubt.checked) = (None, Some((stage.view, batch)));
    let Some(folded) = stage.speculation.as_ref().map(|speculation| speculation.version().number) else {
        return;
    };
    this.env.world.say(format_args!(
        "batch {batch} ran one request at a time, and the other replica has not come to the same state: this one \
            checks itself"
    ));
    stage.repairing = Some(Repairing::at(RepairStep::GoBackAndCheck, now_us));
    this.go_back(GoingBack { to: folded, view: None });
}

/// This replica has checked itself: these objects are corrupted, and the tree fits the others or not.
pub(super) fn on_checked<S: Service, E: OrderEngine, W: World>(
    this: &mut Speculator<'_, S, E, W>,
    objects: &[(Home, ObjectId)],
    fits_tree: bool,
) {
    if this.stage.repairing.as_ref().is_none_or(|repairing| !repairing.is_check()) {
        return;
    }
    this.stage.repairing = None;
    if objects.is_empty() && fits_tree {
        this.env.world.say(format_args!("this replica has found nothing wrong with itself"));
        return;
    }
    let what = match objects.len() {
        0 => "the tree over its objects is not that of the objects".to_owned(),
        wrong => format!("{wrong} of its objects are corrupted"),
    };
    let batch = this.stage.stable() + 1;
    let outcome = format!("masked: {what}, and the other replica goes on");
    this.env.keep_evidence(evidence::diverged(this.env.settings.me, batch, &outcome));
    this.repair().yield_to_the_other(batch);
}

impl<S: Service, W: World> ObjectRepair<'_, S, W> {
    /// This replica is one of two, and knows that it is wrong.
    pub(super) fn yield_to_the_other(&mut self, batch: u64) {
        if !self.is_dispensable() {
            return;
        }
        if whole_state::is_possible(&self.env.settings) {
            self.stage.give_up_state();
        } else {
            self.env.stop_with(Ok(Stop::Replace(ReplaceReason::Diverged { batch })));
        }
    }

    /// Whether this replica is the backup of two, is to fold a batch in which it has found itself wrong, and yields
    /// instead. The primary folds it: it doubts itself later.
    pub(super) fn yields_at(&mut self, batch: u64) -> bool {
        let yields = are_two(&self.env.settings) && self.is_dispensable() && !self.leads();
        if yields {
            self.yield_to_the_other(batch);
        }
        yields
    }

    /// How many times as long as a backup this replica waits before it yields.
    pub(super) fn turns_to_yield(&self) -> u32 {
        turns_to_yield(are_two(&self.env.settings) && self.leads())
    }

    fn leads(&self) -> bool {
        let me = self.env.settings.me;
        self.stage.verifier.record().is_none_or(|record| record.lineup.primary == me)
    }

    /// Whether this replica is one of two, and the other one has no state from which the group could go on, as far as
    /// is known here.
    pub(super) fn is_the_last(&self) -> bool {
        let settings = &self.env.settings;
        let other = 1 - settings.me.min(1);
        let is_there = self.env.peers.connected().any(|peer| peer == other);
        let executors = self.stage.verifier.record().map(|record| record.lineup.executors);
        let takes_part = executors.is_some_and(|executors| executors.contains(other));
        let has_state = !self.transfer.is_awaited_by(other);
        let is_right = has_state && !self.both_ask() && !self.stage.past.doubt.both_are_wrong;
        are_two(settings) && !(is_there && takes_part && is_right)
    }

    /// Whether the other one of two asks for objects that this one seeks.
    pub(super) fn both_ask(&self) -> bool {
        self.stage.repairing.as_ref().is_some_and(Repairing::both_ask)
    }

    /// Checks all objects and the tree, in the state after the last folded batch.
    pub(super) fn check_oneself(&mut self) {
        self.lend(|speculation: Speculation| BoundaryWork::Check(Box::new(speculation)));
    }
}
