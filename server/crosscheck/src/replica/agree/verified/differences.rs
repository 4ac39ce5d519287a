//! What is recorded about two executors that differ: a difference of two tokens does not tell which one is wrong.
//!
//! So the record waits until something tells it: the batch runs again and both agree, or one of them ends and the other
//! one goes on, or both have checked themselves and found nothing (`undecided.rs`). However often a batch is run again,
//! it has one record at each of the two.

use super::difference::Difference;
use super::{Speculator, Verified};
use crate::evidence::{self, Outcome};
use crate::replica::environment::Environment;
use crate::service::Service;
use crate::world::World;

impl Verified {
    /// Keeps the record of a difference that did not get one, now that this is known of it.
    fn keep_record<W: World>(&mut self, outcome: Outcome, env: &mut Environment<W>) {
        let me = env.settings.me;
        let Some(difference) = self.past.difference.as_mut().filter(|difference| !difference.is_kept) else {
            return;
        };
        difference.is_kept = true;
        env.keep_evidence(evidence::of_two(me, difference.batch, difference.times, outcome));
    }
}

impl<S: Service, W: World> Speculator<'_, S, W> {
    /// The verifier has seen that the two executors differ. A witness has no part in it.
    pub(super) fn on_two_differ(&mut self, batch: u64) {
        if !self.stage.executes {
            return;
        }
        if self.stage.past.difference.is_some_and(|before| before.batch != batch) {
            self.stage.keep_record(Outcome::OneWentOn, &mut self.core.env);
        }
        self.stage.past.difference = Some(Difference::again(self.stage.past.difference.take(), batch));
    }

    /// Batches up to this one are stable.
    pub(super) fn close_differences(&mut self, stable: u64) {
        if let Some(difference) = self.stage.past.difference.filter(|difference| difference.batch <= stable) {
            let record = self.stage.verifier.record();
            let alone = record.is_some_and(|record| record.lineup.executors.len() < 2);
            self.stage.keep_record(difference.when_stable(alone), &mut self.core.env);
            self.stage.past.difference = None;
        }
    }

    /// This replica has checked itself. The primary does so last: the other one has had its time, and has not yielded.
    pub(super) fn on_self_check(&mut self, is_valid: bool, is_last: bool) {
        match &mut self.stage.past.difference {
            // The record about this replica tells it.
            Some(difference) if !is_valid => difference.is_kept = true,
            Some(difference) => difference.is_valid = true,
            None => return,
        }
        if is_valid && is_last {
            self.stage.keep_record(Outcome::BothAreIntact, &mut self.core.env);
        }
    }
}
