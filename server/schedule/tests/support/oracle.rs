//! The dispatch function written down a second time, for one thread and without any of the crate's code; every
//! scheduler has to reproduce it (docs/determinism.md, section 3).

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use schedule::{Entry, Footprint, LockId, Origin};

use super::program::{Machine, Missed, Program, mix, place};
use super::{End, Record, Summary, fold};

struct Task {
    program: Arc<Program>,
    /// Forecast of the first attempt: declared and predicted; of a retry, that of the attempt before and what
    /// it missed.
    footprint: Footprint,
    attempt: u32,
    now: u64,
    origin: Origin,
    entry: u64,
}

/// Runs `log` in lag `lag` over `locks` locks.
pub fn run(log: &[Arc<Entry<Arc<Program>>>], locks: u32, lag: u64) -> Summary {
    run_learning_after(lag, log, locks, lag)
}

/// As [`run`], but a lesson counts `learned_after` positions later, which is wrong if it is not `lag`.
pub fn run_learning_after(
    learned_after: u64,
    log: &[Arc<Entry<Arc<Program>>>],
    locks: u32,
    lag: u64,
) -> Summary {
    Oracle {
        lag,
        learned_after,
        known: BTreeMap::new(),
        lessons: BTreeMap::new(),
        values: vec![0; locks as usize],
        histories: vec![0; locks as usize],
        reads: vec![0; locks as usize],
        records: BTreeMap::new(),
        position: 1,
        quiet: 0,
        now: 0,
        entry: 0,
        internal: VecDeque::new(),
        timers: Vec::new(),
        due: BTreeMap::new(),
    }
    .run(log)
}

struct Oracle {
    lag: u64,
    learned_after: u64,
    /// By place: the kind that has it, and the locks that its latest request took beyond its declared part.
    known: BTreeMap<u32, (u32, Uses)>,
    /// By the position at which it is known: kind, and the locks that its request took.
    lessons: BTreeMap<u64, (u32, Uses)>,
    values: Vec<u64>,
    histories: Vec<u64>,
    reads: Vec<u64>,
    records: BTreeMap<u64, Record>,
    position: u64,
    quiet: u64,
    now: u64,
    entry: u64,
    internal: VecDeque<(Arc<Program>, Origin)>,
    timers: Vec<(u64, u64, u32, Arc<Program>)>,
    due: BTreeMap<u64, Effects>,
}

/// Locks taken, each with whether it was for reading only.
type Uses = BTreeMap<LockId, bool>;

#[derive(Default)]
struct Effects {
    again: Option<Task>,
    spawned: Vec<Arc<Program>>,
    timers: Vec<(u64, Arc<Program>)>,
}

impl Oracle {
    fn run(mut self, log: &[Arc<Entry<Arc<Program>>>]) -> Summary {
        for entry in log {
            self.before_log();
            self.entry = entry.index;
            self.now = entry.time_us.max(self.now + 1);
            self.timers.sort_by_key(|timer| (timer.0, timer.1, timer.2));
            while self.timers.first().is_some_and(|timer| timer.0 <= self.now) {
                let (_, position, number, program) = self.timers.remove(0);
                self.internal.push_back((program, Origin::Timer { position, number }));
            }
            for (at, work) in entry.rows.iter().enumerate() {
                self.before_log();
                let origin = Origin::Entry { index: entry.index, request: at as u32 };
                let (program, footprint) = (Arc::clone(&work.request), work.footprint);
                let (now, entry) = (self.now, entry.index);
                self.execute(Task { program, footprint, attempt: 0, now, origin, entry });
            }
            if entry.drain {
                self.drain();
            }
        }
        self.drain();
        Summary {
            values: self.values,
            histories: self.histories,
            reads: self.reads,
            records: self.records,
            positions: self.position,
        }
    }

    /// All requests that precede one of the log at the present position.
    fn before_log(&mut self) {
        while let Some(task) = self.own_task() {
            self.execute(task);
        }
    }

    /// Positions until `lag` in a row were empty.
    fn drain(&mut self) {
        loop {
            self.before_log();
            if self.quiet >= self.lag {
                return;
            }
            self.quiet += 1;
            self.position += 1;
        }
    }

    fn own_task(&mut self) -> Option<Task> {
        if let Some(effects) = self.due.remove(&self.position) {
            let position = self.position - self.lag;
            self.internal.extend(
                (0..).zip(effects.spawned).map(|(number, p)| (p, Origin::Spawned { position, number })),
            );
            self.timers.extend((0..).zip(effects.timers).map(|(number, (at, p))| (at, position, number, p)));
            if effects.again.is_some() {
                return effects.again;
            }
        }
        let (program, origin) = self.internal.pop_front()?;
        let footprint = program.footprint;
        Some(Task { program, footprint, attempt: 0, now: self.now, origin, entry: self.entry })
    }

    /// The footprint of a first attempt: the declared locks, and the lesson of the kind.
    fn forecast(&mut self, declared: &Footprint) -> Footprint {
        while self.lessons.first_key_value().is_some_and(|(&at, _)| at <= self.position) {
            let Some((_, (kind, uses))) = self.lessons.pop_first() else { break };
            let at = place(kind);
            if !uses.is_empty() {
                self.known.insert(at, (kind, uses));
            } else if self.known.get(&at).is_some_and(|known| known.0 == kind) {
                self.known.remove(&at);
            }
        }
        let mut footprint = *declared;
        if let Some(kind) = declared.kind()
            && let Some((_, uses)) = self.known.get(&place(kind)).filter(|known| known.0 == kind)
        {
            for (&lock, &shared) in uses {
                if shared { footprint.read(lock) } else { footprint.write(lock) }
            }
        }
        footprint
    }

    /// The lesson of a request that is done. No program takes more locks than fit.
    fn teach(&mut self, declared: &Footprint, mut uses: Uses) {
        if let Some(kind) = declared.kind() {
            uses.retain(|&lock, &mut shared| declared.is_all() || !declared.allows(lock, shared));
            self.lessons.insert(self.position + self.learned_after, (kind, uses));
        }
    }

    fn execute(&mut self, mut task: Task) {
        if task.attempt == 0 {
            task.footprint = self.forecast(&task.program.footprint);
        }
        let alone = task.attempt >= 3 || task.footprint.is_all();
        let before = self.values.clone();
        let mut machine = OracleMachine {
            oracle: self,
            task: &task,
            alone,
            missed: None,
            effects: Effects::default(),
            uses: Uses::new(),
        };
        let result = catch_unwind(AssertUnwindSafe(|| task.program.interpret(&mut machine)));
        let (missed, effects, uses) = (machine.missed, machine.effects, machine.uses);
        let end = match result {
            Ok(Ok(value)) => End::Done(value),
            Ok(Err(Missed)) => End::Missed(missed.map_or(0, |(lock, _)| lock)),
            Err(_) => End::Panicked,
        };
        if !matches!(end, End::Done(_)) {
            self.values = before;
        }
        self.records.insert(
            self.position,
            Record {
                origin: task.origin,
                attempt: task.attempt,
                alone,
                entry: task.entry,
                now: task.now,
                predicted: task.footprint.kind().is_some(),
                forecast: fold(&task.footprint),
                end,
            },
        );
        match (end, missed) {
            (End::Done(_), _) => {
                self.due.insert(self.position + self.lag, effects);
                self.teach(&task.program.footprint, uses);
            }
            (End::Missed(_), Some((lock, shared))) => {
                let mut footprint = task.footprint;
                if shared {
                    footprint.read(lock)
                } else {
                    footprint.write(lock)
                }
                let again = Some(Task { footprint, attempt: task.attempt + 1, ..task });
                self.due.insert(self.position + self.lag, Effects { again, ..Effects::default() });
            }
            _ => {}
        }
        self.position += 1;
        self.quiet = 0;
    }
}

struct OracleMachine<'o> {
    oracle: &'o mut Oracle,
    task: &'o Task,
    alone: bool,
    missed: Option<(LockId, bool)>,
    effects: Effects,
    uses: Uses,
}

impl OracleMachine<'_> {
    fn take(&mut self, lock: LockId, shared: bool) -> Result<(), Missed> {
        if !self.alone && !self.task.footprint.allows(lock, shared) {
            self.missed = Some((lock, shared));
            return Err(Missed);
        }
        let (position, at) = (self.oracle.position, lock as usize);
        *self.uses.entry(lock).or_insert(true) &= shared;
        if shared {
            let reading = mix(position, self.oracle.histories[at]);
            self.oracle.reads[at] = self.oracle.reads[at].wrapping_add(reading);
        } else {
            self.oracle.histories[at] = mix(self.oracle.histories[at], position);
        }
        Ok(())
    }
}

impl Machine for OracleMachine<'_> {
    fn locks(&self) -> u32 {
        self.oracle.values.len() as u32
    }

    fn bump(&mut self, lock: LockId, by: u64) -> Result<u64, Missed> {
        self.take(lock, false)?;
        let value = &mut self.oracle.values[lock as usize];
        *value = mix(*value, by);
        Ok(*value)
    }

    fn peek(&mut self, lock: LockId) -> Result<u64, Missed> {
        // A DetMutex has no reading side.
        self.take(lock, lock % 2 == 1)?;
        Ok(self.oracle.values[lock as usize])
    }

    fn transfer(&mut self, from: LockId, to: LockId, by: u64) -> Result<u64, Missed> {
        if from == to {
            return self.bump(from, by);
        }
        self.take(from, false)?;
        self.take(to, false)?;
        let values = &mut self.oracle.values;
        values[from as usize] = mix(values[from as usize], values[to as usize]);
        values[to as usize] = mix(values[to as usize], by);
        Ok(values[from as usize])
    }

    fn release(&mut self, _lock: LockId) {}

    fn look(&mut self) -> u64 {
        // The random stream itself is checked by comparing replicas; the oracle has no seed of its own.
        mix(self.task.now, self.oracle.position)
    }

    fn now_us(&self) -> u64 {
        self.task.now
    }

    fn spawn(&mut self, program: Arc<Program>) {
        self.effects.spawned.push(program);
    }

    fn at(&mut self, time_us: u64, program: Arc<Program>) {
        self.effects.timers.push((time_us, program));
    }

    fn dawdle(&mut self) {}
}
