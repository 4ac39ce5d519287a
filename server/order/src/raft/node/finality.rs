//! When a follower knows by itself that an entry is committed, so that the leader need not say it.

use ::raft::StateRole;

use super::Node;
use crate::log::LogStore;
use crate::raft::RaftConfig;
use crate::raft::members::Configuration;
use crate::raft::storage::Mirror;

impl<L: LogStore> Node<L> {
    /// With up to three voters, an entry of the current term that a voting follower holds is on a majority:
    /// its leader had it before it sent it. So the follower knows that it is committed two hops before the leader's
    /// message.
    ///
    /// Only where nothing survives the process: with a disk, the leader syncs while the entry is on its way,
    /// and its copy counts later. An entry of an earlier term is committed only behind one of the current term (Raft,
    /// section 5.4.2). And only under a leader: one that stepped down in this term is a follower too, and may be alone
    /// with its proposals.
    pub(super) fn commit_early(&mut self) {
        let raft = &mut self.raw.raft;
        let follows = raft.state == StateRole::Follower && raft.leader_id != ::raft::INVALID_ID;
        if knows_finality(&self.configuration, &self.config, raft.store()) && follows && raft.promotable() {
            let last = raft.raft_log.last_index();
            // Behind the promotion of a fourth voter, two copies are no majority any more.
            let grows_at = if self.configuration.voters.len() < 3 {
                None
            } else {
                raft.store().promotion_after(self.applied)
            };
            let until = grows_at.map_or(last, |index| last.min(index));
            let is_of_term = raft.raft_log.term(until).is_ok_and(|term| term == raft.term);
            if is_of_term && until > raft.raft_log.committed {
                raft.raft_log.commit_to(until);
            }
        }
    }

    /// Learners need the commit index from the leader; followers that commit by themselves need no message for it.
    pub(crate) fn update_commit_messages(&mut self) {
        let all_know = self.all_commit_early();
        self.raw.skip_bcast_commit(all_know);
    }

    pub(super) fn all_commit_early(&self) -> bool {
        self.configuration.learners.is_empty()
            && knows_finality(&self.configuration, &self.config, self.mirror())
    }
}

/// Whether every voting follower commits by itself ([`Node::commit_early`]).
fn knows_finality<L: LogStore>(
    configuration: &Configuration,
    config: &RaftConfig,
    mirror: &Mirror<L>,
) -> bool {
    config.replicas <= 3 && configuration.voters.len() <= 3 && mirror.store.is_volatile()
}
