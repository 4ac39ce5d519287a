//! Who is right: the paper's four states, decided by f+1 equal votes instead of pairwise comparisons.
//!
//! EDCC'16 Fig. 2 is written for three replicas. Its lines 15-18 stand behind lines 11-14 in the same branch;
//! read literally, a replica would become SUSPECT and FAILED in one step. The text asks for two failed
//! comparisons, and so do we. The other difference is the case that no two replicas agree: Fig. 2 ends with
//! all of them FAILED, we end with all of them SUSPECT and go on to the no-majority rules (docs/design.md,
//! section 6): no replica guesses.

use crate::config::{Replica, Set};
use crate::limits::MAX_REPLICAS;

/// What one request tells about one replica (EDCC'16 Table I).
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

/// What one replica says about one request.
///
/// It may say up to three values: the one its batch digest implies, the one it states, and the one its pairs
/// give. They are the same unless the checker itself was hit. A replica is right when any of them is what f+1
/// replicas say: a wrong value that f+1 replicas share would need f+1 equal faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vote {
    values: [u128; 3],
    count: u8,
    blamed: bool,
}

impl Vote {
    /// Adds a value.
    pub fn say(&mut self, value: u128) {
        if !self.says(value) && (self.count as usize) < self.values.len() {
            self.values[self.count as usize] = value;
            self.count += 1;
        }
    }

    /// The replica blames itself: whatever it says does not count.
    pub fn blame(&mut self) {
        self.blamed = true;
    }

    /// Whether `value` is among what it says.
    pub fn says(&self, value: u128) -> bool {
        self.values().contains(&value)
    }

    /// Whether it said anything at all, or blamed itself.
    pub fn is_cast(&self) -> bool {
        self.count > 0 || self.blamed
    }

    /// Whether it says two different things: the checker itself was hit there.
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

    /// Whether both say exactly the same.
    pub(crate) fn is_same(&self, other: &Vote) -> bool {
        self.blamed == other.blamed && self.values() == other.values()
    }

    fn agrees_with(&self, other: &Vote) -> bool {
        self.values().iter().any(|value| other.says(*value))
    }
}

/// One vote per replica.
pub type Votes = [Vote; MAX_REPLICAS];

/// The outcome of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What f+1 replicas say, if any value is said by so many.
    pub majority: Option<u128>,
    /// What the vote tells about each replica.
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
            Some(value) if vote.says(value) => Status::Valid,
            Some(_) => Status::Failed,
            None if votes.iter().any(|other| other.count > 0 && !vote.agrees_with(other)) => Status::Suspect,
            None => Status::Unknown,
        };
    }
    Verdict { majority, statuses }
}

/// The value that at least `quorum` replicas say.
fn majority(votes: &Votes, quorum: u32) -> Option<u128> {
    let enough =
        |value: &u128| votes.iter().filter(|vote| !vote.blamed && vote.says(*value)).count() as u32 >= quorum;
    votes.iter().filter(|vote| !vote.blamed).flat_map(|vote| vote.values()).copied().find(enough)
}

/// The last resort of the no-majority rules: everybody who is up has examined itself; some blamed themselves, and all
/// that stand by their result say the same. Weaker than f+1, and used only when f+1 cannot be had any more.
pub(crate) fn by_elimination(votes: &Votes, live: Set, stands: Set, faults: u8) -> Option<u128> {
    let blamed = votes.iter().filter(|vote| vote.blamed).count();
    let rest = || live.iter().filter(|replica| !votes[*replica as usize].blamed);
    if blamed == 0 || blamed > faults as usize || !rest().all(|replica| stands.contains(replica)) {
        return None;
    }
    let first = rest().next()?;
    let shared = |value: &u128| rest().all(|replica| votes[replica as usize].says(*value));
    votes[first as usize].values().iter().copied().find(shared)
}
