//! The workers of a replica and the log that feeds them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use execute::Speculation;
use schedule::{DispatcherState, Footprint, ParallelBatches, Schedule};

use super::input::Input;
use super::solo::{Slice, Solo, WorkerLinks};
use crate::behavior::Acting;
use crate::boundary::{BoundaryWork, InstallingState, RollingBack};
use crate::checkpoint::CheckpointHead;
use crate::copying::CurrentCopy;
use crate::decoding::decode;
use crate::hooks::{self, FaultPoint, Hooks, ThreadRole};
use crate::job::{Job, Work};
use crate::limits;
use crate::peers::probe::PeerProgress;
use crate::reads::RunningReads;
use crate::reply::KeptReplies;
use crate::running::UnstableBatches;
use crate::service::{Service, declare};
use crate::settings::{Mode, Settings};
use crate::stepped_workers::{SteppedWorker, SteppedWorkers};
use crate::worker::{self, Report};

/// The workers of a service, and the batches that they run next.
pub(super) struct Execution<S: Service> {
    pub(super) service: Arc<S>,
    schedule: Arc<Schedule<Job<S::Request>>>,
    /// The first batch that this process of the replica executes.
    pub(super) first_batch: u64,
    /// Number of the batch that is delivered next; equal at every replica.
    pub(super) next_batch: u64,
    /// See [`Self::next_position`].
    next_position: u64,
    /// Batches that have all their results.
    pub(super) executed: u64,
    /// Log index of each batch, beginning with the oldest one without all its results; 0 for batches with all of them.
    entries: VecDeque<u64>,
    moved: Moved,
    locks: u32,
    watched: Vec<WorkerWatch>,
    alone: Arc<AtomicBool>,
    reports_ends: Arc<AtomicBool>,
    /// The memory that kept replies take.
    pub(super) kept: Arc<KeptReplies>,
    /// What this replica acts as, for the workers; and the last batch that changes it.
    acting: Arc<Acting>,
    acting_since: u64,
    /// The copy of the state that is being made, for the workers.
    pub(super) copy: Arc<CurrentCopy>,
    /// In verified mode: the batches that may have to be rolled back.
    pub(super) unstable: Arc<UnstableBatches>,
    /// The worker, if there is only one; several have threads of their own.
    solo: Option<Solo<S>>,
    /// The last batch of the state that is being packed without being ordered; no batch is appended meanwhile.
    packing: Option<u64>,
    /// Reads have the state alone; no batch is appended meanwhile.
    reading: bool,
    /// Several workers that a simulation steps.
    stepped: Option<Arc<SteppedWorkers>>,
    hooks: hooks::Active,
}

/// The state of a worker at the watchdog's last check.
#[derive(Clone, Copy, Debug, Default)]
struct WorkerWatch {
    /// Position of the request; 0 for none.
    running: u64,
    /// The time of the first check that found its batch running here and executed by others.
    since_us: Option<u64>,
}

/// The progress of this replica, compared with the others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupProgress {
    /// Last batch executed here.
    pub executed: u64,
    /// Requests that ended here, in whatever way: they are the progress within a batch of slow requests.
    pub requests: u64,
    /// Whether a batch is to be executed that others have executed; for the only replica of a group, any batch.
    pub is_behind: bool,
}

/// The last time at which a request ended, or at which no batch was left that others had executed.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    executed: u64,
    requests: u64,
    /// The requests that had ended when the last batch did.
    requests_before: u64,
    since_us: u64,
    looked_us: u64,
}

impl Moved {
    /// Records the replica's progress at `now_us`. Returns for how many microseconds the replica has executed nothing
    /// of what the others have executed. More than `limit_us` is too long.
    fn looked(&mut self, progress: GroupProgress, now_us: u64, limit_us: u64) -> u64 {
        let GroupProgress { executed, requests, is_behind } = progress;
        let was_stopped = self.was_stopped(now_us, limit_us);
        if executed != self.executed || !is_behind || was_stopped {
            self.requests_before = requests;
        }
        // More requests than a batch has, and none of them was its last one: they are of later batches, and this one
        // was lost.
        let is_within = requests.wrapping_sub(self.requests_before) <= limits::REQUESTS_WITHIN;
        // A batch that runs again, since a view has begun, is no progress.
        let has_moved = executed > self.executed || (requests != self.requests && is_within);
        if has_moved || !is_behind || was_stopped {
            (self.executed, self.requests, self.since_us) = (executed, requests, now_us);
        }
        self.looked_us = now_us;
        now_us - self.since_us
    }

    /// Whether the process was stopped for a while: it made no progress meanwhile, and begins to catch up.
    fn was_stopped(&self, now_us: u64, limit_us: u64) -> bool {
        now_us - self.looked_us > (limits::SILENCE.as_micros() as u64).min(limit_us / 2)
    }
}

/// In verified mode: what was executed here and counts. What was executed beyond what the others have agreed on is no
/// progress: the number of a batch, or what this replica knows of tokens, may be corrupted.
#[derive(Clone, Copy, Debug)]
pub(super) struct VerifiedProgress {
    /// The newest batch that is stable here.
    pub stable: u64,
    /// The newest batch that was executed here and agreed on by others. One that lags knows of few of these whether its
    /// own state after them is the agreed one.
    pub reached: u64,
}

/// What the watchdog compares this replica's progress with.
#[derive(Clone, Copy, Debug)]
pub(super) struct StallCheck {
    /// How far the others have come; none where no other replica exists.
    pub others: Option<PeerProgress>,
    /// In verified mode: what counts as executed here.
    pub verified: Option<VerifiedProgress>,
    /// The time now.
    pub now_us: u64,
    /// For how long nothing may make progress.
    pub limit_us: u64,
}

/// The reason why a replica does not execute a batch that others have executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stall {
    /// The handler at this position does not end.
    Handler(u64),
    /// No handler runs, or the running ones make no progress: a counter, a queue or a connection was corrupted.
    Pipeline,
}

impl<S: Service> Execution<S> {
    /// Starts the workers on `service`, whose state is that of `state`; `first_batch` is delivered next.
    ///
    /// # Errors
    /// When the kernel creates no thread.
    pub(super) fn start(
        settings: &Settings,
        service: S,
        state: DispatcherState<Job<S::Request>>,
        (first_batch, behavior): (u64, u16),
        ties: &WorkerLinks<'_>,
    ) -> std::io::Result<Self> {
        let acting = Arc::new(Acting::new(behavior));
        let service = Arc::new(service);
        let locks = service.locks().len() as u32;
        let footprint_of = footprints(service.clone());
        let (alone, reports_ends) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let kept = KeptReplies::new(settings.buffer_limit / 2);
        let (copy, unstable) = <(Arc<CurrentCopy>, Arc<UnstableBatches>)>::default();
        let stepped = ties.lockstep.stepped_workers();
        stepped.inspect(|stepped| stepped.begin_again());
        let yield_point = stepped.map(|stepped| stepped.clone() as Arc<dyn schedule::YieldPoint>);
        let last_place = ties.lockstep.is_strict().then(Arc::default);
        let next_position = state.position();
        let (schedule, workers) =
            schedule::resume_paced(shape(settings, locks), footprint_of, state, yield_point);
        let context = |report: worker::ReportSink| worker::Context {
            service: service.clone(),
            me: settings.me,
            mode: settings.mode,
            piece: ties.piece,
            acting: acting.clone(),
            copy: copy.clone(),
            alone: alone.clone(),
            reports_ends: reports_ends.clone(),
            kept: kept.clone(),
            unstable: unstable.clone(),
            share: (!settings.is_solo() && !settings.mode.verified).then(RefCell::default),
            report,
            last_place: last_place.clone(),
            seat: None,
            hooks: ties.hooks.clone(),
            thread: if settings.is_solo() { ThreadRole::Order } else { ThreadRole::Worker },
        };
        let mailbox = ties.mailbox.clone();
        let report = move |report: Report| mailbox.send(Input::Report(report));
        let mut solo = None;
        let watched = workers.iter().map(|_| WorkerWatch::default()).collect();
        for (number, scheduler) in workers.into_iter().enumerate() {
            if settings.is_solo() {
                solo = Some(Solo::start(scheduler, context, report.clone(), ties)?);
            } else {
                let (mut context, stepped) = (context(Box::new(report.clone())), stepped.cloned());
                let thread = std::thread::Builder::new().name(format!("worker-{number}"));
                thread.spawn(move || {
                    context.seat = stepped.map(|stepped| SteppedWorker::take(stepped, number));
                    worker::run(scheduler, &context);
                })?;
            }
        }
        Ok(Execution {
            service,
            schedule: Arc::new(schedule),
            first_batch,
            next_batch: first_batch,
            next_position,
            executed: first_batch,
            entries: VecDeque::new(),
            moved: Moved::default(),
            locks,
            watched,
            alone,
            reports_ends,
            kept,
            acting,
            acting_since: 0,
            copy,
            unstable,
            solo,
            packing: None,
            reading: false,
            stepped: stepped.cloned(),
            hooks: ties.hooks.clone(),
        })
    }

    /// In another state, this replica acts as this one.
    pub(super) fn act_as(&mut self, behavior: u16) {
        self.acting.set(behavior);
        self.acting_since = 0;
    }

    /// The batch that was delivered last changes what this replica acts as.
    pub(super) fn changes_behavior(&mut self) {
        self.acting_since = self.next_batch - 1;
    }

    /// Whether this replica acts as this one, or has not executed what says so.
    pub(super) fn may_act_as(&self, behavior: u16) -> bool {
        let is_reached = self.executed_to() >= self.acting_since;
        self.acting.is_intact() && (!is_reached || self.acting.get() == behavior)
    }

    /// Locks of the service.
    pub(super) fn locks(&self) -> u32 {
        self.locks
    }

    /// Batches delivered and not yet executed.
    pub(super) fn in_flight(&self) -> usize {
        self.next_batch.wrapping_sub(self.executed) as usize
    }

    /// Last batch up to which all have their results. With several workers a later batch may have its results earlier:
    /// this proves nothing about the batches before it, which may be slow at all replicas.
    pub(super) fn executed_to(&self) -> u64 {
        self.next_batch.saturating_sub(self.entries.len() as u64 + 1)
    }

    /// Log index of the oldest batch without all its results; 0 for none.
    pub(super) fn oldest(&self) -> u64 {
        self.entries.front().copied().unwrap_or(0)
    }

    /// Position of the next delivered request with ordinary locks, which give positions to requests of the log alone.
    /// It is counted here once more: workers count for themselves.
    pub(super) fn next_position(&self) -> u64 {
        self.next_position
    }

    /// The batch of log entry `index` is next; `is_long` if it has a request that may wait or take long.
    pub(super) fn append(&mut self, index: u64, entry: Arc<schedule::Entry<Job<S::Request>>>, is_long: bool) {
        let batch = entry.index;
        self.next_position += entry.rows.len() as u64;
        self.entries.push_back(index);
        self.schedule.append(entry);
        if let Some(solo) = &mut self.solo {
            solo.on_append(batch, is_long);
        }
    }

    /// In verified mode: the batch of log entry `index` is next; its requests run beside each other as in `plan`.
    /// Returns the number by which the schedule tells its end.
    pub(super) fn append_mixed(
        &mut self,
        index: u64,
        entry: Arc<schedule::Entry<Job<S::Request>>>,
        (plan, is_long): (ParallelBatches, bool),
    ) -> u64 {
        let batch = entry.index;
        self.entries.push_back(index);
        let number = self.schedule.append_mixed(entry, plan);
        if let Some(solo) = &mut self.solo {
            solo.on_append(batch, is_long);
        }
        number
    }

    /// In verified mode: batches up to `batch` stay.
    pub(super) fn agree(&mut self, batch: u64) {
        self.unstable.agree(batch);
        self.schedule.forget(batch);
    }

    /// In verified mode: batches after `batch` end, or do not run, and are rolled back: those in `speculation`, which
    /// have ended, and others. [`Report::Boundary`] comes when it is done; reports of these batches that come before
    /// mean nothing.
    pub(super) fn roll_back(&mut self, batch: u64, speculation: Speculation) {
        let folded = speculation.version().number.max(batch);
        let mut running = self.unstable.leave_after(batch);
        running.retain(|one| one.batch > folded);
        let work = BoundaryWork::RollBack(Box::new(RollingBack { speculation, running, to: batch }));
        self.schedule.roll_back(batch, Job::boundary(work));
        self.stand_after(batch);
        if let Some(solo) = &mut self.solo {
            solo.on_gone_back(batch);
        }
    }

    /// In verified mode: every batch ends, or does not run, and the state of other replicas takes the place of this
    /// one. The batch after it is next. [`Report::Boundary`] comes when it is done.
    pub(super) fn continue_at(
        &mut self,
        state: &DispatcherState<Job<S::Request>>,
        installing: InstallingState,
    ) {
        let batch = installing.batch;
        self.unstable.leave_after(0);
        self.schedule.continue_at(state, Job::boundary(BoundaryWork::Install(Box::new(installing))));
        self.stand_after(batch);
        if let Some(solo) = &mut self.solo {
            solo.on_gone_back(0);
        }
    }

    /// All batches up to `batch` have their results, and no later one is scheduled.
    fn stand_after(&mut self, batch: u64) {
        (self.next_batch, self.executed) = (batch + 1, batch + 1);
        self.entries.clear();
    }

    /// Whether every batch that was delivered has all its results.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight() == 0 && self.packing.is_none() && !self.reading
    }

    /// Whether a state is being packed without being ordered, or reads have it alone.
    pub(super) fn is_between_batches(&self) -> bool {
        self.packing.is_some() || self.reading
    }

    /// The batch that was delivered last.
    pub(super) fn delivered(&self) -> u64 {
        self.next_batch.saturating_sub(1)
    }

    /// Runs reads, with nothing in execution. [`Report::Boundary`] comes when it is done; no batch is appended before.
    pub(super) fn read(&mut self, reads: RunningReads) {
        self.reading = true;
        self.between_batches(BoundaryWork::Read(reads));
    }

    /// Reads have run.
    pub(super) fn has_read(&mut self) {
        self.reading = false;
    }

    /// Packs the present state, with nothing in execution. [`Report::Checkpoint`] comes when it is done; no batch is
    /// appended before.
    pub(super) fn pack_now(&mut self, head: CheckpointHead) {
        let batch = head.batch;
        self.packing = Some(batch);
        self.schedule.between_batches(Job::unordered(Work::Checkpoint(Arc::new(head))));
        if let Some(solo) = &mut self.solo {
            solo.on_append(batch, true);
        }
    }

    /// A state was packed.
    pub(super) fn has_packed(&mut self) {
        if let (Some(batch), Some(solo)) = (self.packing.take(), &mut self.solo) {
            solo.on_executed(batch);
        }
    }

    /// Work that has the state alone, between two batches. [`Report::Boundary`] comes when it is
    /// done.
    pub(super) fn between_batches(&mut self, work: BoundaryWork) {
        self.schedule.between_batches(Job::boundary(work));
    }

    /// A batch has all its results.
    pub(super) fn on_executed(&mut self, batch: u64) {
        self.executed += 1;
        let first = self.next_batch.saturating_sub(self.entries.len() as u64);
        if let Some(entry) = batch.checked_sub(first).and_then(|at| self.entries.get_mut(at as usize)) {
            *entry = 0;
        }
        while self.entries.pop_front_if(|entry| *entry == 0).is_some() {}
        if let Some(solo) = &mut self.solo {
            solo.on_executed(batch);
        }
    }

    /// The only worker is back.
    pub(super) fn on_returned(&mut self) {
        if let Some(solo) = &mut self.solo {
            solo.on_returned();
        }
    }

    /// Runs the jobs of a single worker on this thread; its reports go to `reports`. In a simulation with several
    /// workers, steps them. Returns how long it took.
    pub(super) fn run_here<T: Fn() -> Duration>(
        &mut self,
        reports: &mut Vec<Report>,
        stopwatch: impl FnOnce() -> T,
    ) -> (Slice, Duration) {
        if let Some(stepped) = &self.stepped {
            return run_crew(stepped, &self.schedule, stopwatch());
        }
        self.solo.as_mut().map_or((Slice::Idle, Duration::ZERO), |solo| solo.run(reports, stopwatch))
    }

    /// One ordered request as a job, with the locks it will take.
    pub(super) fn decode(&self, request: &order::Request) -> (Work<S::Request>, Footprint) {
        decode(&*self.service, self.locks, request)
    }

    /// The same for a request that was corrupted and was copied from its batch again: a fault that hit the first copy
    /// or its decoding does not occur twice.
    pub(super) fn decode_again(
        &self,
        request: &order::Request,
        batch: &order::Batch,
    ) -> (Work<S::Request>, Footprint) {
        let (work, footprint) = self.decode(request);
        let is_invalid = matches!(work, Work::Damaged) && batch.is_intact();
        (if is_invalid { Work::Invalid } else { work }, footprint)
    }

    /// The ordered time at which the first timer is due; the end of time where time is ordered forward anyway.
    pub(super) fn first_deadline_us(&self) -> u64 {
        self.schedule.first_deadline_us()
    }

    /// Whether a worker found its part of the schedule corrupted; no worker executes anything from then on.
    pub(super) fn is_corrupted(&self) -> bool {
        self.schedule.is_corrupted()
    }

    /// Whether the workers run every request twice from now on.
    pub(super) fn set_alone(&self, alone: bool) {
        self.alone.store(alone, Ordering::Relaxed);
    }

    /// How far each worker has come.
    pub(super) fn progress(&self) -> Vec<schedule::WorkerProgress> {
        (0..self.schedule.workers()).map(|worker| self.schedule.progress(worker)).collect()
    }

    /// Whether workers report from now on when a request has ended. What they had ended before this call shows in their
    /// progress after it.
    pub(super) fn report_ends(&self, reports: bool) {
        self.reports_ends.store(reports, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    pub(super) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    /// Checks every worker and the replica's progress. Returns what has made no progress for too long although others
    /// have executed it.
    ///
    /// If other replicas are as slow, this replica is not faulty. That they have executed more proves little if they
    /// began earlier: one that receives a batch last, since a view has begun, needs as long as they did. If all of them
    /// ended themselves, the group's memory would be lost, and with logs on disk the next processes would execute the
    /// same requests again.
    pub(super) fn stall(&mut self, check: StallCheck) -> Option<Stall> {
        let StallCheck { others, verified, now_us, limit_us } = check;
        let ended = self.executed_to();
        let VerifiedProgress { stable, reached: executed } =
            verified.unwrap_or(VerifiedProgress { stable: ended, reached: ended });
        // Nothing becomes stable here before it was executed here.
        let is_wrong = stable > ended;
        let is_behind = is_wrong || others.map_or(self.in_flight() > 0, |others| others.executed > executed);
        let limit_us = limit_us + others.map_or(0, PeerProgress::patience_us);
        let workers = 0..if stable == ended { self.schedule.workers() } else { 0 };
        let mut requests = workers.map(|worker| self.schedule.progress(worker).resolved).sum();
        self.hooks.at(FaultPoint::Progress(&mut requests));
        let was_stopped = self.moved.was_stopped(now_us, limit_us);
        let stood_us = self.moved.looked(GroupProgress { executed, requests, is_behind }, now_us, limit_us);
        let hung =
            self.hung(is_behind, was_stopped, now_us).filter(|(_, since_us)| now_us - since_us > limit_us);
        let hung = hung.filter(|_| is_behind).map(|(position, _)| position);
        hung.map(Stall::Handler).or((stood_us > limit_us).then_some(Stall::Pipeline))
    }

    /// The position that has been running for longest after others executed it, and the time since when. The time at
    /// which it began proves little: the others may have taken as long, and begun slightly earlier.
    fn hung(&mut self, is_behind: bool, was_stopped: bool, now_us: u64) -> Option<(u64, u64)> {
        for (worker, watched) in self.watched.iter_mut().enumerate() {
            let running = self.schedule.progress(worker).running;
            if running != watched.running || was_stopped {
                *watched = WorkerWatch { running, since_us: None };
            }
            if running != 0 && is_behind {
                watched.since_us.get_or_insert(now_us);
            }
        }
        let hung = self.watched.iter().filter_map(|watched| Some((watched.running, watched.since_us?)));
        hung.min_by_key(|(_, since_us)| *since_us)
    }
}

impl<S: Service> Drop for Execution<S> {
    /// Ends the workers. A worker that hangs in a handler, or waits for a repair, ends with the process.
    fn drop(&mut self) {
        self.schedule.abort();
        if let Some(stepped) = &self.stepped {
            stepped.finish();
        }
    }
}

/// Steps several workers for a short time.
fn run_crew<R>(
    stepped: &SteppedWorkers,
    schedule: &Schedule<R>,
    elapsed: impl Fn() -> Duration,
) -> (Slice, Duration) {
    let mut time = Duration::ZERO;
    while stepped.step(|worker| schedule.is_waiting(worker)) {
        time = elapsed();
        if time >= limits::SOLO_RUN {
            return (Slice::More, time);
        }
    }
    (Slice::Idle, time)
}

/// The locks that a request of the service will take; all of them for one of the pipeline.
fn footprints<S: Service>(service: Arc<S>) -> impl Fn(&Job<S::Request>, &mut Footprint) {
    move |job, footprint| match job.request() {
        Some(request) => declare(&*service, request, footprint),
        None => footprint.make_all(),
    }
}

fn shape(settings: &Settings, locks: u32) -> schedule::Config {
    let Mode { deterministic, verified, .. } = settings.mode;
    let mode = match (deterministic, verified) {
        (_, true) => schedule::LockRules::Mixed,
        (true, false) => schedule::LockRules::Turns,
        (false, false) => schedule::LockRules::Locks,
    };
    schedule::Config { mode, ..schedule::Config::new(settings.workers, locks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_behind_others_and_ends_no_request_is_stuck() {
        let at = |executed, requests, is_behind| GroupProgress { executed, requests, is_behind };
        let (mut moved, limit_us) = (Moved::default(), 60_000_000);
        let mut looked = |progress, now_us| moved.looked(progress, now_us, limit_us);
        assert_eq!(looked(at(5, 40, false), 100), 0);
        assert_eq!(looked(at(5, 40, false), 900), 0, "no other replica has executed more");
        assert_eq!(looked(at(5, 40, true), 1000), 100);
        assert_eq!(looked(at(5, 40, true), 1700), 800);
        assert_eq!(looked(at(5, 41, true), 1800), 0, "a request of the batch has ended");
        assert_eq!(looked(at(6, 41, true), 1900), 0);
        assert_eq!(looked(at(6, 41, true), 1950), 50);
        assert_eq!(looked(at(4, 41, true), 1970), 70, "batches were taken back");
        assert_eq!(looked(at(6, 41, true), 2000), 100, "and have run again");
        assert_eq!(looked(at(6, 41, false), 2100), 0, "the others stand at the same batch");
        assert_eq!(looked(at(6, 41, true), 2200), 100);
        assert_eq!(looked(at(6, 41 + limits::REQUESTS_WITHIN, true), 2300), 0);
        assert_eq!(looked(at(6, 42 + limits::REQUESTS_WITHIN, true), 2400), 100, "they are of later batches");
        assert_eq!(looked(at(7, 43 + limits::REQUESTS_WITHIN, true), 2500), 0);
        assert_eq!(looked(at(7, 44 + limits::REQUESTS_WITHIN, true), 2600), 0);
        let later = 2600 + 2 * limits::SILENCE.as_micros() as u64;
        assert_eq!(looked(at(7, 44 + limits::REQUESTS_WITHIN, true), later), 0, "the process was stopped");
    }
}
