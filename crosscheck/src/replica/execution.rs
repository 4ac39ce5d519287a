//! The workers of a replica and the log that feeds them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use schedule::{DispatcherState, Footprint, Lot};

use super::Input;
use super::solo::{Slice, Solo};
use crate::job::{Job, Work};
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
    locks: u32,
    watched: Vec<Watched>,
    alone: Arc<AtomicBool>,
    /// The worker, if there is only one; several have threads of their own.
    solo: Option<Solo<S>>,
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
                Work::Control(_) | Work::Unsound | Work::Cut(_) => footprint.make_all(),
            }
        };
        let alone = Arc::new(AtomicBool::new(false));
        let (lot, workers) = schedule::resume(shape(settings, locks), footprint_of, state);
        #[cfg(feature = "inject")]
        let armory = Arc::new(crate::inject::Armory::default());
        let context = |report: worker::Tell| worker::Context {
            service: service.clone(),
            me: settings.me,
            mode: settings.mode,
            alone: alone.clone(),
            report,
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
                let context = context(Box::new(report.clone()));
                let thread = std::thread::Builder::new().name(format!("worker-{number}"));
                thread.spawn(move || worker::run(scheduler, &context))?;
            }
        }
        let watched = vec![Watched::default(); lot.workers()];
        Ok(Execution {
            service,
            lot: Arc::new(lot),
            first_batch,
            next_batch: first_batch,
            executed: first_batch,
            locks,
            watched,
            alone,
            solo,
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
        (self.next_batch - self.executed) as usize
    }

    /// `is_long` if one of the pipeline's own requests is among them.
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

    /// Runs on this thread what a single worker has to run; what it has to say goes to `reports`. Tells how long it took.
    pub(super) fn run_here<T: Fn() -> Duration>(
        &mut self,
        reports: &mut Vec<Report>,
        stopwatch: impl FnOnce() -> T,
    ) -> (Slice, Duration) {
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

    /// Ends the workers. One that hangs in a handler, or waits for a repair, ends with the process.
    pub(super) fn stop(self) {
        self.lot.abort();
    }
}

fn shape(settings: &Settings, locks: u32) -> schedule::Config {
    let Mode { replicated, deterministic, .. } = settings.mode;
    let mode = match (replicated, deterministic) {
        (_, true) => schedule::Mode::Turns,
        (_, false) => schedule::Mode::Locks,
    };
    schedule::Config { mode, ..schedule::Config::new(settings.workers, locks) }
}
