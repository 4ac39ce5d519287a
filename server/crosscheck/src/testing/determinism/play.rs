//! Executes a log in one way, on threads that exist until all executions are over.

use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use execute::End;
use object::{ObjectId, Region, RegionId};
use schedule::{
    Access, Config, DispatcherState, Entry, Footprint, Lock, Origin, Outcome, Schedule, Turn, Worker,
};

use super::trace::{Did, Ended, ExecutedRequest, ExecutionTrace, Names};
use super::{BATCH, REST, STEP_US, Variant};
use crate::behavior::Behaviors;
use crate::job::{Job, Work};
use crate::packed_state::{PackWriter, PackedState};
use crate::service::{Service, declared};
use crate::state::{self, CheckpointHead};
use crate::testing::{START_US, handle};

/// With every so many batches, the schedule waits until all requests have run.
const DRAINS: u64 = 4;

/// Threads of all executions. None ends before the last one is over: a thread that ends leaves its stack, its memory
/// and its place in thread-local tables to the next one, which would then see the same addresses.
pub struct Threads<'a> {
    requests: &'a [Bytes],
    /// Dropped when threads may end.
    gates: Vec<mpsc::Sender<()>>,
    running: Vec<JoinHandle<()>>,
}

/// The data for the threads of one execution.
struct Hall<S> {
    service: Arc<S>,
    variant: Variant,
    /// Log index of the entry after which the state is packed.
    packs_at: Option<u64>,
    /// Batches of the log that are executed as one behavior.
    of_behavior: u64,
    seen: mpsc::Sender<ExecutedRequest>,
}

impl<S> Clone for Hall<S> {
    fn clone(&self) -> Self {
        let Hall { service, variant, packs_at, of_behavior, seen } = self;
        let (variant, packs_at, of_behavior) = (*variant, *packs_at, *of_behavior);
        Hall { service: service.clone(), variant, packs_at, of_behavior, seen: seen.clone() }
    }
}

impl<'a> Threads<'a> {
    /// No threads yet, for this log.
    pub fn new(requests: &'a [Bytes]) -> Self {
        Threads { requests, gates: Vec::new(), running: Vec::new() }
    }

    /// Executes the log on a new service.
    ///
    /// # Panics
    /// If bytes are no request of the service, or a thread cannot be created.
    pub fn play<S: Service>(&mut self, make_service: &impl Fn() -> S, variant: Variant) -> ExecutionTrace {
        // Each batch has two entries; this is the second one.
        let middle = (self.requests.len().div_ceil(BATCH) as u64 / 2).max(1) * 2;
        let genesis = DispatcherState::genesis();
        if !variant.restores {
            return self.run(make_service(), variant, genesis, None).0;
        }
        let (mut trace, packed) = self.run(make_service(), variant, genesis, Some(middle));
        let Some((position, packed)) = packed else { unreachable!("the entry in the middle was executed") };
        let mut service = make_service();
        match state::load(&mut service, packed) {
            Ok((_, dispatcher)) => trace.go_on(position, self.run(service, variant, dispatcher, None).0),
            Err(error) => trace.stop(position, format!("the state cannot be loaded: {error}")),
        }
        trace
    }

    /// Batches of the log, with the empty ones after it.
    fn batches(&self) -> usize {
        self.requests.len().div_ceil(BATCH) + REST
    }

    /// Executes the log from `state` on, and up to the entry `packs_at`, if that is given; then returns the position at
    /// which it was executed, and the state after it.
    fn run<S: Service>(
        &mut self,
        service: S,
        variant: Variant,
        state: DispatcherState<Job<S::Request>>,
        packs_at: Option<u64>,
    ) -> (ExecutionTrace, Option<(u64, PackedState)>) {
        let service = Arc::new(service);
        let config = Config::new(variant.workers, service.locks().len() as u32);
        let asked = service.clone();
        let (schedule, workers) = schedule::resume(
            config,
            move |job: &Job<S::Request>, footprint: &mut Footprint| *footprint = footprint_of(&*asked, job),
            state,
        );
        let (seen, sees) = mpsc::channel();
        let Behaviors { oldest, newest } = S::BEHAVIORS;
        let of_behavior = self.requests.len().div_ceil(BATCH) as u64 / u64::from(newest - oldest + 1);
        // No request of before is left then.
        let of_behavior = (of_behavior / DRAINS * DRAINS).max(DRAINS);
        let hall = Hall { service: service.clone(), variant, packs_at, of_behavior, seen };
        for worker in workers {
            self.start(worker, hall.clone());
        }
        drop(hall);
        self.append(&schedule, &*service, packs_at.unwrap_or(u64::MAX));
        schedule.close();
        // Until every thread has dropped its sender.
        ExecutionTrace::gather(sees.into_iter())
    }

    fn start<S: Service>(&mut self, worker: Worker<Job<S::Request>>, hall: Hall<S>) {
        let name = format!("worker {}", self.running.len() + 1);
        let (gate, until) = mpsc::channel();
        self.gates.push(gate);
        let started = thread::Builder::new().name(name).spawn(move || hall.work(worker, &until));
        self.running.push(started.unwrap_or_else(|error| panic!("no thread for a worker: {error}")));
    }

    fn append<S: Service>(&self, schedule: &Schedule<Job<S::Request>>, service: &S, last: u64) {
        let job = |bytes: &Bytes| {
            let request = service.decode(bytes).unwrap_or_else(|error| {
                panic!("{} is no request: {error:?}", bytes.escape_ascii());
            });
            Job::internal(request, bytes.clone())
        };
        let mut batches = self.requests.chunks(BATCH);
        for batch in 0..self.batches() as u64 {
            let jobs = batches.next().unwrap_or_default().iter().map(job).collect();
            let head = CheckpointHead { index: 0, batch, order: order::State::default() };
            let look = Job::unordered(Work::Checkpoint(Arc::new(head)));
            let time_us = START_US + batch * STEP_US;
            for (index, time_us, jobs) in
                [(2 * batch + 1, time_us, jobs), (2 * batch + 2, time_us + 1, vec![look])]
            {
                if index <= last {
                    let row = |request| {
                        let footprint = footprint_of(service, &request);
                        schedule::BatchRow { request, footprint, stream: None }
                    };
                    let rows = jobs.into_iter().map(row).collect();
                    let drain = batch % DRAINS == DRAINS - 1;
                    schedule.append(Arc::new(Entry { index, time_us, seed: batch, drain, rows }));
                }
            }
        }
    }
}

impl Drop for Threads<'_> {
    fn drop(&mut self) {
        self.gates.clear();
        for thread in self.running.drain(..) {
            // A panic of a thread has been detected: its execution lacks requests.
            let _ = thread.join();
        }
    }
}

impl<S: Service> Hall<S> {
    /// The body of one thread.
    fn work(self, mut worker: Worker<Job<S::Request>>, until: &mpsc::Receiver<()>) {
        {
            let locks = self.service.locks();
            while let Some(mut turn) = worker.next_blocking() {
                let (seen, outcome) = self.turn(&mut turn, &locks);
                turn.finish(outcome);
                // Without a receiver, the test is over.
                let _ = self.seen.send(seen);
            }
        }
        drop(worker);
        // All results are sent; the service stays at its address.
        let Hall { service, seen, .. } = self;
        drop(seen);
        let _ = until.recv();
        drop(service);
    }

    fn turn(&self, turn: &mut Turn<'_, Job<S::Request>>, locks: &[&dyn Lock]) -> (ExecutedRequest, Outcome) {
        let (position, origin, footprint) = (turn.position(), turn.origin(), *turn.footprint());
        let mut seen = ExecutedRequest {
            position,
            origin,
            kind: None,
            did: Did::new(footprint),
            names: Names::new(),
            packed: None,
        };
        let kind = turn.request().request().map(|request| self.service.kind(request));
        if kind.is_none() {
            self.look(turn, locks, &mut seen);
            return (seen, Outcome::Done);
        }
        seen.kind = kind;
        let (acting, runs) = ((&*self.service, self.acts_as(turn.entry_index())), self.variant.runs);
        let (end, outcome, _) = handle(acting, locks, turn, runs, &mut seen.did.reply);
        seen.did.ended = match end {
            End::Done(touched) => {
                seen.did.pairs = touched.pairs().to_vec();
                Ended::Done
            }
            End::Retry(retry) => Ended::Missed(retry.lock()),
            End::Panicked => Ended::Panicked,
            End::Corrupted(corrupted, wrong) => {
                Ended::Corrupted(wrong.first().copied().unwrap_or((0, corrupted.object)))
            }
            End::Unreproducible => Ended::Unreproducible,
            End::Undecodable => Ended::Undecodable,
            End::NotUndone => Ended::NotUndone,
        };
        (seen, outcome)
    }

    /// What the group acts as in an entry: one behavior after the other.
    fn acts_as(&self, index: u64) -> u16 {
        let Behaviors { oldest, newest } = S::BEHAVIORS;
        let changes = index.saturating_sub(1) / 2 / self.of_behavior;
        oldest + changes.min(u64::from(newest - oldest)) as u16
    }

    /// Runs alone after a batch: repacks the state if requested, names it, digests it, and packs it if requested.
    fn look(&self, turn: &mut Turn<'_, Job<S::Request>>, locks: &[&dyn Lock], seen: &mut ExecutedRequest) {
        turn.take_all();
        turn.visit_regions(locks, |region_id, access| {
            let Access::Exclusive(region) = access else { return };
            if self.variant.repacks {
                let wrong = repack(region).map(|(id, what)| ((region_id, id), what));
                seen.did.repacked = seen.did.repacked.take().or(wrong);
            }
            if self.variant.names {
                name::<S>(region, region_id, &mut seen.names);
            }
            seen.did.digests.push(region.digest());
        });
        if let (Origin::Entry { index, .. }, Work::Checkpoint(head)) =
            (seen.origin, turn.request().work.clone())
            && self.packs_at == Some(index)
        {
            match state::pack(turn, &*self.service, &head, PackWriter::default()) {
                Ok(packed) => seen.packed = Some(packed),
                Err(error) => unreachable!("{error}"),
            }
        }
    }
}

/// Replaces every object by its own packed bytes; returns the first one that differs afterwards.
fn repack(region: &mut dyn Region) -> Option<(ObjectId, String)> {
    let mut objects = Vec::new();
    region.objects(&mut |listed| objects.push((listed.id, listed.recomputed)));
    for &(id, _) in &objects {
        let packed = region.pack(id)?;
        if let Err(error) = region.replace(id, Some(&packed)) {
            return Some((id, format!("cannot be unpacked: {error}")));
        }
    }
    let mut after = Vec::new();
    region.objects(&mut |listed| after.push((listed.id, listed.recomputed)));
    let changed = objects.iter().zip(&after).find(|(before, after)| before != after)?;
    Some((changed.0.0, "has another checksum after it was packed and unpacked".to_owned()))
}

/// Records the operator's names of the objects of a region.
fn name<S: Service>(region: &dyn Region, region_id: RegionId, names: &mut Names) {
    region.objects(&mut |listed| {
        let packed = region.pack(listed.id);
        let members = packed.as_deref().and_then(|packed| region.members(packed).ok());
        let name = members.as_ref().and_then(S::name_of);
        let class = object::short_name(listed.class);
        names.insert((region_id, listed.id), name.unwrap_or_else(|| class.to_owned()));
    });
}

fn footprint_of<S: Service>(service: &S, job: &Job<S::Request>) -> Footprint {
    job.request().map_or_else(Footprint::all, |request| declared(service, request))
}
