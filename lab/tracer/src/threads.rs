//! Faults in one process with several worker threads, each serving a connection whose client checks every reply against
//! a model: SEI's multithreaded experiment (Behrens et al., NSDI 2015, table 3).
//!
//! Threads take turns as the kernel lets them, so no run repeats another one. Sites are sampled from all worker threads
//! under load, and the fault is injected into one of them at the site's next execution. The process is judged as a
//! single server, and started anew after each fault that had an effect.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use wire::SplitMix64;

use crate::callers::names;
use crate::code::Code;
use crate::draw;
use crate::fault::TracerFault;
use crate::inject::Flip;
use crate::model::{self, ModelClient, Tally, WrongReply};
use crate::profile::{file_name, module_of};
use crate::record::{InjectionClass, InjectionRecord};
use crate::sample::{Sample, SampledInjection, Windows};
use crate::session;
use crate::symbols::Symbols;
use crate::sys;
use crate::target::RunPlace;

/// A process with several worker threads, as its target file describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerThreads {
    /// How many threads have the target's name; faults are injected into any of them.
    pub workers: usize,
    /// Connections, each with keys of its own.
    pub connections: u8,
    /// Windows in the sample of the threads.
    pub windows: u32,
    /// Instructions of each, single-stepped.
    pub window_steps: u32,
    /// Batches of eight requests that each client must see answered after a fault.
    pub batches: u64,
}

/// Faults without effect after which the process is started anew all the same.
const RUNS_PER_PROCESS: u64 = 50;
/// How long a process may take until all of its clients are served.
const START: Duration = Duration::from_secs(20);
/// How long clients may wait for replies after a fault.
const PROGRESS: Duration = Duration::from_secs(3);
/// Pause between two checks.
const LOOK: Duration = Duration::from_micros(500);
/// Longest pause between the beginning of a run and its fault, in microseconds.
const LONGEST_PAUSE_US: u64 = 5_000;

/// Runs `runs` injections of each of `faults`, or until `on_record`, which receives each record, returns `false`.
///
/// # Errors
/// When the target is another kind, or its process does not serve.
pub fn campaign(
    plan: &SampledInjection<'_>,
    faults: &[TracerFault],
    runs: u64,
    mut on_record: impl FnMut(&InjectionRecord) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let (all, kinds) = (runs * faults.len() as u64, faults.len() as u64);
    let mut symbols = Symbols::default();
    let mut sample = None;
    let mut number = 0;
    while number < all {
        let begun = number;
        let go_on = with_process(plan, number, |process| {
            let sample = match &sample {
                Some(sample) => sample,
                None => sample.insert(process.sample()?),
            };
            let mut last = None;
            loop {
                if let Some((mut record, before)) = last.take() {
                    process.look_again(&mut record, &before);
                    if !on_record(&record)? {
                        return Ok(false);
                    }
                    if record.class != InjectionClass::Masked {
                        return Ok(true);
                    }
                }
                if number == all || number - begun == RUNS_PER_PROCESS {
                    return Ok(true);
                }
                let fault = faults[(number % kinds) as usize];
                last = Some(process.inject(sample, fault, number / kinds, &mut symbols)?);
                number += 1;
            }
        })?;
        if !go_on {
            break;
        }
    }
    Ok(())
}

/// A running process, and the observations of its clients.
struct ThreadedProcess<'a> {
    plan: &'a SampledInjection<'a>,
    workers: &'a WorkerThreads,
    id: i32,
    child: Child,
    clients: &'a [Tally],
}

/// The observations before a fault.
struct Before {
    batches: Vec<u64>,
    breaks: Vec<u64>,
    wrong: usize,
}

/// Starts the target and its clients, and ends them when `work` is done.
fn with_process<T>(
    plan: &SampledInjection<'_>,
    salt: u64,
    work: impl FnOnce(&mut ThreadedProcess<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let workers = plan.target.threads.as_ref().context("the target's file has no [threads]")?;
    let dir = tempfile::tempdir().context("a directory for the process")?;
    let place = RunPlace::new(dir.path(), salt);
    let address = place.fill(&plan.target.connect);
    let address: SocketAddr = address
        .strip_prefix("tcp:")
        .and_then(|address| address.parse().ok())
        .with_context(|| format!("{address}: a target with [threads] listens on tcp:ADDRESS:PORT"))?;
    let child = sys::fix_addresses(&mut session::command(plan.target, &place)?)
        .spawn()
        .context("starting the target")?;
    let clients: Vec<Tally> = (0..workers.connections).map(|_| Tally::default()).collect();
    let mut process = ThreadedProcess { plan, workers, id: child.id() as i32, child, clients: &clients };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (number, tally) in (1..).zip(&clients) {
            let (protocol, seed) = (plan.target.protocol, plan.seed ^ (salt << 32));
            let (client, stop) = (ModelClient { number, address, protocol, seed }, &stop);
            scope.spawn(move || model::drive(client, tally, stop));
        }
        let done = process.await_start().and_then(|()| work(&mut process));
        stop.store(true, Ordering::Relaxed);
        // Its clients see that their connections end.
        let _ = process.child.kill();
        let _ = process.child.wait();
        done
    })
}

impl ThreadedProcess<'_> {
    fn before(&self) -> Before {
        let counts = |count: fn(&Tally) -> u64| self.clients.iter().map(count).collect();
        Before {
            batches: counts(|tally| tally.batches.load(Ordering::Relaxed)),
            breaks: counts(|tally| tally.breaks.load(Ordering::Relaxed)),
            wrong: self.wrong_replies(0).len(),
        }
    }

    /// The wrong replies after the first `already`.
    fn wrong_replies(&self, already: usize) -> Vec<WrongReply> {
        let all = |tally: &Tally| tally.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.clients.iter().flat_map(all).skip(already).collect()
    }

    /// Waits until each client has received the replies of so many batches since `before`. False if the process ends
    /// first, or after `patience`.
    fn await_batches(&mut self, before: &Before, batches: u64, patience: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            let now = self.before().batches;
            if now.iter().zip(&before.batches).all(|(now, then)| *now >= then + batches) {
                return true;
            }
            if self.ended().is_some() {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        false
    }

    fn await_start(&mut self) -> anyhow::Result<()> {
        let nothing = Before { batches: vec![0; self.clients.len()], breaks: vec![], wrong: 0 };
        if !self.await_batches(&nothing, self.workers.batches, START) {
            bail!("the target does not serve {} clients: {:?}", self.clients.len(), self.ended());
        }
        Ok(())
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The worker threads, by their name.
    fn threads(&self) -> anyhow::Result<Vec<i32>> {
        let name = &self.plan.target.thread;
        let mut threads = Vec::new();
        for task in fs::read_dir(format!("/proc/{}/task", self.id)).context("the target's threads")? {
            let path = task?.path();
            if fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name) {
                threads.extend(path.file_name().and_then(|name| name.to_str()?.parse::<i32>().ok()));
            }
        }
        threads.sort_unstable();
        if threads.len() != self.workers.workers {
            bail!("the target has {} threads {name:?}, not {}", threads.len(), self.workers.workers);
        }
        Ok(threads)
    }

    fn sample(&mut self) -> anyhow::Result<Sample> {
        let threads = self.threads()?;
        let windows = Windows { count: self.workers.windows, steps: self.workers.window_steps };
        let mut stream = draw::stream(self.plan.seed, 98, 0);
        Sample::take(self.id, &threads, windows, &mut stream, || {
            let before = self.before();
            if !self.await_batches(&before, 1, START) {
                bail!("the target does not serve its clients while it is sampled");
            }
            Ok(())
        })
    }

    fn inject(
        &mut self,
        sample: &Sample,
        fault: TracerFault,
        id: u64,
        symbols: &mut Symbols,
    ) -> anyhow::Result<(InjectionRecord, Before)> {
        let begun = Instant::now();
        let mut stream = draw::stream(self.plan.seed, fault.number(), id);
        let (index, code) = sample.draw(fault, &mut stream).context("no instruction carries this fault")?;
        let before = self.before();
        let injected = self.inject_at_site(sample, fault, code, &mut stream);
        let injected_us = begun.elapsed().as_micros() as u64;
        let (class, subclass, details) = match &injected {
            Err(why) => (InjectionClass::Lost, why.clone(), String::new()),
            Ok(_) => self.judge(&before),
        };
        let ended = self.ended();
        let (module, offset) = module_of(sample.modules(), code.address);
        let (flip, callers) =
            injected.map_or_else(|_| (None, vec![]), |(flip, callers)| (Some(flip), callers));
        let record = InjectionRecord {
            id,
            seed: self.plan.seed,
            fault,
            bits: self.plan.bits,
            flips: self.plan.flips,
            profile: "sample".into(),
            index: index as u64,
            address: code.address,
            module: file_name(module).to_owned(),
            offset,
            symbol: symbols.name(module, offset),
            callers: names(&callers, sample.modules(), symbols),
            part: None,
            text: code.text(),
            hits: 1,
            flip,
            class,
            subclass,
            message: None,
            details,
            states_equal: None,
            noticed: Vec::new(),
            signal: ended.and_then(|status| status.signal()),
            exit: ended.and_then(|status| status.code()),
            start_us: injected_us,
            total_us: begun.elapsed().as_micros() as u64,
            retries: 0,
        };
        Ok((record, before))
    }

    /// Whether a fault that seemed masked has ended the process since: its threads go one by one, and the clients may
    /// all have been served before. To be asked when the next fault is about to be injected.
    fn look_again(&mut self, record: &mut InjectionRecord, before: &Before) {
        if record.class != InjectionClass::Masked || self.threads().is_ok() {
            return;
        }
        let begun = Instant::now();
        while self.ended().is_none() && begun.elapsed() < PROGRESS {
            std::thread::sleep(LOOK);
        }
        (record.class, record.subclass, record.details) = self.judge(before);
        let ended = self.ended();
        record.signal = ended.and_then(|status| status.signal());
        record.exit = ended.and_then(|status| status.code());
    }

    fn inject_at_site(
        &self,
        sample: &Sample,
        fault: TracerFault,
        code: &Code,
        stream: &mut SplitMix64,
    ) -> Result<(Flip, Vec<u64>), String> {
        let threads = self.threads().map_err(|error| error.to_string())?;
        let thread = *stream.one_of(&threads).ok_or("no worker thread")?;
        std::thread::sleep(Duration::from_micros(stream.below(LONGEST_PAUSE_US)));
        sample.inject(self.plan.fault_in(fault, code), self.id, thread, stream)
    }

    /// Class, subclass and details of the outcome of a fault that was injected after `before`.
    fn judge(&mut self, before: &Before) -> (InjectionClass, String, String) {
        let all_served = self.await_batches(before, self.workers.batches, PROGRESS);
        let wrong = self.wrong_replies(before.wrong);
        let details = wrong.iter().map(|wrong| wrong.details.as_str()).collect::<Vec<_>>().join("; ");
        let breaks = self.before().breaks != before.breaks;
        let detected = &self.plan.target.detected_exits;
        let (class, subclass) = outcome(&wrong, self.ended(), detected, breaks, all_served);
        (class, subclass, details)
    }
}

/// How a run ended: a valid reply that is wrong decides, whatever else happened.
fn outcome(
    wrong: &[WrongReply],
    ended: Option<ExitStatus>,
    detected_exits: &[i32],
    breaks: bool,
    all_served: bool,
) -> (InjectionClass, String) {
    let first = |class| {
        let found = wrong.iter().find(|one| one.wrong.class() == class);
        found.map(|one| (class, one.wrong.name()))
    };
    let noticed = first(InjectionClass::Detected).or(first(InjectionClass::Otherwise));
    let exit = ended.and_then(|status| status.code());
    match (first(InjectionClass::Undetected), noticed) {
        (Some(undetected), _) => undetected,
        _ if exit.is_some_and(|code| detected_exits.contains(&code)) => {
            (InjectionClass::Detected, format!("exit-{}", exit.unwrap_or_default()))
        }
        (None, Some(noticed)) => noticed,
        (None, None) => match (ended.and_then(|status| status.signal()), exit) {
            (Some(signal), _) => (InjectionClass::Otherwise, format!("signal-{signal}")),
            (None, Some(code)) => (InjectionClass::Otherwise, format!("exit-{code}")),
            (None, None) if breaks => (InjectionClass::Otherwise, "closed".into()),
            (None, None) if !all_served => (InjectionClass::Otherwise, "hang".into()),
            (None, None) => (InjectionClass::Masked, String::new()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Expected;
    use crate::protocol::Wrong;

    fn wrong(wrong: Wrong) -> WrongReply {
        let expected = Expected { request: vec![], keys: vec![], reply: vec![], seed: 0 };
        WrongReply { wrong, replica: 1, expected, details: String::new() }
    }

    #[test]
    fn a_wrong_reply_that_no_client_sees_decides() {
        let ended = |code: i32| Some(ExitStatus::from_raw(code << 8));
        let shown = |wrong: &[WrongReply], ended, breaks, served| {
            let (class, subclass) = outcome(wrong, ended, &[86], breaks, served);
            format!("{}: {subclass}", class.name())
        };
        let both = [wrong(Wrong::InvalidSum), wrong(Wrong::Value)];
        assert_eq!(shown(&both, ended(86), true, false), "undetected: value");
        assert_eq!(shown(&both[..1], ended(86), true, false), "detected: exit-86");
        assert_eq!(shown(&both[..1], None, true, true), "detected: invalid message");
        assert_eq!(shown(&[wrong(Wrong::ErrorReply)], None, true, true), "otherwise: error-reply");
        assert_eq!(shown(&[], ended(1), true, false), "otherwise: exit-1");
        assert_eq!(shown(&[], Some(ExitStatus::from_raw(11)), true, false), "otherwise: signal-11");
        assert_eq!(shown(&[], None, true, true), "otherwise: closed");
        assert_eq!(shown(&[], None, false, false), "otherwise: hang");
        assert_eq!(shown(&[], None, false, true), "masked: ");
    }
}
