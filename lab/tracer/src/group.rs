//! A running cluster: its supervisor, the supervisor's output, and the admin sockets of its replicas.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use crosscheck::admin::client::ask;
use crosscheck::admin::{AdminCommand, Endpoint, EvidenceList, ReplicaPhase, StateDigest, Status};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::profile::file_name;
use crate::session;
use crate::sys;
use crate::target::{RunPlace, Target};

/// A cluster, as its target file describes it: `argv` starts all of it, as `crosscheck up --json` does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// How many replicas.
    pub replicas: u8,
    /// The replica into which faults are injected, from 1.
    pub victim: u8,
    /// Windows in the sample of the victim's thread.
    #[serde(default = "windows")]
    pub windows: u32,
    /// Instructions of each, single-stepped.
    #[serde(default = "window_steps")]
    pub window_steps: u32,
    /// Batches of eight requests that each healthy replica's client must see answered after a fault.
    #[serde(default = "batches")]
    pub batches: u64,
    /// Whether the replicas repair each other: then different states are given time to heal.
    #[serde(default = "heals")]
    pub heals: bool,
}

fn windows() -> u32 {
    800
}
fn window_steps() -> u32 {
    500
}
fn batches() -> u64 {
    60
}
fn heals() -> bool {
    true
}

/// How long a cluster may take until all its replicas serve.
const START: Duration = Duration::from_secs(60);
/// Pause between two checks.
const LOOK: Duration = Duration::from_millis(10);
/// Pauses between requests for digests while a replica receives its state or is repaired: from the first on, each twice
/// as long.
const DIGESTS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(640)];

/// A cluster that is stopped when this value is dropped.
#[derive(Debug)]
pub struct Cluster {
    supervisor: Child,
    told: Arc<Mutex<Vec<Value>>>,
    /// The addresses for clients, by replica.
    pub clients: Vec<SocketAddr>,
    admin: Vec<Endpoint>,
}

/// The result of comparing the replicas' digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Digests {
    /// All equal.
    Equal,
    /// These replicas, from 1, differ from the rest.
    Different(Vec<u8>),
    /// These replicas returned none.
    Silent(Vec<u8>),
}

impl Cluster {
    /// Starts it, and waits until all replicas serve. Addresses are not randomized, so that a restarted replica has its
    /// code at the addresses of the sample.
    ///
    /// # Errors
    /// When the cluster does not start.
    pub fn up(target: &Target, place: &RunPlace) -> anyhow::Result<Self> {
        let mut command = session::command(target, place)?;
        command.env("XDG_RUNTIME_DIR", &place.dir).stdout(Stdio::piped());
        let mut supervisor = sys::spawn_fixed(&mut command).context("starting the cluster")?;
        let out = supervisor.stdout.take().context("the cluster's output")?;
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = told.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if let Ok(value) = serde_json::from_str::<Value>(&line)
                    && value["event"] != "status"
                {
                    sink.lock().unwrap_or_else(PoisonError::into_inner).push(value);
                }
            }
        });
        let mut cluster = Cluster { supervisor, told, clients: vec![], admin: vec![] };
        let begun = Instant::now();
        while cluster.events("ready").is_empty() {
            if begun.elapsed() > START {
                bail!("the cluster is not ready after {} s", START.as_secs());
            }
            std::thread::sleep(LOOK);
        }
        for event in cluster.events("replica") {
            let text = |name: &str| event[name].as_str().unwrap_or("").to_owned();
            cluster.clients.push(text("clients").parse().context("an address of the cluster")?);
            cluster.admin.push(Endpoint::Unix(text("admin").into()));
        }
        Ok(cluster)
    }

    fn events(&self, kind: &str) -> Vec<Value> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.iter().filter(|event| event["event"] == kind).cloned().collect()
    }

    /// Processes of replica `number` so far, the present one last.
    pub fn processes(&self, number: u8) -> Vec<i32> {
        let started = self.events("started");
        let ours = started.iter().filter(|event| event["replica"] == number);
        ours.filter_map(|event| Some(event["pid"].as_i64()? as i32)).collect()
    }

    /// How often replica `number` has ended, and how it ended last.
    pub fn deaths(&self, number: u8) -> (usize, String) {
        let died: Vec<Value> =
            self.events("died").into_iter().filter(|event| event["replica"] == number).collect();
        (died.len(), died.last().and_then(|event| event["how"].as_str()).unwrap_or("").to_owned())
    }

    /// The lines that replica `number` has written so far, in all its processes.
    pub fn lines(&self, number: u8) -> Vec<String> {
        let said = self.events("said").into_iter().filter(|event| event["replica"] == number);
        said.filter_map(|event| Some(event["line"].as_str()?.to_owned())).collect()
    }

    /// The last lines of replica `number`, without the first `before` lines.
    pub fn said(&self, number: u8, before: usize) -> String {
        let lines = self.lines(number);
        let lines = lines.iter().skip(before).rev();
        // A panic names the file it is in, with the path of the machine that built it: its last part is enough.
        let words = |line: &str| line.split(' ').map(short).collect::<Vec<_>>().join(" ");
        lines.take(3).map(|line| words(line)).collect::<Vec<_>>().join(" | ")
    }

    /// Sends a command to a replica, from 1.
    pub fn ask<T: DeserializeOwned>(
        &self,
        number: u8,
        command: &AdminCommand,
        patience: Duration,
    ) -> Option<T> {
        ask(&self.admin[usize::from(number) - 1], command, patience).ok()
    }

    /// A replica's status; none while it is down, or hangs.
    pub fn status(&self, number: u8) -> Option<Status> {
        self.ask(number, &AdminCommand::Status, Duration::from_secs(2))
    }

    /// Evidence records of `replica` after record `after`.
    pub fn evidence(&self, number: u8, after: u64) -> Option<EvidenceList> {
        self.ask(number, &AdminCommand::Evidence { after }, Duration::from_secs(2))
    }

    /// How many replicas there are.
    pub fn size(&self) -> u8 {
        self.admin.len() as u8
    }

    /// Waits until all replicas serve; false at a timeout.
    pub fn all_serve(&self, patience: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            let serves =
                |number| self.status(number).is_some_and(|status| status.phase == ReplicaPhase::Serving);
            if (1..=self.size()).all(serves) {
                return true;
            }
            std::thread::sleep(LOOK);
        }
        false
    }

    /// Compares the digests of all replicas at one position, while requests go on. The replica in `last` is asked last.
    pub fn digests(&self, last: u8) -> Digests {
        let [mut pause, longest] = DIGESTS;
        loop {
            let result = self.digests_once(last);
            if !matches!(result, Digests::Silent(_)) || pause > longest {
                return result;
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
    }

    fn digests_once(&self, last: u8) -> Digests {
        let patience = Duration::from_secs(8);
        let mut order: Vec<u8> = (1..=self.size()).filter(|number| *number != last).collect();
        order.push(last);
        let mut at = None;
        let mut digests: Vec<(u8, Option<String>)> = Vec::new();
        for number in order {
            let digest = self.ask::<StateDigest>(number, &AdminCommand::Digest { at }, patience);
            at = at.or(digest.as_ref().map(|digest| digest.position));
            digests.push((number, digest.map(|digest| digest.digest)));
        }
        let silent: Vec<u8> =
            digests.iter().filter(|(_, digest)| digest.is_none()).map(|(number, _)| *number).collect();
        if !silent.is_empty() {
            return Digests::Silent(silent);
        }
        let first = digests[0].1.clone();
        let other: Vec<u8> =
            digests.iter().filter(|(_, digest)| *digest != first).map(|(number, _)| *number).collect();
        if other.is_empty() { Digests::Equal } else { Digests::Different(other) }
    }

    /// Kills a replica; the supervisor restarts it.
    pub fn kill(&self, number: u8) {
        if let Some(process) = self.processes(number).last().and_then(|id| Pid::from_raw(*id)) {
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(process) = Pid::from_raw(self.supervisor.id() as i32) {
            let _ = kill_process(process, Signal::TERM);
        }
        let _ = self.supervisor.wait();
    }
}

/// A word of a message; if it is a path, only its last part.
fn short(word: &str) -> &str {
    if word.starts_with('/') { file_name(word) } else { word }
}
