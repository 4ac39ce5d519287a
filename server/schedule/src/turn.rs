//! A request that may run now, and the trait of the schedulers.

use crate::cell::Slot;
use crate::cx::{Cx, Pass, Retry, Run, RunKind};
use crate::entry::Origin;
use crate::footprint::{Footprint, LockId};
use crate::lock::{Access, Lock};
use crate::start::Starts;
use crate::state::DispatcherState;

/// One worker of a scheduler: returns requests in the order its rules allow. It owns no thread; the caller does.
pub trait Scheduler<R>: Send {
    /// The next request of this worker, without waiting. (Within a request, taking a lock may wait.)
    fn next(&mut self) -> Step<'_, R>;

    /// Returns when `next` may return something other than [`Step::Idle`]: spins for a moment, then sleeps.
    fn wait(&mut self);

    /// The next request, waiting for it; `None` when the log is closed and everything has run.
    fn next_blocking(&mut self) -> Option<Turn<'_, R>>;
}

/// A worker's next step.
pub enum Step<'w, R> {
    /// Run this request.
    Run(Turn<'w, R>),
    /// Nothing now: the log has no further entry, or another worker is too far behind.
    Idle,
    /// Nothing ever again: the log is closed and done, or the schedule was aborted.
    Closed,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded: what it spawned will run.
    Done,
    /// It wanted a lock outside its footprint, and has been undone; it runs again.
    Mispredicted(Retry),
    /// It panicked, or failed a check at this replica, and has been undone; it does not run again.
    Abandoned,
}

/// All requests of an entry of mixed batches have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryEnd {
    /// Index of the entry.
    pub index: u64,
    /// What [`Schedule::append_mixed`](crate::Schedule::append_mixed) returned for it: an entry that was dropped may
    /// have the same index as a later one. Ends may be told in another order than they came: each by its worker.
    pub number: u64,
    /// Digest of the schedule's state after it: the next position, the time, requests that were started and timers.
    pub schedule: u64,
}

/// A request whose turn it is, from its dispatch until its turns are passed by [`Turn::finish`].
///
/// A `Turn` that is dropped, as by a panic, finishes as [`Outcome::Abandoned`]; the log goes on.
#[must_use = "run the request and finish the turn"]
pub struct Turn<'w, R> {
    driver: &'w mut dyn Drive<R>,
}

/// The scheduler's part for its running request.
pub(crate) trait Drive<R> {
    fn run(&self) -> &Run;
    fn starts(&self) -> &Starts<R>;
    fn request(&self) -> &R;
    fn footprint(&self) -> &Footprint;
    fn resolve(&mut self, outcome: Outcome) -> Option<EntryEnd>;
    fn state(&self) -> Option<DispatcherState<R>>;
    #[cfg(feature = "inject")]
    fn lose_count(&mut self);
}

impl<'w, R> Turn<'w, R> {
    pub(crate) fn new(driver: &'w mut dyn Drive<R>) -> Self {
        Turn { driver }
    }

    /// The request.
    pub fn request(&self) -> &R {
        self.driver.request()
    }

    /// The schedule as the handler sees it.
    pub fn cx(&self) -> Cx<'_, R> {
        Cx::new(self.driver.run(), self.driver.starts())
    }

    /// Dispatch position, from 1; equal on all replicas (in ordered turns). There a retry has a position of its own;
    /// with ordinary locks it keeps that of the attempt that was undone.
    pub fn position(&self) -> u64 {
        self.driver.run().position
    }

    /// Ordered time in microseconds, as the handler sees it.
    pub fn time_us(&self) -> u64 {
        self.driver.run().time_us
    }

    /// A fault: the worker counts one position too many, so that this request and all later ones run at wrong ones
    /// here.
    #[cfg(feature = "inject")]
    pub fn lose_count(&mut self) {
        self.driver.lose_count();
    }

    /// A fault: what the request has started does not come into the schedule.
    #[cfg(feature = "inject")]
    pub fn lose_started(&mut self) {
        self.driver.starts().forget();
    }

    /// Where the request came from; the same on a retry.
    pub fn origin(&self) -> Origin {
        self.driver.run().origin
    }

    /// Index of the log entry the request belongs to; of internal requests, of the entry opened last before it.
    pub fn entry_index(&self) -> u64 {
        self.driver.run().entry_index
    }

    /// Place of the request within its entry; `None` for internal requests.
    pub fn request_index(&self) -> Option<u32> {
        match self.origin() {
            Origin::Entry { request, .. } => Some(request),
            Origin::Spawned { .. } | Origin::Timer { .. } => None,
        }
    }

    /// How often the request has run before.
    pub fn attempt(&self) -> u32 {
        self.driver.run().attempt
    }

    /// The locks forecast for this attempt: declared, predicted, and missed by the attempts before.
    pub fn footprint(&self) -> &Footprint {
        self.driver.footprint()
    }

    /// Whether the request runs alone, with every lock.
    pub fn is_exclusive(&self) -> bool {
        self.driver.run().kind == RunKind::Alone
    }

    /// Shows the regions of all locks that the request has taken and still holds, in the order of their numbers:
    /// to seal them before the turns are passed, or to undo the request. `locks[i]` is the lock with the number i.
    ///
    /// # Panics
    /// If the handler has leaked a guard.
    pub fn visit_regions(&mut self, locks: &[&dyn Lock], mut visit: impl FnMut(LockId, Access<'_>)) {
        let run = self.driver.run();
        for slot in run.slots.iter().filter(|slot| slot.is_owned()) {
            if let Some(lock) = locks.get(slot.lock as usize) {
                // panics: a service whose locks are in another order than their numbers
                assert!(lock.id() == slot.lock, "locks[{}] has the number {}", slot.lock, lock.id());
                lock.show(&run.turns.brand, slot, &mut |access| visit(slot.lock, access));
            }
        }
    }

    /// Shows the region of one lock, as [`Turn::visit_regions`] does, if the request holds it.
    pub fn visit_region(&mut self, locks: &[&dyn Lock], lock: LockId, visit: impl FnOnce(Access<'_>)) {
        let run = self.driver.run();
        let at = if run.kind == RunKind::Alone {
            Some(lock as usize)
        } else {
            run.slots.iter().position(|slot| slot.lock == lock)
        };
        let slot = at.and_then(|at| run.slots.get(at)).filter(|slot| slot.is_owned() && slot.lock == lock);
        if let (Some(slot), Some(one)) = (slot, locks.get(lock as usize)) {
            let mut visit = Some(visit);
            // A lock shows its region once.
            one.show(&run.turns.brand, slot, &mut |access| {
                if let Some(visit) = visit.take() {
                    visit(access);
                }
            });
        }
    }

    /// Takes the turn at every lock of the footprint that the handler has not taken, so that
    /// [`Turn::visit_regions`] shows them too: for requests that are run by the runtime itself, as a repair.
    pub fn take_all(&mut self) {
        let run = self.driver.run();
        run.slots.iter().filter(|slot| !slot.is_passed()).for_each(|slot| run.await_turn(slot));
    }

    /// The handler is about to run, and not for the only time: the requests that it started before are dropped, its
    /// random numbers begin again, and no turn is passed early. Its changes must have been undone. `counted` is true in
    /// one of the runs, whether or not it is the one whose effects stay: there the handler updates counters outside of
    /// the state ([`Cx::is_counted`]).
    pub fn repeat(&mut self, counted: bool) {
        let run = self.driver.run();
        run.pass.set(if counted { Pass::Counted } else { Pass::Uncounted });
        run.rng_calls.set(0);
        run.slots.iter().for_each(Slot::forget_use);
        self.driver.starts().forget();
    }

    /// What is known of the locks of predicted requests may differ between replicas, because a fault has hit one of
    /// them: if this request succeeds, all forget it, where what it spawns would take effect ([`Footprint::predict`]).
    pub fn forget_lessons(&mut self) {
        self.driver.starts().forget_lessons();
    }

    /// Shows the requests that the handler has started so far: those that run soon, and then those with a time in
    /// microseconds. They are part of its result: two runs of it must have started the same ones.
    pub fn visit_started(&self, visit: impl FnMut(Option<u64>, &R)) {
        self.driver.starts().visit(visit);
    }

    /// The dispatcher's state after this position, of an exclusive request in ordered turns. Another replica needs it
    /// to [`resume`](crate::resume) with the next position. Requests that this one spawns are not in it.
    pub fn dispatcher_state(&self) -> Option<DispatcherState<R>> {
        self.driver.state()
    }

    /// A number that ascends in the order in which requests on a common lock run. Take it while the locks are held:
    /// when the request is sealed.
    pub fn stamp(&self) -> u64 {
        self.driver.run().turns.stamp()
    }

    /// Ends the request and passes its turns. Sealing or undoing comes before. In mixed batches, the last request of an
    /// entry returns what is known then.
    pub fn finish(self, outcome: Outcome) -> Option<EntryEnd> {
        let ended = self.driver.resolve(outcome);
        std::mem::forget(self);
        ended
    }
}

impl<R> Drop for Turn<'_, R> {
    fn drop(&mut self) {
        self.driver.resolve(Outcome::Abandoned);
    }
}
