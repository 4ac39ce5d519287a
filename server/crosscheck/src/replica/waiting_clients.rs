//! This replica's clients whose replies come later than the votes on their requests ([`crate::Cx::owe_reply`]).

use std::collections::BTreeMap;

use vote::Place;

use super::pending::PendingReply;
use crate::counters::ClientCounters;

/// The clients that wait, by the places of their requests. The service decides when they are answered, perhaps never;
/// so those are forgotten that have closed their connections.
#[derive(Debug, Default)]
pub(super) struct WaitingClients {
    waiting: BTreeMap<Place, PendingReply>,
    /// So many were left when closed ones were last forgotten.
    left: usize,
}

/// With fewer clients it is not worth to look which of them are still there.
const FEW: usize = 256;

impl WaitingClients {
    /// The reply to the request at `place` comes later.
    pub fn add(&mut self, place: Place, owed: PendingReply) {
        self.waiting.insert(place, owed);
    }

    /// The client that waits for the reply to the request at `place`: it is about to be answered.
    pub fn take(&mut self, place: Place) -> Option<PendingReply> {
        self.waiting.remove(&place)
    }

    /// All of them.
    pub fn take_all(&mut self) -> Vec<PendingReply> {
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    /// Forgets those that are gone, once there are twice as many as remained the last time.
    pub fn forget_closed(&mut self, counters: &ClientCounters) {
        if self.waiting.len() <= (2 * self.left).max(FEW) {
            return;
        }
        let threads = counters.threads();
        self.waiting.retain(|_, owed| {
            owed.owner.client().is_some_and(|to| {
                let thread = threads.get(to.thread(threads.len()));
                thread.is_some_and(|thread| thread.connections.has(to.slot, to.generation))
            })
        });
        self.left = self.waiting.len();
    }
}
