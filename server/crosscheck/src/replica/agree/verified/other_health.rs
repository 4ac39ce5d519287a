//! What one of two replicas knows of the objects of the other one before it yields (`yielding.rs`).

use crate::limits;

/// What one of two replicas knows of the objects of the other one, and the other way round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OtherHealth {
    /// When the other one was last asked.
    pub(super) requested_us: Option<u64>,
    /// When it was asked what it has answered: that all of its objects are right.
    pub(super) confirmed_us: Option<u64>,
    /// The last question of the other one that was not answered, by its time there.
    pub(super) awaited: Option<u64>,
    /// The question for which a boundary checks all objects.
    pub(super) checks: Option<u64>,
    /// This replica is wrong after this batch, and yields once it may.
    pub(super) yields: Option<u64>,
    /// An operator was informed that this is the last state, and that it has corrupted objects.
    pub(super) reported_last: bool,
}

impl OtherHealth {
    /// A batch has become stable: the replicas agree.
    pub(super) fn is_over(&mut self) {
        self.yields = None;
    }

    /// A view begins: what boundaries were to do is forgotten.
    pub(super) fn on_view(&mut self) {
        self.checks = None;
    }

    /// The other one has answered a question that was asked here at this time.
    pub(super) fn note_answer(&mut self, requested_us: u64) {
        if self.requested_us.is_some_and(|last_us| requested_us <= last_us) {
            self.confirmed_us = self.confirmed_us.max(Some(requested_us));
        }
    }

    /// All objects here were checked, and are `right` or not. The question that this answers, if it is one.
    pub(super) fn answer(&mut self, right: bool) -> Option<u64> {
        let requested_us = self.checks.take().filter(|_| right)?;
        self.awaited.take_if(|awaited_us| *awaited_us == requested_us);
        Some(requested_us)
    }

    /// Objects were replaced by right ones: there may be no reason left to yield.
    pub(super) fn note_replaced(&mut self) {
        (self.reported_last, self.yields) = (false, None);
    }
}

/// How many times as long as a backup a replica waits before it yields.
pub(super) fn turns_to_yield(leads: bool) -> u32 {
    if leads { limits::PRIMARY_YIELDS_LATER } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_from_its_question() {
        let mut asker = OtherHealth { requested_us: Some(900), ..OtherHealth::default() };
        let mut other = OtherHealth { awaited: Some(500), checks: Some(500), ..OtherHealth::default() };
        // It is asked again while it checks: what it finds is the answer to the first question.
        other.awaited = Some(900);
        asker.note_answer(other.answer(true).expect("an answer"));
        assert_eq!((asker.confirmed_us, other.awaited, other.checks), (Some(500), Some(900), None));
        // No question waits for the check of a region or of oneself.
        assert_eq!(other.answer(true), None);
        other.checks = Some(900);
        assert_eq!((other.answer(false), other.awaited), (None, Some(900)), "it answers once all are right");
        // What was not asked is no answer.
        asker.note_answer(901);
        assert_eq!(asker.confirmed_us, Some(500));
    }
}
