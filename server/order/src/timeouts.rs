//! How long an origin waits for its batches: before it hands them over again, and before it calls for another leader.

/// Doublings at most of the time after which a leader is replaced: a replica that no leader can serve must not disturb
/// the others.
const MOST_TIMEOUT_DOUBLINGS: u32 = 5;

/// Ticks since the last delivery of a batch of this replica.
#[derive(Debug, Default)]
pub(crate) struct BatchTimeouts {
    idle_ticks: u64,
    /// Ticks for which the leader has ordered none of the batches that this replica waits for.
    unserved_ticks: u64,
    /// Campaigns against such a leader in a row.
    in_vain: u32,
}

impl BatchTimeouts {
    /// A batch of this replica was delivered.
    pub fn served(&mut self) {
        *self = BatchTimeouts::default();
    }

    /// Batches were handed over again.
    pub fn handed_over(&mut self) {
        self.idle_ticks = 0;
    }

    /// One tick passed; whether batches that wait are to be handed over again after so many ticks.
    pub fn hands_over_again(&mut self, waits: bool, ticks: u64) -> bool {
        self.idle_ticks = if waits { self.idle_ticks + 1 } else { 0 };
        waits && self.idle_ticks >= ticks
    }

    /// One tick passed; whether the leader that serves this replica, if it waits for one, is to be replaced after so
    /// many ticks. Twice as many after each campaign that changed nothing.
    pub fn is_over(&mut self, waits: bool, ticks: u64) -> bool {
        self.unserved_ticks = if waits { self.unserved_ticks + 1 } else { 0 };
        if !waits || self.unserved_ticks < ticks << self.in_vain.min(MOST_TIMEOUT_DOUBLINGS) {
            return false;
        }
        self.unserved_ticks = 0;
        self.in_vain += 1;
        true
    }
}
