//! The sides of a benchmark as running processes: started on free loopback ports, found ready, and stopped cleanly.

mod etcd;
mod ours;
mod peer;
mod redis;
mod stock;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::definition::{Definition, FailingReplica, ReplicaFailure, Side, Workload};
use super::wire::Dialect;
use node::cluster::{Keeper, ReplicaHandle};
use node::signals::Ending;
pub use peer::Peer;
pub use stock::stock_command;

/// How long a side may take to come up.
const START: Duration = Duration::from_secs(30);

/// A side that serves.
#[derive(Debug)]
pub struct Running {
    /// Where clients connect.
    pub addresses: Vec<SocketAddr>,
    /// Its protocol.
    pub dialect: Dialect,
    /// Its processes with a name each.
    pub processes: Vec<(String, u32)>,
    keep: Keep,
}

/// The owner of a side's processes.
#[derive(Debug)]
enum Keep {
    Ours {
        keeper: Keeper,
        leader: u8,
        /// The replica whose death is part of the measurement.
        failing: Option<u8>,
    },
    /// With a directory that is removed after they have ended.
    Peers(Vec<Peer>, Option<tempfile::TempDir>),
}

impl Running {
    /// Starts `side` as the definition and the workload specify; its files are below `data`.
    ///
    /// # Errors
    /// It does not come up; the message contains its last lines.
    pub fn start(
        side: &Side,
        definition: &Definition,
        workload: &Workload,
        data: &Path,
        ending: &Ending,
    ) -> anyhow::Result<Self> {
        match side {
            Side::Ours(mode) => ours::start(mode, definition, workload, data, ending),
            Side::Memcached => stock::start(definition, data, ending),
            Side::Hardened(variant) => {
                stock::start_program(&hardened_memcached(variant), definition, data, ending)
            }
            Side::Redis => redis::start(definition, data, ending),
            Side::Etcd => etcd::start(definition, data, ending),
        }
    }

    /// Whether a process ended or was replaced since the start: then no measurement counts.
    pub fn trouble(&mut self) -> Option<String> {
        match &mut self.keep {
            Keep::Ours { keeper, failing, .. } => {
                let mut deaths = keeper.events.deaths().into_iter();
                let (replica, how) = deaths.find(|(replica, _)| Some(*replica) != *failing)?;
                Some(format!("replica {replica} ended: {how}"))
            }
            Keep::Peers(peers, _) => peers.iter_mut().find_map(Peer::trouble),
        }
    }

    /// Its replicas, and the one that was the leader when the side was ready; none for other programs.
    pub fn replicas(&self) -> (&[ReplicaHandle], Option<u8>) {
        match &self.keep {
            Keep::Ours { keeper, leader, .. } => (&keeper.replicas, Some(*leader)),
            Keep::Peers(..) => (&[], None),
        }
    }

    /// Prepares for a failure: clients will connect to the other replicas only, and a replica that is killed is started
    /// again so long after its death. Returns the process that is to fail; none if there is no such replica.
    pub fn expect(&mut self, failure: ReplicaFailure) -> Option<u32> {
        let Keep::Ours { keeper, leader, failing } = &mut self.keep else { return None };
        let wanted = |replica: &&ReplicaHandle| {
            (failure.replica == FailingReplica::Primary) == (replica.number == *leader)
                && replica.clients.is_some()
        };
        let number = keeper.replicas.iter().find(wanted)?.number;
        *failing = Some(number);
        let others = keeper.replicas.iter().filter(|replica| replica.number != number);
        self.addresses = others.filter_map(|replica| replica.clients).collect();
        let mut supervisor = keeper.supervisor();
        supervisor.restart_after(Duration::from_secs_f64(failure.back - failure.at));
        supervisor.pid(number).filter(|_| !self.addresses.is_empty())
    }

    /// Stops it; returns the processes that did not stop by themselves and had to be killed.
    pub fn stop(self) -> Vec<String> {
        match self.keep {
            Keep::Ours { keeper, .. } => {
                keeper.stop().iter().map(|number| format!("replica {number}")).collect()
            }
            Keep::Peers(peers, folder) => {
                let killed = peers.into_iter().filter_map(Peer::stop).collect();
                drop(folder);
                killed
            }
        }
    }
}

/// A program that a side needs: its file if it is there, its name, and the command that installs it.
fn program_of(side: &Side) -> Option<(Option<PathBuf>, String, String)> {
    let packaged = |program: &str, package: &str| {
        Some((find(program), format!("{program} is not installed"), format!("apt-get install {package}")))
    };
    match side {
        Side::Ours(_) => None,
        Side::Memcached => packaged("memcached", "memcached"),
        Side::Hardened(variant) => {
            let file = hardened_memcached(variant);
            let what = format!("{} is not there", file.display());
            let command = format!("crosscheck harden build memcached --variant {variant}");
            Some((file.is_file().then_some(file), what, command))
        }
        Side::Redis => packaged("redis-server", "redis-server"),
        Side::Etcd => packaged("etcd", "etcd-server"),
    }
}

/// The variants that the definitions name are of this one program.
fn hardened_memcached(variant: &str) -> PathBuf {
    memcached_client::hardened::program("memcached", variant, "memcached")
}

/// Why a side cannot be measured here, if that is so: its program is not installed.
pub fn missing(side: &Side) -> Option<String> {
    let (file, what, install) = program_of(side)?;
    file.is_none().then(|| format!("{what}; install it with: {install}"))
}

/// The version that a side's program reports.
pub fn version(side: &Side) -> String {
    let Some((file, ..)) = program_of(side) else {
        return format!("crosscheck {}", env!("CARGO_PKG_VERSION"));
    };
    let output = file.and_then(|path| std::process::Command::new(path).arg("--version").output().ok());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    // The text after the number differs between builds of the same version.
    let words: Vec<&str> = first.split_whitespace().take(3).collect();
    if words.is_empty() { "unknown".to_owned() } else { words.join(" ") }
}

/// The file of a program, searched as a shell does, and where Debian installs servers.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain([PathBuf::from("/usr/bin"), PathBuf::from("/usr/sbin")]);
    places.map(|folder| folder.join(program)).find(|file| file.is_file())
}
