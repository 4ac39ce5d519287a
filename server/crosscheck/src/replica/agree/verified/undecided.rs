//! Two executors whose states differ: the one that knows that it is wrong yields to the other.
//!
//! Two tokens that differ do not tell which replica is wrong. The batch runs again at both, one request at a time; if
//! the tokens differ then too, no batch becomes stable any more. Each of the two then rolls back to the batch that it
//! has folded last, and checks itself: all objects against their checksums, and its tree against all objects. One that
//! finds something wrong yields: without a third verifier it ends its process, so that the other one goes on alone and
//! fills it; with a witness it takes the other one's state in place. If both find nothing, an operator decides
//! (`operator.rs`).
//!
//! A replica yields too when it knows of corrupted objects and gets no right ones. When it may: `yielding.rs`.

use execute::Speculation;
use object::{ObjectId, RegionId};

use super::other_health::turns_to_yield;
use super::repair::ObjectRepair;
use super::repairing::{RepairStep, Repairing};
use super::{RollingBack, Speculator, Verified, are_two};
use crate::boundary::BoundaryWork;
use crate::service::Service;
use crate::world::World;
use crate::{evidence, limits};

impl Verified {
    /// The batch that both executors have to agree on and do not, if it has waited for too long.
    fn doubted(&mut self, me: u8, now_us: u64) -> Option<u64> {
        let lineup = self.verifier.record().map(|record| record.lineup)?;
        let oldest = self.unstable.front()?;
        let is_left = lineup.sequential && lineup.executors.len() == 2 && oldest.version.is_some();
        let batch = oldest.number;
        let is_idle = self.repairing.is_none() && !self.is_rolling_back() && self.speculation.is_some();
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

/// What one of two executors that doubts itself acts on.
pub(super) struct Undecided<'s, 'r, S: Service, W: World>(&'s mut Speculator<'r, S, W>);

impl<'r, S: Service, W: World> Speculator<'r, S, W> {
    /// States of two executors that differ.
    pub(super) fn undecided(&mut self) -> Undecided<'_, 'r, S, W> {
        Undecided(self)
    }
}

impl<S: Service, W: World> Undecided<'_, '_, S, W> {
    /// Checks this replica, if two executors have come to different states one request at a time.
    pub(super) fn doubt_oneself(&mut self) {
        let (stage, env) = (&mut *self.0.stage, &mut self.0.core.env);
        if !are_two(&env.settings) {
            return;
        }
        let now_us = env.world.now_us();
        let Some(batch) = stage.doubted(env.settings.me, now_us) else { return };
        (stage.past.doubt.waits, stage.past.doubt.checked) = (None, Some((stage.view, batch)));
        let Some(folded) = stage.speculation.as_ref().map(|speculation| speculation.version().number) else {
            return;
        };
        env.world.say(format_args!(
            "batch {batch} ran one request at a time, and the other replica has not come to the same state: this \
                one checks itself"
        ));
        stage.repairing = Some(Repairing::at(RepairStep::RollBackAndCheck, now_us));
        self.0.roll_back(RollingBack { to: folded, view: None });
    }

    /// This replica has checked itself: these objects are corrupted, and the tree fits the others or not.
    pub(super) fn on_checked(&mut self, objects: &[(RegionId, ObjectId)], fits_tree: bool) {
        let (stage, env) = (&mut *self.0.stage, &mut self.0.core.env);
        if stage.repairing.as_ref().is_none_or(|repairing| !repairing.is_check()) {
            return;
        }
        stage.repairing = None;
        if objects.is_empty() && fits_tree {
            env.world.say(format_args!("this replica has found nothing wrong with itself"));
            let leads =
                stage.verifier.record().is_some_and(|record| record.lineup.primary == env.settings.me);
            return self.0.on_self_check(true, leads);
        }
        let what = match objects.len() {
            0 => "the tree over its objects is not that of the objects".to_owned(),
            wrong => format!("{wrong} of its objects are corrupted"),
        };
        let batch = stage.stable() + 1;
        let outcome = format!("masked: {what}, and the other replica goes on");
        env.keep_evidence(evidence::diverged(env.settings.me, batch, &outcome));
        self.0.on_self_check(false, false);
        self.0.repair().yield_to_the_other(batch);
    }
}

impl<S: Service, W: World> ObjectRepair<'_, S, W> {
    /// Checks all objects and the tree, in the state after the last folded batch.
    pub(super) fn check_oneself(&mut self) {
        self.lend(|speculation: Speculation| BoundaryWork::Check(Box::new(speculation)));
    }
}
