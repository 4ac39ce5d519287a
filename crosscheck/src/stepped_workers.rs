//! The workers of a stepped replica that has several: threads of their own, of which one runs at a time. Who
//! runs next, and where it is interrupted, one seed decides, so that a simulation can repeat every
//! interleaving.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use parking_lot::{Condvar, Mutex};
use schedule::YieldPoint;
use wire::SplitMix64;

/// A worker is interrupted at one in so many points where it could be.
const INTERRUPTED: u64 = 3;

/// Who of a replica's workers runs: one of them, or the order thread.
pub(crate) struct SteppedWorkers {
    watch: Mutex<StepWatch>,
    /// By worker: it is its move.
    moves: Vec<Condvar>,
    /// It is the order thread's move.
    rests: Condvar,
}

struct StepWatch {
    /// None: the order thread.
    runs: Option<usize>,
    state: Vec<StepState>,
    /// The order thread's clock, and until when each worker is inside a handler that takes long.
    now_us: u64,
    until_us: Vec<u64>,
    rng: SplitMix64,
    /// The replica stops: nothing is waited for any more.
    ends: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepState {
    /// It goes on when it is chosen, unless the schedule says that it waits.
    Works,
    /// It waits for something the order thread brings.
    Awaits,
    Ended,
}

impl SteppedWorkers {
    /// A set of `workers`, none of which has begun.
    pub fn new(workers: usize, seed: u64) -> Arc<Self> {
        let state = vec![StepState::Works; workers];
        let (now_us, until_us, rng) = (0, vec![0; workers], SplitMix64::new(seed));
        let watch = StepWatch { runs: None, state, now_us, until_us, rng, ends: false };
        let moves = (0..workers).map(|_| Condvar::new()).collect();
        Arc::new(SteppedWorkers { watch: Mutex::new(watch), moves, rests: Condvar::new() })
    }

    /// The order thread lets one worker go on that can, up to where it is interrupted, waits or ends. False
    /// if none can.
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

    /// It is so late now.
    pub fn set_now(&self, now_us: u64) {
        self.watch.lock().now_us = now_us;
    }

    /// What a worker awaits may be there now.
    pub fn stir(&self) {
        let mut watch = self.watch.lock();
        watch
            .state
            .iter_mut()
            .filter(|state| **state == StepState::Awaits)
            .for_each(|state| *state = StepState::Works);
    }

    /// Lets every worker go on until it has ended. The schedule has been aborted.
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
            self.rests.wait(watch);
        }
    }

    /// Gives the move back, as `state`, and returns when it is `worker`'s again; false if nothing is waited
    /// for any more.
    fn rest(&self, worker: usize, state: StepState) -> bool {
        let mut watch = self.watch.lock();
        watch.state[worker] = state;
        watch.runs = None;
        self.rests.notify_one();
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
            self.rest(worker, StepState::Works);
        }
    }
}

/// One worker's place among them, for as long as its thread runs.
pub(crate) struct SteppedWorker {
    workers: Arc<SteppedWorkers>,
    worker: usize,
}

impl SteppedWorker {
    /// Returns when it is this worker's first move.
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
        self.workers.rest(self.worker, StepState::Works);
    }

    /// What the order thread sends; none when nothing comes any more.
    pub fn receive<T>(&self, sent: &Receiver<T>) -> Option<T> {
        loop {
            match sent.try_recv() {
                Ok(value) => return Some(value),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) if self.workers.rest(self.worker, StepState::Awaits) => {}
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
        self.workers.rests.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Starts a thread that notes its number, then receives, then notes what came.
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
        workers.stir();
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
