//! Extra protection (Eve, section 6.3): while all executors keep agreeing in time, a verifier waits a moment for all of
//! them. So it sees a concurrency bug that has hit as many as would be enough.

use crate::message::Lineup;
use crate::slots::{Slot, Slots};

/// Whether it is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ExtraState {
    /// Batches in a row after which it begins; none if it never does.
    after: Option<u32>,
    /// Batches in a row with equal tokens of all executors.
    streak: u32,
    /// Executors that sent the recorded token.
    agreeing: Slots,
    /// Silence was forgiven for the batch after the record.
    forgiven: bool,
}

impl ExtraState {
    pub(super) fn new(after: Option<u32>) -> ExtraState {
        ExtraState { after, ..ExtraState::default() }
    }

    pub(super) fn is_on(&self) -> bool {
        self.after.is_some_and(|after| self.streak >= after)
    }

    /// Whether these tokens are enough, but not all.
    pub(super) fn waits(&self, agreeing: Slots, executors: Slots) -> bool {
        self.is_on() && agreeing != executors && !self.forgiven
    }

    /// The missing tokens may come at any time or never: the next version is recorded without them, and the mode ends.
    pub(super) fn forgive(&mut self) {
        self.forgiven = true;
    }

    /// It begins anew to count.
    pub(super) fn end(&mut self) {
        *self = ExtraState::new(self.after);
    }

    /// A view begins, in the mode or not.
    pub(super) fn begin(&mut self, is_on: bool) {
        self.end();
        self.streak = self.after.filter(|_| is_on).unwrap_or(0);
    }

    /// A token for the recorded version that comes before the next one is recorded.
    pub(super) fn note(&mut self, executor: Slot) {
        if self.after.is_some() {
            self.agreeing = self.agreeing.with(executor);
        }
    }

    /// The recorded version is replaced by one of these executors: did all executors have it in time?
    pub(super) fn advance(&mut self, before: &Lineup, agreeing: Slots) {
        // The start of a view is no batch.
        let is_start = before.sequential || self.agreeing.is_empty();
        if let Some(after) = self.after.filter(|_| !is_start) {
            let all = self.agreeing == before.executors && !self.forgiven;
            self.streak = if all { self.streak.saturating_add(1).min(after) } else { 0 };
            self.forgiven = false;
        }
        self.agreeing = agreeing;
    }
}
