//! Classification of replicas: the paper's four states, decided by f+1 equal votes instead of pairwise comparisons.
//!
//! EDCC'16 Fig. 2 is written for three replicas. Its lines 15-18 follow lines 11-14 in the same branch; read literally,
//! a replica would become SUSPECT and FAILED in one step. The paper's text requires two failed comparisons, and so does
//! this function. The other difference is the case that no two replicas agree: Fig. 2 ends with all of them FAILED,
//! this function ends with all of them SUSPECT, and the no-majority rules follow (docs/design.md, section 6): no
//! replica guesses.

use crate::config::{Replica, Set};
use crate::limits::MAX_REPLICAS;

/// The status of one replica for one request (EDCC'16 Table I).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Status {
    /// Not verified: it has not voted, or too few have.
    #[default]
    Unknown,
    /// It took part in a comparison that failed.
    Suspect,
    /// f replicas agree with it.
    Valid,
    /// f+1 other replicas agree with each other and not with it, or it blames itself.
    Failed,
}

/// One replica's vote on one request.
///
/// It may have up to three values: the one that its batch digest implies, the one that it states, and the one that its
/// pairs give. They are equal unless a fault hit the checker itself. A replica is right when f+1 replicas have any of
/// its values: a wrong value that f+1 replicas share would need f+1 equal faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vote {
    values: [u128; 3],
    count: u8,
    blamed: bool,
}

impl Vote {
    /// Adds a value.
    pub fn add_value(&mut self, value: u128) {
        if !self.has_value(value) && (self.count as usize) < self.values.len() {
            self.values[self.count as usize] = value;
            self.count += 1;
        }
    }

    /// The replica blames itself: its values do not count.
    pub fn blame(&mut self) {
        self.blamed = true;
    }

    /// Whether `value` is among its values.
    pub fn has_value(&self, value: u128) -> bool {
        self.values().contains(&value)
    }

    /// Whether it has any value, or the replica blamed itself.
    pub fn is_cast(&self) -> bool {
        self.count > 0 || self.blamed
    }

    /// Whether it has two different values: a fault hit the checker itself.
    pub fn is_torn(&self) -> bool {
        self.count > 1
    }

    /// Whether it blames itself.
    pub fn is_blamed(&self) -> bool {
        self.blamed
    }

    fn values(&self) -> &[u128] {
        &self.values[..self.count as usize]
    }

    /// Whether both votes are equal.
    pub(crate) fn is_same(&self, other: &Vote) -> bool {
        self.blamed == other.blamed && self.values() == other.values()
    }

    fn agrees_with(&self, other: &Vote) -> bool {
        self.values().iter().any(|value| other.has_value(*value))
    }
}

/// One vote per replica.
pub type Votes = [Vote; MAX_REPLICAS];

/// The outcome of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The value of f+1 replicas, if there is one.
    pub majority: Option<u128>,
    /// The status of each replica.
    pub statuses: [Status; MAX_REPLICAS],
}

impl Verdict {
    pub(crate) fn with(&self, status: Status) -> Set {
        let mut set = Set::EMPTY;
        for (replica, _) in self.statuses.iter().enumerate().filter(|(_, own)| **own == status) {
            set.insert(replica as Replica);
        }
        set
    }

    pub(crate) fn of(&self, replica: Replica) -> Status {
        self.statuses[replica as usize]
    }
}

/// Decides by majority. Replicas without a vote stay UNKNOWN; the order in which votes arrived does not matter.
pub fn classify(votes: &Votes, quorum: u32) -> Verdict {
    verdict(votes, majority(votes, quorum))
}

/// The statuses that follow once `majority` is accepted as the right value.
pub(crate) fn verdict(votes: &Votes, majority: Option<u128>) -> Verdict {
    let mut statuses = [Status::Unknown; MAX_REPLICAS];
    for (status, vote) in statuses.iter_mut().zip(votes) {
        *status = match majority {
            _ if vote.blamed => Status::Failed,
            _ if !vote.is_cast() => Status::Unknown,
            Some(value) if vote.has_value(value) => Status::Valid,
            Some(_) => Status::Failed,
            None if votes.iter().any(|other| other.count > 0 && !vote.agrees_with(other)) => Status::Suspect,
            None => Status::Unknown,
        };
    }
    Verdict { majority, statuses }
}

/// The value of at least `quorum` replicas.
fn majority(votes: &Votes, quorum: u32) -> Option<u128> {
    let enough = |value: &u128| {
        votes.iter().filter(|vote| !vote.blamed && vote.has_value(*value)).count() as u32 >= quorum
    };
    votes.iter().filter(|vote| !vote.blamed).flat_map(|vote| vote.values()).copied().find(enough)
}

/// The last resort of the no-majority rules: every live replica has examined itself; some blamed themselves, and all
/// that stand by their results have the same value. This is weaker than f+1 equal votes, and used only when those are
/// not possible any more.
pub(crate) fn by_elimination(votes: &Votes, live: Set, stands: Set, faults: u8) -> Option<u128> {
    let blamed = votes.iter().filter(|vote| vote.blamed).count();
    let rest = || live.iter().filter(|replica| !votes[*replica as usize].blamed);
    if blamed == 0 || blamed > faults as usize || !rest().all(|replica| stands.contains(replica)) {
        return None;
    }
    let first = rest().next()?;
    let shared = |value: &u128| rest().all(|replica| votes[replica as usize].has_value(*value));
    votes[first as usize].values().iter().copied().find(shared)
}
