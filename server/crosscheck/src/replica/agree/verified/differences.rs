//! What is recorded about two executors that differ: a difference of two tokens does not tell which one is wrong.
//!
//! So the record waits until something tells it: the batch runs again and both agree, or one of them ends and the other
//! one goes on, or both have checked themselves and found nothing (`undecided.rs`). However often a batch is run again,
//! it has one record at each of the two.

use super::{Speculator, Verified};
use crate::evidence::{self, Outcome};
use crate::replica::environment::Environment;
use crate::service::Service;
use crate::world::World;

/// A batch after which two executors differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    batch: u64,
    /// How often it has run with different results.
    times: u64,
    /// This replica has checked itself, and found nothing.
    is_valid: bool,
    /// Its record is kept.
    is_kept: bool,
}

impl Difference {
    /// The batch has differed once more, or another one has.
    fn again(before: Option<Difference>, batch: u64) -> Difference {
        let first = Difference { batch, times: 0, is_valid: false, is_kept: false };
        let same = before.filter(|before| before.batch == batch).unwrap_or(first);
        Difference { times: same.times + 1, ..same }
    }

    /// What is known once the batch is stable; `alone` if without the token of the other one, which has ended, or was
    /// left out.
    fn when_stable(&self, alone: bool) -> Outcome {
        match (alone, self.is_valid) {
            (true, true) => Outcome::OtherIsWrong,
            (true, false) => Outcome::OneWentOn,
            (false, _) => Outcome::Agreed,
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_differs_again_and_again_is_counted_in_one_record() {
        let mut seen = None;
        for _ in 0..373 {
            seen = Some(Difference::again(seen, 9));
        }
        let seen = seen.filter(|seen| seen.times == 373 && !seen.is_kept);
        assert!(seen.is_some());
        assert_eq!(Difference::again(seen, 10).times, 1, "another batch");
        let record = evidence::of_two(0, 9, 373, Outcome::Agreed);
        assert!(
            record.objects[0].contains("batch 9") && record.objects[0].contains("373 runs"),
            "{record:?}"
        );
    }

    #[test]
    fn only_two_intact_replicas_that_differ_show_that_the_service_is_not_deterministic() {
        let of = |is_valid| Difference { batch: 9, times: 2, is_valid, is_kept: false };
        assert_eq!(of(false).when_stable(false), Outcome::Agreed);
        assert_eq!(of(true).when_stable(true), Outcome::OtherIsWrong);
        assert_eq!(of(false).when_stable(true), Outcome::OneWentOn);
        let record = |outcome| {
            let record = evidence::of_two(0, 9, 2, outcome);
            (record.class, record.replica)
        };
        assert_eq!(record(Outcome::Agreed), ("unattributed".to_owned(), None));
        assert_eq!(record(Outcome::OneWentOn), ("unattributed".to_owned(), None));
        assert_eq!(record(Outcome::OtherIsWrong), ("hardware-like".to_owned(), Some(2)));
        assert_eq!(record(Outcome::BothAreIntact), ("nondeterminism".to_owned(), None));
    }
}
