//! How many replicas vote on which batch: a group grows and shrinks at one batch of its order, and what was executed
//! before is judged by as many as there were then.

/// Changes that are remembered: batches from before the oldest one are closed long before there are so many.
const REMEMBERED: usize = 4;

/// The sizes of a group, each with the first batch on which so many vote; the last change first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VotersByBatch([(u64, u8); REMEMBERED]);

impl VotersByBatch {
    /// As many for all batches.
    pub(crate) fn of(replicas: u8) -> Self {
        VotersByBatch([(0, replicas); REMEMBERED])
    }

    /// So many vote on the batches after this one.
    pub(crate) fn change(&mut self, after: u64, replicas: u8) {
        self.0.rotate_right(1);
        self.0[0] = (after + 1, replicas);
    }

    /// Those that vote on the newest batches.
    pub(crate) fn now(&self) -> u8 {
        self.0[0].1
    }

    /// Those that vote on this batch.
    pub(crate) fn at(&self, batch: u64) -> u8 {
        let of = self.0.iter().find(|(first, _)| *first <= batch).or(self.0.last());
        of.map_or(0, |(_, replicas)| *replicas)
    }

    /// The most that vote on a batch that may be open.
    pub(crate) fn most(&self) -> u8 {
        self.0.iter().map(|(_, replicas)| *replicas).max().unwrap_or(0)
    }

    /// The faulty replicas that are tolerated at this batch.
    pub(crate) fn faults_at(&self, batch: u64) -> u8 {
        self.at(batch) / 2
    }

    /// Replicas that have to agree on this batch: f+1.
    pub(crate) fn quorum_at(&self, batch: u64) -> u32 {
        u32::from(self.faults_at(batch)) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_batch_is_judged_by_as_many_as_there_were_then() {
        let mut sizes = VotersByBatch::of(3);
        sizes.change(10, 5);
        sizes.change(20, 7);
        sizes.change(30, 5);
        assert_eq!([0, 10, 11, 20, 21, 30, 31].map(|batch| sizes.at(batch)), [3, 3, 5, 5, 7, 7, 5]);
        assert_eq!([10, 11, 21].map(|batch| sizes.quorum_at(batch)), [2, 3, 4]);
        assert_eq!((sizes.now(), sizes.most()), (5, 7));
        (0..REMEMBERED as u64).for_each(|step| sizes.change(40 + step, 3));
        assert_eq!((sizes.at(0), sizes.most()), (3, 3), "what is forgotten");
    }
}
