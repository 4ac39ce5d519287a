//! How a group goes on with what one replica has, after an operator has decided that the others' logs are lost for ever.
//!
//! More replicas than the group can do without have lost their memory: whoever is left leads nobody, and no rule of agreement can help,
//! because replicas that are lost look like replicas that are merely away. An operator can tell them apart. At his word this
//! replica's whole log counts as agreed on (what was acknowledged may be anywhere in it), the other members leave, and whoever comes
//! asks to be let in.
//!
//! The members leave at once where a majority is counted, and afterwards in the log, one change after the other, as every other change of
//! the membership: a log that survives the process tells of nothing new. The group gets another name, so that nothing that one of the
//! lost replicas has said, or says when it turns up after all, is taken for a message of a member.

use crate::engine::Declined;
use crate::log::LogStore;
use crate::raft::boot::Control;
use crate::raft::members::{Change, slot_of};
use crate::raft::node::Node;
use crate::wire::mix;

/// Makes the names of the group before and after it differ.
const RENAMED: u64 = 0x7461_6b65_6f76_6572;

impl<L: LogStore> Node<L> {
    /// This replica is the only member from now on.
    ///
    /// # Errors
    /// [`Declined`] when it has no data, or there is a leader; nothing has changed then.
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
        self.settle();
        self.taking_over = true;
        self.guard(Self::count_alone);
        let group = mix(self.group() ^ mix(RENAMED ^ self.raw.raft.term));
        if let Err(error) = self.raw.mut_store().rename(group) {
            self.fail(crate::engine::FailStop::LogWrite(error.to_string()));
            return Err(Declined::Stopped);
        }
        self.guard(|_| ());
        self.campaign();
        Ok(())
    }

    /// Only this replica counts towards a majority, whatever the log says so far.
    pub fn count_alone(&mut self) {
        let me = self.id();
        let others: Vec<u64> =
            self.raw.raft.prs().iter().map(|(&id, _)| id).filter(|&id| id != me).collect();
        let alone = others.into_iter().map(|id| Change::Remove { id }).chain([Change::Promote { id: me }]);
        for change in alone {
            // The first of them may fail where this replica is not a voter yet: a group has one.
            let _ = self.raw.apply_conf_change(&change.conf_change());
        }
    }

    /// The next change of the membership that a taking over has left to do.
    pub fn next_taking_over(&mut self) -> Option<Change> {
        if !self.taking_over {
            return None;
        }
        let me = self.id();
        if self.configuration.learners.contains(&me) {
            return Some(Change::Promote { id: me });
        }
        let members = self.configuration.voters.iter().chain(&self.configuration.learners);
        let other = members.copied().find(|&id| id != me);
        self.taking_over = other.is_some();
        other.map(|id| Change::Remove { id })
    }

    /// Tells a replica that still is a member of the group under its earlier name that it is none any more.
    pub fn tell_stranger(&mut self, from: u8, sender: u64, group: u64) {
        let _ = (from, sender, group, slot_of, Control::Gone { group, id: sender });
    }
}
