//! Drives one executor, or two beside each other: appends batches, compares their tokens, and lets both go back where
//! the tokens differ.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use crosscheck::Job;
use crosscheck::schedule::{self, Config, Entry, LockRules, ParallelBatches, Schedule};
use memcached::Memcached;
use memcached::command::Command;
use serde::{Deserialize, Serialize};
use tree::Tree;
use verify::limits::WINDOW;
use verify::{StateToken, Version};
use wire::{SplitMix64, derive};

use super::log::RequestLog;
use super::mixing::{ErringMixer, MixerErrors, is_visible, started_in_any_order};
use super::replica::{
    ExecutorEvent, ExecutorReport, ExecutorState, RequestWork, RunningBatch, SpentTime, nothing, tree_of,
};
use super::times::BatchTrace;
use super::traffic::PairTraffic;

/// Batches that were appended and have not been executed: the next one is there when one ends.
pub const AHEAD: u64 = 4;
/// Checks before a wait becomes a sleep; as the replicas' workers.
const SPINS: u32 = 100;

/// How executors run a log.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutorSetup {
    /// Executors, one or two.
    pub executors: usize,
    /// Worker threads of each.
    pub workers: usize,
    /// What requests do besides their effects.
    pub work: RequestWork,
    /// What is wrong with the mixer.
    pub errors: MixerErrors,
    /// Whether each executor starts the requests of a parallel batch in an order of its own.
    pub any_order: bool,
    /// Whether requests run one at a time, in the order of the plan.
    pub sequential: bool,
    /// Whether what runs can be rolled back.
    pub keeps: bool,
}

/// What was counted of batches that were measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountedBatches {
    /// Batches that all executors agree on.
    pub batches: u64,
    /// Their parallel batches, as planned: without those of sequential runs after a rollback.
    pub parallel_batches: u64,
    /// Batches whose tokens differed.
    pub rollbacks: u64,
    /// Batches whose orders of start leave different items: tokens should differ just there.
    pub foreseen: u64,
    /// Time of the driving thread for keys and plans.
    pub mixing: Duration,
    /// Plans made in that time.
    pub plans: u64,
}

/// A rollback that was wanted, and not because of different tokens.
#[derive(Clone, Copy, Debug)]
pub struct TimedRollback {
    /// Work of the boundary alone.
    pub taken_back: Duration,
    /// From appending the batch to be run one request at a time to its token.
    pub again: Duration,
}

/// Drives executors over a log.
pub struct ExecutorDrive<'d, 's> {
    setup: ExecutorSetup,
    log: &'d RequestLog,
    /// Any of the executors': it gives footprints.
    service: &'s Memcached,
    states: &'d [ExecutorState<'s>],
    schedules: &'d [Schedule<Job<Command>>],
    reports: Receiver<ExecutorReport>,
    mixer: ErringMixer,
    starts: SplitMix64,
    appended: u64,
    verified: u64,
    /// Batches that are not verified.
    plans: BTreeMap<u64, Appended>,
    /// Tokens of batches that are not verified, by executor.
    tokens: Vec<BTreeMap<u64, StateToken>>,
    /// The newest token that all agree on.
    token: StateToken,
    counted: CountedBatches,
}

/// A batch that was appended.
struct Appended {
    entry: Arc<Entry<Job<Command>>>,
    plan: ParallelBatches,
    /// The orders of its requests at the executors leave different items.
    is_foreseen: bool,
}

/// Opens executors over these services, lets `drive` run them, and ends them. Each service is empty before, and its
/// state is checked afterwards: the root of the tree is that of the objects.
///
/// # Errors
/// What `drive` returns; that an executor failed; that a tree does not fit its objects.
pub fn with_executors<T>(
    setup: ExecutorSetup,
    log: &RequestLog,
    services: &mut [Memcached],
    seed: u64,
    drive: impl FnOnce(&mut ExecutorDrive<'_, '_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    with_event_source(setup, log, services, seed, drop, drive)
}

/// The same with events that come from elsewhere: `source` gets what it sends them to.
///
/// # Errors
/// As [`with_executors`].
pub fn with_event_source<T>(
    setup: ExecutorSetup,
    log: &RequestLog,
    services: &mut [Memcached],
    seed: u64,
    source: impl FnOnce(Sender<ExecutorReport>),
    drive: impl FnOnce(&mut ExecutorDrive<'_, '_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    ensure!(
        services.len() == setup.executors,
        "{} services for {} executors",
        services.len(),
        setup.executors
    );
    let trees: Vec<_> = services.iter_mut().map(tree_of).collect();
    let (result, mut ended) = {
        let states: Vec<ExecutorState<'_>> = (0..)
            .zip(trees)
            .zip(services.iter())
            .map(|((number, tree), service)| ExecutorState::new(number, service, tree, setup.keeps))
            .collect();
        let result = on_threads(setup, log, &states, services, seed, source, drive)?;
        (result, states.into_iter().map(ExecutorState::into_tree).collect::<Vec<_>>())
    };
    if !setup.keeps {
        // The tree knows nothing of what was not kept.
        return Ok(result);
    }
    check_roots(services, &mut ended)?;
    Ok(result)
}

/// Compares the root of each tree with that of the objects themselves.
///
/// # Errors
/// They differ: a change of an object was not folded, or not rolled back.
pub fn check_roots(services: &mut [Memcached], trees: &mut [Tree]) -> anyhow::Result<()> {
    for (number, (service, tree)) in services.iter_mut().zip(trees).enumerate() {
        let (expected, root) = (tree_of(service).root(), tree.root());
        ensure!(
            root == expected,
            "executor {number}: the root is {root:016x}, that of its objects {expected:016x}"
        );
    }
    Ok(())
}

fn on_threads<'s, T>(
    setup: ExecutorSetup,
    log: &RequestLog,
    states: &[ExecutorState<'s>],
    services: &'s [Memcached],
    seed: u64,
    source: impl FnOnce(Sender<ExecutorReport>),
    drive: impl FnOnce(&mut ExecutorDrive<'_, 's>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let locks = services[0].config().shards;
    let config = Config { mode: LockRules::Mixed, spins: SPINS, ..Config::new(setup.workers, locks) };
    let (sender, reports) = channel();
    std::thread::scope(|scope| {
        let mut schedules = Vec::new();
        for state in states {
            // Requests start no others: footprints are those of the entries.
            let (schedule, workers) =
                schedule::open(config, |_: &Job<Command>, footprint| footprint.make_all());
            for mut worker in workers {
                let sender = sender.clone();
                scope.spawn(move || state.work(&mut worker, &sender));
            }
            schedules.push(schedule);
        }
        source(sender);
        let mut driving = ExecutorDrive {
            setup,
            log,
            service: &services[0],
            states,
            schedules: &schedules,
            reports,
            mixer: ErringMixer::of_log(setup.errors, seed),
            starts: SplitMix64::new(derive(seed, 3)),
            appended: 0,
            verified: 0,
            plans: BTreeMap::new(),
            tokens: vec![BTreeMap::new(); states.len()],
            token: StateToken(0),
            counted: CountedBatches::default(),
        };
        let result = drive(&mut driving);
        match result {
            Ok(_) => schedules.iter().for_each(Schedule::close),
            Err(_) => schedules.iter().for_each(Schedule::abort),
        }
        result
    })
}

impl ExecutorDrive<'_, '_> {
    /// Runs batch after batch until `is_enough`, which gets the number of each verified batch and the token that all
    /// executors agree on. What is appended then is not run: the executors roll back to the last verified batch.
    ///
    /// # Errors
    /// An executor failed, or tokens of a sequential run differ.
    pub fn run_until(&mut self, mut is_enough: impl FnMut(u64, StateToken) -> bool) -> anyhow::Result<()> {
        loop {
            while self.appended < self.verified + AHEAD {
                self.append();
            }
            self.await_tokens(self.verified + 1)?;
            self.count(self.verified + 1);
            if !self.agree() {
                self.counted.rollbacks += 1;
                self.roll_back(self.verified)?;
                self.run_sequentially()?;
                ensure!(
                    self.agree(),
                    "executors differ about batch {} after a sequential run",
                    self.verified + 1
                );
            }
            if is_enough(self.verified, self.token) {
                self.roll_back(self.verified)?;
                return Ok(());
            }
        }
    }

    /// One executor only, without comparison: runs batches as far as `ahead` beyond the last released one, and tells
    /// `executed` about each, until [`ExecutorEvent::Ended`] comes. What is appended then is not run.
    ///
    /// # Errors
    /// The executor failed, or `executed` did.
    pub fn run_released(
        &mut self,
        ahead: u64,
        mut executed: impl FnMut(u64) -> std::io::Result<()>,
    ) -> anyhow::Result<()> {
        let mut released = self.verified;
        loop {
            while self.appended < released + ahead {
                self.append();
            }
            match self.next_report()? {
                (executor, ExecutorEvent::Executed { number, token }) => {
                    self.tokens[executor].insert(number, token);
                    while self.agree() {
                        executed(self.verified)?;
                    }
                }
                (_, ExecutorEvent::Released(number)) => released = released.max(number),
                (_, ExecutorEvent::Ended) => return self.roll_back(self.verified).map(drop),
                (_, ExecutorEvent::TookBack(_) | ExecutorEvent::Failed(_)) => {}
            }
        }
    }

    /// Executes the next batch, takes it back although nothing differs, and executes it one request at a time.
    ///
    /// # Errors
    /// As [`ExecutorDrive::run_until`]; or the second run has another token than the first.
    pub fn run_and_roll_back(&mut self) -> anyhow::Result<TimedRollback> {
        self.append();
        let number = self.appended;
        self.await_tokens(number)?;
        let first = self.tokens[0].remove(&number);
        let taken_back = self.roll_back(number - 1)?;
        let begun = Instant::now();
        self.run_sequentially()?;
        let again = begun.elapsed();
        let second = self.tokens[0].get(&number).copied();
        ensure!(
            first == second,
            "batch {number} has the token {second:?} after a rollback, and had {first:?}"
        );
        ensure!(self.agree(), "executors differ about batch {number}");
        Ok(TimedRollback { taken_back, again })
    }

    /// Bytes that a pair of replicas sends for these batches.
    ///
    /// # Errors
    /// A replica's batch cannot have such requests.
    pub fn traffic_of<'v>(&self, versions: impl IntoIterator<Item = &'v Version>) -> anyhow::Result<f64> {
        let mut traffic = PairTraffic::new();
        for version in versions {
            traffic.send(&self.log.entry(version.number, self.service), version.token)?;
        }
        Ok(traffic.bytes() as f64)
    }

    /// The last batch that all executors agree on, and the token after it.
    pub fn verified(&self) -> (u64, StateToken) {
        (self.verified, self.token)
    }

    /// What was counted since this was called before.
    pub fn take_counted(&mut self) -> CountedBatches {
        std::mem::take(&mut self.counted)
    }

    /// Time of the first executor so far: of requests, and of folding batches.
    pub fn spent(&self) -> [SpentTime; 2] {
        [self.states[0].handled(), self.states[0].folded()]
    }

    /// Times of the first executor's batches since this was called before.
    pub fn take_traced(&self) -> Vec<BatchTrace> {
        self.states[0].take_traced()
    }

    /// Whether all executors have the same token of the next batch: then it is verified.
    fn agree(&mut self) -> bool {
        let number = self.verified + 1;
        let Some(token) = self.tokens[0].get(&number).copied() else { return false };
        if self.tokens.iter().any(|tokens| tokens.get(&number) != Some(&token)) {
            return false;
        }
        self.verified = number;
        self.token = token;
        self.counted.batches += 1;
        self.plans.remove(&number);
        for tokens in &mut self.tokens {
            tokens.remove(&number);
        }
        // As much is kept as if each verification took as long as it may.
        let stable = number.saturating_sub(WINDOW);
        self.states.iter().for_each(|state| state.agree(stable));
        self.schedules.iter().for_each(|schedule| schedule.forget(stable));
        true
    }

    /// Appends the next batch at all executors.
    fn append(&mut self) {
        let number = self.appended + 1;
        let entry = self.log.entry(number, self.service);
        let begun = Instant::now();
        let plan = self.mixer.plan(&entry);
        self.counted.mixing += begun.elapsed();
        self.counted.plans += 1;
        let plan = if self.setup.sequential { plan.sequential() } else { plan };
        let orders: Vec<ParallelBatches> = (0..self.states.len())
            .map(|_| {
                if self.setup.any_order && !self.setup.sequential {
                    started_in_any_order(&plan, self.setup.workers, &mut self.starts)
                } else {
                    plan.clone()
                }
            })
            .collect();
        let is_foreseen = orders[1..].iter().any(|order| is_visible(&entry, &orders[0], order));
        self.appended = number;
        self.hand_out(&entry, &orders);
        self.plans.insert(number, Appended { entry, plan, is_foreseen });
    }

    /// The batch was executed as it was planned.
    fn count(&mut self, number: u64) {
        if let Some(Appended { plan, is_foreseen, .. }) = self.plans.get(&number) {
            self.counted.parallel_batches += plan.ends.len() as u64;
            self.counted.foreseen += u64::from(*is_foreseen);
        }
    }

    fn hand_out(&self, entry: &Arc<Entry<Job<Command>>>, orders: &[ParallelBatches]) {
        let is_filling = entry.index <= self.log.filling();
        let work = if is_filling { RequestWork::default() } else { self.setup.work };
        for ((state, schedule), order) in self.states.iter().zip(self.schedules).zip(orders) {
            state.expect(RunningBatch::new(entry.index, entry.rows.len(), order.ends.clone(), work));
            schedule.append_mixed(Arc::clone(entry), order.clone());
        }
    }

    /// All executors roll back to the state after this batch. Returns the longest time that a boundary took.
    fn roll_back(&mut self, number: u64) -> anyhow::Result<Duration> {
        self.schedules.iter().for_each(|schedule| schedule.roll_back(number, nothing()));
        let (mut left, mut longest) = (self.schedules.len(), Duration::ZERO);
        while left > 0 {
            if let (_, ExecutorEvent::TookBack(took)) = self.next_report()? {
                left -= 1;
                longest = longest.max(took);
            }
        }
        self.appended = number;
        self.tokens.iter_mut().for_each(BTreeMap::clear);
        Ok(longest)
    }

    /// Runs the next batch, one request at a time, in the order of its plan.
    fn run_sequentially(&mut self) -> anyhow::Result<()> {
        let number = self.appended + 1;
        let Some(Appended { entry, plan, .. }) = self.plans.get(&number) else {
            bail!("batch {number} was never planned")
        };
        let plan = plan.clone().sequential();
        self.hand_out(entry, &vec![plan; self.states.len()]);
        self.appended = number;
        self.await_tokens(number)
    }

    /// Waits until all executors have executed this batch.
    fn await_tokens(&mut self, number: u64) -> anyhow::Result<()> {
        while self.tokens.iter().any(|tokens| !tokens.contains_key(&number)) {
            if let (executor, ExecutorEvent::Executed { number, token }) = self.next_report()? {
                self.tokens[executor].insert(number, token);
            }
        }
        Ok(())
    }

    fn next_report(&mut self) -> anyhow::Result<(usize, ExecutorEvent)> {
        match self.reports.recv() {
            Ok(ExecutorReport { executor, event: ExecutorEvent::Failed(why) }) => {
                bail!("executor {executor}: {why}")
            }
            Ok(ExecutorReport { executor, event }) => Ok((executor, event)),
            Err(_) => bail!("the workers ended before the log did"),
        }
    }
}
