//! The workers of a replica and the log that feeds them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use schedule::{DispatcherState, Footprint, Schedule};

use super::Input;
use super::solo::{Slice, Solo};
use crate::hooks::{self, Hooks, ThreadRole};
use crate::job::{Job, Work};
use crate::limits;
use crate::mailbox::Mailbox;
use crate::reply::KeptReplies;
use crate::service::Service;
use crate::settings::{Mode, Settings};
use crate::stepped_workers::{SteppedWorker, SteppedWorkers};
use crate::worker::{self, Report};
use crate::world::Lockstep;

/// Handlers running on a service, and what they run next.
pub(super) struct Execution<S: Service> {
    pub(super) service: Arc<S>,
    schedule: Arc<Schedule<Job<S::Request>>>,
    /// The first batch that this life of the replica executes.
    pub(super) first_batch: u64,
    /// Number of the batch that is delivered next; counted alike at every replica.
    pub(super) next_batch: u64,
    /// Batches that have all their results.
    pub(super) executed: u64,
    /// Log index of each batch from the oldest one without all its results on; 0 for those that have them.
    entries: VecDeque<u64>,
    moved: Moved,
    locks: u32,
    watched: Vec<WorkerWatch>,
    alone: Arc<AtomicBool>,
    /// What its replies take.
    pub(super) kept: Arc<KeptReplies>,
    /// The worker, if there is only one; several have threads of their own.
    solo: Option<Solo<S>>,
    /// Several workers that are stepped.
    stepped: Option<Arc<SteppedWorkers>>,
    hooks: hooks::Active,
}

/// What ties the workers to the order thread.
pub(super) struct WorkerLinks<'a> {
    /// Where their reports go.
    pub mailbox: &'a Mailbox<Input>,
    /// Whether the helper of a single worker runs beside the order thread, or in its place.
    pub lockstep: &'a Lockstep,
    /// May change what the workers do.
    pub hooks: &'a hooks::Active,
}

/// What the watchdog saw of a worker when it last looked.
#[derive(Clone, Copy, Debug, Default)]
struct WorkerWatch {
    /// Position of the request; 0 for none.
    running: u64,
    /// When it was first seen that others have executed its batch while it runs here.
    since_us: Option<u64>,
}

/// How far this replica is, and how far others are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupProgress {
    /// Last batch executed here.
    pub executed: u64,
    /// Requests that ended here, in whatever way: a batch of slow requests moves by them.
    pub requests: u64,
    /// Whether there is something to execute that others have executed; of a replica that is the only one:
    /// anything at all.
    pub is_behind: bool,
}

/// When a request last ended, or there was none that others had executed.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    executed: u64,
    requests: u64,
    since_us: u64,
    looked_us: u64,
}

impl Moved {
    /// Takes note of how far the replica is at `now_us`; tells for how many microseconds nothing has been
    /// executed that others have. More than `limit_us` will be too many.
    fn looked(&mut self, progress: GroupProgress, now_us: u64, limit_us: u64) -> u64 {
        let GroupProgress { executed, requests, is_behind } = progress;
        let was_stopped = self.was_stopped(now_us, limit_us);
        let has_moved = (executed, requests) != (self.executed, self.requests);
        if has_moved || !is_behind || was_stopped {
            (self.executed, self.requests, self.since_us) = (executed, requests, now_us);
        }
        self.looked_us = now_us;
        now_us - self.since_us
    }

    /// Whether the process was stopped for a while: it has been nowhere, and begins to catch up.
    fn was_stopped(&self, now_us: u64, limit_us: u64) -> bool {
        now_us - self.looked_us > (limits::SILENCE.as_micros() as u64).min(limit_us / 2)
    }
}

/// What keeps a replica from executing what others have executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stall {
    /// The handler at this position does not end.
    Handler(u64),
    /// Nothing runs, or what runs leads nowhere: a counter, a queue or a connection was corrupted.
    Pipeline,
}

impl<S: Service> Execution<S> {
    /// Starts the workers on `service`, whose state is as of `state`; `first_batch` is delivered next.
    ///
    /// # Errors
    /// When the kernel gives no thread.
    pub(super) fn start(
        settings: &Settings,
        service: S,
        state: DispatcherState<Job<S::Request>>,
        first_batch: u64,
        ties: &WorkerLinks<'_>,
    ) -> std::io::Result<Self> {
        let service = Arc::new(service);
        let locks = service.locks().len() as u32;
        let footprint_of = {
            let service = service.clone();
            move |job: &Job<S::Request>, footprint: &mut Footprint| match &job.work {
                Work::Service(request) => service.footprint(request, footprint),
                Work::Control(_) | Work::Unsound | Work::Invalid | Work::Checkpoint(_) => {
                    footprint.make_all()
                }
            }
        };
        let alone = Arc::new(AtomicBool::new(false));
        let kept = KeptReplies::new(settings.buffer_limit / 2);
        let stepped = ties.lockstep.stepped_workers();
        let pace = stepped.map(|stepped| stepped.clone() as Arc<dyn schedule::YieldPoint>);
        let (schedule, workers) = schedule::resume_paced(shape(settings, locks), footprint_of, state, pace);
        let context = |report: worker::ReportSink| worker::Context {
            service: service.clone(),
            me: settings.me,
            mode: settings.mode,
            alone: alone.clone(),
            kept: kept.clone(),
            report,
            seat: None,
            hooks: ties.hooks.clone(),
            thread: if settings.is_solo() { ThreadRole::Order } else { ThreadRole::Worker },
        };
        let report = {
            let mailbox = ties.mailbox.clone();
            move |report: Report| mailbox.send(Input::Report(report))
        };
        let mut solo = None;
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
        let watched = vec![WorkerWatch::default(); schedule.workers()];
        Ok(Execution {
            service,
            schedule: Arc::new(schedule),
            first_batch,
            next_batch: first_batch,
            executed: first_batch,
            entries: VecDeque::new(),
            moved: Moved::default(),
            locks,
            watched,
            alone,
            kept,
            solo,
            stepped: stepped.cloned(),
            hooks: ties.hooks.clone(),
        })
    }

    /// Locks of the service.
    pub(super) fn locks(&self) -> u32 {
        self.locks
    }

    /// Batches delivered and not yet executed.
    pub(super) fn in_flight(&self) -> usize {
        self.next_batch.wrapping_sub(self.executed) as usize
    }

    /// Last batch up to which all have their results. With several workers a later one may have them earlier:
    /// that says nothing about those before it, which may be slow everywhere.
    pub(super) fn executed_to(&self) -> u64 {
        self.next_batch.saturating_sub(self.entries.len() as u64 + 1)
    }

    /// Log index of the oldest batch that has not all its results; 0 for none.
    pub(super) fn oldest(&self) -> u64 {
        self.entries.front().copied().unwrap_or(0)
    }

    /// The batch of log entry `index` is next; `is_long` if it has a request that may wait or take long.
    pub(super) fn append(&mut self, index: u64, entry: Arc<schedule::Entry<Job<S::Request>>>, is_long: bool) {
        let batch = entry.index;
        self.entries.push_back(index);
        self.schedule.append(entry);
        if let Some(solo) = &mut self.solo {
            solo.on_append(batch, is_long);
        }
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

    /// Runs what a single worker has to run, on this thread; what it has to say goes to `reports`. Or steps
    /// several, if that is asked for. Tells how long it took.
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
        super::schedule_stage::decode(&*self.service, self.locks, request)
    }

    /// The same for one that was not sound, and was taken from its batch once more: what befell the first
    /// copy of it, or its decoding, does not happen twice.
    pub(super) fn decode_again(
        &self,
        request: &order::Request,
        batch: &order::Batch,
    ) -> (Work<S::Request>, Footprint) {
        let (work, footprint) = self.decode(request);
        let is_invalid = matches!(work, Work::Unsound) && batch.is_intact();
        (if is_invalid { Work::Invalid } else { work }, footprint)
    }

    /// Whether a worker found that its part of the schedule was corrupted; nothing is executed any more.
    pub(super) fn is_corrupted(&self) -> bool {
        self.schedule.is_corrupted()
    }

    /// Whether the workers run every request twice from now on.
    pub(super) fn set_alone(&self, alone: bool) {
        self.alone.store(alone, Ordering::Relaxed);
    }

    pub(super) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    /// Looks at every worker, and at what was executed. Says what has not moved for longer than `limit_us`
    /// although others have executed it: up to batch `others`, none where no other replica exists.
    ///
    /// A slowness that others share is no fault of this replica: all of them ending themselves would lose the
    /// group's memory, and with logs on disk the next processes would meet the same requests again.
    pub(super) fn stall(&mut self, others: Option<u64>, now_us: u64, limit_us: u64) -> Option<Stall> {
        let executed = self.executed_to();
        let is_behind = others.map_or(self.in_flight() > 0, |others| others > executed);
        let requests =
            (0..self.schedule.workers()).map(|worker| self.schedule.progress(worker).resolved).sum();
        let requests = self.hooks.on_progress(requests);
        let was_stopped = self.moved.was_stopped(now_us, limit_us);
        let stood_us = self.moved.looked(GroupProgress { executed, requests, is_behind }, now_us, limit_us);
        let hung =
            self.hung(is_behind, was_stopped, now_us).filter(|(_, since_us)| now_us - since_us > limit_us);
        let hung = hung.filter(|_| is_behind).map(|(position, _)| position);
        hung.map(Stall::Handler).or((stood_us > limit_us).then_some(Stall::Pipeline))
    }

    /// Which position has been running for longest while others have executed it, and since when. That it
    /// began long ago says little: the others may have taken as long, and were a moment earlier.
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
    /// Ends the workers. One that hangs in a handler, or waits for a repair, ends with the process.
    fn drop(&mut self) {
        self.schedule.abort();
        if let Some(stepped) = &self.stepped {
            stepped.finish();
        }
    }
}

/// Steps several workers, for a moment.
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

fn shape(settings: &Settings, locks: u32) -> schedule::Config {
    let Mode { replicated, deterministic, .. } = settings.mode;
    let mode = match (replicated, deterministic) {
        (_, true) => schedule::LockRules::Turns,
        (_, false) => schedule::LockRules::Locks,
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
        assert_eq!(looked(at(6, 41, true), 2000), 100);
        assert_eq!(looked(at(6, 41, false), 2100), 0, "the others stand at the same batch");
        let later = 2100 + 2 * limits::SILENCE.as_micros() as u64;
        assert_eq!(looked(at(6, 41, true), later), 0, "the process was stopped");
    }
}
