//! A running cluster as the campaigns see it: which processes its replicas had, how they ended, and whether they serve
//! and are equal.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crosscheck::admin::{ReplicaPhase, Status};
use node::cluster::{DetachedCluster, ReplicaHandle, send_signal};
use node::digest::{self, DigestAnswer};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

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
    /// Faults hit only functions whose name contains one of these; any function if there is none.
    #[serde(default)]
    pub only: Vec<String>,
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
/// How long a replica may take to compute the digest of its state.
const DIGEST: Duration = Duration::from_secs(8);
/// Pause between two checks.
const LOOK: Duration = Duration::from_millis(10);
/// Pauses between requests for digests while a replica receives its state or is repaired: from the first on, each twice
/// as long.
const DIGESTS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(640)];

/// A cluster that is stopped when this value is dropped. Its supervisor is a process of its own: the tracer waits for
/// stops of the victim's threads, and would take the ends of its own children for them.
#[derive(Debug)]
pub struct Cluster {
    up: DetachedCluster,
    /// The addresses for clients, by replica.
    pub clients: Vec<SocketAddr>,
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
        command.env("XDG_RUNTIME_DIR", &place.dir);
        let up = DetachedCluster::start(sys::fix_addresses(&mut command), START)?;
        let clients = up.replicas.iter().filter_map(|replica| replica.clients).collect();
        Ok(Cluster { up, clients })
    }

    /// Processes of replica `number` so far, the present one last.
    pub fn processes(&self, number: u8) -> Vec<i32> {
        self.up.events.pids(number).into_iter().map(|pid| pid as i32).collect()
    }

    /// How often replica `number` has ended, and how it ended last.
    pub fn deaths(&self, number: u8) -> (usize, String) {
        let mut deaths = self.up.events.deaths();
        deaths.retain(|(replica, _)| *replica == number);
        (deaths.len(), deaths.pop().map_or_else(String::new, |(_, how)| how))
    }

    /// The lines that replica `number` has written so far, in all its processes.
    pub fn lines(&self, number: u8) -> Vec<String> {
        self.up.events.lines(number)
    }

    /// The last lines of replica `number`, without the first `before` lines.
    pub fn said(&self, number: u8, before: usize) -> String {
        let lines = self.lines(number);
        let lines = lines.iter().skip(before).rev();
        // A panic names the file it is in, with the path of the machine that built it: its last part is enough.
        let words = |line: &str| line.split(' ').map(short).collect::<Vec<_>>().join(" ");
        lines.take(3).map(|line| words(line)).collect::<Vec<_>>().join(" | ")
    }

    /// A replica, from 1.
    pub fn replica(&self, number: u8) -> &ReplicaHandle {
        &self.up.replicas[usize::from(number) - 1]
    }

    /// A replica's status; none while it is down, or hangs.
    pub fn status(&self, number: u8) -> Option<Status> {
        self.replica(number).status()
    }

    /// How many replicas there are.
    pub fn size(&self) -> u8 {
        self.up.replicas.len() as u8
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
        let mut order = self.up.replicas.clone();
        order.sort_by_key(|replica| replica.number == last);
        let answers = digest::round(&order, DIGEST);
        let digest = |(_, answer): &DigestAnswer| answer.as_ref().ok().map(|found| found.digest.clone());
        let first = digest(&answers[0]);
        let whose = |is_meant: &dyn Fn(Option<String>) -> bool| -> Vec<u8> {
            let meant = answers.iter().filter(|answer| is_meant(digest(answer)));
            meant.map(|(replica, _)| replica.number).collect()
        };
        let (silent, other) = (whose(&|digest| digest.is_none()), whose(&|digest| digest != first));
        match () {
            () if !silent.is_empty() => Digests::Silent(silent),
            () if !other.is_empty() => Digests::Different(other),
            () => Digests::Equal,
        }
    }

    /// Kills a replica; the supervisor restarts it.
    pub fn kill(&self, number: u8) {
        if let Some(pid) = self.up.events.pids(number).last() {
            send_signal(*pid, Signal::KILL);
        }
    }
}

/// A word of a message; if it is a path, only its last part.
fn short(word: &str) -> &str {
    if word.starts_with('/') { file_name(word) } else { word }
}
