//! The engine's numbers: terms, positions, its view of its peers. They decide what is committed, no peer
//! compares them with its own, and they are memory like any other. So they are treated like objects (docs/design.md,
//! section 3): checked when the engine is entered, compared with the rules of Raft when it has done its work, and
//! sealed (`guard.rs`).

use ::raft::StateRole;
use object::Code;

use super::Node;
use crate::log::LogStore;

/// The numbers that decide what is final and who leads: those that the rules of raft compare before and after, and what
/// a leader believes that the others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Critical {
    role: StateRole,
    leader: u64,
    id: u64,
    term: u64,
    vote: u64,
    committed: u64,
    persisted: u64,
    applied: u64,
    matched: u64,
}

impl<L: LogStore> Node<L> {
    /// Visits the numbers that change only inside [`Node::guard`].
    fn each_number(&mut self, mut visit: impl FnMut(&'static str, &mut u64)) {
        let raft = &mut *self.raw.raft;
        let log = &mut raft.raft_log;
        visit("term", &mut raft.term);
        visit("vote", &mut raft.vote);
        visit("own id", &mut raft.id);
        visit("leader", &mut raft.leader_id);
        visit("pending change", &mut raft.pending_conf_index);
        visit("committed", &mut log.committed);
        visit("persisted", &mut log.persisted);
        visit("applied", &mut log.applied);
        visit("begin of the unstable log", &mut log.unstable.offset);
        // The map's order is a function of its history (its hasher has no seed), and the seal never leaves
        // this replica.
        for (_, progress) in self.raw.raft.mut_prs().iter_mut() {
            visit("matched", &mut progress.matched);
            visit("next index", &mut progress.next_idx);
            visit("pending snapshot", &mut progress.pending_snapshot);
            visit("what a member committed", &mut progress.committed_index);
        }
    }

    /// One code for all of them: it changes with any of them.
    fn code(&mut self) -> Code {
        let raft = &self.raw.raft;
        let role = match raft.state {
            StateRole::Follower => 1,
            StateRole::Candidate => 2,
            StateRole::Leader => 3,
            StateRole::PreCandidate => 4,
        };
        let small = [
            role,
            u64::from(raft.promotable()),
            raft.election_elapsed as u64,
            raft.randomized_election_timeout() as u64,
        ];
        let mut code = Code::of(&self.mirror().identity.id);
        small.into_iter().for_each(|number| code.word(number));
        for (id, progress) in raft.prs().iter() {
            let flags = u64::from(progress.recent_active)
                | u64::from(progress.paused) << 1
                | (progress.state as u64) << 2;
            code.word(*id);
            code.word(flags);
        }
        self.each_number(|_, number| code.word(*number));
        code
    }

    /// The engine has done its work: it must find its numbers as they are now.
    pub(super) fn seal(&mut self) {
        self.sealed = self.code();
    }

    /// Whether the numbers are those that the engine left behind.
    pub(super) fn is_sealed(&mut self) -> bool {
        let code = self.code();
        self.sealed == code
    }

    pub(super) fn critical(&self) -> Critical {
        let raft = &self.raw.raft;
        let log = &raft.raft_log;
        // The order of the members does not matter to a sum; no two of them change by one fault.
        let matched = match raft.state {
            StateRole::Leader => {
                raft.prs().iter().fold(0u64, |sum, (_, progress)| sum.wrapping_add(progress.matched))
            }
            _ => 0,
        };
        Critical {
            role: raft.state,
            leader: raft.leader_id,
            id: raft.id,
            term: raft.term,
            vote: raft.vote,
            committed: log.committed,
            persisted: log.persisted,
            applied: log.applied,
            matched,
        }
    }

    /// Which rule of raft the engine has broken since `before`, if any; `received` is the term of the message
    /// that it was given.
    pub(super) fn broken_rule(&self, before: Critical, received: u64) -> Option<&'static str> {
        let raft = &self.raw.raft;
        let log = &raft.raft_log;
        let last = log.last_index();
        // A replica that is asked to stand for election in a later term stands in the term after that.
        let reported = before.term.max(received);
        let follows = |now: u64| [before.term, before.term + 1, reported, reported + 1].contains(&now);
        let elected =
            matches!(before.role, StateRole::Leader | StateRole::Candidate) || raft.term > before.term;
        let votes = raft.vote == before.vote || raft.term > before.term || before.vote == ::raft::INVALID_ID;
        let rules = [
            (raft.id == self.mirror().identity.id, "a replica is who it was"),
            (follows(raft.term), "a term is what a message says, or one more"),
            (votes, "one vote in a term"),
            (raft.state != StateRole::Leader || elected, "a leader was elected"),
            (
                before.committed <= log.committed && log.committed <= last,
                "what is final stays final, and is in the log",
            ),
            (before.applied <= log.applied && log.applied <= log.committed, "what is applied is final"),
            (log.persisted <= last, "what is persisted is in the log"),
            (
                raft.state != StateRole::Leader
                    || raft.prs().iter().all(|(_, progress)| progress.matched <= last),
                "nobody has more than the leader",
            ),
        ];
        rules.into_iter().find(|(holds, _)| !holds).map(|(_, rule)| rule)
    }

    /// Flips a bit of the number with this ordinal, and returns its name. `None` when there are not so many.
    #[cfg(feature = "inject")]
    pub(crate) fn corrupt_number(&mut self, ordinal: usize, bit: u32) -> Option<&'static str> {
        let (mut place, mut hit) = (0, None);
        let mut strike = |name: &'static str, number: &mut u64| {
            if place == ordinal {
                *number ^= 1 << (bit % 64);
                hit = Some(name);
            }
            place += 1;
        };
        self.each_number(&mut strike);
        let replicas = usize::from(self.config.replicas);
        for peer in &mut self.peers[..replicas] {
            strike("tick a peer was heard at", &mut peer.last_received);
            strike("what a peer has delivered", &mut peer.delivered);
            strike("tick a peer moved at", &mut peer.moved);
            strike("ticks of an offer", &mut peer.snapshot_ticks);
        }
        strike("handed", &mut self.handed);
        strike("taken", &mut self.taken);
        strike("applied by the member", &mut self.applied);
        strike("installed", &mut self.installed);
        strike("the leader's floor", &mut self.leaders_floor);
        strike("campaigns", &mut self.campaigns);
        strike("followed leader", &mut self.followed.0);
        strike("followed term", &mut self.followed.1);
        strike("ticks", &mut self.ticks);
        hit
    }
}
