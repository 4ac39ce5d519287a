//! Deliveries that may be rolled back: views of a primary, and the order state of an earlier batch.
//!
//! The host executes before it knows whether the others agree. What it rolls back, this replica's orderer rolls back
//! too: the exactly-once rule rolls back to an earlier state, and batches of this replica that came after it are handed
//! over once more, with the numbers and bytes that they had.

use super::Orderer;
use crate::engine::{CorruptPart, FailStop, OrderEngine, Output, PrimaryView};
use crate::sessions::State;

impl<E: OrderEngine> Orderer<E> {
    /// A view begins. The batches that were delivered here have to be those that the view continues: if not,
    /// [`Orderer::rewind`] first. What the view does not continue is forgotten, and batches of this replica that are
    /// not part of it are handed to its primary. The first view establishes this replica. A view with the number of
    /// the current one or a smaller number has no effect.
    ///
    /// A process may come into a view that began without it. Then [`PrimaryView::next`] may be any number after what
    /// was agreed on, and not 1: that is for processes that begin together. It takes the state from others, and leads
    /// from the next view on.
    pub fn begin_view(&mut self, view: PrimaryView) {
        if !self.stopped && self.engine.begin_view(view) {
            self.out.committed.clear();
        }
    }

    /// Takes deliveries back: the next one is that after `state`, as exported after the last part of an earlier number.
    /// Batches of this replica that `state` does not count are delivered again, with their tags. It has to be of the
    /// last stable number or a later one.
    ///
    /// `state` may be of a later number too, if the state of other replicas has taken the place of this one's. Batches
    /// of this replica that it counts and that were not delivered here are then reported by [`Output::Skipped`].
    pub fn rewind(&mut self, state: State) {
        if self.stopped {
            return;
        }
        self.out.committed.clear();
        self.engine.rewind_to(state.index);
        let slot = self.config.slot;
        let counted = match (state.sessions.get(&slot), self.engine.engine_status().incarnation) {
            (Some(session), Some(own)) if session.incarnation == own => session.number,
            _ => 0,
        };
        self.state = state;
        match self.batcher.rewind_to(counted) {
            Ok(tags) if tags.is_empty() => {}
            Ok(tags) => self.out.outputs.push_back(Output::Skipped { tags }),
            Err(part) => self.stop(FailStop::Corrupted(part)),
        }
        self.timeouts.handed_over();
    }

    /// The state of this replica is wrong, and it wants that of others after a later number than `number` in its place.
    /// [`Output::NeedState`] tells which; when it has it, it continues there ([`Orderer::rewind`]). Nothing may be
    /// delivered before.
    pub fn want_state_after(&mut self, number: u64) {
        if !self.stopped {
            self.engine.want_state_after(number);
        }
    }

    /// Replicas have agreed on the state after number `number`: it is not rolled back any more, and this replica's
    /// batches up to it are forgotten.
    pub fn stable(&mut self, number: u64) {
        if self.stopped {
            return;
        }
        self.engine.stable(number);
        if self.batcher.forget_to(number).is_err() {
            self.stop(FailStop::Corrupted(CorruptPart::OwnBatch));
        }
    }
}
