//! The worker of a replica that has only one: the order thread runs it between two polls of its sockets, so that a
//! request gets from socket to socket without waiting for another thread.
//!
//! Requests that may wait or take long must not delay the sockets. While a batch with such a request of the pipeline
//! itself is in flight (a RECOVER waits for its objects, a CHECKPOINT packs the whole state), a helper thread has the
//! worker.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use execute::Pause;
use parking_lot::Mutex;
use schedule::Lock;
use self_cell::self_cell;

use super::input::Input;
use crate::hooks::{self, ThreadRole};
use crate::limits;
use crate::mailbox::Mailbox;
use crate::peers::probe::PeerProgress;
use crate::reply::Replies;
use crate::service::Service;
use crate::worker::{self, Context, Report, WorkerContext};
use crate::world::Lockstep;

/// The connections of the workers to the order thread.
pub(super) struct WorkerLinks<'a> {
    /// The mailbox for their reports.
    pub mailbox: &'a Mailbox<Input>,
    /// Whether the helper of a single worker runs in parallel with the order thread, or in its place.
    pub lockstep: &'a Lockstep,
    /// Hooks that may change what the workers do.
    pub hooks: &'a hooks::Active,
    /// Bytes of a piece of a checkpoint.
    pub piece: usize,
}

/// A service as the owner of its locks.
trait LockOwner: Send + Sync {
    fn list(&self) -> LockRefs<'_>;
}

impl<S: Service> LockOwner for S {
    fn list(&self) -> LockRefs<'_> {
        self.locks()
    }
}

type LockRefs<'s> = Vec<&'s dyn Lock>;

self_cell! {
    /// The locks of a service, listed once: each slice of the thread's time needs the list.
    struct LockList {
        owner: Arc<dyn LockOwner>,
        #[covariant]
        dependent: LockRefs,
    }
}

/// The only worker, and the thread that has it.
pub(super) struct Solo<S: Service> {
    context: Context<S>,
    locks: LockList,
    /// Reports of the handlers that ran on this thread.
    reported: Arc<Mutex<Vec<Report>>>,
    /// None while the helper has it.
    worker: Option<WorkerContext<S>>,
    helper: mpsc::Sender<WorkerContext<S>>,
    back: mpsc::Receiver<WorkerContext<S>>,
    /// Batches with a request that may wait or take long, and without all their results.
    long: BTreeSet<u64>,
    /// The last of them: the helper returns the worker after it.
    last_long: Arc<AtomicU64>,
    replies: Replies,
    lockstep: Lockstep,
}

/// The outcome of one slice of the thread's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slice {
    /// There is nothing to run on this thread.
    Idle,
    /// The slice ended before everything had run.
    More,
}

impl<S: Service> Solo<S> {
    /// Takes `worker`. `contexts` makes the context of a worker from the receiver of its reports; `report` receives
    /// those of the helper.
    ///
    /// # Errors
    /// When the kernel creates no thread.
    pub fn start(
        worker: WorkerContext<S>,
        contexts: impl Fn(worker::ReportSink) -> Context<S>,
        report: impl Fn(Report) + Clone + Send + Sync + 'static,
        ties: &WorkerLinks<'_>,
    ) -> std::io::Result<Self> {
        let lockstep = ties.lockstep.clone();
        let reported = Arc::new(Mutex::new(Vec::new()));
        let here = reported.clone();
        let context = contexts(Box::new(move |report| here.lock().push(report)));
        let (helper, lent) = mpsc::channel::<WorkerContext<S>>();
        let (give_back, back) = mpsc::channel();
        let parker = lockstep.clone();
        let mut helpers = contexts(Box::new(move |reported| {
            // After these reports the helper can only wait: for a repair, or for the worker.
            let parks = matches!(
                &reported,
                Report::RecoverTurn { install: Some(_), .. } | Report::Returned | Report::Ended
            );
            report(reported);
            if parks {
                parker.park();
            }
        }));
        helpers.thread = ThreadRole::Helper;
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
        let locks = LockList::new(context.service.clone(), |service| service.list());
        let (long, replies) = (BTreeSet::new(), Replies::new(context.kept.clone()));
        let worker = Some(worker);
        Ok(Solo { context, locks, reported, worker, helper, back, long, last_long, replies, lockstep })
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

    /// Batches after `batch` do not run any more.
    pub fn on_gone_back(&mut self, batch: u64) {
        self.long.retain(|long| *long <= batch);
    }

    /// The helper has run the long batches.
    pub fn on_returned(&mut self) {
        self.worker = self.back.try_recv().ok();
        if !self.long.is_empty() {
            self.lend();
        }
    }

    fn lend(&mut self) {
        if let Some(worker) = self.worker.take() {
            // A helper that ended has reported it: the replica is being replaced.
            self.lockstep.hand_over(|| self.helper.send(worker).is_ok());
        }
    }

    /// Runs pending jobs for a short time, and appends the handlers' reports to `reports`. Returns how long it took.
    pub fn run<T: Fn() -> Duration>(
        &mut self,
        reports: &mut Vec<Report>,
        stopwatch: impl FnOnce() -> T,
    ) -> (Slice, Duration) {
        let Some(worker) = &mut self.worker else { return (Slice::Idle, Duration::ZERO) };
        let elapsed = stopwatch();
        let mut time = Duration::ZERO;
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let locks = self.locks.borrow_dependent();
            execute::run_rows(worker, |turn| {
                self.context.run_turn(turn, locks, &mut self.replies);
                time = elapsed();
                if time >= limits::SOLO_RUN { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        }));
        reports.append(&mut self.reported.lock());
        let slice = match ran {
            Ok(Pause::Stopped) => Slice::More,
            Ok(Pause::Idle | Pause::Closed) => Slice::Idle,
            Err(_) => {
                reports.push(Report::Ended);
                Slice::Idle
            }
        };
        (slice, time)
    }
}

/// The progress of the order thread, for the watchdog's thread.
#[derive(Debug, Default)]
pub(crate) struct WatchdogView {
    /// Odd during a stretch of work; another number for every stretch.
    work_sequence: AtomicU64,
    /// Log index of the oldest batch in execution; 0 for none.
    oldest: AtomicU64,
    /// Last batch that was executed.
    executed: AtomicU64,
    /// Milliseconds of the longest stretch of work lately, or of the batch that took longest, as the watchdog's thread
    /// measured it.
    slowest_ms: AtomicU64,
}

impl WatchdogView {
    /// A stretch of work begins, or ends: in a handler, or in anything else between two polls of the sockets. A fault
    /// can make any loop endless.
    pub fn begin_or_end_work(&self) {
        self.work_sequence.fetch_add(1, Ordering::Relaxed);
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

    /// Jobs took this thread so long. Where no watchdog looks at it, as in a simulation, nothing else measures that.
    pub fn took(&self, time: Duration) {
        if time > limits::WATCH {
            self.slowest_ms.fetch_max(time.as_millis() as u64, Ordering::Relaxed);
        }
    }

    /// Milliseconds of the longest stretch of work lately, or of the batch that took longest.
    pub fn slowest_ms(&self) -> u64 {
        self.slowest_ms.load(Ordering::Relaxed)
    }

    /// Log index of the oldest batch in execution; 0 for none.
    pub fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::Relaxed)
    }
}

/// The watchdog of the order thread (EDCC'16 section IV-C): another thread checks it every [`limits::WATCH`].
///
/// It counts checks and reads no clock: a process that was stopped for a while did not hang.
#[derive(Debug)]
pub(crate) struct Watchdog {
    watchdog_view: Arc<WatchdogView>,
    seen: u64,
    looks: u32,
    /// Checks that found the same stretch of work, including those after which the replica was not replaced.
    stretch: u32,
    /// Checks that found the same batch to be the oldest in execution, whichever thread executes it; and its log index.
    of_batch: u32,
    oldest: u64,
    /// Checks of the longest stretch or batch in the current period and in the one before it; and all checks of the
    /// current period.
    slowest: [u32; 2],
    period: u32,
    patience: u32,
    /// Batches up to this log index have no time limit.
    unwatched: u64,
    /// The stretch of work that was found to take long at other replicas, too.
    spared: u64,
}

impl Watchdog {
    /// Detects stretches of work that last longer than `limit`, except for batches up to the log index `unwatched`. The
    /// thread leaves handlers after [`limits::SOLO_RUN`] and one more request.
    pub fn new(watchdog_view: Arc<WatchdogView>, limit: Duration, unwatched: u64) -> Self {
        let patience = limit.as_micros().div_ceil(limits::WATCH.as_micros()) as u32;
        Watchdog {
            watchdog_view,
            seen: 0,
            looks: 0,
            stretch: 0,
            of_batch: 0,
            oldest: 0,
            slowest: [0; 2],
            period: 0,
            patience,
            unwatched,
            spared: 0,
        }
    }

    /// One check: whether the order thread has been in the same stretch of work for too long.
    pub fn is_hung(&mut self) -> bool {
        let now = self.watchdog_view.work_sequence.load(Ordering::Relaxed);
        let oldest = self.watchdog_view.oldest();
        let is_watched = !(1..=self.unwatched).contains(&oldest);
        self.of_batch = if oldest > 0 && oldest == self.oldest { self.of_batch.saturating_add(1) } else { 0 };
        self.oldest = oldest;
        let is_same = now % 2 == 1 && now == self.seen;
        self.stretch = if is_same { self.stretch.saturating_add(1) } else { 0 };
        self.looks = if is_same && is_watched { self.looks + 1 } else { 0 };
        self.seen = now;
        self.note_slowness();
        self.looks > self.patience
    }

    /// Records how slow this replica has been, for its peers. The value covers two periods, so that each measurement is
    /// kept for at least one.
    fn note_slowness(&mut self) {
        self.period += 1;
        if u128::from(self.period) * limits::WATCH.as_millis() >= limits::SLOWNESS_KEPT.as_millis() {
            (self.period, self.slowest) = (0, [0, self.slowest[0]]);
        }
        self.slowest[0] = self.slowest[0].max(self.stretch).max(self.of_batch);
        let slowest = u64::from(self.slowest[0].max(self.slowest[1]));
        self.watchdog_view.slowest_ms.store(slowest * limits::WATCH.as_millis() as u64, Ordering::Relaxed);
    }

    /// Decides about an order thread that has been in the same stretch of work for too long. This replica has executed
    /// the batches up to `executed`; `others` is the progress of the other replicas, none where there is no other
    /// replica.
    ///
    /// That others have executed more proves little if they began earlier: a replica that receives the request only
    /// when the others have executed it needs as long as they did. So the limit is the time that f others took lately,
    /// plus the watchdog's time. Their reported times count up to a bound: a report may have been corrupted.
    pub fn judge(&mut self, others: Option<PeerProgress>, executed: u64) -> Judged {
        let patience_us = others.map_or(0, PeerProgress::patience_us);
        let shared = patience_us.div_ceil(limits::WATCH.as_micros() as u64) as u32;
        let have_gone_on = others.is_none_or(|others| others.executed > executed);
        if have_gone_on && self.stretch > self.patience + shared {
            return Judged::Hangs;
        }
        self.looks = 0;
        let is_news = std::mem::replace(&mut self.spared, self.seen) != self.seen;
        Judged::Waits { is_news }
    }
}

/// The verdict on a stretch of work that takes too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// Other replicas are or were as slow, or no other replica is connected: it is checked again later.
    Waits {
        /// This was not reported before.
        is_news: bool,
    },
    /// Others have executed more: this replica is to be replaced.
    Hangs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_counts_only_work_that_does_not_end() {
        let watchdog_view = Arc::new(WatchdogView::default());
        let mut watchdog = Watchdog::new(watchdog_view.clone(), 3 * limits::WATCH, 7);
        let mut looks = |count: usize| (0..count).any(|_| watchdog.is_hung());
        assert!(!looks(10), "a thread that sleeps is not minded");
        watchdog_view.begin_or_end_work();
        assert!(!looks(4));
        watchdog_view.begin_or_end_work();
        watchdog_view.begin_or_end_work();
        assert!(!looks(4), "another stretch than the one seen before");
        assert!(looks(1));
        watchdog_view.begin_or_end_work();
        assert!(!looks(10));
        watchdog_view.begin_or_end_work();
        watchdog_view.execute(7);
        assert!(!looks(10), "a batch that is not watched");
        watchdog_view.execute(8);
        assert!(looks(5));
    }

    #[test]
    fn a_replica_is_given_the_time_that_others_took() {
        let watchdog_view = Arc::new(WatchdogView::default());
        let mut watchdog = Watchdog::new(watchdog_view.clone(), 3 * limits::WATCH, 0);
        // Counts checks until the replica is to be replaced.
        let mut looks_until_hung = |others| {
            watchdog_view.begin_or_end_work();
            watchdog_view.begin_or_end_work();
            watchdog.is_hung();
            let is_hung =
                |watchdog: &mut Watchdog| watchdog.is_hung() && watchdog.judge(others, 5) == Judged::Hangs;
            (1..10_000).find(|_| is_hung(&mut watchdog))
        };
        watchdog_view.begin_or_end_work();
        let others = |executed, looks| {
            Some(PeerProgress { executed, slowest_ms: looks * limits::WATCH.as_millis() as u64 })
        };
        assert_eq!(looks_until_hung(others(6, 0)), Some(4));
        assert_eq!(looks_until_hung(None), Some(4), "a replica that is the only one");
        assert_eq!(looks_until_hung(others(5, 0)), None, "the others are no further");
        assert_eq!(looks_until_hung(others(6, 7)), Some(12), "more than 3 + 7, looked at every 4");
        assert!(looks_until_hung(others(6, u64::from(u32::MAX))).is_some(), "what they tell has a bound");
    }

    #[test]
    fn the_longest_stretch_is_reported_for_a_while() {
        let watchdog_view = Arc::new(WatchdogView::default());
        let mut watchdog = Watchdog::new(watchdog_view.clone(), limits::WATCH, 0);
        let mut look = |count: u64| {
            for _ in 0..count {
                watchdog.is_hung();
            }
        };
        watchdog_view.begin_or_end_work();
        look(21);
        watchdog_view.begin_or_end_work();
        let watch_ms = limits::WATCH.as_millis() as u64;
        let period = limits::SLOWNESS_KEPT.as_millis() as u64 / watch_ms;
        look(period);
        assert_eq!(watchdog_view.slowest_ms(), 20 * watch_ms);
        look(period);
        assert_eq!(watchdog_view.slowest_ms(), 0);
        watchdog_view.execute(5);
        look(8);
        assert_eq!(watchdog_view.slowest_ms(), 7 * watch_ms, "a batch that another thread executes");
    }
}
