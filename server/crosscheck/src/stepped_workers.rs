//! The workers of a stepped replica with several of them. Each has a thread of its own, and one runs at a time. One
//! seed decides which runs next and where it is interrupted, so that a simulation can repeat every interleaving.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use parking_lot::{Condvar, Mutex};
use schedule::YieldPoint;
use wire::SplitMix64;

/// A worker is interrupted at one in so many points where it could be.
const INTERRUPTED: u64 = 3;

/// Decides which thread of a replica runs: one of its workers, or the order thread.
pub(crate) struct SteppedWorkers {
    watch: Mutex<StepWatch>,
    /// By worker: signals that it may run.
    moves: Vec<Condvar>,
    /// Signals that the order thread may run.
    parked: Condvar,
}

struct StepWatch {
    /// The worker that runs; none: the order thread.
    runs: Option<usize>,
    state: Vec<StepState>,
    /// The order thread's clock, and until when each worker is inside a handler that takes long.
    now_us: u64,
    until_us: Vec<u64>,
    rng: SplitMix64,
    /// The replica stops: no worker waits for anything any more.
    ends: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepState {
    /// It continues when it is chosen, unless it waits for the schedule.
    Works,
    /// It waits for something that the order thread sends.
    Awaits,
    Ended,
}

impl SteppedWorkers {
    /// A set of `workers` that have not begun.
    pub fn new(workers: usize, seed: u64) -> Arc<Self> {
        let state = vec![StepState::Works; workers];
        let (now_us, until_us, rng) = (0, vec![0; workers], SplitMix64::new(seed));
        let watch = StepWatch { runs: None, state, now_us, until_us, rng, ends: false };
        let moves = (0..workers).map(|_| Condvar::new()).collect();
        Arc::new(SteppedWorkers { watch: Mutex::new(watch), moves, parked: Condvar::new() })
    }

    /// Threads take the places of workers that have ended.
    pub fn begin_again(&self) {
        let mut watch = self.watch.lock();
        watch.state.fill(StepState::Works);
        watch.until_us.fill(0);
        watch.ends = false;
    }

    /// Lets one worker that can run continue until it is interrupted, waits or ends. Called by the order thread. False
    /// if none can run.
    pub fn step(&self, waits: impl Fn(usize) -> bool) -> bool {
        let mut watch = self.watch.lock();
        let can = |worker: &usize| {
            let is_free = watch.until_us[*worker] <= watch.now_us;
            is_free && watch.state[*worker] == StepState::Works && !waits(*worker)
        };
        let able: Vec<usize> = (0..watch.state.len()).filter(can).collect();
        if able.is_empty() {
            return false;
        }
        let chosen = able[watch.rng.below(able.len() as u64) as usize];
        self.run(&mut watch, chosen);
        true
    }

    /// Sets the time.
    pub fn set_now(&self, now_us: u64) {
        self.watch.lock().now_us = now_us;
    }

    /// The items that workers wait for may have been sent now.
    pub fn wake_waiting(&self) {
        let mut watch = self.watch.lock();
        watch
            .state
            .iter_mut()
            .filter(|state| **state == StepState::Awaits)
            .for_each(|state| *state = StepState::Works);
    }

    /// Lets every worker continue until it has ended. The schedule has been aborted.
    pub fn finish(&self) {
        let mut watch = self.watch.lock();
        watch.ends = true;
        for worker in 0..watch.state.len() {
            while watch.state[worker] != StepState::Ended {
                self.run(&mut watch, worker);
            }
        }
    }

    fn run(&self, watch: &mut parking_lot::MutexGuard<'_, StepWatch>, worker: usize) {
        watch.runs = Some(worker);
        self.moves[worker].notify_one();
        while watch.runs.is_some() {
            self.parked.wait(watch);
        }
    }

    /// Passes control to the order thread, with the worker in `state`, and returns when `worker` may run again; false
    /// if the replica stops.
    fn park(&self, worker: usize, state: StepState) -> bool {
        let mut watch = self.watch.lock();
        watch.state[worker] = state;
        watch.runs = None;
        self.parked.notify_one();
        while watch.runs != Some(worker) {
            self.moves[worker].wait(&mut watch);
        }
        watch.state[worker] = StepState::Works;
        !watch.ends
    }
}

impl YieldPoint for SteppedWorkers {
    fn pause(&self, worker: usize, waits: bool) {
        if waits || self.watch.lock().rng.below(INTERRUPTED) == 0 {
            self.park(worker, StepState::Works);
        }
    }
}

/// One worker's place in the set, for as long as its thread runs.
pub(crate) struct SteppedWorker {
    workers: Arc<SteppedWorkers>,
    worker: usize,
}

impl SteppedWorker {
    /// Returns when this worker may run for the first time.
    pub fn take(workers: Arc<SteppedWorkers>, worker: usize) -> Self {
        let mut watch = workers.watch.lock();
        while watch.runs != Some(worker) {
            workers.moves[worker].wait(&mut watch);
        }
        drop(watch);
        SteppedWorker { workers, worker }
    }

    /// This worker's handler takes so long.
    pub fn linger(&self, time_us: u64) {
        {
            let mut watch = self.workers.watch.lock();
            watch.until_us[self.worker] = watch.now_us + time_us;
        }
        self.workers.park(self.worker, StepState::Works);
    }

    /// Receives an item from the order thread; none when no more are sent.
    pub fn receive<T>(&self, sent: &Receiver<T>) -> Option<T> {
        loop {
            match sent.try_recv() {
                Ok(value) => return Some(value),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) if self.workers.park(self.worker, StepState::Awaits) => {}
                Err(TryRecvError::Empty) => return None,
            }
        }
    }
}

impl Drop for SteppedWorker {
    fn drop(&mut self) {
        let mut watch = self.workers.watch.lock();
        watch.state[self.worker] = StepState::Ended;
        watch.runs = None;
        self.workers.parked.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Starts a thread that notes its number, then receives, then notes what it received.
    fn worker(
        workers: &Arc<SteppedWorkers>,
        number: usize,
        notes: &Arc<Mutex<Vec<String>>>,
    ) -> mpsc::Sender<u8> {
        let (sender, sent) = mpsc::channel();
        let (workers, notes) = (workers.clone(), notes.clone());
        std::thread::spawn(move || {
            let seat = SteppedWorker::take(workers, number);
            notes.lock().push(format!("{number} begins"));
            let received = seat.receive(&sent);
            notes.lock().push(format!("{number} has {received:?}"));
        });
        sender
    }

    #[test]
    fn one_worker_runs_at_a_time_and_one_that_awaits_goes_on_when_something_came() {
        let (workers, notes) = (SteppedWorkers::new(2, 7), Arc::new(Mutex::new(Vec::new())));
        let senders = [worker(&workers, 0, &notes), worker(&workers, 1, &notes)];
        let noted = || std::mem::take(&mut *notes.lock());
        assert!(noted().is_empty(), "nobody runs before a step");
        while workers.step(|_| false) {}
        let mut begun = noted();
        begun.sort();
        assert_eq!(begun, ["0 begins", "1 begins"]);
        senders[1].send(9).unwrap();
        assert!(!workers.step(|_| false), "nobody was told");
        workers.wake_waiting();
        while workers.step(|_| false) {}
        assert_eq!(noted(), ["1 has Some(9)"]);
        workers.finish();
        assert_eq!(noted(), ["0 has None"]);
    }

    #[test]
    fn one_that_waits_for_the_schedule_is_not_chosen() {
        let (workers, notes) = (SteppedWorkers::new(2, 7), Arc::new(Mutex::new(Vec::new())));
        let _senders = [worker(&workers, 0, &notes), worker(&workers, 1, &notes)];
        while workers.step(|worker| worker == 0) {}
        assert_eq!(*notes.lock(), ["1 begins"]);
        workers.finish();
    }
}
