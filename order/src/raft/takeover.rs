//! How a group goes on with what one replica has, after an operator has decided that the others' logs are
//! lost for ever.
//!
//! More replicas than the group can do without have lost their memory: whoever is left leads nobody, and no
//! rule of agreement can help, because replicas that are lost look like replicas that are merely away. An
//! operator can tell them apart. At his word this replica's whole log counts as agreed on (what was
//! acknowledged may be anywhere in it), the other members leave, and whoever comes asks to be let in.
//!
//! One entry of the log says so, and it is agreed on by this replica alone: until then the engine is told to
//! count nobody else. With that entry the group gets another name, so that nothing that one of the lost
//! replicas has said, or says when it turns up after all, is taken for a message of a member. Whose log it
//! goes on with is part of the name: two replicas that were both kept are two groups.

use wire::mix;

use crate::engine::Declined;
use crate::log::LogStore;
use crate::raft::members::Change;
use crate::raft::node::Node;

/// Makes the names of the group before and after it differ.
const RENAMED: u64 = 0x7461_6b65_6f76_6572;

impl<L: LogStore> Node<L> {
    /// This replica is the only member from now on.
    ///
    /// # Errors
    /// [`Declined`] when it has no data, or there is a leader, or a majority that can elect one; nothing has
    /// changed then.
    pub fn take_over(&mut self) -> Result<(), Declined> {
        if self.failed.is_some() || self.is_removed() {
            return Err(Declined::Stopped);
        }
        if let Some(leader) = self.leader_slot() {
            return Err(Declined::Led(leader));
        }
        if !self.configuration.contains(self.id()) || self.mirror().last() == 0 {
            return Err(Declined::NoData);
        }
        if self.leaderless < self.two_elections() {
            return Err(Declined::Election);
        }
        let voters = self.configuration.members().voters;
        let here = voters & (self.present() | 1 << self.config.slot);
        if here.count_ones() > voters.count_ones() / 2 && voters.count_ones() > 1 {
            return Err(Declined::Majority(here.count_ones()));
        }
        self.settle();
        let me = self.id();
        self.renamed = Some(mix(mix(self.group() ^ mix(RENAMED ^ self.raw.raft.term)) ^ me));
        self.guard(|node| {
            node.count_only(me);
            // It may have stood for election in vain before: it does so at once, whatever it is.
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

    /// The entry that says so, until it is agreed on.
    pub fn next_take_over(&self) -> Option<Change> {
        Some(Change::TakeOver { id: self.id(), group: self.renamed? })
    }
}
