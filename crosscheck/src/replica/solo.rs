//! The worker of a replica that has only one: the order thread runs it between two looks at its sockets, so that a
//! request gets from socket to socket without waiting for another thread.
//!
//! What may wait or take long must not hold up the sockets: while a batch with such a request of the pipeline's own is on its
//! way (a RECOVER waits for its objects, a CUT packs the whole state), the worker is lent to a helper thread.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use schedule::Step;

use super::execution::Ties;
use crate::limits;
use crate::reply::Replies;
use crate::service::Service;
use crate::worker::{self, Context, Report, Share};
use crate::world::Lockstep;

/// The one worker, and who has it.
pub(super) struct Solo<S: Service> {
    context: Context<S>,
    /// What the handlers run here have to say.
    said: Arc<Mutex<Vec<Report>>>,
    /// None while the helper has it.
    worker: Option<Share<S>>,
    helper: mpsc::Sender<Share<S>>,
    back: mpsc::Receiver<Share<S>>,
    /// Batches with a request that may wait or take long, and that have not all their results.
    long: BTreeSet<u64>,
    /// The last of them: the helper gives the worker back behind it.
    last_long: Arc<AtomicU64>,
    replies: Replies,
    lockstep: Lockstep,
}

/// What a slice of the thread's time leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slice {
    /// Nothing to run here.
    Idle,
    /// Its time was over before everything had run.
    More,
}

impl<S: Service> Solo<S> {
    /// Takes `worker`; `contexts` make what it needs, given where its reports go. `report` brings the helper's.
    ///
    /// # Errors
    /// When the kernel gives no thread.
    pub fn start(
        worker: Share<S>,
        contexts: impl Fn(worker::Tell) -> Context<S>,
        report: impl Fn(Report) + Clone + Send + Sync + 'static,
        ties: &Ties<'_>,
    ) -> std::io::Result<Self> {
        let lockstep = ties.lockstep.clone();
        let said = Arc::new(Mutex::new(Vec::new()));
        let here = said.clone();
        let context = contexts(Box::new(move |report| here.lock().push(report)));
        let (helper, lent) = mpsc::channel::<Share<S>>();
        let (give_back, back) = mpsc::channel();
        let pace = lockstep.clone();
        let helpers = contexts(Box::new(move |said| {
            // After these reports the helper can only wait: for a repair, or for the worker.
            let rests = matches!(
                &said,
                Report::RecoverTurn { install: Some(_), .. } | Report::Returned | Report::Ended
            );
            report(said);
            if rests {
                pace.rest();
            }
        }));
        let last_long = Arc::new(AtomicU64::new(0));
        let until = last_long.clone();
        let help = move || {
            while let Ok(worker) = lent.recv() {
                if let Some(worker) = worker::run_until(worker, &until, &helpers)
                    && give_back.send(worker).is_ok()
                {
                    (helpers.report)(Report::Returned);
                }
            }
        };
        std::thread::Builder::new().name("helper".into()).spawn(help)?;
        let (long, replies) = (BTreeSet::new(), Replies::default());
        let worker = Some(worker);
        Ok(Solo { context, said, worker, helper, back, long, last_long, replies, lockstep })
    }

    /// Batch `batch` was appended; `is_long` if it has a request that may wait or take long.
    pub fn on_append(&mut self, batch: u64, is_long: bool) {
        if is_long {
            self.long.insert(batch);
            self.last_long.store(batch, Ordering::Release);
            self.lend();
        }
    }

    /// Batch `batch` has all its results.
    pub fn on_executed(&mut self, batch: u64) {
        self.long.remove(&batch);
    }

    /// The helper has run what is long.
    pub fn on_returned(&mut self) {
        self.worker = self.back.try_recv().ok();
        if !self.long.is_empty() {
            self.lend();
        }
    }

    fn lend(&mut self) {
        if let Some(worker) = self.worker.take() {
            // A helper that is gone has said so: the replica is being replaced.
            self.lockstep.hand_over(|| self.helper.send(worker).is_ok());
        }
    }

    /// Runs what is there, for a moment, and appends what the handlers had to say to `reports`. Tells how long it took.
    pub fn run<T: Fn() -> Duration>(
        &mut self,
        reports: &mut Vec<Report>,
        stopwatch: impl FnOnce() -> T,
    ) -> (Slice, Duration) {
        let Some(worker) = &mut self.worker else { return (Slice::Idle, Duration::ZERO) };
        let elapsed = stopwatch();
        let mut time = Duration::ZERO;
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let mut locks = None;
            loop {
                let Step::Run(turn) = worker.next() else { return Slice::Idle };
                let locks = locks.get_or_insert_with(|| self.context.service.locks());
                self.context.run_turn(turn, locks, &mut self.replies);
                time = elapsed();
                if time >= limits::SOLO_RUN {
                    return Slice::More;
                }
            }
        }));
        reports.append(&mut self.said.lock());
        let slice = ran.unwrap_or_else(|_| {
            reports.push(Report::Ended);
            Slice::Idle
        });
        (slice, time)
    }
}

/// What the order thread shows to the watchdog's thread.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Odd during a stretch of work; another number for every stretch.
    beats: AtomicU64,
    /// Log index of the oldest batch in execution; 0 for none.
    oldest: AtomicU64,
    /// Last batch that was executed.
    executed: AtomicU64,
}

impl Pulse {
    /// A stretch of work begins, or ends: in a handler, or in anything else between two looks at the sockets. A fault can make any
    /// loop endless.
    pub fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// The oldest batch in execution is the one of this log entry now; 0 for none.
    pub fn execute(&self, oldest: u64) {
        self.oldest.store(oldest, Ordering::Relaxed);
    }

    /// That batch is executed.
    pub fn execute_done(&self, batch: u64) {
        self.executed.fetch_max(batch, Ordering::Relaxed);
    }

    /// Last batch that was executed.
    pub fn executed(&self) -> u64 {
        self.executed.load(Ordering::Relaxed)
    }

    /// Log index of the oldest batch in execution; 0 for none.
    pub fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::Relaxed)
    }
}

/// The watchdog of the order thread (EDCC'16 section IV-C): another thread looks every [`limits::WATCH`].
///
/// It counts looks and reads no clock: a process that was stopped for a while has not been hanging.
#[derive(Debug)]
pub(crate) struct Watchdog {
    pulse: Arc<Pulse>,
    seen: u64,
    looks: u32,
    patience: u32,
    /// Batches up to this log index take as long as they take.
    unwatched: u64,
    /// The stretch of work that was found to take long elsewhere, too.
    spared: u64,
}

impl Watchdog {
    /// Minds stretches of work that last longer than `limit`, but for batches up to the log index `unwatched`. Handlers are left after
    /// [`limits::SOLO_RUN`] and one more request.
    pub fn new(pulse: Arc<Pulse>, limit: Duration, unwatched: u64) -> Self {
        let patience = limit.as_micros().div_ceil(limits::WATCH.as_micros()) as u32;
        Watchdog { pulse, seen: 0, looks: 0, patience, unwatched, spared: 0 }
    }

    /// One look: whether the order thread has been at the same stretch of work for too long.
    pub fn is_hung(&mut self) -> bool {
        let now = self.pulse.beats.load(Ordering::Relaxed);
        let is_watched = !(1..=self.unwatched).contains(&self.pulse.oldest());
        self.looks = if now % 2 == 1 && now == self.seen && is_watched { self.looks + 1 } else { 0 };
        self.seen = now;
        self.looks > self.patience
    }

    /// What takes so long takes long elsewhere, too: it is looked at again later. Tells whether that is news.
    pub fn is_patient(&mut self) -> bool {
        self.looks = 0;
        std::mem::replace(&mut self.spared, self.seen) != self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_minds_only_work_that_does_not_end() {
        let pulse = Arc::new(Pulse::default());
        let mut watchdog = Watchdog::new(pulse.clone(), 3 * limits::WATCH, 7);
        let mut looks = |count: usize| (0..count).any(|_| watchdog.is_hung());
        assert!(!looks(10), "a thread that sleeps is not minded");
        pulse.beat();
        assert!(!looks(4));
        pulse.beat();
        pulse.beat();
        assert!(!looks(4), "another stretch than the one seen before");
        assert!(looks(1));
        pulse.beat();
        assert!(!looks(10));
        pulse.beat();
        pulse.execute(7);
        assert!(!looks(10), "a batch that is not watched");
        pulse.execute(8);
        assert!(looks(5));
    }
}
