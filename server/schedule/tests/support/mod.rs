//! Runs random programs under a scheduler and returns everything that replicas must agree on.

pub mod oracle;
pub mod program;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use object::{ScopeOptions, critical, request};
use schedule::{
    Access, BatchRow, Config, Cx, DetMutex, DetRwLock, DispatcherState, Entry, Footprint, Lock, LockId,
    Origin, Outcome, Retry, Schedule, SplitMix64, Turn, Worker,
};

use program::{Machine, Missed, Program, mix};

pub type Request = Arc<Program>;
pub type Log = Vec<Arc<Entry<Request>>>;

/// How a position ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Done(u64),
    Missed(LockId),
    Panicked,
}

/// Everything about one position that must be equal everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub origin: Origin,
    pub attempt: u32,
    pub alone: bool,
    pub entry: u64,
    pub now: u64,
    pub predicted: bool,
    /// The footprint it ran with, folded.
    pub forecast: u64,
    pub end: End,
}

/// A footprint in one number.
pub fn fold(footprint: &Footprint) -> u64 {
    let start = mix(u64::from(footprint.is_all()), footprint.kind().map_or(0, |kind| 1 + u64::from(kind)));
    footprint.iter().fold(start, |fold, (lock, shared)| mix(mix(fold, u64::from(lock)), u64::from(shared)))
}

/// Everything about one run that must be equal everywhere.
#[derive(Debug, PartialEq, Eq)]
pub struct Summary {
    pub values: Vec<u64>,
    /// Per lock: its writing acquisitions in order, aborted attempts included.
    pub histories: Vec<u64>,
    /// Per lock: its reading acquisitions, each with the writers before it.
    pub reads: Vec<u64>,
    pub records: BTreeMap<u64, Record>,
    pub positions: u64,
}

/// The data behind each lock. The traces of acquisitions stay when a request is undone.
#[critical]
pub struct Cell {
    value: u64,
    #[uncritical]
    history: u64,
    #[uncritical]
    reads: AtomicU64,
}

#[critical]
impl Cell {
    pub fn new(value: u64, history: u64, reads: u64) -> Self {
        Self { value, history, reads: AtomicU64::new(reads) }
    }

    fn value(&self) -> u64 {
        self.value
    }

    fn set(&mut self, value: u64) {
        self.value = value;
    }

    fn enter(&mut self, position: u64) {
        self.history = mix(self.history, position);
    }

    fn look(&self, position: u64) -> u64 {
        self.reads.fetch_add(mix(position, self.history), Ordering::Relaxed);
        self.value
    }

    /// Value, history, reads.
    fn reported(&self) -> (u64, u64, u64) {
        (self.value, self.history, self.reads.load(Ordering::Relaxed))
    }
}

/// Even numbers are mutexes, odd ones reader-writer locks.
pub enum AnyLock {
    Mutex(DetMutex<Cell>),
    Rw(DetRwLock<Cell>),
}

impl AnyLock {
    /// Locks with the values of `cells` behind them; zeros beyond its end.
    fn all(locks: u32, cells: &[(u64, u64, u64)]) -> Vec<AnyLock> {
        let make = |id| {
            let (value, history, reads) = cells.get(id as usize).copied().unwrap_or_default();
            let cell = object::genesis(id, || Cell::new(value, history, reads));
            if id % 2 == 0 {
                AnyLock::Mutex(DetMutex::new(id, cell))
            } else {
                AnyLock::Rw(DetRwLock::new(id, cell))
            }
        };
        (0..locks).map(make).collect()
    }

    fn as_lock(&self) -> &dyn Lock {
        match self {
            AnyLock::Mutex(lock) => lock,
            AnyLock::Rw(lock) => lock,
        }
    }

    fn cell_mut(&mut self) -> &mut Cell {
        match self {
            AnyLock::Mutex(lock) => lock.get_mut(),
            AnyLock::Rw(lock) => lock.get_mut(),
        }
    }
}

/// A program's view of the scheduler under test, with before-images.
struct CxMachine<'t> {
    cx: &'t Cx<'t, Request>,
    locks: &'t [AnyLock],
    missed: Option<Retry>,
    chance: &'t mut SplitMix64,
    random: u64,
}

impl CxMachine<'_> {
    fn change<T>(&mut self, lock: LockId, change: impl FnOnce(&mut Cell) -> T) -> Result<T, Missed> {
        let guard = match &self.locks[lock as usize] {
            AnyLock::Mutex(mutex) => self.cx.lock(mutex),
            AnyLock::Rw(rw) => self.cx.write(rw),
        };
        let mut guard = guard.map_err(|retry| {
            self.missed = Some(retry);
            Missed
        })?;
        Ok(change(&mut guard))
    }
}

impl Machine for CxMachine<'_> {
    fn locks(&self) -> u32 {
        self.locks.len() as u32
    }

    fn bump(&mut self, lock: LockId, by: u64) -> Result<u64, Missed> {
        let position = self.cx.position();
        self.change(lock, |cell| {
            cell.enter(position);
            cell.set(mix(cell.value(), by));
            cell.value()
        })
    }

    fn peek(&mut self, lock: LockId) -> Result<u64, Missed> {
        let position = self.cx.position();
        match &self.locks[lock as usize] {
            AnyLock::Mutex(_) => self.change(lock, |cell| {
                cell.enter(position);
                cell.value()
            }),
            AnyLock::Rw(rw) => match self.cx.read(rw) {
                Ok(cell) => Ok(cell.look(position)),
                Err(retry) => {
                    self.missed = Some(retry);
                    Err(Missed)
                }
            },
        }
    }

    fn transfer(&mut self, from: LockId, to: LockId, by: u64) -> Result<u64, Missed> {
        if from == to {
            return self.bump(from, by);
        }
        let position = self.cx.position();
        let (locks, cx) = (self.locks, self.cx);
        self.change(from, |cell| cell.enter(position))?;
        self.change(to, |cell| cell.enter(position))?;
        // Both guards at once.
        let take = |lock: LockId| match &locks[lock as usize] {
            AnyLock::Mutex(mutex) => cx.lock(mutex),
            AnyLock::Rw(rw) => cx.write(rw),
        };
        let (Ok(mut first), Ok(mut second)) = (take(from), take(to)) else { return Err(Missed) };
        let (giving, taking) = (mix(first.value(), second.value()), mix(second.value(), by));
        first.set(giving);
        second.set(taking);
        Ok(giving)
    }

    fn release(&mut self, lock: LockId) {
        self.cx.release_early(self.locks[lock as usize].as_lock());
    }

    fn look(&mut self) -> u64 {
        self.random = mix(self.random, self.cx.rng().next_u64());
        mix(self.cx.now_us(), self.cx.position())
    }

    fn now_us(&self) -> u64 {
        self.cx.now_us()
    }

    fn spawn(&mut self, program: Arc<Program>) {
        self.cx.spawn(program);
    }

    fn at(&mut self, time_us: u64, program: Arc<Program>) {
        self.cx.at(time_us, program);
    }

    fn dawdle(&mut self) {
        match self.chance.below(16) {
            0..6 => std::thread::yield_now(),
            6..12 => (0..self.chance.below(400)).for_each(|_| std::hint::spin_loop()),
            12 => std::thread::sleep(Duration::from_micros(self.chance.below(40))),
            _ => {}
        }
    }
}

/// A checkpoint: its position, the dispatcher's state as bytes, and the values behind the locks.
pub struct Cut {
    pub position: u64,
    pub state: Vec<u8>,
    /// Kinds of requests known to the state.
    pub kinds: usize,
    pub cells: Vec<(u64, u64, u64)>,
}

/// Requests by number, so that a state can be bytes.
#[derive(Default)]
pub struct Names(Mutex<Vec<Request>>);

impl Names {
    pub fn name(&self, request: &Request, out: &mut Vec<u8>) {
        let mut known = self.0.lock().unwrap();
        let at = known.iter().position(|one| Arc::ptr_eq(one, request)).unwrap_or_else(|| {
            known.push(Arc::clone(request));
            known.len() - 1
        });
        out.extend_from_slice(&at.to_le_bytes());
    }

    pub fn find(&self, name: &[u8]) -> Option<Request> {
        let at = usize::from_le_bytes(name.try_into().ok()?);
        self.0.lock().unwrap().get(at).cloned()
    }
}

/// The state that the workers of one run share.
struct Site<'s> {
    locks: &'s [AnyLock],
    names: &'s Names,
    cuts: Mutex<Vec<Cut>>,
    reported: Mutex<Vec<(u64, Record, u64)>>,
}

/// Runs the requests of a worker until the log has ended; random numbers seen are folded into the last field.
fn work(mut worker: Worker<Request>, site: &Site<'_>, chance: &mut SplitMix64) {
    let locks = site.locks;
    let mut records = Vec::new();
    let table: Vec<&dyn Lock> = locks.iter().map(AnyLock::as_lock).collect();
    while let Some(mut turn) = worker.next_blocking() {
        request::begin(ScopeOptions {
            position: turn.position(),
            protect: request::Protect::Check,
            keep_before_images: true,
        });
        let cx = turn.cx();
        let mut machine = CxMachine { cx: &cx, locks, missed: None, chance, random: 0 };
        let result = catch_unwind(AssertUnwindSafe(|| turn.request().interpret(&mut machine)));
        let (end, outcome) = match (result, machine.missed) {
            (Ok(Ok(value)), _) => (End::Done(value), Outcome::Done),
            (Ok(Err(Missed)), Some(retry)) => (End::Missed(retry.lock()), Outcome::Mispredicted(retry)),
            _ => (End::Panicked, Outcome::Abandoned),
        };
        if turn.request().ops.is_empty() {
            site.cuts.lock().unwrap().extend(cut(&turn, &mut machine, site.names));
        }
        let random = machine.random;
        let now = cx.now_us();
        let delta = finish(&mut turn, outcome, &table);
        let record = Record {
            origin: turn.origin(),
            attempt: turn.attempt(),
            alone: turn.is_exclusive(),
            entry: turn.entry_index(),
            now,
            predicted: turn.footprint().kind().is_some(),
            forecast: fold(turn.footprint()),
            end,
        };
        records.push((turn.position(), record, mix(random, delta)));
        turn.finish(outcome);
    }
    site.reported.lock().unwrap().extend(records);
}

/// Seals the request's effects or undoes them; returns its folded state delta.
fn finish(turn: &mut Turn<'_, Request>, outcome: Outcome, table: &[&dyn Lock]) -> u64 {
    turn.visit_regions(table, |lock, access| match access {
        Access::Exclusive(region) if outcome == Outcome::Done => region.seal(lock),
        Access::Exclusive(region) => region.undo(),
        Access::Shared(region) => region.note(lock),
    });
    if outcome != Outcome::Done {
        request::abandon();
        return 0;
    }
    let delta = request::finish();
    let mut pairs = delta.pairs().to_vec();
    pairs.sort();
    pairs.iter().fold(1, |fold, pair| mix(mix(fold, pair.id.to_bits()), pair.sum))
}

/// The state at a request that runs alone and does nothing else.
fn cut(turn: &Turn<'_, Request>, machine: &mut CxMachine<'_>, names: &Names) -> Option<Cut> {
    let mut state = Vec::new();
    let dispatcher = turn.dispatcher_state()?;
    dispatcher.encode(&mut state, |request, out| names.name(request, out));
    let all = 0..machine.locks();
    let cells = all.map(|lock| machine.change(lock, |cell| cell.reported()).ok().unwrap());
    Some(Cut { position: turn.position(), state, kinds: dispatcher.kinds(), cells: cells.collect() })
}

/// The result of a run: everything that must be equal, the random numbers seen by position, and the checkpoints.
pub struct Ran {
    pub summary: Summary,
    pub randoms: BTreeMap<u64, u64>,
    pub cuts: Vec<Cut>,
}

/// Runs a log; `chance` varies timing only.
pub fn run(log: &Log, config: Config, chance: u64) -> Ran {
    run_from(log, config, chance, &Names::default(), None)
}

/// Runs a log, from a checkpoint on if there is one.
pub fn run_from(log: &Log, config: Config, chance: u64, names: &Names, from: Option<&Cut>) -> Ran {
    run_with(log, config, chance, (names, from), &mut |schedule, entry| schedule.append(entry))
}

/// Gives an entry to the schedule.
pub type Append<'a> = &'a mut dyn FnMut(&Schedule<Request>, Arc<Entry<Request>>);

/// Runs a log that `append` gives to the schedule.
pub fn run_with(
    log: &Log,
    config: Config,
    chance: u64,
    (names, from): (&Names, Option<&Cut>),
    append: Append<'_>,
) -> Ran {
    let mut locks = AnyLock::all(config.locks, from.map_or(&[], |cut| cut.cells.as_slice()));
    let mut state = DispatcherState::genesis();
    if let Some(cut) = from {
        state = DispatcherState::decode(&cut.state, |name| names.find(name)).unwrap();
    }
    let footprint = |program: &Request, footprint: &mut Footprint| *footprint = program.footprint;
    let (schedule, workers) = schedule::resume(config, footprint, state);
    let site = Site { locks: &locks, names, cuts: Mutex::default(), reported: Mutex::default() };
    let (done, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        for (at, worker) in workers.into_iter().enumerate() {
            let (site, done) = (&site, done.clone());
            scope.spawn(move || {
                work(worker, site, &mut SplitMix64::new(chance ^ (at as u64) << 40));
                done.send(()).unwrap();
            });
        }
        drop(done);
        let mut chance = SplitMix64::new(!chance);
        for entry in log {
            append(&schedule, Arc::clone(entry));
            if chance.below(8) == 0 {
                std::thread::yield_now();
            }
        }
        schedule.close();
        for _ in 0..schedule.workers() {
            if ended.recv_timeout(Duration::from_secs(120)).is_err() {
                eprintln!("a log of {} entries does not end: {config:?}", log.len());
                (0..schedule.workers()).for_each(|worker| eprintln!("{:?}", schedule.progress(worker)));
                std::process::abort();
            }
        }
    });
    let (gathered, cuts) = (site.reported.into_inner().unwrap(), site.cuts.into_inner().unwrap());
    let randoms = gathered.iter().map(|(position, _, random)| (*position, *random)).collect();
    let cells: Vec<_> = locks.iter_mut().map(|lock| lock.cell_mut().reported()).collect();
    let positions = (0..schedule.workers()).map(|worker| schedule.progress(worker).watermark).max().unwrap();
    let summary = Summary {
        values: cells.iter().map(|cell| cell.0).collect(),
        histories: cells.iter().map(|cell| cell.1).collect(),
        reads: cells.iter().map(|cell| cell.2).collect(),
        records: gathered.into_iter().map(|(position, record, _)| (position, record)).collect(),
        positions,
    };
    Ran { summary, randoms, cuts }
}

/// A random log of about `programs` requests.
pub fn random_log(rng: &mut SplitMix64, programs: u64, locks: u32) -> Log {
    let (mut log, mut made, mut index, mut time_us) = (Vec::new(), 0, 0, 1_000u64);
    let calm = rng.below(2) == 0;
    while made < programs {
        index += 1 + rng.below(20) / 19;
        time_us = (time_us + rng.below(40)).saturating_sub(rng.below(3));
        let rows: Vec<_> = (0..rng.below(9))
            .map(|_| {
                let cut = rng.below(40) == 0;
                // The locks of a kind change twice per log: learned forecasts become wrong.
                let fashion = 3 * made / programs;
                let program = if cut { Program::cut() } else { Program::random(rng, locks, 3, fashion) };
                BatchRow { footprint: program.footprint, request: Arc::new(program), stream: None }
            })
            .collect();
        made += rows.len() as u64;
        let drain = rng.below(if calm { 3 } else { 20 }) == 0;
        log.push(Arc::new(Entry { index, time_us, seed: rng.next_u64(), drain, rows }));
    }
    log
}
