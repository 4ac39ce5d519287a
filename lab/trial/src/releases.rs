//! The releases of the replicas of a run with upgrades: a group goes from one release to the next, one replica after
//! the other, and some go back before the last one has it.

/// One in so many changes goes back to the release before, where that is possible.
const BACK_EACH: u64 = 5;

/// The release of each replica. Never more than two, of which one follows the other, are in use at once.
#[derive(Debug)]
pub struct Releases(Vec<u16>);

impl Releases {
    /// Of so many replicas, all of the first release.
    pub fn new(replicas: usize) -> Self {
        Releases(vec![1; replicas])
    }

    /// The release of a replica, from 0.
    pub fn of(&self, number: usize) -> u16 {
        self.0[number]
    }

    /// The oldest one, as whose behavior a group acts that has come to rest.
    pub fn oldest(&self) -> u16 {
        self.0.iter().copied().min().unwrap_or(1)
    }

    /// The replicas, from 0, of which one changes next: those that are behind, or, by this choice, those that are ahead
    /// and go back.
    pub fn due(&self, choice: u64) -> Vec<usize> {
        let (oldest, goes_back) = (self.oldest(), choice.is_multiple_of(BACK_EACH));
        let ahead = |is_ahead: bool| {
            (0..self.0.len()).filter(|number| (self.0[*number] > oldest) == is_ahead).collect::<Vec<_>>()
        };
        let back = if goes_back { ahead(true) } else { Vec::new() };
        if back.is_empty() { ahead(false) } else { back }
    }

    /// A replica becomes of the other release. Returns the one before, and the new one.
    pub fn change(&mut self, number: usize) -> (u16, u16) {
        let (oldest, before) = (self.oldest(), self.0[number]);
        let after = if before > oldest { oldest } else { before + 1 };
        self.0[number] = after;
        (before, after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_become_of_the_next_release_and_those_that_are_ahead_may_go_back_before() {
        let mut releases = Releases::new(3);
        assert_eq!(releases.due(0), [0, 1, 2], "none is ahead");
        assert_eq!(releases.change(1), (1, 2));
        assert_eq!(releases.due(1), [0, 2]);
        assert_eq!(releases.due(BACK_EACH), [1]);
        assert_eq!(releases.change(1), (2, 1));
        for number in [2, 0, 1] {
            assert_eq!(releases.oldest(), 1);
            assert_eq!(releases.change(number), (1, 2));
        }
        assert_eq!(releases.oldest(), 2);
        assert_eq!(releases.change(0), (2, 3));
    }
}
