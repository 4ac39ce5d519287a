//! The model: discrete events of one executor's workers, its mixer, and the cores that they share.
//!
//! A worker takes the next request of the open parallel batch. Who ends its last one opens the next and wakes the
//! workers that sleep, one after the other; who ends the batch folds it, while the others begin the next. The mixer
//! appends a batch when one is agreed on. A thread that uses processor time needs a core; threads take turns.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use wire::SplitMix64;

use super::sample::MeasuredTimes;

/// A thread keeps its core that long where others wait for one: a slice of Linux, in nanoseconds.
const SLICE_NS: u64 = 1_000_000;
/// Batches before the clock starts.
const WARM_UP: u64 = 16;
/// Batches of the measured time: four times the log.
const BATCHES: u64 = 256;

/// A part of the model that can be left out, to see what it is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelPart {
    /// The parallel batches of a batch run one after the other
    Barrier,
    /// Workers that sleep are woken one after the other
    Waking,
    /// A batch is folded into its token
    Folding,
    /// A batch is planned before it runs
    Mixing,
    /// Threads share cores
    Cores,
}

/// Times of one kind of request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelTimes {
    /// A handler with its work.
    pub request: MeasuredTimes,
    /// Processor time of that and of the step to the next request; none where all of it is.
    pub busy: Option<MeasuredTimes>,
    /// From a request to the next one in a parallel batch.
    pub between: MeasuredTimes,
    /// From the end of a parallel batch to the beginning of the next one.
    pub opening: MeasuredTimes,
    /// From there to the next worker that begins, and from that one to the next.
    pub waking: MeasuredTimes,
    /// Folding a batch.
    pub folding: MeasuredTimes,
    /// Keys and plan of a batch.
    pub mixing: MeasuredTimes,
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct ModelCase {
    /// Worker threads.
    pub workers: usize,
    /// Cores.
    pub cores: usize,
    /// Lengths of the parallel batches of each batch; the log repeats them.
    pub plans: Vec<Vec<u32>>,
    /// Times.
    pub times: ModelTimes,
    /// Batches that are appended beyond the agreed one.
    pub ahead: u64,
    /// From the token of a batch until the batch is agreed on, in nanoseconds.
    pub token_ns: u64,
    /// Parts that are left out.
    pub without: Vec<ModelPart>,
}

impl ModelCase {
    /// Requests per second; none if the log has no requests or there are no workers.
    pub fn throughput(&self, seed: u64) -> Option<f64> {
        let is_runnable = self.workers > 0 && self.cores > 0 && self.ahead > 0;
        let requests: u64 = self.plans.iter().flatten().map(|length| u64::from(*length)).sum();
        if !is_runnable || requests == 0 {
            return None;
        }
        let (counted, ns) = Simulation::new(self, seed).run()?;
        Some(counted as f64 * 1e9 / ns.max(1) as f64)
    }

    fn has(&self, part: ModelPart) -> bool {
        !self.without.contains(&part)
    }
}

/// What happens, in the order of time and then of its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ModelEvent {
    /// A thread has used the core as long as it may.
    SliceEnd { thread: usize, used: u64 },
    /// A thread's sleep is over.
    WaitEnd { thread: usize },
    /// A worker looks for a request.
    Look { worker: usize },
    /// All executors have the same token.
    Agreed,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Nothing,
    Request,
    Fold,
    Mix,
}

/// A thread with what is left of its task: processor time, a sleep, and processor time again; in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct ModelThread {
    task: Task,
    first: u64,
    sleep: u64,
    last: u64,
}

/// A batch that was appended and has not ended.
struct OpenBatch {
    /// Lengths of its parallel batches that are not open yet, the next one last.
    parallel: Vec<u32>,
    unclaimed: u32,
    unfinished: u32,
}

struct Simulation<'c> {
    case: &'c ModelCase,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, ModelEvent)>>,
    /// Events so far: what is caused first comes first.
    caused: u64,
    free_cores: usize,
    /// Threads that wait for a core.
    ready: VecDeque<usize>,
    /// The workers, and the mixer behind them.
    threads: Vec<ModelThread>,
    /// Workers that sleep.
    idle: VecDeque<usize>,
    batches: VecDeque<OpenBatch>,
    appended: u64,
    agreed: u64,
    /// Who folds, and behind it who is to fold later batches.
    folding: VecDeque<usize>,
    random: SplitMix64,
}

impl<'c> Simulation<'c> {
    fn new(case: &'c ModelCase, seed: u64) -> Simulation<'c> {
        let idle = ModelThread { task: Task::Nothing, first: 0, sleep: 0, last: 0 };
        Simulation {
            case,
            now: 0,
            events: BinaryHeap::new(),
            caused: 0,
            // Without shared cores, each thread has its own.
            free_cores: if case.has(ModelPart::Cores) { case.cores } else { case.workers + 1 },
            ready: VecDeque::new(),
            threads: vec![idle; case.workers + 1],
            idle: (0..case.workers).collect(),
            batches: VecDeque::new(),
            appended: 0,
            agreed: 0,
            folding: VecDeque::new(),
            random: SplitMix64::new(seed),
        }
    }

    /// Requests of the measured batches and their time in nanoseconds; none if nothing happens any more.
    fn run(mut self) -> Option<(u64, u64)> {
        self.mix();
        let mut begun = None;
        while self.agreed < WARM_UP + BATCHES {
            let Reverse((at, _, event)) = self.events.pop()?;
            self.now = at;
            match event {
                ModelEvent::SliceEnd { thread, used } => self.on_slice_end(thread, used),
                ModelEvent::WaitEnd { thread } => self.on_wait_end(thread),
                ModelEvent::Look { worker } => self.look(worker, true),
                ModelEvent::Agreed => self.on_agreed(),
            }
            if self.agreed == WARM_UP && begun.is_none() {
                begun = Some(self.now);
            }
        }
        let plan = |number: u64| &self.case.plans[(number % self.case.plans.len() as u64) as usize];
        let requests = (WARM_UP..WARM_UP + BATCHES).flat_map(plan).map(|length| u64::from(*length)).sum();
        Some((requests, self.now - begun?))
    }

    fn after(&mut self, ns: u64, event: ModelEvent) {
        self.caused += 1;
        self.events.push(Reverse((self.now + ns, self.caused, event)));
    }

    /// The mixer plans the next batch, if it is not at work and there is room.
    fn mix(&mut self) {
        let mixer = self.case.workers;
        if self.threads[mixer].task != Task::Nothing || self.appended >= self.agreed + self.case.ahead {
            return;
        }
        let mixing =
            if self.case.has(ModelPart::Mixing) { self.case.times.mixing.draw(&mut self.random) } else { 0 };
        self.begin(mixer, ModelThread { task: Task::Mix, first: mixing, sleep: 0, last: 0 });
    }

    /// A worker takes the next request; or it sleeps.
    fn look(&mut self, worker: usize, is_first: bool) {
        let is_open = |batch: &&mut OpenBatch| batch.unclaimed > 0;
        let Some(batch) = self.batches.iter_mut().take(1).find(is_open) else {
            self.idle.push_back(worker);
            return;
        };
        batch.unclaimed -= 1;
        let times = &self.case.times;
        // A worker that waited for the barrier had its step there.
        let step = if is_first { 0 } else { times.between.draw(&mut self.random) };
        let whole = times.request.draw(&mut self.random) + step;
        let busy = times.busy.as_ref().map_or(whole, |busy| busy.draw(&mut self.random).min(whole));
        let first = busy / 2;
        self.begin(
            worker,
            ModelThread { task: Task::Request, first, sleep: whole - busy, last: busy - first },
        );
    }

    fn begin(&mut self, thread: usize, does: ModelThread) {
        self.threads[thread] = does;
        self.go_on(thread);
    }

    /// What a thread does next: it needs a core, sleeps, or has ended its task.
    fn go_on(&mut self, thread: usize) {
        let ModelThread { first, sleep, last, .. } = self.threads[thread];
        if first > 0 || sleep == 0 && last > 0 {
            self.ready.push_back(thread);
            self.hand_out_cores();
        } else if sleep > 0 {
            self.after(sleep, ModelEvent::WaitEnd { thread });
        } else {
            self.end_task(thread);
        }
    }

    fn hand_out_cores(&mut self) {
        while self.free_cores > 0
            && let Some(thread) = self.ready.pop_front()
        {
            self.free_cores -= 1;
            let ModelThread { first, last, .. } = self.threads[thread];
            let used = if first > 0 { first } else { last }.min(SLICE_NS);
            self.after(used, ModelEvent::SliceEnd { thread, used });
        }
    }

    fn on_slice_end(&mut self, thread: usize, used: u64) {
        let state = &mut self.threads[thread];
        let left = if state.first > 0 { &mut state.first } else { &mut state.last };
        *left -= used;
        self.free_cores += 1;
        self.go_on(thread);
        self.hand_out_cores();
    }

    fn on_wait_end(&mut self, thread: usize) {
        self.threads[thread].sleep = 0;
        self.go_on(thread);
    }

    fn end_task(&mut self, thread: usize) {
        match std::mem::replace(&mut self.threads[thread].task, Task::Nothing) {
            Task::Request => self.end_request(thread),
            Task::Fold => self.end_fold(thread),
            Task::Mix => self.append(),
            Task::Nothing => {}
        }
    }

    /// The mixer has planned a batch.
    fn append(&mut self) {
        let plans = &self.case.plans;
        let lengths = &plans[(self.appended % plans.len() as u64) as usize];
        let parallel = if self.case.has(ModelPart::Barrier) {
            lengths.iter().rev().copied().collect()
        } else {
            vec![lengths.iter().sum()]
        };
        self.batches.push_back(OpenBatch { parallel, unclaimed: 0, unfinished: 0 });
        self.appended += 1;
        if self.batches.len() == 1 {
            self.open_next(None);
        }
        self.mix();
    }

    fn end_request(&mut self, worker: usize) {
        if let Some(batch) = self.batches.front_mut() {
            batch.unfinished -= 1;
            if batch.unfinished == 0 && !batch.parallel.is_empty() {
                return self.open_next(Some(worker));
            }
            if batch.unfinished == 0 {
                self.batches.pop_front();
                self.open_next(None);
                self.folding.push_back(worker);
                if self.folding.len() == 1 {
                    self.fold();
                }
                return;
            }
        }
        self.look(worker, false);
    }

    /// Opens the next parallel batch, if there is one: `opener`, who does nothing else, is the first to begin.
    fn open_next(&mut self, opener: Option<usize>) {
        let Some(batch) = self.batches.front_mut() else { return };
        let Some(length) = batch.parallel.pop() else { return };
        batch.unclaimed += length;
        batch.unfinished += length;
        let has_waking = self.case.has(ModelPart::Waking);
        let mut delay = if has_waking { self.case.times.opening.draw(&mut self.random) } else { 0 };
        let woken: Vec<usize> = opener.into_iter().chain(self.idle.drain(..)).collect();
        for worker in woken {
            self.after(delay, ModelEvent::Look { worker });
            delay += if has_waking { self.case.times.waking.draw(&mut self.random) } else { 0 };
        }
    }

    /// The first worker in line folds.
    fn fold(&mut self) {
        let Some(&worker) = self.folding.front() else { return };
        let has_folding = self.case.has(ModelPart::Folding);
        let folding = if has_folding { self.case.times.folding.draw(&mut self.random) } else { 0 };
        self.begin(worker, ModelThread { task: Task::Fold, first: folding, sleep: 0, last: 0 });
    }

    fn end_fold(&mut self, worker: usize) {
        self.folding.pop_front();
        self.after(self.case.token_ns, ModelEvent::Agreed);
        self.fold();
        self.look(worker, false);
    }

    fn on_agreed(&mut self) {
        self.agreed += 1;
        self.mix();
    }
}
