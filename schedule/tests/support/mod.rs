//! Runs random programs under a scheduler and tells everything that replicas must agree on.
#![allow(dead_code)] // Each test file uses its part.

pub mod oracle;
pub mod program;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use schedule::{
    Config, Cx, DetMutex, DetRng, DetRwLock, DispatcherState, Entry, Footprint, Lock, LockId, Origin,
    Outcome, Retry, Turn, Work, Worker,
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
    pub end: End,
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

/// What stands behind each lock.
#[derive(Default)]
pub struct Cell {
    value: u64,
    history: u64,
    reads: AtomicU64,
}

impl schedule::Region for Cell {}

/// Even numbers are mutexes, odd ones reader-writer locks.
pub enum AnyLock {
    Mutex(DetMutex<Cell>),
    Rw(DetRwLock<Cell>),
}

impl AnyLock {
    pub fn all(locks: u32) -> Vec<AnyLock> {
        let make = |id| match id % 2 {
            0 => AnyLock::Mutex(DetMutex::new(id, Cell::default())),
            _ => AnyLock::Rw(DetRwLock::new(id, Cell::default())),
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
    cx: &'t Cx<'t>,
    locks: &'t [AnyLock],
    undo: Vec<(LockId, u64)>,
    missed: Option<Retry>,
    chance: &'t mut DetRng,
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
        if self.undo.iter().all(|(saved, _)| *saved != lock) {
            self.undo.push((lock, guard.value));
        }
        Ok(change(&mut guard))
    }

    fn undo(&mut self) {
        for (lock, value) in self.undo.clone().into_iter().rev() {
            let undone = self.change(lock, |cell| cell.value = value);
            assert!(undone.is_ok(), "what was held can be taken again");
        }
    }
}

impl Machine for CxMachine<'_> {
    fn locks(&self) -> u32 {
        self.locks.len() as u32
    }

    fn bump(&mut self, lock: LockId, by: u64) -> Result<u64, Missed> {
        let position = self.cx.position();
        self.change(lock, |cell| {
            cell.history = mix(cell.history, position);
            cell.value = mix(cell.value, by);
            cell.value
        })
    }

    fn peek(&mut self, lock: LockId) -> Result<u64, Missed> {
        let position = self.cx.position();
        match &self.locks[lock as usize] {
            AnyLock::Mutex(_) => self.change(lock, |cell| {
                cell.history = mix(cell.history, position);
                cell.value
            }),
            AnyLock::Rw(rw) => match self.cx.read(rw) {
                Ok(cell) => {
                    cell.reads.fetch_add(mix(position, cell.history), Ordering::Relaxed);
                    Ok(cell.value)
                }
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
        self.change(from, |cell| cell.history = mix(cell.history, position))?;
        self.change(to, |cell| cell.history = mix(cell.history, position))?;
        // Both guards at once.
        let take = |lock: LockId| match &locks[lock as usize] {
            AnyLock::Mutex(mutex) => cx.lock(mutex),
            AnyLock::Rw(rw) => cx.write(rw),
        };
        let (Ok(mut first), Ok(mut second)) = (take(from), take(to)) else { return Err(Missed) };
        first.value = mix(first.value, second.value);
        second.value = mix(second.value, by);
        Ok(first.value)
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

/// A cut: where it was taken, the dispatcher's state as bytes, and what was behind the locks.
pub struct Cut {
    pub position: u64,
    pub state: Vec<u8>,
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

/// What the workers of one run share.
struct Site<'s> {
    locks: &'s [AnyLock],
    names: &'s Names,
    cuts: Mutex<Vec<Cut>>,
    told: Mutex<Vec<(u64, Record, u64)>>,
}

/// Runs what a worker is given until the log has ended; random numbers seen are folded into the last field.
fn work(mut worker: Worker<Request>, site: &Site<'_>, chance: &mut DetRng) {
    let locks = site.locks;
    let mut records = Vec::new();
    while let Some(turn) = worker.next_blocking() {
        let cx = turn.cx();
        let mut machine = CxMachine { cx: &cx, locks, undo: Vec::new(), missed: None, chance, random: 0 };
        let result = catch_unwind(AssertUnwindSafe(|| turn.request().interpret(&mut machine)));
        let (end, outcome) = match (result, machine.missed) {
            (Ok(Ok(value)), _) => (End::Done(value), Outcome::Done),
            (Ok(Err(Missed)), Some(retry)) => (End::Missed(retry.lock()), Outcome::Mispredicted(retry)),
            _ => (End::Panicked, Outcome::Abandoned),
        };
        if outcome != Outcome::Done {
            machine.undo();
        }
        if turn.request().ops.is_empty() {
            site.cuts.lock().unwrap().extend(cut(&turn, &mut machine, site.names));
        }
        let random = machine.random;
        let record = Record {
            origin: turn.origin(),
            attempt: turn.attempt(),
            alone: turn.is_exclusive(),
            entry: turn.entry_index(),
            now: cx.now_us(),
            end,
        };
        records.push((turn.position(), record, random));
        turn.finish(outcome);
    }
    site.told.lock().unwrap().extend(records);
}

/// The state at a request that runs alone and does nothing else.
fn cut(turn: &Turn<'_, Request>, machine: &mut CxMachine<'_>, names: &Names) -> Option<Cut> {
    let mut state = Vec::new();
    turn.dispatcher_state()?.encode(&mut state, |request, out| names.name(request, out));
    let all = 0..machine.locks();
    let cells = all.map(|lock| {
        let read = |cell: &mut Cell| (cell.value, cell.history, *cell.reads.get_mut());
        machine.change(lock, read).ok().unwrap()
    });
    Some(Cut { position: turn.position(), state, cells: cells.collect() })
}

/// What a run gives: everything that must be equal, the random numbers seen by position, and the cuts.
pub struct Ran {
    pub summary: Summary,
    pub randoms: BTreeMap<u64, u64>,
    pub cuts: Vec<Cut>,
}

/// Runs a log; `chance` varies timing only.
pub fn run(log: &Log, config: Config, chance: u64) -> Ran {
    run_from(log, config, chance, &Names::default(), None)
}

/// Runs a log, from a cut on if there is one.
pub fn run_from(log: &Log, config: Config, chance: u64, names: &Names, from: Option<&Cut>) -> Ran {
    let mut locks = AnyLock::all(config.locks);
    let mut state = DispatcherState::genesis();
    if let Some(cut) = from {
        state = DispatcherState::decode(&cut.state, |name| names.find(name)).unwrap();
        for (lock, &(value, history, reads)) in locks.iter_mut().zip(&cut.cells) {
            *lock.cell_mut() = Cell { value, history, reads: AtomicU64::new(reads) };
        }
    }
    let footprint = |program: &Request, footprint: &mut Footprint| *footprint = program.footprint;
    let (lot, workers) = schedule::resume(config, footprint, state);
    let site = Site { locks: &locks, names, cuts: Mutex::default(), told: Mutex::default() };
    let (done, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        for (at, worker) in workers.into_iter().enumerate() {
            let (site, done) = (&site, done.clone());
            scope.spawn(move || {
                work(worker, site, &mut DetRng::new(chance ^ (at as u64) << 40));
                done.send(()).unwrap();
            });
        }
        drop(done);
        let mut chance = DetRng::new(!chance);
        for entry in log {
            lot.append(Arc::clone(entry));
            if chance.below(8) == 0 {
                std::thread::yield_now();
            }
        }
        lot.close();
        for _ in 0..lot.workers() {
            if ended.recv_timeout(Duration::from_secs(120)).is_err() {
                eprintln!("a log of {} entries does not end: {config:?}", log.len());
                (0..lot.workers()).for_each(|worker| eprintln!("{:?}", lot.progress(worker)));
                std::process::abort();
            }
        }
    });
    let (gathered, cuts) = (site.told.into_inner().unwrap(), site.cuts.into_inner().unwrap());
    let randoms = gathered.iter().map(|(position, _, random)| (*position, *random)).collect();
    let mut cells: Vec<&mut Cell> = locks.iter_mut().map(AnyLock::cell_mut).collect();
    let positions = (0..lot.workers()).map(|worker| lot.progress(worker).watermark).max().unwrap();
    let summary = Summary {
        values: cells.iter().map(|cell| cell.value).collect(),
        histories: cells.iter().map(|cell| cell.history).collect(),
        reads: cells.iter_mut().map(|cell| *cell.reads.get_mut()).collect(),
        records: gathered.into_iter().map(|(position, record, _)| (position, record)).collect(),
        positions,
    };
    Ran { summary, randoms, cuts }
}

/// A random log of about `programs` requests.
pub fn random_log(rng: &mut DetRng, programs: u64, locks: u32) -> Log {
    let (mut log, mut made, mut index, mut time_us) = (Vec::new(), 0, 0, 1_000u64);
    let calm = rng.below(2) == 0;
    while made < programs {
        index += 1 + rng.below(20) / 19;
        time_us = (time_us + rng.below(40)).saturating_sub(rng.below(3));
        let requests: Vec<_> = (0..rng.below(9))
            .map(|_| {
                let cut = rng.below(40) == 0;
                let program = if cut { Program::cut() } else { Program::random(rng, locks, 3) };
                Work { footprint: program.footprint, request: Arc::new(program) }
            })
            .collect();
        made += requests.len() as u64;
        let drain = rng.below(if calm { 3 } else { 20 }) == 0;
        log.push(Arc::new(Entry { index, time_us, seed: rng.next_u64(), drain, requests }));
    }
    log
}
