//! One executor: workers run batches as a replica's do, fold what they left into a token, and take batches back.
//!
//! It is the executing side of a replica without its pipeline: nothing is ordered, compared or sent here. Locks are
//! taken, requests run and sealed, and what takes them back is kept (`execute::Runner::once_keeping`); the last request
//! of a batch folds it (`execute::Speculation`); a boundary takes batches back (`schedule::Schedule::roll_back`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crosscheck::object::request::Protect;
use crosscheck::object::{Kept, ObjectId, Region, RegionId};
use crosscheck::schedule::{Access, Lock, Origin, Outcome, Turn, Worker};
use crosscheck::{Cx, Job, Service};
use execute::{End, KeptRequest, Protection, Regions, Runner, Speculation, TokenParts};
use memcached::Memcached;
use memcached::command::{Command, Keys};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tree::{Tree, TreeShape};
use verify::{StateToken, Version};
use vote::digest::{self, Answer};

use super::times::{BatchTrace, RequestTrace, TRACED_BATCHES};

/// Leaves of the tree over all objects.
const LEAVES: u32 = 65_536;
/// Buffers that a worker takes from those that are free, at a time.
const ROOMS: usize = 32;

/// What a request does besides its effects, while it holds its locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestWork {
    /// Processor time that it uses, in microseconds.
    pub burn_us: u32,
    /// Time that it sleeps, in microseconds.
    pub hold_us: u32,
}

/// What an executor reports to the thread that judges it.
pub struct ExecutorReport {
    /// The executor's number.
    pub executor: usize,
    /// What happened.
    pub event: ExecutorEvent,
}

/// What happened at an executor.
pub enum ExecutorEvent {
    /// All requests of a batch have run.
    Executed {
        /// The batch.
        number: u64,
        /// What replicas compare.
        token: StateToken,
    },
    /// Batches were rolled back, in this time.
    TookBack(Duration),
    /// It cannot go on.
    Failed(String),
    /// The replies up to this batch have reached the clients. Not the executor itself says so.
    Released(u64),
    /// There are no more requests. Not the executor itself says so.
    Ended,
}

/// Time that a kind of work took, and how often it was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpentTime {
    /// All of it.
    pub time: Duration,
    /// How often.
    pub count: u64,
}

impl SpentTime {
    /// What was spent since `before`, in microseconds per time.
    pub fn each_us_since(self, before: SpentTime) -> f64 {
        let time = self.time.saturating_sub(before.time).as_secs_f64() * 1e6;
        time / self.count.saturating_sub(before.count).max(1) as f64
    }
}

/// Time that workers add to.
#[derive(Default)]
struct TimeSum {
    ns: AtomicU64,
    count: AtomicU64,
}

impl TimeSum {
    fn add(&self, time: Duration) {
        self.ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> SpentTime {
        let time = Duration::from_nanos(self.ns.load(Ordering::Relaxed));
        SpentTime { time, count: self.count.load(Ordering::Relaxed) }
    }
}

/// A batch that the workers run, or will.
pub struct RunningBatch {
    number: u64,
    work: RequestWork,
    /// Where its parallel batches end.
    ends: Vec<u32>,
    results: Mutex<Vec<Option<KeptRequest>>>,
    traces: Mutex<Vec<RequestTrace>>,
    /// Digest of the schedule after it, once all of its requests have ended.
    ended: OnceLock<u64>,
}

impl RunningBatch {
    /// A batch of so many requests, whose parallel batches end there.
    pub fn new(number: u64, requests: usize, ends: Vec<u32>, work: RequestWork) -> Arc<RunningBatch> {
        let results = Mutex::new((0..requests).map(|_| None).collect());
        let traces = Mutex::new(Vec::with_capacity(requests));
        Arc::new(RunningBatch { number, work, ends, results, traces, ended: OnceLock::new() })
    }

    fn leave(&self, request: u32, result: KeptRequest, trace: RequestTrace) {
        locked(&self.traces).push(trace);
        if let Some(slot) = locked(&self.results).get_mut(request as usize) {
            *slot = Some(result);
        }
    }

    fn take_results(&self) -> Vec<KeptRequest> {
        locked(&self.results).iter_mut().filter_map(Option::take).collect()
    }
}

/// What the workers of an executor share.
pub struct ExecutorState<'s> {
    /// Its number.
    executor: usize,
    service: &'s Memcached,
    /// Whether requests can be rolled back; false to see what that costs.
    keeps: bool,
    /// Batches that were appended and are not folded. A thread that needs `folding` too locks that first.
    batches: Mutex<BTreeMap<u64, Arc<RunningBatch>>>,
    folding: Mutex<Speculation>,
    handled: TimeSum,
    folded: TimeSum,
    begun: Instant,
    /// Workers that have begun.
    workers: AtomicU32,
    /// Times of batches, until there are enough.
    traced: Mutex<Vec<BatchTrace>>,
}

impl<'s> ExecutorState<'s> {
    /// Of a service without items.
    pub fn new(executor: usize, service: &'s Memcached, tree: Tree, keeps: bool) -> ExecutorState<'s> {
        let folding = Mutex::new(Speculation::new(
            tree,
            Version { number: 0, token: StateToken(0) },
            TokenParts::default(),
        ));
        let (handled, folded) = (TimeSum::default(), TimeSum::default());
        ExecutorState {
            executor,
            service,
            keeps,
            batches: Mutex::default(),
            folding,
            handled,
            folded,
            begun: Instant::now(),
            workers: AtomicU32::new(0),
            traced: Mutex::default(),
        }
    }

    /// Times of the batches since this was called before, in their order.
    pub fn take_traced(&self) -> Vec<BatchTrace> {
        std::mem::take(&mut *locked(&self.traced))
    }

    /// The batch is about to be appended to the schedule.
    pub fn expect(&self, batch: Arc<RunningBatch>) {
        locked(&self.batches).insert(batch.number, batch);
    }

    /// The state after this batch is agreed on.
    pub fn agree(&self, number: u64) {
        locked(&self.folding).agree(number);
    }

    /// Time of all workers in handlers, with checks, seals, keeping and the digest of the answer, and with the work of
    /// the requests.
    pub fn handled(&self) -> SpentTime {
        self.handled.read()
    }

    /// Time in folding batches: changes of the tree, its root, the token.
    pub fn folded(&self) -> SpentTime {
        self.folded.read()
    }

    /// Ends the executor: its tree.
    pub fn into_tree(self) -> Tree {
        let mut speculation = self.folding.into_inner().unwrap_or_else(PoisonError::into_inner);
        speculation.tree().clone()
    }

    /// Runs what the schedule gives this worker until the schedule is closed.
    pub fn work(&self, worker: &mut Worker<Job<Command>>, reports: &Sender<ExecutorReport>) {
        wake_on_time();
        let locks = self.service.locks();
        let send = |event| {
            // Without a receiver, the judging thread has given up.
            let _ = reports.send(ExecutorReport { executor: self.executor, event });
        };
        let number = self.workers.fetch_add(1, Ordering::Relaxed);
        let mut rooms = Vec::new();
        let mut reply = Vec::new();
        while let Some(turn) = worker.next_blocking() {
            // A boundary has every lock. No request of the log has.
            let done = if turn.footprint().is_all() {
                self.roll_back(turn, &locks).map(|took| send(ExecutorEvent::TookBack(took)))
            } else {
                reply.clear();
                let room = self.room(&mut rooms);
                self.request(turn, number, &locks, room, &mut reply, &send)
            };
            if let Err(why) = done {
                return send(ExecutorEvent::Failed(why));
            }
        }
    }

    fn request(
        &self,
        mut turn: Turn<'_, Job<Command>>,
        worker: u32,
        locks: &[&dyn Lock],
        room: Kept,
        reply: &mut Vec<u8>,
        send: &impl Fn(ExecutorEvent),
    ) -> Result<(), String> {
        let begun = Instant::now();
        let used_ns = thread_time_ns();
        let number = turn.entry_index();
        let batch = locked(&self.batches).get(&number).cloned();
        let batch = batch.ok_or_else(|| format!("batch {number} was not expected"))?;
        let runner =
            Runner { locks, protection: Protection { protect: Protect::Check, undo: true }, seal_hook: &() };
        let handler = |cx: &crosscheck::schedule::Cx<'_, _>, job: &Job<Command>, reply: &mut Vec<u8>| {
            if let Some(command) = job.request() {
                self.service.execute(&Cx::new(*cx, self.service), command, reply)?;
            }
            batch.work.perform();
            Ok(())
        };
        let (end, outcome, kept) = if self.keeps {
            runner.once_keeping(&mut turn, reply, room, handler)
        } else {
            let (end, outcome) = runner.once(&mut turn, reply, handler);
            (end, outcome, room)
        };
        match end {
            End::Done(_) => {}
            // It runs again at once; its footprint is exact, so this does not happen.
            End::Retry(_) => {
                turn.finish(outcome);
                return Ok(());
            }
            other => return Err(format!("a request of batch {number} ended with {other:?}")),
        }
        let job = turn.request();
        let answer = Answer::new(turn.position(), turn.time_us(), job.checksum(), reply);
        let answer = digest::request(&[], &answer);
        let result = KeptRequest { stamp: turn.stamp(), answer, kept };
        let begun_ns = begun.saturating_duration_since(self.begun).as_nanos() as u64;
        let ended_ns = begun_ns + begun.elapsed().as_nanos() as u64;
        let trace = RequestTrace { worker, begun_ns, ended_ns, used_ns };
        batch.leave(turn.request_index().unwrap_or(u32::MAX), result, trace);
        let ended = turn.finish(outcome);
        self.handled.add(begun.elapsed());
        if let Some(ended) = ended {
            self.end(&batch, ended.schedule, send);
        }
        Ok(())
    }

    /// All requests of the batch have ended. Folds it and those behind it, as far as all before are folded.
    fn end(&self, batch: &Arc<RunningBatch>, schedule: u64, send: &impl Fn(ExecutorEvent)) {
        let mut folding = locked(&self.folding);
        let _ = batch.ended.set(schedule);
        while let Some((batch, schedule)) = self.next_to_fold(folding.version().number + 1) {
            let begun = Instant::now();
            let token = folding.fold(batch.take_results(), u128::from(schedule));
            let took = begun.elapsed();
            self.folded.add(took);
            self.trace(&batch, took);
            send(ExecutorEvent::Executed { number: batch.number, token });
        }
    }

    fn trace(&self, batch: &RunningBatch, folding: Duration) {
        let mut traced = locked(&self.traced);
        if traced.len() < TRACED_BATCHES {
            traced.push(BatchTrace {
                number: batch.number,
                ends: batch.ends.clone(),
                requests: std::mem::take(&mut *locked(&batch.traces)),
                folding_ns: folding.as_nanos() as u64,
            });
        }
    }

    /// The batch with this number, if it has ended. One that was dropped meanwhile is not found, or another one is.
    fn next_to_fold(&self, number: u64) -> Option<(Arc<RunningBatch>, u64)> {
        let mut batches = locked(&self.batches);
        let schedule = *batches.get(&number)?.ended.get()?;
        Some((batches.remove(&number)?, schedule))
    }

    /// A boundary: rolls back every batch behind the one that the schedule rolls back to. Nothing else runs.
    fn roll_back(&self, mut turn: Turn<'_, Job<Command>>, locks: &[&dyn Lock]) -> Result<Duration, String> {
        let begun = Instant::now();
        let Origin::Entry { index: number, .. } = turn.origin() else {
            return Err("a boundary of none".into());
        };
        let mut folding = locked(&self.folding);
        turn.take_all();
        let mut regions = HeldRegions { turn: &mut turn, locks };
        let dropped = locked(&self.batches).split_off(&(number + 1));
        let running = dropped.values().flat_map(|batch| batch.take_results()).collect();
        let taken_back = folding
            .roll_back_running(running, &mut regions)
            .and_then(|()| folding.roll_back(number, &mut regions))
            .map_err(|error| format!("going back to batch {number}: {error}"))?;
        let took = begun.elapsed();
        turn.finish(Outcome::Done);
        if taken_back.number == number {
            Ok(took)
        } else {
            Err(format!("back at {taken_back:?}, not {number}"))
        }
    }

    fn room(&self, rooms: &mut Vec<Kept>) -> Kept {
        if rooms.is_empty()
            && let Ok(mut folding) = self.folding.try_lock()
        {
            *rooms = folding.rooms(ROOMS);
        }
        rooms.pop().unwrap_or_default()
    }
}

/// The regions that a boundary holds: all of them.
struct HeldRegions<'b, 't, 'l> {
    turn: &'b mut Turn<'t, Job<Command>>,
    locks: &'b [&'l dyn Lock],
}

impl Regions for HeldRegions<'_, '_, '_> {
    fn visit(&mut self, region_id: RegionId, work: &mut dyn FnMut(&mut dyn Region)) {
        self.turn.visit_region(self.locks, region_id, |access| {
            if let Access::Exclusive(region) = access {
                work(region);
            }
        });
    }
}

impl RequestWork {
    fn perform(self) {
        if self.burn_us > 0 {
            let end = thread_time_ns() + 1_000 * u64::from(self.burn_us);
            while thread_time_ns() < end {
                std::hint::spin_loop();
            }
        }
        if self.hold_us > 0 {
            std::thread::sleep(Duration::from_micros(u64::from(self.hold_us)));
        }
    }
}

/// The tree over the objects of a service, computed from the objects themselves.
pub fn tree_of(service: &mut Memcached) -> Tree {
    let mut locks = service.locks_mut();
    let mut tree = Tree::new(TreeShape::even(locks.len() as u32, LEAVES));
    for (region_id, lock) in (0..).zip(&mut locks) {
        let mut objects: Vec<(ObjectId, u64)> = Vec::new();
        lock.region_mut().objects(&mut |listed| objects.push((listed.id, listed.recomputed)));
        tree.recompute(region_id, objects);
    }
    tree
}

/// A request for boundaries, which do not look at it.
pub fn nothing() -> Job<Command> {
    let command = Command::Get { keys: Keys::new(), with_unique: false, touch: None };
    Job::internal(command, bytes::Bytes::new())
}

/// Processor time of this thread so far, in nanoseconds.
fn thread_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanoseconds = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    u64::try_from(nanoseconds).unwrap_or(0)
}

/// A thread that sleeps is woken when its time has come, and not up to 50 us later, which is what Linux does to save
/// energy.
fn wake_on_time() {
    #[cfg(target_os = "linux")]
    {
        // Where it is not allowed, every sleep is longer, with one worker as with many.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    }
}

/// Locks; after a panic of another thread too, which that thread reports.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
