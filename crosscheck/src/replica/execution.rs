//! The workers of a replica and the log that feeds them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use schedule::{DispatcherState, Footprint, Lot};

use super::solo::{Slice, Solo};
use super::{Crew, Input, Seat};
use crate::job::{Job, Work};
use crate::limits;
use crate::mailbox::Mailbox;
use crate::service::Service;
use crate::settings::{Mode, Settings};
use crate::worker::{self, Report};
use crate::world::Lockstep;

/// Handlers running on a service, and what they run next.
pub(super) struct Execution<S: Service> {
    pub(super) service: Arc<S>,
    lot: Arc<Lot<Job<S::Request>>>,
    /// The first batch that this life of the replica executes.
    pub(super) first_batch: u64,
    /// Number of the batch that is delivered next; counted alike at every replica.
    pub(super) next_batch: u64,
    /// Batches that have all their results.
    pub(super) executed: u64,
    moved: Moved,
    locks: u32,
    watched: Vec<Watched>,
    alone: Arc<AtomicBool>,
    /// The worker, if there is only one; several have threads of their own.
    solo: Option<Solo<S>>,
    /// Several workers that are stepped.
    crew: Option<Arc<Crew>>,
    #[cfg(feature = "inject")]
    pub(super) armory: Arc<crate::inject::Armory>,
}

/// What ties the workers to the order thread.
pub(super) struct Ties<'a> {
    /// Where their reports go.
    pub mailbox: &'a Mailbox<Input>,
    /// Whether the helper of a single worker runs beside the order thread, or in its place.
    pub lockstep: &'a Lockstep,
}

/// What the watchdog saw of a worker when it last looked.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    running: u64,
    since_us: u64,
}

/// How far this replica is, and how far it could be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Last batch executed here.
    pub executed: u64,
    /// Commit index of the log here.
    pub committed: u64,
    /// Whether batches were taken from the log that are not executed.
    pub in_flight: bool,
    /// Last batch that f+1 others have executed, if all others are there to say so.
    pub others: u64,
}

/// When a batch was last executed, or there was none to execute.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    executed: u64,
    /// The commit index then.
    committed: u64,
    since_us: u64,
    looked_us: u64,
}

impl Moved {
    /// Takes note of how far the replica is at `now_us`; tells for how many microseconds nothing has been executed that could have been.
    /// More than `limit_us` will be too many.
    fn looked(&mut self, progress: Progress, now_us: u64, limit_us: u64) -> u64 {
        let Progress { executed, committed, in_flight, others } = progress;
        let has_work =
            in_flight || committed > self.committed + limits::COMMITTED_UNSEEN || others > executed;
        // A process that was stopped for a while has been nowhere, and begins to catch up.
        let was_stopped = now_us - self.looked_us > (limits::SILENCE.as_micros() as u64).min(limit_us / 2);
        if executed != self.executed {
            (self.executed, self.committed, self.since_us) = (executed, committed, now_us);
        } else if !has_work || was_stopped {
            self.since_us = now_us;
        }
        self.looked_us = now_us;
        now_us - self.since_us
    }
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
        ties: &Ties<'_>,
    ) -> std::io::Result<Self> {
        let service = Arc::new(service);
        let locks = service.locks().len() as u32;
        let footprint_of = {
            let service = service.clone();
            move |job: &Job<S::Request>, footprint: &mut Footprint| match &job.work {
                Work::Service(request) => service.footprint(request, footprint),
                Work::Control(_) | Work::Unsound | Work::Void | Work::Cut(_) => footprint.make_all(),
            }
        };
        let alone = Arc::new(AtomicBool::new(false));
        let crew = ties.lockstep.crew();
        let pace = crew.map(|crew| crew.clone() as Arc<dyn schedule::Pace>);
        let (lot, workers) = schedule::resume_paced(shape(settings, locks), footprint_of, state, pace);
        #[cfg(feature = "inject")]
        let armory = Arc::new(crate::inject::Armory::default());
        let context = |report: worker::Tell| worker::Context {
            service: service.clone(),
            me: settings.me,
            mode: settings.mode,
            alone: alone.clone(),
            report,
            seat: None,
            #[cfg(feature = "inject")]
            armory: armory.clone(),
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
                let (mut context, crew) = (context(Box::new(report.clone())), crew.cloned());
                let thread = std::thread::Builder::new().name(format!("worker-{number}"));
                thread.spawn(move || {
                    context.seat = crew.map(|crew| Seat::take(crew, number));
                    worker::run(scheduler, &context);
                })?;
            }
        }
        let watched = vec![Watched::default(); lot.workers()];
        Ok(Execution {
            service,
            lot: Arc::new(lot),
            first_batch,
            next_batch: first_batch,
            executed: first_batch,
            moved: Moved::default(),
            locks,
            watched,
            alone,
            solo,
            crew: crew.cloned(),
            #[cfg(feature = "inject")]
            armory,
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

    /// `is_long` if it has a request that may wait or take long.
    pub(super) fn append(&mut self, entry: Arc<schedule::Entry<Job<S::Request>>>, is_long: bool) {
        let batch = entry.index;
        self.lot.append(entry);
        if let Some(solo) = &mut self.solo {
            solo.on_append(batch, is_long);
        }
    }

    /// A batch has all its results.
    pub(super) fn on_executed(&mut self, batch: u64) {
        self.executed += 1;
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

    /// Runs what a single worker has to run, on this thread; what it has to say goes to `reports`. Or steps several, if that is
    /// asked for. Tells how long it took.
    pub(super) fn run_here<T: Fn() -> Duration>(
        &mut self,
        reports: &mut Vec<Report>,
        stopwatch: impl FnOnce() -> T,
    ) -> (Slice, Duration) {
        if let Some(crew) = &self.crew {
            return run_crew(crew, &self.lot, stopwatch());
        }
        self.solo.as_mut().map_or((Slice::Idle, Duration::ZERO), |solo| solo.run(reports, stopwatch))
    }

    /// One ordered request as a job, with the locks it will take.
    pub(super) fn decode(&self, request: &order::Request) -> (Work<S::Request>, Footprint) {
        super::deliver::decode(&*self.service, self.locks, request)
    }

    /// Whether the workers run every request twice from now on.
    pub(super) fn set_alone(&self, alone: bool) {
        self.alone.store(alone, Ordering::Relaxed);
    }

    pub(super) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    /// Looks at every worker; says which position has been running for longer than `limit_us`.
    pub(super) fn hung(&mut self, now_us: u64, limit_us: u64) -> Option<u64> {
        for (worker, watched) in self.watched.iter_mut().enumerate() {
            let running = self.lot.progress(worker).running;
            if running == 0 || running != watched.running {
                *watched = Watched { running, since_us: now_us };
            } else if now_us - watched.since_us > limit_us {
                return Some(running);
            }
        }
        None
    }

    /// Whether nothing has been executed for longer than `limit_us` although there is something to execute: taken from the log, `committed`
    /// in it, or executed by the `others`. A counter, a queue or a connection that was corrupted can stop a replica without anything that hangs.
    pub(super) fn is_stuck(&mut self, committed: u64, others: u64, now_us: u64, limit_us: u64) -> bool {
        let (executed, in_flight) = (self.executed.saturating_sub(1), self.in_flight() > 0);
        self.moved.looked(Progress { executed, committed, in_flight, others }, now_us, limit_us) > limit_us
    }
}

impl<S: Service> Drop for Execution<S> {
    /// Ends the workers. One that hangs in a handler, or waits for a repair, ends with the process.
    fn drop(&mut self) {
        self.lot.abort();
        if let Some(crew) = &self.crew {
            crew.finish();
        }
    }
}

/// Steps several workers, for a moment.
fn run_crew<R>(crew: &Crew, lot: &Lot<R>, elapsed: impl Fn() -> Duration) -> (Slice, Duration) {
    let mut time = Duration::ZERO;
    while crew.step(|worker| lot.is_waiting(worker)) {
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
        (_, true) => schedule::Mode::Turns,
        (_, false) => schedule::Mode::Locks,
    };
    schedule::Config { mode, ..schedule::Config::new(settings.workers, locks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_something_to_execute_is_stuck() {
        let at = |executed, committed, in_flight, others| Progress { executed, committed, in_flight, others };
        let (mut moved, limit_us) = (Moved::default(), 60_000_000);
        let mut looked = |progress, now_us| moved.looked(progress, now_us, limit_us);
        assert_eq!(looked(at(5, 9, false, 0), 100), 0);
        assert_eq!(looked(at(5, 20, false, 5), 900), 0, "idle: the group changed");
        let many = 9 + limits::COMMITTED_UNSEEN + 1;
        assert_eq!(looked(at(5, many, false, 5), 1000), 100, "committed and not taken");
        assert_eq!(looked(at(6, 80, true, 6), 1100), 0);
        assert_eq!(looked(at(6, 80, true, 6), 1700), 600, "taken and not executed");
        assert_eq!(looked(at(6, 80, false, 7), 1800), 700, "executed by the others");
        assert_eq!(looked(at(7, 80, false, 7), 1900), 0);
        let later = 1900 + 2 * limits::SILENCE.as_micros() as u64;
        assert_eq!(looked(at(7, 80, false, 9), later), 0, "the process was stopped");
    }
}
