//! Execute: the service, the workers that run on it, and how the last batches were run.

use std::sync::Arc;

use vote::{Failure, Place};

use super::execution::{Execution, Stall, StallCheck};
use super::solo::{Slice, WatchdogView};
use crate::ascending::Ascending;
use crate::hooks::{self, Hooks, Rule};
use crate::packed_state::PackedState;
use crate::running::{RunNotes, Runs};
use crate::service::{Service, kind_in_words};
use crate::state::{LoadingState, SavedBase};
use crate::worker::Report;
use crate::world::{Lockstep, World};
use crate::{ReplaceReason, limits};

/// The executing side of a replica.
pub(super) struct ExecuteStage<S: Service> {
    /// The service until its workers start.
    pub(super) service: Option<S>,
    /// A state that is put into the service while its pieces come.
    pub(super) loading: Option<LoadingState<S>>,
    /// The position of the service's state, when it was read from disk.
    pub(super) base: Option<SavedBase<S>>,
    /// The workers, once they have started.
    pub(super) running: Option<Execution<S>>,
    /// The service while its workers end, and the packed state that is to replace its own.
    retiring: Option<Retiring<S>>,
    /// A buffer for the reports of a single worker, empty between rounds.
    pub(super) reports: Vec<Report>,
    /// Notes on how each of the last batches was run.
    runs: Ascending<Runs>,
    /// How many requests of each kind this process has executed.
    of_kinds: Vec<u64>,
    /// There is more to execute, so the thread must not sleep.
    pub(super) is_busy: bool,
    /// The last slice took so long that messages should not have waited for it.
    pub(super) is_slow: bool,
    pub(super) watchdog_view: Arc<WatchdogView>,
    /// Batches up to this log index are executed without a watchdog: the last processes of this replica ended at one of
    /// them.
    pub(super) unwatched: u64,
}

/// A service whose workers are about to end.
struct Retiring<S> {
    service: Arc<S>,
    packed: PackedState,
    /// They have ended, and what they reported is being taken.
    reported: bool,
}

impl<S: Service> ExecuteStage<S> {
    /// No worker runs yet. `base` is the position of `service`'s state, unless this is the first state.
    pub(super) fn new(service: S, base: Option<SavedBase<S>>) -> Self {
        ExecuteStage {
            service: Some(service),
            loading: None,
            base,
            running: None,
            retiring: None,
            reports: Vec::new(),
            runs: Ascending::default(),
            of_kinds: Vec::new(),
            is_busy: false,
            is_slow: false,
            watchdog_view: Arc::default(),
            unwatched: 0,
        }
    }

    /// Ends the workers, so that `packed` can replace the state.
    pub(super) fn retire(&mut self, packed: PackedState, lockstep: &Lockstep) {
        let Some(execution) = self.running.take() else { return };
        let service = execution.service.clone();
        drop(execution);
        self.watchdog_view.execute(0);
        (self.runs, self.of_kinds) = (Ascending::default(), Vec::new());
        // In a simulation nothing may depend on when the kernel ends a thread.
        while lockstep.is_strict() && Arc::strong_count(&service) > 1 {
            std::thread::yield_now();
        }
        self.retiring = Some(Retiring { service, packed, reported: false });
    }

    /// Whether the workers of an earlier state may still report.
    pub(super) fn is_retiring(&self) -> bool {
        self.retiring.is_some()
    }

    /// The state that is to be put in place, once the workers have ended and all they reported was taken.
    pub(super) fn take_retired(&mut self) -> Option<PackedState> {
        let retiring = self.retiring.as_mut()?;
        if Arc::strong_count(&retiring.service) > 1 {
            return None;
        }
        // What they reported last is in the mailbox, and is taken with the next round.
        if !std::mem::replace(&mut retiring.reported, true) {
            return None;
        }
        let Retiring { service, packed, .. } = self.retiring.take()?;
        self.service = Arc::into_inner(service);
        Some(packed)
    }

    /// First batch that this process of the replica executes; 0 while it has no state.
    pub(super) fn first_batch(&self) -> u64 {
        self.running.as_ref().map_or(0, |execution| execution.first_batch)
    }

    /// Whether the workers run every request twice.
    pub(super) fn is_alone(&self) -> bool {
        self.running.as_ref().is_some_and(Execution::is_alone)
    }

    /// How far each worker has come.
    pub(super) fn progress(&self) -> Vec<schedule::WorkerProgress> {
        self.running.as_ref().map_or_else(Vec::new, Execution::progress)
    }

    /// Whether workers report from now on when a request has ended, in addition to batches.
    pub(super) fn report_ends(&self, reports: bool) {
        if let Some(execution) = &self.running {
            execution.report_ends(reports);
        }
    }

    /// Whether a worker found its part of the schedule corrupted.
    pub(super) fn is_corrupted(&self) -> bool {
        self.running.as_ref().is_some_and(Execution::is_corrupted)
    }

    /// Whether the workers have room for another batch.
    pub(super) fn has_room(&self) -> bool {
        let has_room = |execution: &Execution<S>| {
            execution.in_flight() < limits::ENTRIES_IN_EXECUTION && !execution.is_between_batches()
        };
        self.running.as_ref().is_some_and(has_room)
    }

    /// Runs this thread's jobs for a short time. Returns the reports, in the buffer `ExecuteStage::reports`, which the
    /// caller must put back empty. Returns none where nothing executes.
    pub(super) fn run_slice<W: World>(&mut self, world: &W) -> Option<Vec<Report>> {
        let is_full = !self.has_room();
        let execution = self.running.as_mut()?;
        let mut reports = std::mem::take(&mut self.reports);
        let (slice, time) = execution.run_here(&mut reports, || world.stopwatch());
        self.is_slow = time > limits::SOLO_SHORT;
        self.watchdog_view.took(time);
        self.is_busy = slice == Slice::More || (is_full && !reports.is_empty());
        Some(reports)
    }

    /// A batch has all its results. Returns the last batch up to which all have theirs; none where nothing executes.
    pub(super) fn on_executed(&mut self, batch: u64) -> Option<u64> {
        let execution = self.running.as_mut()?;
        execution.on_executed(batch);
        let executed = execution.executed_to();
        self.watchdog_view.execute_done(executed);
        self.watchdog_view.execute(execution.oldest());
        Some(executed)
    }

    /// Remembers for a while how a batch was run.
    pub(super) fn keep_runs(&mut self, batch: u64, runs: Runs, hooks: &hooks::Active) {
        for run in &runs.of_requests {
            let kind = usize::from(run.kind);
            if self.of_kinds.len() <= kind {
                self.of_kinds.resize(kind + 1, 0);
            }
            self.of_kinds[kind] += 1;
        }
        self.runs.insert(batch, runs);
        if self.runs.len() > limits::RUNS_KEPT && hooks.keeps(Rule::ForgetsRuns) {
            self.runs.pop_first();
        }
    }

    /// The number of batches with notes on how they were run.
    pub(super) fn runs_kept(&self) -> usize {
        self.runs.len()
    }

    /// How a request of one of the last batches was run here.
    pub(super) fn ran(&self, place: Place) -> Option<RunNotes> {
        self.runs.get(place.batch)?.of_requests.get(usize::from(place.request)).copied()
    }

    /// The number of the request at `place` among all of its kind that were executed here. None if the notes on its
    /// batch have been removed.
    pub(super) fn number_of_kind(&self, place: Place, kind: u16) -> Option<u64> {
        let of_kind = |runs: &[RunNotes]| runs.iter().filter(|run| run.kind == kind).count() as u64;
        let (own, request) = (self.runs.get(place.batch)?, usize::from(place.request));
        let later: u64 = self.runs.after(place.batch).map(|runs| of_kind(&runs.of_requests)).sum();
        let behind = of_kind(own.of_requests.get(request + 1..).unwrap_or_default());
        self.of_kinds.get(usize::from(kind))?.checked_sub(later + behind)
    }

    /// A request with its kind, if the kind is known.
    pub(super) fn asked_at(&self, place: Place) -> String {
        let kind = self.ran(place).and_then(|ran| kind_in_words::<S>(ran.kind));
        kind.map_or_else(|| format!("request {place}"), |kind| format!("request {place} ({kind})"))
    }

    /// The replica that is to blame when no replica has a result: the one that submitted such a request. The voter does
    /// not know the origin of a request, and classifies the failure as a bug that all replicas share. The origin is
    /// none if a peer was absent for so long that the notes on the batch have been removed.
    pub(super) fn void(&self, record: &vote::Evidence) -> Option<(Option<u8>, Place)> {
        let is_invalid =
            record.failure == Some(Failure::Invalid) && record.class == vote::FaultClass::SoftwareBug;
        let place = Place::new(record.batch, record.request.filter(|_| is_invalid)?);
        Some((self.runs.get(place.batch).map(|runs| runs.origin), place))
    }

    /// The reason to replace this replica, if a batch that others have executed has made no progress here for too long.
    pub(super) fn stall(&mut self, check: StallCheck) -> Option<ReplaceReason> {
        match self.running.as_mut()?.stall(check) {
            _ if (1..=self.unwatched).contains(&self.watchdog_view.oldest()) => None,
            Some(Stall::Handler(position)) => Some(ReplaceReason::HandlerHangs { position }),
            Some(Stall::Pipeline) => Some(ReplaceReason::ExecutionStopped),
            None => None,
        }
    }
}
