//! One run: the one thread, the one clock, and the loop that decides what happens next.

use std::collections::{BTreeMap, BTreeSet};

use crosscheck::Stop;
use crosscheck::admin::{Corruption, Inject};
use crosscheck::faults::Sabotage;
use serde::{Deserialize, Serialize};
use wire::{ReplicaId, SplitMix64};

use crate::client::Client;
use crate::disk::SimDisk;
use crate::facts::Facts;
use crate::fault::SimFault;
use crate::log::{Opened, Storage, Unusable};
use crate::net::SimNetwork;
use crate::node::{Process, Role, Unlike};
use crate::plan::{self, Faults};
use crate::promises::{self, About, Broken, Promise, RunEnd};
use crate::reference::Executed;
use crate::rng::stream;
use crate::slow::Slow;
use crate::trace::Trace;
use crate::workload::Workload;
use crate::world::{Journal, What};
pub use chain::Chains;
use shown::Shown;
pub use verified::Verified;

mod chain;
mod copies;
mod heal;
mod operator;
mod outside;
mod shown;
mod strike;
mod talk;
mod verified;
mod watch;

/// The options of a run, besides its seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Replicas, 2f+1; 1 only with `twice`.
    pub replicas: u8,
    /// One node that compares with itself (mode `00GT`), under the faults in computations that it masks.
    pub twice: bool,
    /// Replicas execute a batch first and verify it afterwards (mode `R0GV`).
    pub verified: bool,
    /// Commands that clients send before the end, in all.
    pub requests: u64,
    /// Clients.
    pub clients: usize,
    /// The faults that may be injected.
    pub faults: Faults,
    /// Episodes of faults.
    pub episodes: u64,
    /// Faults of an episode at most, all at the same f replicas.
    pub strokes: u64,
    /// Episodes that are left out: for shrinking.
    pub without: BTreeSet<u64>,
    /// Logs are on disk.
    pub disk: bool,
    /// Replicas have 1 to this many workers, not all the same number.
    pub workers: usize,
    /// Clients think for a moment only, so that batches have many requests.
    pub dense: bool,
    /// Memory is short, and clients write more than fits ([`Workload::short_of_memory`]).
    pub evicts: bool,
    /// Logs and states grow as long as shipped; else only with one seed in eight.
    pub real_sizes: bool,
    /// Episodes are chains of strikes ([`crate::strikes`]), and no faults of the plan.
    pub chains: bool,
    /// Episodes hit a copy of the state that is made in parts ([`crate::copy_strikes`]), and no faults of the plan.
    pub copies: bool,
    /// All machines have more and more else to do: a request takes up to 100 ms. In verified mode, all have as many
    /// workers.
    pub busy: bool,
    /// Prints every event.
    pub trace: bool,
    /// Promises that a replica, or all of them, breaks on purpose.
    pub sabotage: Vec<(Breach, Where)>,
    /// Continues after a broken promise until this one breaks, or until a time limit.
    pub until: Option<&'static str>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            replicas: 3,
            twice: false,
            verified: false,
            requests: 300,
            clients: 6,
            faults: Faults::All,
            episodes: 4,
            strokes: 6,
            without: BTreeSet::new(),
            disk: false,
            workers: 1,
            dense: false,
            evicts: false,
            real_sizes: false,
            chains: false,
            copies: false,
            busy: false,
            trace: false,
            sabotage: Vec::new(),
            until: None,
        }
    }
}

/// The sabotaged part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// The pipeline.
    Pipeline(Sabotage),
    /// The disk: it reports syncs that it does not make, as if they were not requested.
    UnsyncedDisk,
    /// The scan of the log: it takes torn records for complete ones.
    TornBelieved,
    /// The starter of the processes: each gets the command to begin the group, as if no group had ever begun.
    AlwaysReported,
    /// The settings of the service: no replica sends them to its peers.
    UnsentSettings,
    /// The key of the group: strangers know it.
    KnownKey,
    /// What the group says about itself: f replicas may fail, whatever has happened.
    Boasts,
    /// The verification stage, which keeps only these rules.
    Verification(verify::Rules),
}

/// The sabotaged replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// The last one.
    One,
    /// All of them, so that no replica can notice it.
    All,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its name.
    pub promise: &'static str,
    /// When, in simulated microseconds.
    pub at_us: u64,
    /// How.
    pub how: String,
}

/// The outcome of one kind of fault in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Times it was planned.
    pub tried: u64,
    /// Times it took effect; not where no object fitted, nor where its process ended before the occasion.
    #[serde(rename = "struck")]
    pub injected: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// Its seed.
    pub seed: u64,
    /// The first broken promise, after which the run stopped.
    pub violation: Option<Violation>,
    /// Every promise that broke.
    pub broken: BTreeSet<&'static str>,
    /// Commands answered.
    pub answered: u64,
    /// Commands sent whose answer never came: their replica or its connection was gone.
    pub unanswered: u64,
    /// Simulated microseconds.
    pub simulated_us: u64,
    /// Hash of all events.
    pub hash: u64,
    /// Number of events.
    pub steps: u64,
    /// By kind.
    pub faults: BTreeMap<SimFault, Count>,
    /// Chunks of the network that met a network fault.
    pub faulty_chunks: u64,
    /// Evidence records, by the stage where the error was noticed.
    pub evidence: BTreeMap<String, u64>,
    /// Replicas that replaced themselves, by reason.
    pub replaced: BTreeMap<String, u64>,
    /// Items that were found evicted.
    pub evicted: u64,
    /// Requests that the service started itself and that the model was given.
    pub started: u64,
    /// What the group acts as in the end ([`crosscheck::Service::BEHAVIORS`]).
    pub behavior: u16,
    /// Longest time from an episode's end until everything had healed, in simulated microseconds.
    pub longest_heal_us: u64,
    /// Episodes of faults that began.
    pub episodes: u64,
    /// In verified mode.
    pub verified: Verified,
    /// Of chains of strikes.
    pub chains: Chains,
}

impl RunSummary {
    /// Armed faults that will not take effect any more.
    fn uncount(&mut self, pending: Vec<Corruption>) {
        // A wrong core is armed many times and counts once.
        let once = |kind: &Corruption| !matches!(kind, Corruption::Sticky | Corruption::Erratic);
        for kind in pending.into_iter().filter(once) {
            if let Some(count) = self.faults.get_mut(&SimFault::Corruption(kind)) {
                count.injected = count.injected.saturating_sub(1);
            }
        }
    }
}

/// Runs `seed` with the service of `workload`.
pub fn simulate<W: Workload>(workload: &W, seed: u64, options: &Options) -> RunSummary {
    Run::new(workload, seed, options.clone()).finish()
}

/// A replica's slot: its process, or when the next one starts.
struct ReplicaSlot<W: Workload> {
    process: Option<Process<W>>,
    /// Processes so far.
    incarnation: u64,
    starts_us: u64,
    /// It is stopped until then.
    paused_us: u64,
    wake_us: u64,
    /// Its order thread is busy until then.
    free_us: u64,
    /// When that step began.
    stepped_us: u64,
    skew_us: i64,
    /// A setting of its processes that differs from the others', until the operator corrects it.
    unlike: Option<Unlike<W>>,
    /// The time since which no fault has hit this replica.
    calm_us: u64,
    /// The faults that have hit it since all replicas were equal.
    faults_since_equal: BTreeSet<SimFault>,
    /// In verified mode: the process, by number, in which a fault may be hidden that no check looks for.
    hidden_in: Option<u64>,
    /// Outlives processes; none where logs are in memory.
    storage: Option<Storage>,
}

/// A future event.
enum Event {
    /// A client acts.
    Client(usize),
    /// Commands arrive at a replica.
    Commands { client: usize, session: (u64, u32), numbers: Vec<usize> },
    /// An answer arrives at its client.
    Answered { client: usize, session: (u64, u32), number: usize, reply: bytes::Bytes },
    /// A client learns that its connection is gone.
    Gone { client: usize, session: (u64, u32) },
    /// A fault is injected.
    Stroke(crate::plan::Stroke),
    /// A replica loses its memory; the loss was postponed.
    Lost(crate::plan::Stroke),
    /// The watchdog of that process of a replica checks.
    Watch { replica: u8, incarnation: u64 },
    /// Strangers receive a replica's answer, and continue.
    Received(u64),
    /// A stuck bit is wrong again.
    Again { victim: u8, inject: Inject },
    /// A verifier wants another view again, so many times more.
    Storm { victim: u8, more: u64 },
    /// The operator sets how reads are answered, so many times more.
    SetReads { more: u64 },
    /// The power of a machine is off by now, if its process is still that one.
    PowerOff { replica: u8, incarnation: u64 },
    /// A lasting fault ends.
    Over(crate::plan::Stroke),
    /// The run looks at that time.
    Nothing,
}

/// The phase of the run.
enum Phase {
    /// The group has yet to be founded.
    Founding,
    /// Faults are injected, or will be.
    Episode { ends_us: u64 },
    /// An episode is over: everything must heal.
    Healing { since_us: u64 },
    /// All episodes are over; clients finish.
    Finishing { since_us: u64 },
    /// Every client reads every key.
    Reading,
}

// large: a simulated world, in which every event may reach everything
struct Run<W: Workload> {
    workload: W,
    seed: u64,
    options: Options,
    now_us: u64,
    rng: SplitMix64,
    network: SimNetwork,
    slow: Slow,
    /// The last episode in which a request was slow at several replicas.
    slow_in: u64,
    journal: Journal,
    slots: Vec<ReplicaSlot<W>>,
    clients: Vec<Client<W::Source>>,
    sessions: u32,
    events: BTreeMap<(u64, u64), Event>,
    numbered: u64,
    phase: Phase,
    next_episode: u64,
    operator: operator::Operator,
    chain: chain::Chain,
    copy_strikes: copies::CopyStrikes,
    strangers: outside::Strangers,
    /// Network faults and blocks in effect, per injected fault.
    lasting: u64,
    /// The reports of armed faults.
    placed: Vec<(u8, SimFault, std::sync::mpsc::Receiver<serde_json::Value>)>,
    /// The position at which digests are compared, and the digests so far.
    digests: BTreeMap<(u64, u64), BTreeMap<u8, u128>>,
    /// In verified mode: the states that replicas have come to lately.
    tokens: verified::Tokens,
    digest_requested_us: u64,
    next_look_us: u64,
    /// When the last client had read the last key.
    reading_done_us: Option<u64>,
    /// The checkers have seen the end.
    reported: bool,
    facts: Facts,
    /// The expected answer of every command.
    model: Executed<W>,
    promises: Vec<Box<dyn Promise>>,
    trace: Trace,
    summary: RunSummary,
}

/// A run that takes longer makes no progress.
const LONGEST_US: u64 = 600_000_000;
/// The time within which all replicas have to heal.
const HEALS_WITHIN_US: u64 = 90_000_000;
/// The same in verified mode, where no repair has to be ordered.
const VERIFIED_HEALS_WITHIN_US: u64 = 30_000_000;

impl<W: Workload> Run<W> {
    fn new(workload: &W, seed: u64, options: Options) -> Self {
        let workload = if options.evicts { workload.short_of_memory() } else { workload.clone() };
        let mut rng = stream(seed, 0);
        let replicas = options.replicas;
        let network = SimNetwork::new(replicas, stream(seed, 2));
        if options.faults.has(SimFault::Stranger) || options.faults.has(SimFault::Forged) {
            network.tap();
        }
        let clients = (0..options.clients)
            .map(|number| {
                let left = options.requests / options.clients as u64;
                let replica = number as u8 % replicas;
                let rng = stream(seed, 100 + number as u64);
                Client::new(replica, left, options.dense, workload.source(number), rng)
            })
            .collect();
        let storage =
            |me: u8| Storage::new(SimDisk::new(me, network.clone(), stream(seed, 50 + u64::from(me))));
        let slot = |me: u8, rng: &mut SplitMix64| ReplicaSlot {
            process: None,
            incarnation: 0,
            starts_us: rng.within(1, 200_000),
            paused_us: 0,
            wake_us: 0,
            free_us: 0,
            stepped_us: 0,
            skew_us: rng.within(0, 20_000) as i64 - 10_000,
            unlike: None,
            calm_us: 0,
            faults_since_equal: BTreeSet::new(),
            hidden_in: None,
            storage: options.disk.then(|| storage(me)),
        };
        Run {
            slots: (0..replicas).map(|me| slot(me, &mut rng)).collect(),
            network,
            slow: Slow::default(),
            slow_in: 0,
            journal: Journal::default(),
            clients,
            sessions: 0,
            events: BTreeMap::new(),
            numbered: 0,
            phase: Phase::Founding,
            next_episode: 0,
            operator: operator::Operator::default(),
            chain: chain::Chain::default(),
            copy_strikes: copies::CopyStrikes::default(),
            strangers: outside::Strangers::default(),
            lasting: 0,
            placed: Vec::new(),
            digests: BTreeMap::new(),
            tokens: verified::Tokens::default(),
            digest_requested_us: 0,
            next_look_us: 0,
            reading_done_us: None,
            reported: false,
            facts: Facts::new(replicas),
            model: Executed::new(&workload, seed, &options),
            promises: workload.promises(),
            trace: Trace::new(options.trace),
            summary: RunSummary { seed, ..RunSummary::default() },
            now_us: 0,
            workload,
            seed,
            options,
            rng,
        }
    }

    fn finish(mut self) -> RunSummary {
        for client in 0..self.clients.len() {
            self.act_in(client, 1000);
        }
        if self.options.busy {
            self.slow.keep_busy();
            self.facts.busy = true;
        }
        for stroke in plan::founding(self.seed, &self.options) {
            self.facts.victims = (0..self.options.replicas).collect();
            self.lasting += 1;
            self.at(stroke.at_us, Event::Stroke(stroke));
        }
        while !self.is_enough() && !self.is_over() {
            self.next();
            let longest_us = match self.options.until {
                Some(_) if self.options.chains || self.options.copies || self.options.busy => LONGEST_US / 15,
                Some(_) => LONGEST_US / 40,
                None => LONGEST_US,
            };
            if self.now_us > longest_us {
                self.broken(
                    promises::PROGRESS,
                    format!("after {} s not all was done", longest_us / 1_000_000),
                );
                break;
            }
        }
        self.summary.simulated_us = self.now_us;
        self.summary.hash = self.trace.hash();
        self.summary.steps = self.trace.steps;
        self.summary.faulty_chunks = self.network.faulty_chunks();
        self.summary.evicted = self.model.evicted();
        self.summary.started = self.model.started();
        self.summary.behavior = self.model.behavior();
        self.summary.unanswered =
            self.facts.sent_commands.iter().filter(|sent| !sent.answered).count() as u64;
        self.summary
    }

    /// The number of a replica's workers: it differs between replicas, since no agreed result may depend on it.
    ///
    /// In verified mode, also the same number everywhere, with every other seed.
    fn workers_of(&self, replica: u8) -> usize {
        if self.options.verified && (self.seed % 2 == 1 || self.options.busy) {
            return self.options.workers;
        }
        1 + (self.seed as usize + usize::from(replica)) % self.options.workers
    }

    /// Whether the expected promise has broken.
    fn is_enough(&self) -> bool {
        match self.options.until {
            Some(promise) => self.summary.broken.contains(promise),
            None => self.summary.violation.is_some(),
        }
    }

    /// The time within which all replicas have to heal.
    fn heals_within_us(&self) -> u64 {
        if self.options.verified { VERIFIED_HEALS_WITHIN_US } else { HEALS_WITHIN_US }
    }

    fn at(&mut self, after_us: u64, event: Event) {
        self.numbered += 1;
        self.events.insert((self.now_us + after_us, self.numbered), event);
    }

    /// The next event in simulated time.
    fn next(&mut self) {
        let event_us = self.events.first_key_value().map_or(u64::MAX, |((at, _), _)| *at);
        let due = |slot: (usize, &ReplicaSlot<W>)| (self.due_us(slot.0 as u8, slot.1), slot.0);
        let (slot_us, slot) = self.slots.iter().enumerate().map(due).min().unwrap_or((u64::MAX, 0));
        self.now_us = self.now_us.max(event_us.min(slot_us));
        self.network.set_now(self.now_us);
        self.facts.now_us = self.now_us;
        if event_us <= slot_us {
            if let Some((_, event)) = self.events.pop_first() {
                self.perform(event);
            }
        } else {
            self.step(slot as u8);
        }
        self.look();
        self.go_on_with_chain();
        self.go_on_with_copy();
        self.go_on();
    }

    /// When a replica's process acts next.
    fn due_us(&self, replica: u8, slot: &ReplicaSlot<W>) -> u64 {
        if slot.process.is_none() {
            return slot.starts_us.max(self.now_us);
        }
        let arrival = self.network.next_arrival(replica).unwrap_or(u64::MAX);
        slot.wake_us.min(arrival).max(slot.free_us).max(slot.paused_us)
    }

    fn step(&mut self, replica: u8) {
        let slot = &mut self.slots[usize::from(replica)];
        let Some(process) = &mut slot.process else { return self.start(replica) };
        self.network.catch_up(replica);
        process.replica.world().end_writes();
        process.replica.step(&self.network.ready(replica));
        let is_busy = process.replica.is_busy();
        self.trace.record(self.now_us, format_args!("step {} {is_busy}", ReplicaId(replica)));
        if slot.storage.as_ref().is_some_and(|storage| storage.disk.is_dead()) {
            return self.lose_power(replica);
        }
        // The hit objects are recorded before a replica is blamed for them.
        for (region_id, id) in process.replica.take_damaged() {
            self.facts.record_hit(replica, region_id, id);
        }
        if !self.placed.is_empty() {
            self.count_placed();
        }
        // Replies get their positions before they leave.
        self.look();
        self.weigh(replica);
        self.mark(replica);
        let late_us = self.network.late_us(replica);
        let slot = &mut self.slots[usize::from(replica)];
        slot.stepped_us = self.now_us;
        slot.free_us = self.now_us + late_us + self.rng.within(2, 25);
        slot.wake_us = self.now_us + if is_busy { 1 } else { self.rng.within(5_000, 25_000) };
        let incarnation = slot.incarnation;
        if late_us > 0 {
            // The run does not wait for a handler that hangs.
            let free_us = slot.free_us.min(self.now_us + 15_000_000);
            self.slots.iter_mut().for_each(|slot| slot.calm_us = slot.calm_us.max(free_us));
        }
        let Some(process) = &mut self.slots[usize::from(replica)].process else { return };
        let leaving = process.answers();
        let ended = process.replica.outcome().map(|outcome| match outcome {
            Ok(Stop::Replace(why)) => why.to_string(),
            Ok(Stop::Asked) => "it was asked to".to_owned(),
            Ok(Stop::Broken(why)) => why.to_string(),
            Err(error) => format!("error: {error}"),
        });
        for (session, generation, answer) in leaving {
            self.leave(incarnation, late_us, (session, generation), answer);
        }
        if let Some(why) = ended {
            self.end(replica, &why);
        }
    }

    /// A replica's process has ended itself.
    fn end(&mut self, replica: u8, why: &str) {
        self.trace.record(self.now_us, format_args!("replica {} ended: {why}", ReplicaId(replica)));
        *self.summary.replaced.entry(kind_of(why)).or_default() += 1;
        let is_slow = self.slots[usize::from(replica)].faults_since_equal.contains(&SimFault::Slow);
        if !self.is_hit(replica) && !is_slow {
            let how = format!(
                "replica {} ended, and no fault had hit it since all was equal: {why}",
                ReplicaId(replica)
            );
            self.broken(promises::PROGRESS, how);
        }
        self.judge_watchdog(replica, why);
        self.stop(replica, 300_000);
    }

    /// Whether a fault may have hit it since all was equal.
    fn is_hit(&self, replica: u8) -> bool {
        self.facts.victims.contains(&replica) || self.facts.chain_victims.contains(&replica)
    }

    /// Its process begins, with the contents of its disk, or with nothing.
    fn start(&mut self, replica: u8) {
        let slot = &mut self.slots[usize::from(replica)];
        slot.incarnation += 1;
        let last = replica + 1 == self.options.replicas;
        let sabotage: Vec<Breach> = self
            .options
            .sabotage
            .iter()
            .filter(|(_, whom)| last || *whom == Where::All)
            .map(|(breach, _)| *breach)
            .collect();
        let opened = match self.open_storage(replica, &sabotage) {
            Ok(opened) => opened,
            Err(why) => {
                self.trace
                    .record(self.now_us, format_args!("replica {} cannot start: {why}", ReplicaId(replica)));
                return self.stop(replica, 100_000);
            }
        };
        let role = self.role_of(replica, &sabotage);
        let slot = &mut self.slots[usize::from(replica)];
        let disk = slot.storage.as_ref().map(|storage| storage.disk.clone());
        let begun =
            Process::start(&role, (&self.network, &self.slow), &mut self.rng, &self.journal, (opened, disk));
        match begun {
            Ok(mut process) => {
                for breach in sabotage {
                    match breach {
                        Breach::Pipeline(sabotage) => process.replica.sabotage(sabotage),
                        Breach::Verification(rules) => process.replica.weaken(rules),
                        _ => {}
                    }
                }
                self.tokens.overlooked.into_iter().for_each(|keys| process.replica.overlook(keys));
                slot.process = Some(process);
                (slot.wake_us, slot.free_us, slot.paused_us) = (self.now_us, self.now_us, 0);
                self.trace.record(self.now_us, format_args!("replica {} starts", ReplicaId(replica)));
                self.watch_in_a_while(replica);
            }
            // A disk that fails at once, or on purpose.
            Err(why) if slot.storage.is_some() && self.is_hit(replica) => {
                self.trace
                    .record(self.now_us, format_args!("replica {} cannot start: {why}", ReplicaId(replica)));
                self.stop(replica, 100_000);
            }
            Err(why) => self.broken(promises::PROGRESS, why),
        }
    }

    /// The settings of its next process.
    fn role_of(&self, replica: u8, sabotage: &[Breach]) -> Role<W> {
        let slot = &self.slots[usize::from(replica)];
        Role {
            workload: self.workload.clone(),
            me: replica,
            replicas: self.options.replicas,
            twice: self.options.twice,
            verified: self.options.verified,
            reads: plan::reads(self.seed, &self.options),
            behaviors: plan::behaviors(
                self.seed,
                (replica, slot.incarnation),
                <W::Service as crosscheck::Service>::BEHAVIORS,
            ),
            incarnation: slot.incarnation,
            workers: self.workers_of(replica),
            scale: plan::scale(self.seed, &self.options),
            skew_us: slot.skew_us,
            // The run commands the group to begin once; a later beginning needs an operator's decision.
            begins: slot.incarnation == 1 || sabotage.contains(&Breach::AlwaysReported),
            unlike: slot.unlike.clone(),
            is_silent: sabotage.contains(&Breach::UnsentSettings),
            is_open: sabotage.contains(&Breach::KnownKey),
        }
    }

    /// Opens the log, where it is on disk. A corrupt one is given up, which is the remedy in its message.
    fn open_storage(&mut self, replica: u8, sabotage: &[Breach]) -> Result<Option<Opened>, String> {
        let Some(storage) = self.slots[usize::from(replica)].storage.clone() else { return Ok(None) };
        if sabotage.contains(&Breach::UnsyncedDisk) {
            storage.disk.lie();
        }
        if sabotage.contains(&Breach::TornBelieved) {
            storage.disk.gloss_over();
        }
        let mut promises = std::mem::take(&mut self.promises);
        let mut broken = Vec::new();
        let opened = storage.open(|reopened| {
            broken = promises
                .iter_mut()
                .map(|promise| (promise.about(), promise.reopened(replica, reopened)))
                .collect();
        });
        self.promises = promises;
        broken.into_iter().for_each(|(about, broken)| self.judge(about, broken));
        match opened {
            Ok(opened) => Ok(Some(opened)),
            Err(Unusable::Refused(why)) => Err(why),
            Err(Unusable::Corrupt(why)) => {
                *self.summary.replaced.entry("its log is corrupt".to_owned()).or_default() += 1;
                storage.wipe();
                Err(why)
            }
        }
    }

    /// The power of its machine fails now.
    fn lose_power(&mut self, replica: u8) {
        let pause_us = self.rng.modulo(1_000_000);
        let storage = self.slots[usize::from(replica)].storage.clone();
        self.trace.record(self.now_us, format_args!("replica {} has no power", ReplicaId(replica)));
        self.stop(replica, pause_us);
        if let Some(storage) = storage {
            storage.disk.lose_power();
        }
    }

    /// Its process ends; the next one starts after `pause_us`.
    fn stop(&mut self, replica: u8, pause_us: u64) {
        let pause_us = pause_us + self.rng.modulo(300_000);
        let slot = &mut self.slots[usize::from(replica)];
        // Armed faults end with their process.
        let pending = slot.process.iter().flat_map(|process| process.replica.pending_faults()).collect();
        self.summary.uncount(pending);
        slot.process = None;
        self.slow.end_process(replica);
        self.network.catch_up(replica);
        if let Some(storage) = &slot.storage {
            storage.disk.end_process();
        }
        slot.starts_us = self.now_us + pause_us;
        self.mark(replica);
        self.network.set_alive(replica, false);
        self.look();
        self.hang_up_clients(replica);
    }

    /// Passes all actions since the last check to the checkers.
    fn look(&mut self) {
        let seen = std::mem::take(&mut *self.journal.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        for observed in seen {
            self.trace.record(self.now_us, format_args!("{}", Shown(&observed)));
            self.facts.record(&observed, &mut self.model);
            self.summary.verified.record(observed.replica, &observed.what, &mut self.tokens);
            match &observed.what {
                What::Released { place, to: Some(to), .. } => self.place(observed.replica, *to, *place),
                What::ReadHere { batch, to, .. } => self.place_read(observed.replica, *to, *batch),
                What::Digest { position, digest } => {
                    let at = self.digests.entry((position.index, position.ticket)).or_default();
                    at.insert(observed.replica, *digest);
                    if self.digests.len() > 64 {
                        self.digests.pop_first();
                    }
                }
                What::Evidence(record) => {
                    *self.summary.evidence.entry(record.stage.clone()).or_default() += 1;
                }
                _ => {}
            }
            let mut promises = std::mem::take(&mut self.promises);
            for promise in &mut promises {
                let broken = promise.see(&observed, &self.facts);
                self.judge(promise.about(), broken);
            }
            self.promises = promises;
        }
    }

    /// Passes the size of a replica's state to the checkers.
    fn weigh(&mut self, replica: u8) {
        let Some(process) = &self.slots[usize::from(replica)].process else { return };
        let loads = process.replica.loads();
        let mut promises = std::mem::take(&mut self.promises);
        for promise in &mut promises {
            let broken = promise.stepped(replica, &loads);
            self.judge(promise.about(), broken);
        }
        self.promises = promises;
    }

    fn judge(&mut self, about: About, broken: Broken) {
        if let Err(how) = broken {
            self.broken(about, how);
        }
    }

    fn broken(&mut self, about: About, how: String) {
        self.trace.record(self.now_us, format_args!("BROKEN {}: {how}", about.name));
        self.summary.broken.insert(about.name);
        if self.summary.violation.is_none() {
            self.summary.violation = Some(Violation { promise: about.name, at_us: self.now_us, how });
        }
    }

    fn judge_end(&mut self, end: &RunEnd) {
        let mut promises = std::mem::take(&mut self.promises);
        for promise in &mut promises {
            let broken = promise.at_end(&self.facts, end, &mut self.model);
            self.judge(promise.about(), broken);
        }
        self.promises = promises;
    }
}

/// A reason without its numbers.
fn kind_of(why: &str) -> String {
    why.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}
