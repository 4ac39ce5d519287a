//! Externalize, in mode `00GT` with several workers: replies wait until every request that ran beside their own was
//! checked, too.

use std::collections::VecDeque;

use schedule::WorkerProgress;

use crate::running::Executed;

/// The checking barrier (SEI, NSDI'15, section 4.2).
///
/// Of two requests that a fault made share a region at the same time, one may end before the other's comparison finds
/// the fault, with a reply that depends on what the other one wrote. So when a batch has its results, the progress of
/// all workers is noted, and its replies leave when each request that was running then has ended.
#[derive(Default)]
pub(super) struct CheckingBarrier {
    held: VecDeque<(Vec<WorkerProgress>, Executed)>,
}

impl CheckingBarrier {
    /// A batch has its results, and the workers have this `progress`.
    pub fn hold(&mut self, progress: Vec<WorkerProgress>, checked: Executed) {
        self.held.push_back((progress, checked));
    }

    /// Whether replies wait.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// The next batch whose replies may leave, now that the workers have this `progress`.
    pub fn pass(&mut self, progress: &[WorkerProgress]) -> Option<Executed> {
        let (noted, _) = self.held.front()?;
        let mut pairs = noted.iter().zip(progress);
        let all_ended = noted.len() == progress.len() && pairs.all(|(noted, now)| noted.has_ended(now));
        if all_ended { self.held.pop_front().map(|(_, checked)| checked) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(running: u64, resolved: u64) -> WorkerProgress {
        WorkerProgress { watermark: 0, running, resolved }
    }

    fn batch(batch: u64) -> Executed {
        Executed { batch, origin: 0, results: Vec::new(), runs: Vec::new() }
    }

    #[test]
    fn replies_wait_for_the_requests_that_ran_beside_them_and_for_no_later_one() {
        let mut barrier = CheckingBarrier::default();
        assert!(barrier.pass(&[at(0, 9), at(0, 9)]).is_none() && !barrier.is_holding());
        barrier.hold(vec![at(0, 5), at(41, 7)], batch(3));
        assert!(barrier.pass(&[at(42, 5), at(41, 7)]).is_none(), "position 41 has not ended");
        barrier.hold(vec![at(42, 5), at(41, 7)], batch(4));
        assert!(barrier.pass(&[at(0, 6), at(41, 7)]).is_none() && barrier.is_holding());
        let later = [at(44, 6), at(43, 8)];
        let passed = [barrier.pass(&later), barrier.pass(&later)].map(|checked| checked.map(|one| one.batch));
        assert_eq!(passed, [Some(3), Some(4)], "those that run now began later");
        assert!(barrier.pass(&later).is_none() && !barrier.is_holding());
    }

    #[test]
    fn a_request_that_ended_while_progress_was_noted_holds_nothing_back() {
        let mut barrier = CheckingBarrier::default();
        barrier.hold(vec![at(41, 8)], batch(3));
        assert!(barrier.pass(&[at(41, 8)]).is_none());
        assert_eq!(barrier.pass(&[at(0, 8)]).map(|one| one.batch), Some(3), "its worker may stay idle");
    }

    #[test]
    fn batches_leave_in_their_order() {
        let mut barrier = CheckingBarrier::default();
        barrier.hold(vec![at(41, 7), at(0, 2)], batch(3));
        barrier.hold(vec![at(0, 8), at(0, 2)], batch(4));
        assert!(barrier.pass(&[at(41, 7), at(0, 2)]).is_none());
        assert_eq!(barrier.pass(&[at(0, 8), at(0, 2)]).map(|one| one.batch), Some(3));
        assert_eq!(barrier.pass(&[at(0, 8), at(0, 2)]).map(|one| one.batch), Some(4));
    }

    #[test]
    fn progress_of_another_number_of_workers_lets_nothing_leave() {
        let mut barrier = CheckingBarrier::default();
        barrier.hold(vec![at(0, 5), at(0, 7)], batch(3));
        assert!(barrier.pass(&[at(0, 6)]).is_none());
    }
}
