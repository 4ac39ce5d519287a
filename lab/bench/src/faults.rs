//! Places faults in one replica while it is measured: at equal intervals, over connections of its own, and without
//! waiting for answers, so that the rate is the definition's and not the admin socket's.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use crosscheck::admin::client::connect;
use crosscheck::admin::{AdminCommand, AdminStream, Corruption, Inject, line};

use super::definition::{SweepFaults, Workload};
use super::generator::{Draw, KeyName};
use node::cluster::ReplicaHandle;

/// Connections used in turn: the replica answers the commands of a connection one after another, and each takes an
/// ordered position first.
const LANES: usize = 16;
/// Number of the member of an item that has its key and its value.
const CONTENT: u8 = 0;
/// How long the last answers are waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause between two checks for answers while no fault is due.
const LOOK: Duration = Duration::from_millis(5);

/// Places faults until it is finished.
#[derive(Debug)]
pub struct Injector {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Placed>,
}

/// The outcome of the faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Faults that were due.
    pub due: u64,
    /// Faults that are in place.
    pub placed: u64,
    /// The first reason why a fault was not placed.
    pub why_not: Option<String>,
}

impl Injector {
    /// Connects to `victim` and begins.
    ///
    /// # Errors
    /// It does not accept, or there are no more threads.
    pub fn start(
        victim: &ReplicaHandle,
        faults: SweepFaults,
        workload: &Workload,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let connect = |_| Lane::open(victim);
        let mut lanes: Vec<Lane> = (0..LANES).map(connect).collect::<anyhow::Result<_>>()?;
        let mut targets = Targets::new(faults.fault, workload, seed);
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let gap = Duration::from_secs_f64(1.0 / faults.per_second);
        let thread = thread::Builder::new().name("faults".into()).spawn(move || {
            let begin = Instant::now();
            let mut due = 0;
            while !stop.load(Ordering::Relaxed) {
                // The first fault comes half an interval after the beginning.
                let next = begin + gap.mul_f64(due as f64 + 0.5);
                let now = Instant::now();
                if now < next {
                    thread::sleep((next - now).min(LOOK));
                } else {
                    lanes[due as usize % LANES].ask(&targets.next());
                    due += 1;
                }
                lanes.iter_mut().for_each(Lane::listen);
            }
            conclude(due, lanes)
        })?;
        Ok(Injector { over, thread })
    }

    /// Stops placing faults, and returns the outcome.
    pub fn finish(self) -> Placed {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Waits for the last answers.
fn conclude(due: u64, mut lanes: Vec<Lane>) -> Placed {
    let deadline = Instant::now() + PATIENCE;
    while lanes.iter().any(|lane| lane.waiting > 0) && Instant::now() < deadline {
        thread::sleep(LOOK);
        lanes.iter_mut().for_each(Lane::listen);
    }
    let mut placed = Placed { due, ..Placed::default() };
    for lane in lanes {
        placed.placed += lane.placed;
        placed.why_not = placed.why_not.or(lane.why_not);
    }
    placed
}

/// Draws the items that are corrupted.
struct Targets {
    kind: Corruption,
    draw: Draw,
    name: KeyName,
    keys: u32,
    seed: u64,
}

impl Targets {
    fn new(kind: Corruption, workload: &Workload, seed: u64) -> Self {
        let keys = workload.keys as u32;
        let (draw, name) = (Draw::new(workload, workload.keys, seed), KeyName::new(workload.key_bytes));
        Targets { kind, draw, name, keys, seed }
    }

    fn next(&mut self) -> Inject {
        self.seed = self.seed.wrapping_add(1);
        let key = (self.draw.rank() as u32).min(self.keys.saturating_sub(1));
        let object = format!("item:{}", String::from_utf8_lossy(self.name.of(key)));
        Inject {
            kind: self.kind,
            object: Some(object),
            bit: None,
            member: Some(CONTENT),
            seed: wire::mix(self.seed),
        }
    }
}

/// One connection to the victim's admin socket.
#[derive(Debug)]
struct Lane {
    stream: AdminStream,
    answers: Vec<u8>,
    waiting: u64,
    placed: u64,
    why_not: Option<String>,
}

impl Lane {
    fn open(victim: &ReplicaHandle) -> anyhow::Result<Self> {
        let stream = connect(&victim.admin, PATIENCE)
            .with_context(|| format!("connecting to the admin socket of replica {}", victim.number))?;
        stream.set_nonblocking(true)?;
        Ok(Lane { stream, answers: Vec::new(), waiting: 0, placed: 0, why_not: None })
    }

    fn ask(&mut self, fault: &Inject) {
        let line = line::of_command(&AdminCommand::Inject(fault.clone()));
        match self.stream.write_all(line.as_bytes()) {
            Ok(()) => self.waiting += 1,
            Err(error) => {
                _ = self.why_not.get_or_insert(format!("the admin socket is not fast enough: {error}"))
            }
        }
    }

    fn listen(&mut self) {
        if self.waiting == 0 {
            return;
        }
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return self.fell_silent("the connection was closed"),
                Ok(count) => self.answers.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.fell_silent(&error.to_string()),
            }
        }
        while let Some(end) = self.answers.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.answers.drain(..=end).collect();
            self.waiting = self.waiting.saturating_sub(1);
            match outcome(&line) {
                None => self.placed += 1,
                Some(why) => _ = self.why_not.get_or_insert(why),
            }
        }
    }

    fn fell_silent(&mut self, why: &str) {
        self.waiting = 0;
        self.why_not.get_or_insert(why.to_owned());
    }
}

/// Why a fault was not placed, from the answer; none when it was placed.
fn outcome(line: &[u8]) -> Option<String> {
    let Ok(answer) = serde_json::from_slice::<serde_json::Value>(line) else {
        return Some("an answer of another version".into());
    };
    if answer["done"] == serde_json::Value::Bool(true) {
        return None;
    }
    let reported = answer["error"].as_str().or(answer["what"].as_str());
    Some(reported.unwrap_or("no reason was given").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_name_what_was_placed() {
        assert_eq!(outcome(br#"{"done":true,"what":"Item 1.0","home":1,"id":"1.0"}"#), None);
        let not = outcome(br#"{"done":false,"what":"there is no item:k now"}"#);
        assert_eq!(not.as_deref(), Some("there is no item:k now"));
        assert_eq!(outcome(br#"{"error":"not now"}"#).as_deref(), Some("not now"));
        assert!(outcome(b"{").is_some());
    }
}
