//! A batch after which two executors differ, as one of them knows it.

use crate::evidence::Outcome;

/// A batch after which two executors differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) batch: u64,
    /// How often it has run with different results.
    pub(super) times: u64,
    /// This replica has checked itself, and found nothing.
    pub(super) is_valid: bool,
    /// Its record is kept.
    pub(super) is_kept: bool,
}

impl Difference {
    /// The batch has differed once more, or another one has.
    pub(super) fn again(before: Option<Difference>, batch: u64) -> Difference {
        let first = Difference { batch, times: 0, is_valid: false, is_kept: false };
        let same = before.filter(|before| before.batch == batch).unwrap_or(first);
        Difference { times: same.times + 1, ..same }
    }

    /// What is known once the batch is stable; `alone` if without the token of the other one, which has ended, or was
    /// left out.
    pub(super) fn when_stable(&self, alone: bool) -> Outcome {
        match (alone, self.is_valid) {
            (true, true) => Outcome::OtherIsWrong,
            (true, false) => Outcome::OneWentOn,
            (false, _) => Outcome::Agreed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence;

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
