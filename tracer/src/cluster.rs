//! Faults in one replica of a running cluster, under clients that check every reply against a model.
//!
//! Timing makes every run of a cluster different, so that nothing is repeated exactly: sites are drawn from a sample of
//! the instructions that the victim's thread executes under this load, and the fault strikes at the next execution after a
//! random pause. What is repeated of a recorded run ([`again`]) is its site and its bit, as often as wanted. One cluster takes many injections; a victim that died is started again and filled by the others.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use iced_x86::InstructionInfoFactory;
use serde::{Deserialize, Serialize};

use crate::callers::{callers, names};
use crate::code::{Code, LONGEST};
use crate::draw::Stream;
use crate::fault::{Bits, Fault};
use crate::group::{Cluster, Digests};
use crate::memory::{Memory, Module};
use crate::model::{self, Expected, Tally};
use crate::profile::{file_name, module_of};
use crate::record::{Class, Record};
use crate::seized::Seized;
use crate::strike::{Flip, Missed, Victim};
use crate::symbols::Symbols;
use crate::sys;
use crate::target::{Place, Target};

/// A cluster, as its target file describes it: `argv` starts all of it, in the way of `crosscheck up --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// How many replicas.
    pub replicas: u8,
    /// The one that faults strike, from 1.
    pub victim: u8,
    /// Stretches of instructions in the sample of the victim's thread.
    #[serde(default = "windows")]
    pub windows: u32,
    /// Instructions of each, single-stepped.
    #[serde(default = "window_steps")]
    pub window_steps: u32,
    /// Batches of eight requests that each healthy replica's client must see answered after a fault.
    #[serde(default = "batches")]
    pub batches: u64,
    /// Whether the replicas repair each other: then a difference of their states is given time to heal.
    #[serde(default = "heals")]
    pub heals: bool,
}

fn windows() -> u32 {
    200
}
fn window_steps() -> u32 {
    2_000
}
fn batches() -> u64 {
    60
}
fn heals() -> bool {
    true
}

/// Injections that one cluster takes: clients leave keys behind, and a replica that is replaced is given all of them, each time more.
const RUNS_PER_CLUSTER: u64 = 250;
/// Draws after which an injection has found an instruction that can carry it.
const DRAWS: u32 = 100_000;
/// Between two looks at something that takes milliseconds.
const LOOK: Duration = Duration::from_micros(500);
/// How long healthy replicas may leave their clients without a reply: a leader may have to be elected.
const PROGRESS: Duration = Duration::from_secs(8);
/// How long a victim may hang before it is ended from outside: the watchdog's 5 s, and some.
const HUNG: Duration = Duration::from_secs(8);
/// How long a victim may take to come back.
const BACK: Duration = Duration::from_secs(30);
/// A difference of digests may be on its way to repair for this long.
const HEALING: Duration = Duration::from_secs(10);

/// The instructions that the victim executes under load.
#[derive(Debug)]
pub struct Sample {
    codes: Vec<Code>,
    steps: Vec<u32>,
    modules: Vec<Module>,
}

/// What a campaign on a cluster is about.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The target; it has a group.
    pub target: &'a Target,
    /// The campaign's seed.
    pub seed: u64,
    /// Which bits are flipped.
    pub bits: Bits,
    /// False for the null campaign.
    pub flips: bool,
}

/// Runs `runs` injections of each of `faults`, or until `tell`, which is told of each, says `false`.
///
/// # Errors
/// When no cluster comes up.
pub fn campaign(
    plan: &Plan<'_>,
    faults: &[Fault],
    runs: u64,
    tell: impl FnMut(&Record) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let kinds = faults.len() as u64;
    let one = |run: &Run<'_>, sample: &Sample, number: u64, symbols: &mut Symbols| {
        let fault = faults[(number % kinds) as usize];
        run.inject(sample, fault, number / kinds, symbols)
    };
    on_clusters(plan, runs * kinds, Sample::take, one, tell)
}

/// The injection of `record` again, `times` times: the same bit of the same instruction, at its next execution.
///
/// # Errors
/// When no cluster comes up, or the program is another than the recorded one.
pub fn again(
    plan: &Plan<'_>,
    record: &Record,
    times: u64,
    tell: impl FnMut(&Record) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let site = |plan: &Plan<'_>, cluster: &Cluster| Sample::of_site(plan, cluster, record);
    let stream = at_the_strike(plan, record)?;
    let one = |run: &Run<'_>, sample: &Sample, _, symbols: &mut Symbols| {
        let drawn = Drawn {
            fault: record.fault,
            id: record.id,
            index: record.index,
            code: &sample.codes[0],
            stream: stream.clone(),
        };
        run.carry_out(sample, drawn, symbols)
    };
    on_clusters(plan, times, site, one, tell)
}

/// The numbers of a recorded injection as they were when its site had been drawn: its bit comes from those behind.
fn at_the_strike(plan: &Plan<'_>, record: &Record) -> anyhow::Result<Stream> {
    let group = plan.target.cluster.as_ref().context("the target is no cluster")?;
    let steps = u64::from(group.windows) * u64::from(group.window_steps);
    let mut stream = Stream::of(record.seed, record.fault.number(), record.id);
    // Most instructions can carry a fault, so the draws before it were few.
    let found = (0..DRAWS).any(|_| stream.below(steps) == record.index);
    if found {
        Ok(stream)
    } else {
        bail!("the target samples {steps} instructions; the recorded one another number")
    }
}

/// Gives `runs` injections to one cluster after the other, until `tell` says `false`. The sites come from the first.
fn on_clusters(
    plan: &Plan<'_>,
    runs: u64,
    sites: impl Fn(&Plan<'_>, &Cluster) -> anyhow::Result<Sample>,
    one: impl Fn(&Run<'_>, &Sample, u64, &mut Symbols) -> anyhow::Result<(Record, bool)>,
    mut tell: impl FnMut(&Record) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let mut symbols = Symbols::default();
    let mut sample = None;
    let mut number = 0;
    while number < runs {
        let begun = number;
        let dir = tempfile::tempdir().context("a directory for the cluster")?;
        let cluster = Cluster::up(plan.target, &Place::new(dir.path(), 0))?;
        let go_on = with_clients(plan, &cluster, number, |clients| {
            let sample = match &sample {
                Some(sample) => sample,
                None => sample.insert(sites(plan, &cluster)?),
            };
            let run = Run { plan, cluster: &cluster, clients };
            while number < runs {
                let (record, healthy) = one(&run, sample, number, &mut symbols)?;
                number += 1;
                if !tell(&record)? {
                    return Ok(false);
                }
                if !healthy || number - begun >= RUNS_PER_CLUSTER {
                    return Ok(true);
                }
            }
            Ok(true)
        })?;
        if !go_on {
            break;
        }
        if number == begun {
            bail!("the cluster takes no injection");
        }
    }
    Ok(())
}

/// Lets one client per replica run while `work` does.
fn with_clients<T>(
    plan: &Plan<'_>,
    cluster: &Cluster,
    salt: u64,
    work: impl FnOnce(&[Tally]) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let tallies: Vec<Tally> = cluster.clients.iter().map(|_| Tally::default()).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (number, (address, tally)) in cluster.clients.iter().zip(&tallies).enumerate() {
            let (stop, seed) = (&stop, plan.seed ^ (salt << 32));
            scope.spawn(move || model::drive(number as u8 + 1, *address, seed, tally, stop));
        }
        let done = work(&tallies);
        stop.store(true, Ordering::Relaxed);
        done
    })
}

/// The traced thread of the victim: its process and its own id.
fn victim_thread(plan: &Plan<'_>, cluster: &Cluster, victim: u8) -> anyhow::Result<(i32, i32)> {
    let process = *cluster.processes(victim).last().context("the victim has no process")?;
    for task in fs::read_dir(format!("/proc/{process}/task")).context("the victim's threads")? {
        let path = task?.path();
        if fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim_end() == plan.target.thread) {
            let id = path.file_name().and_then(|name| name.to_str()?.parse().ok());
            return Ok((process, id.context("a thread without a number")?));
        }
    }
    bail!("replica {victim} has no thread {:?}", plan.target.thread)
}

impl Sample {
    /// Steps the victim's thread through stretches of what it does, at random moments under load.
    ///
    /// # Errors
    /// When tracing is not permitted.
    pub fn take(plan: &Plan<'_>, cluster: &Cluster) -> anyhow::Result<Self> {
        let group = plan.target.cluster.as_ref().context("the target is no cluster")?;
        let (process, thread) = victim_thread(plan, cluster, group.victim)?;
        let memory = Memory::open(process)?;
        let mut sample = Sample { codes: vec![], steps: vec![], modules: memory.modules()? };
        let mut numbers = std::collections::HashMap::new();
        let mut factory = InstructionInfoFactory::new();
        let mut stream = Stream::of(plan.seed, 99, 0);
        for _ in 0..group.windows {
            std::thread::sleep(Duration::from_micros(2_000 + stream.below(8_000)));
            let mut seized = Seized::new(thread).context("tracing the victim: is ptrace permitted here?")?;
            if !seized.interrupt()? {
                bail!("the victim ended while it was sampled");
            }
            for _ in 0..group.window_steps {
                let address = sys::instruction_pointer(thread)?;
                let number = *numbers.entry(address).or_insert_with(|| {
                    let mut bytes = [0; LONGEST];
                    memory.read_some(address, &mut bytes);
                    sample.codes.push(Code::decode(address, bytes, &mut factory));
                    sample.codes.len() as u32 - 1
                });
                sample.steps.push(number);
                if !seized.step()? {
                    bail!("the victim ended while it was sampled");
                }
            }
        }
        Ok(sample)
    }

    /// The one site of a recorded injection, in a cluster of the same program.
    fn of_site(plan: &Plan<'_>, cluster: &Cluster, record: &Record) -> anyhow::Result<Self> {
        let group = plan.target.cluster.as_ref().context("the target is no cluster")?;
        let memory = Memory::open(victim_thread(plan, cluster, group.victim)?.0)?;
        let mut bytes = [0; LONGEST];
        memory.read_some(record.address, &mut bytes);
        let code = Code::decode(record.address, bytes, &mut InstructionInfoFactory::new());
        if code.text() != record.text || !code.can(record.fault) {
            bail!("at the recorded site there is `{}`, not `{}`: another build", code.text(), record.text);
        }
        Ok(Sample { codes: vec![code], steps: vec![0], modules: memory.modules()? })
    }

    fn draw(&self, fault: Fault, stream: &mut Stream) -> Option<(usize, &Code)> {
        if !self.codes.iter().any(|code| code.can(fault)) {
            return None;
        }
        loop {
            let step = stream.below(self.steps.len() as u64) as usize;
            let code = &self.codes[self.steps[step] as usize];
            if code.can(fault) {
                return Some((step, code));
            }
        }
    }
}

/// A running cluster, and its clients.
struct Run<'a> {
    plan: &'a Plan<'a>,
    cluster: &'a Cluster,
    clients: &'a [Tally],
}

/// One injection, drawn.
struct Drawn<'a> {
    fault: Fault,
    id: u64,
    /// Number of the step in the sample.
    index: u64,
    code: &'a Code,
    /// Decides what is left to decide: the pause and the bit.
    stream: Stream,
}

/// How it was after the fault.
#[derive(Default)]
struct Judged {
    class: Option<Class>,
    subclass: String,
    told: String,
    states_equal: Option<bool>,
    noticed: Vec<u8>,
    /// Whether the cluster can take another injection.
    healthy: bool,
}

/// What was to be seen before the fault.
struct Before {
    deaths: usize,
    /// Lines that the victim had said.
    lines: usize,
    process: i32,
    signs: Vec<u64>,
    /// Wrong replies so far, by client.
    wrong: Vec<usize>,
    progress: Vec<u64>,
}

impl Run<'_> {
    fn victim(&self) -> u8 {
        self.plan.target.cluster.as_ref().map_or(1, |group| group.victim)
    }

    fn batches(&self) -> u64 {
        self.plan.target.cluster.as_ref().map_or(1, |group| group.batches)
    }

    /// Draws an injection and carries it out.
    fn inject(
        &self,
        sample: &Sample,
        fault: Fault,
        id: u64,
        symbols: &mut Symbols,
    ) -> anyhow::Result<(Record, bool)> {
        let mut stream = Stream::of(self.plan.seed, fault.number(), id);
        let (index, code) = sample.draw(fault, &mut stream).context("no instruction carries this fault")?;
        self.carry_out(sample, Drawn { fault, id, index: index as u64, code, stream }, symbols)
    }

    /// The record, and whether the cluster can take another one.
    fn carry_out(
        &self,
        sample: &Sample,
        drawn: Drawn<'_>,
        symbols: &mut Symbols,
    ) -> anyhow::Result<(Record, bool)> {
        let begun = Instant::now();
        let Drawn { fault, id, index, code, mut stream } = drawn;
        if !self.cluster.all_serve(BACK) {
            bail!("the cluster does not serve before an injection");
        }
        let before = self.before()?;
        std::thread::sleep(Duration::from_micros(stream.below(10_000)));
        let struck = self.strike(sample, fault, code, &mut stream);
        let struck_us = begun.elapsed().as_micros() as u64;
        let mut judged = match &struck {
            Err(why) => Judged { subclass: why.clone(), healthy: true, ..Judged::default() },
            Ok(_) => self.judge(&before),
        };
        if judged.healthy && !self.cluster.all_serve(BACK) {
            judged.class = Some(Class::NoProgress);
            judged.subclass += &format!("; then not all served: {}", self.phases());
            judged.healthy = false;
        }
        let (module, offset) = module_of(&sample.modules, code.address);
        let record = Record {
            id,
            seed: self.plan.seed,
            fault,
            bits: self.plan.bits,
            flips: self.plan.flips,
            profile: "sample".into(),
            index,
            address: code.address,
            module: file_name(module).to_owned(),
            offset,
            symbol: symbols.name(module, offset),
            callers: struck
                .as_ref()
                .map_or_else(|_| Vec::new(), |(_, callers)| names(callers, &sample.modules, symbols)),
            text: code.text(),
            hits: 1,
            flip: struck.ok().map(|(flip, _)| flip),
            class: judged.class.unwrap_or(Class::Lost),
            subclass: judged.subclass,
            message: None,
            told: judged.told,
            states_equal: judged.states_equal,
            noticed: judged.noticed,
            signal: None,
            exit: None,
            start_us: struck_us,
            total_us: begun.elapsed().as_micros() as u64,
            retries: 0,
        };
        Ok((record, judged.healthy))
    }

    fn before(&self) -> anyhow::Result<Before> {
        Ok(Before {
            deaths: self.cluster.deaths(self.victim()).0,
            lines: self.cluster.lines(self.victim()).len(),
            process: *self.cluster.processes(self.victim()).last().context("a process")?,
            signs: (1..=self.cluster.size()).map(|number| self.signs(number)).collect(),
            wrong: self.wrong(),
            progress: self.progress(),
        })
    }

    /// Everything by which a replica shows that it noticed an error, added up.
    fn signs(&self, number: u8) -> u64 {
        self.cluster.status(number).map_or(0, |status| {
            status.mismatches + status.repairs + status.failed_checks + status.dropped_frames
        })
    }

    /// What the victim says of itself.
    fn victims_words(&self) -> String {
        self.cluster.status(self.victim()).map_or("no status".into(), |status| {
            let crosscheck::admin::Status { phase, executed, mismatches, repairs, failed_checks, .. } = status;
            format!("{phase:?}, executed {executed}, {mismatches} mismatches, {repairs} repairs, {failed_checks} failed checks")
        })
    }

    /// How far the clients of each replica came, and what the replicas do.
    fn stuck_words(&self, before: &Before) -> String {
        let batches: Vec<u64> =
            self.progress().iter().zip(&before.progress).map(|(now, then)| now - then).collect();
        let statuses = (1..=self.cluster.size()).filter_map(|number| self.cluster.status(number));
        let statuses: Vec<String> =
            statuses.map(|status| serde_json::to_string(&status).unwrap_or_default()).collect();
        format!("clients of each replica: batches {batches:?}; {}", statuses.join(" "))
    }

    /// What each replica does at present.
    fn phases(&self) -> String {
        let phase = |number| match self.cluster.status(number) {
            Some(status) => format!("{number} {:?} at {}", status.phase, status.executed),
            None => format!("{number} silent"),
        };
        (1..=self.cluster.size()).map(phase).collect::<Vec<_>>().join(", ")
    }

    fn wrong(&self) -> Vec<usize> {
        let count = |tally: &Tally| tally.wrong.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.clients.iter().map(count).collect()
    }

    /// The wrong replies since then.
    fn wrong_since(&self, before: &Before) -> Vec<model::WrongReply> {
        let since = |(tally, already): (&Tally, &usize)| {
            let wrong = tally.wrong.lock().unwrap_or_else(PoisonError::into_inner);
            wrong.iter().skip(*already).cloned().collect::<Vec<_>>()
        };
        self.clients.iter().zip(&before.wrong).flat_map(since).collect()
    }

    fn progress(&self) -> Vec<u64> {
        self.clients.iter().map(|tally| tally.batches.load(Ordering::Relaxed)).collect()
    }

    fn strike(
        &self,
        sample: &Sample,
        fault: Fault,
        code: &Code,
        stream: &mut Stream,
    ) -> Result<(Flip, Vec<u64>), String> {
        let told = |error: &dyn std::fmt::Display| error.to_string();
        let (process, thread) =
            victim_thread(self.plan, self.cluster, self.victim()).map_err(|error| told(&error))?;
        let memory = Memory::open(process).map_err(|error| told(&error))?;
        let mut seized = Seized::new(thread).map_err(|error| told(&error))?;
        if !seized.interrupt().map_err(|error| told(&error))? {
            return Err("the victim ended by itself".into());
        }
        if !seized.run_to(code.address).map_err(|error| told(&error))? {
            return Err("the site was not executed in time".into());
        }
        let callers = callers(thread, &memory, &sample.modules).map_err(|error| told(&error))?;
        let mut step = || seized.step();
        let victim = Victim { thread, memory: &memory, flips: self.plan.flips, step: &mut step };
        match victim.strike(fault, code, self.plan.bits, stream) {
            Ok(flip) => Ok((flip, callers)),
            Err(Missed::OutOfReach) => Err("the operand is out of reach".into()),
            Err(Missed::Gone) => Err("the thread was gone".into()),
            Err(Missed::Failed(error)) => Err(error.to_string()),
        }
    }

    fn judge(&self, before: &Before) -> Judged {
        let progress = self.await_progress(before);
        let (end, back) = self.await_victim(before);
        let mut digests = self.cluster.digests(self.victim());
        let since = Instant::now();
        while digests != Digests::Equal && since.elapsed() < self.healing() {
            std::thread::sleep(Duration::from_millis(300));
            digests = self.cluster.digests(self.victim());
        }
        // One that stands still replaces itself after its watchdog's time, while it is asked for its digest, or its client waits.
        let serves = end.is_some() || self.await_victims_client(before);
        let (end, back) = if end.is_none() { self.await_victim(before) } else { (end, back) };
        let noticed = self.noticed(before, end.is_some());
        let told = self.words(before, &noticed);
        let (class, subclass, mut healthy) = match (&digests, &end) {
            _ if self.wrong() != before.wrong => {
                (Class::WrongReply, self.wrong_words(before), digests == Digests::Equal)
            }
            _ if !progress => (Class::NoProgress, self.stuck_words(before), false),
            (_, Some(how)) if !back => (Class::NoProgress, format!("victim not back: {how}"), false),
            (Digests::Silent(who), _) => (Class::NoProgress, format!("no digest from {who:?}"), false),
            (Digests::Different(who), end) => {
                let replaced = end.as_ref().map_or(String::new(), |how| format!("; replaced: {how}"));
                (Class::Latent, format!("differs: {who:?}{replaced}; {}", self.victims_words()), false)
            }
            (Digests::Equal, Some(how)) => (Class::Replaced, how.clone(), true),
            (Digests::Equal, None) if !serves => (
                Class::NoProgress,
                format!("the victim answers no client; {}", self.stuck_words(before)),
                false,
            ),
            (Digests::Equal, None) if noticed.is_empty() => (Class::Masked, String::new(), true),
            (Digests::Equal, None) => {
                let by: Vec<String> = noticed.iter().map(|number| format!("noticed by {number}")).collect();
                (Class::Repaired, by.join(", "), true)
            }
        };
        let states_equal = match &digests {
            Digests::Equal => Some(true),
            Digests::Different(_) => Some(false),
            Digests::Silent(_) => None,
        };
        // A latent difference must not be blamed on the next fault; a replica without state is filled by its peers.
        if !healthy && matches!(&digests, Digests::Different(who) if *who == [self.victim()]) {
            self.cluster.kill(self.victim());
            let since = Instant::now();
            while !healthy && since.elapsed() < BACK {
                std::thread::sleep(Duration::from_millis(200));
                healthy =
                    self.cluster.all_serve(BACK) && self.cluster.digests(self.victim()) == Digests::Equal;
            }
        }
        Judged { class: Some(class), subclass, told, states_equal, noticed, healthy }
    }

    /// How long different states may take to become equal again.
    fn healing(&self) -> Duration {
        let heals = self.plan.target.cluster.as_ref().is_none_or(|group| group.heals);
        if heals { HEALING } else { Duration::ZERO }
    }

    /// Until every client of a healthy replica has had its replies.
    fn await_progress(&self, before: &Before) -> bool {
        let victim = usize::from(self.victim()) - 1;
        let begun = Instant::now();
        while begun.elapsed() < PROGRESS {
            let now = self.progress();
            let arrived = |number: usize| now[number] >= before.progress[number] + self.batches();
            if (0..now.len()).filter(|number| *number != victim).all(arrived) {
                return true;
            }
            std::thread::sleep(LOOK);
        }
        // A reply that is wrong ends a connection: that is no lack of progress.
        self.wrong() != before.wrong
    }

    /// Until the client of the victim, which may have had to connect again, has had its replies, or the victim has ended. False if neither
    /// comes: who is there and says that it serves must answer.
    fn await_victims_client(&self, before: &Before) -> bool {
        let victim = usize::from(self.victim()) - 1;
        let wanted = before.progress[victim] + self.batches();
        let begun = Instant::now();
        while begun.elapsed() < PROGRESS {
            if self.progress()[victim] >= wanted || self.cluster.deaths(self.victim()).0 > before.deaths {
                return true;
            }
            std::thread::sleep(LOOK);
        }
        false
    }

    /// How the victim ended, if it did, and whether it is back. One that hangs is ended when its watchdog did not.
    fn await_victim(&self, before: &Before) -> (Option<String>, bool) {
        let begun = Instant::now();
        let mut killed = false;
        loop {
            let (deaths, how) = self.cluster.deaths(self.victim());
            if deaths > before.deaths {
                let how = if killed { "hung, ended from outside".into() } else { how };
                return (Some(how), self.cluster.all_serve(BACK));
            }
            if !killed && self.cluster.status(self.victim()).is_some() {
                // It may be on its way out: an answer and the same process are not yet a life.
                let same = self.cluster.processes(self.victim()).last() == Some(&before.process);
                if same && self.cluster.deaths(self.victim()).0 == before.deaths {
                    return (None, true);
                }
            }
            if !killed && begun.elapsed() > HUNG {
                killed = true;
                self.cluster.kill(self.victim());
            }
            if begun.elapsed() > BACK {
                return (Some("hung, and did not come back".into()), false);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The replicas by whose counters the error was noticed.
    fn noticed(&self, before: &Before, ended: bool) -> Vec<u8> {
        let grown = |number: &u8| {
            let fresh = ended && *number == self.victim();
            self.signs(*number) > if fresh { 0 } else { before.signs[usize::from(*number) - 1] }
        };
        (1..=self.cluster.size()).filter(grown).collect()
    }

    fn words(&self, before: &Before, noticed: &[u8]) -> String {
        let mut words = Vec::new();
        if !noticed.is_empty() {
            for number in (1..=self.cluster.size()).filter(|number| *number != self.victim()) {
                let status = self.cluster.status(number);
                words.extend(
                    status.and_then(|status| status.last_evidence).map(|told| format!("{number}: {told}")),
                );
            }
        }
        if self.cluster.deaths(self.victim()).0 > before.deaths {
            words.push(self.cluster.said(self.victim(), before.lines));
        }
        for wrong in self.wrong_since(before) {
            let now = self.healthy_answer(&wrong.expected);
            words.push(format!("replica {}: {} | a healthy replica now: {now}", wrong.replica, wrong.told));
        }
        words.join("; ")
    }

    /// What a healthy replica gives for the same question afterwards: the right answer means that only the reply was
    /// wrong; the wrong one, that all replicas agree on it, and the request was wrong before it was ordered.
    fn healthy_answer(&self, expected: &Expected) -> String {
        if !expected.request.starts_with(b"get ") {
            return "not asked: the request changes something".into();
        }
        let healthy =
            (0..self.clients.len()).find(|number| number + 1 != usize::from(self.victim())).unwrap_or(0);
        match model::ask_once(self.cluster.clients[healthy], &expected.request) {
            Ok(reply) if reply == expected.reply => "right".into(),
            Ok(reply) => String::from_utf8_lossy(&reply[..reply.len().min(200)]).escape_debug().to_string(),
            Err(error) => error.to_string(),
        }
    }

    fn wrong_words(&self, before: &Before) -> String {
        let role = |replica| if replica == self.victim() { "the victim" } else { "a healthy replica" };
        let words = |wrong: &model::WrongReply| format!("{:?} from {}", wrong.wrong, role(wrong.replica));
        self.wrong_since(before).iter().map(words).collect::<Vec<_>>().join(", ")
    }
}

/// Appends records to a file as they come.
///
/// # Errors
/// When it cannot be written.
pub fn append(file: &mut impl io::Write, record: &Record) -> anyhow::Result<()> {
    writeln!(file, "{}", serde_json::to_string(record)?)?;
    Ok(file.flush()?)
}

/// Opens the file of records.
///
/// # Errors
/// When it cannot be created.
pub fn create(path: &Path) -> anyhow::Result<fs::File> {
    fs::File::create(path).with_context(|| format!("records {}", path.display()))
}
