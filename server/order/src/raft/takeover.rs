//! How a group continues with one replica's log, after an operator has decided that the others' logs are lost for ever.
//!
//! More replicas than the group can survive have lost their memory: the remaining ones cannot elect a leader, and no
//! rule of agreement can help, because lost replicas look like replicas that are merely away. An operator knows the
//! difference. On the operator's command this replica's whole log counts as committed (acknowledged entries may be
//! anywhere in it), the other members leave, and replicas that return ask to join.
//!
//! One entry of the log records this, and this replica alone commits it: until then the engine counts no other replica.
//! With that entry the group gets another name, so that no message of a lost replica, earlier or after its return, is
//! taken for a message of a member. The kept replica is part of the name: two replicas that were both kept are two
//! groups.

use wire::mix;

use crate::engine::DecisionError;
use crate::log::LogStore;
use crate::raft::members::Change;
use crate::raft::node::Node;

/// Makes the group's names before and after the takeover differ.
const RENAMED: u64 = 0x7461_6b65_6f76_6572;

impl<L: LogStore> Node<L> {
    /// This replica is the only member from now on.
    ///
    /// # Errors
    /// [`DecisionError`] when it has no data, or there is a leader that commits entries, or a majority that can elect
    /// one; nothing has changed then.
    pub fn take_over(&mut self) -> Result<(), DecisionError> {
        if self.failed.is_some() || self.is_removed() {
            return Err(DecisionError::Stopped);
        }
        // A leader that can commit nothing does not help, even if it is this replica: others lack what it needs them
        // for.
        let is_stuck = self.is_stuck();
        if let Some(leader) = self.leader_slot().filter(|_| !is_stuck) {
            return Err(DecisionError::Led(leader));
        }
        if !self.configuration.contains(self.id()) || self.mirror().last() == 0 {
            return Err(DecisionError::NoData);
        }
        if !is_stuck && self.leaderless < self.two_elections() {
            return Err(DecisionError::Election);
        }
        let voters = self.configuration.members().voters;
        let here = voters & (self.present() | 1 << self.config.slot);
        if !is_stuck && here.count_ones() > voters.count_ones() / 2 && voters.count_ones() > 1 {
            return Err(DecisionError::Majority(here.count_ones()));
        }
        self.finish_ready();
        let me = self.id();
        self.renamed = Some(mix(mix(self.group() ^ mix(RENAMED ^ self.raw.raft.term)) ^ me));
        self.guard(|node| {
            node.count_only(me);
            // An earlier candidacy may have failed: it stands again at once, in whatever role it is.
            _ = node.raw.campaign();
        });
        Ok(())
    }

    /// Only `id` counts towards a majority.
    pub fn count_only(&mut self, id: u64) {
        let others: Vec<u64> =
            self.raw.raft.prs().iter().map(|(&other, _)| other).filter(|&other| other != id).collect();
        let removed = others.into_iter().map(|id| Change::Remove { id });
        for change in [Change::Promote { id }].into_iter().chain(removed) {
            if let Err(error) = self.raw.apply_conf_change(&change.conf_change()) {
                return self.fail(crate::engine::FailStop::Engine(error.to_string()));
            }
        }
    }

    /// The entry that records the takeover, until it is committed.
    pub fn next_take_over(&self) -> Option<Change> {
        Some(Change::TakeOver { id: self.id(), group: self.renamed? })
    }
}
