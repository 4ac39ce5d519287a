//! Decides everything about a local cluster before it is started: its addresses, its directories, and the configuration
//! file of each replica.

use std::fs::{self, DirBuilder};
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use crosscheck::admin::Endpoint;
use crosscheck::{ClientTls, Durability, GroupKey, Mode, OnDetection, Reads, SocketPath};

use super::child::Dress;
use super::find::ReplicaHandle;
use super::ports::{loopback, pick};
use super::runfile::{self, ReplicaAddresses, RunFile};
use crate::config::{self, NodeConfig, check_group, may_read_locally};
use crate::outcome::misuse;
use crate::program::program;
use crate::{ServiceOptions, Wrong};

/// Replicas of a replicated mode unless the operator gives another number.
const DEFAULT_REPLICAS: u8 = 3;

/// Name of the file with the group's key.
const KEY: &str = "group.key";

/// The options that the operator gave; `O` are the settings of the service.
#[derive(Clone, Debug)]
pub struct ClusterOptions<O> {
    /// How many replicas; none = the mode's default.
    pub replicas: Option<u8>,
    /// Client port of the first; none = the program's. 0 = any free ones.
    pub port: Option<u16>,
    /// Directory for the socket files of clients; none: only ports.
    pub client_sockets: Option<PathBuf>,
    /// Certificate and key of clients' TLS; none: plain text.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The mode.
    pub mode: Mode,
    /// Threads per replica that execute requests; none = [`config::DEFAULT_WORKERS`].
    pub workers: Option<usize>,
    /// Threads that serve client connections; none = the default of the configuration.
    pub client_threads: Option<usize>,
    /// Whether the log is on disk, below `data`.
    pub on_disk: bool,
    /// Directory for the logs.
    pub data: Option<PathBuf>,
    /// Protections that an experiment leaves out.
    #[cfg(feature = "lab")]
    pub left_out: config::LeftOut,
    /// Faults of a replica within 10 s at which it ends as broken hardware; none = the default.
    pub faults_per_10s: Option<u32>,
    /// What mode `00GT` does when it detects a fault; none = the default.
    pub on_detection: Option<OnDetection>,
    /// Whether a witness verifies what two replicas execute.
    pub witness: bool,
    /// Whether, with V, a batch waits a moment for the tokens of all replicas; none: the default.
    pub extra_protection: Option<bool>,
    /// How requests that only read are answered.
    pub reads: Reads,
    /// Settings of the service, equal at all replicas.
    pub service: O,
}

impl<O: Default> Default for ClusterOptions<O> {
    fn default() -> Self {
        ClusterOptions {
            replicas: None,
            port: None,
            client_sockets: None,
            tls: None,
            mode: Mode::default(),
            workers: None,
            client_threads: None,
            on_disk: false,
            data: None,
            #[cfg(feature = "lab")]
            left_out: config::LeftOut::default(),
            faults_per_10s: None,
            on_detection: None,
            witness: false,
            extra_protection: None,
            reads: Reads::default(),
            service: O::default(),
        }
    }
}

/// The addresses and directory of a cluster: everything about it that does not depend on its service.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The protections that are on.
    pub mode: Mode,
    /// Addresses of the replicas.
    pub places: Vec<ReplicaAddresses>,
    /// Where run files are kept.
    pub directory: PathBuf,
}

impl Layout {
    /// The port that names the cluster.
    pub fn port(&self) -> u16 {
        self.places.first().map_or(0, |place| place.clients.port())
    }

    /// Removes the files that [`ClusterPlan::write`] wrote, except the logs.
    pub fn clean(&self) {
        RunFile::remove(&self.directory, self.port());
    }
}

/// A cluster that can be started.
#[derive(Clone, Debug)]
pub struct ClusterPlan<O> {
    /// Its addresses and directory.
    pub layout: Layout,
    nodes: Vec<NodeConfig<O>>,
    /// How the replicas' processes are started.
    dresses: Vec<Dress>,
    /// The group's key, which is made with the other files. With logs on disk it stays with them for the next start.
    key: Option<PathBuf>,
}

/// Whether options that are for some modes and groups only fit this one, of so many processes.
fn check_options<O>(wish: &ClusterOptions<O>, processes: usize) -> anyhow::Result<()> {
    if let Some(threads) = wish.client_threads {
        let workers = wish.workers.unwrap_or(config::DEFAULT_WORKERS);
        config::check_client_threads(threads, workers, config::DEFAULT_BUFFER_MB)
            .map_err(|(what, remedy)| misuse(format!("{what}; {remedy} (--client-threads, --workers)")))?;
    }
    if wish.extra_protection.is_some() && !wish.mode.verified {
        let mode = wish.mode;
        return Err(misuse(format!(
            "mode {mode} has no batches that wait; leave out --extra-protection, or use --mode R0GV"
        )));
    }
    if wish.reads == Reads::Local && may_read_locally(wish.mode, processes, wish.witness).is_err() {
        return Err(misuse(
            "--reads local is for modes RDGX and R0GV, and three or more replicas; in R0GV two and a witness will do",
        ));
    }
    if wish.on_detection.is_some() && !wish.mode.twice {
        let mode = wish.mode;
        return Err(misuse(format!(
            "mode {mode} does not compare a node with itself; leave out --on-detection, or use --mode 00GT"
        )));
    }
    Ok(())
}

impl<O: ServiceOptions> ClusterPlan<O> {
    /// Plans a cluster with these options; nothing is written or started yet.
    ///
    /// # Errors
    /// The options contradict each other, a port is in use, or such a cluster runs already.
    pub fn new(wish: &ClusterOptions<O>) -> anyhow::Result<Self> {
        Self::within(wish, &runfile::directory()?)
    }

    /// The same, whose files are in another directory than this user's: commands find it with that directory only.
    ///
    /// # Errors
    /// As for [`ClusterPlan::new`].
    pub fn within(wish: &ClusterOptions<O>, directory: &Path) -> anyhow::Result<Self> {
        let default = match wish.mode.replicated {
            true if wish.witness => 2,
            true => DEFAULT_REPLICAS,
            false => 1,
        };
        let count = wish.replicas.unwrap_or(default);
        check_group(wish.mode, usize::from(count), wish.witness)
            .map_err(|(what, remedy)| misuse(format!("{what}; {remedy} (--replicas, --witness, --mode)")))?;
        check_options(wish, usize::from(count))?;
        let durability = durability(wish)?;
        let (sockets, tls) = (client_sockets(wish)?, tls(wish)?);
        if wish.mode.verified && durability != Durability::Memory {
            let mode = wish.mode;
            return Err(misuse(format!(
                "mode {mode} keeps no log on disk; leave out --durability and --data, or use --mode RDGX"
            )));
        }
        let places = place(wish.port.unwrap_or(program().port), (count, wish.witness), directory)?;
        let peers: Vec<_> = places.iter().map(|place| place.peers).collect();
        let port = places.first().map_or(0, |place| place.clients.port());
        let key = match &durability {
            _ if !wish.mode.replicated => None,
            Durability::Memory => Some(runfile::config_directory(directory, port).join(KEY)),
            Durability::Disk(data) => Some(data.join(KEY)),
        };
        let node = |place: &ReplicaAddresses| {
            let admin = Endpoint::Unix(place.admin.clone());
            let mut node = NodeConfig::new(place.number, peers.clone(), place.clients, admin);
            node.access.tls.clone_from(&tls);
            node.mode = wish.mode;
            node.access.socket = sockets.as_deref().map(|directory| client_socket(directory, place.number));
            node.group_key_file.clone_from(&key);
            node.workers = wish.workers.unwrap_or(config::DEFAULT_WORKERS);
            node.client_threads = wish.client_threads;
            node.service = wish.service.clone();
            #[cfg(feature = "lab")]
            {
                node.left_out = wish.left_out;
            }
            node.faults_per_10s = wish.faults_per_10s.unwrap_or(node.faults_per_10s);
            node.on_detection = wish.on_detection.unwrap_or_default();
            (node.witness, node.extra_protection) = (wish.witness, wish.extra_protection);
            node.reads = wish.reads;
            node.durability = match &durability {
                Durability::Memory => Durability::Memory,
                Durability::Disk(data) => Durability::Disk(data.join(format!("replica-{}", place.number))),
            };
            node
        };
        let nodes: Vec<NodeConfig<O>> = places.iter().map(node).collect();
        wish.service.check().map_err(|Wrong { flag, what, remedy, .. }| {
            let flag = if flag.is_empty() { String::new() } else { format!(" ({flag})") };
            misuse(format!("{what}; {remedy}{flag}"))
        })?;
        let dresses = vec![Dress::default(); nodes.len()];
        let layout = Layout { mode: wish.mode, places, directory: directory.to_owned() };
        Ok(ClusterPlan { layout, nodes, dresses, key })
    }

    /// The configurations of the replicas; index = number - 1.
    pub fn nodes(&self) -> &[NodeConfig<O>] {
        &self.nodes
    }

    /// The replicas as other commands see them.
    pub fn replicas(&self) -> Vec<ReplicaHandle> {
        let replica = |node: &NodeConfig<O>| ReplicaHandle {
            number: node.this_replica,
            admin: node.admin.clone(),
            clients: Some(node.listen).filter(|_| !node.settings().is_witness()),
        };
        self.nodes.iter().map(replica).collect()
    }

    /// Changes settings that the options do not contain, replica by replica, before anything is written.
    pub fn adapt(&mut self, change: impl FnMut(&mut NodeConfig<O>)) {
        self.nodes.iter_mut().for_each(change);
    }

    /// How a replica's process is started.
    pub fn dress(&self, replica: u8) -> Dress {
        self.dresses.get(usize::from(replica).wrapping_sub(1)).cloned().unwrap_or_default()
    }

    /// The group begins with this backup.
    pub fn restore_from(&mut self, backup: &Path) {
        self.dresses.iter_mut().for_each(|dress| dress.restore = Some(backup.to_owned()));
    }

    /// Changes how a replica's process is started.
    pub fn set_dress(&mut self, replica: u8, dress: Dress) {
        let place = self.dresses.get_mut(usize::from(replica).wrapping_sub(1));
        place.into_iter().for_each(|place| *place = dress.clone());
    }

    /// Changes one replica's configuration, and writes its file again; its next process reads it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn reconfigure(
        &mut self,
        replica: u8,
        change: impl FnOnce(&mut NodeConfig<O>),
    ) -> anyhow::Result<()> {
        let configs = runfile::config_directory(&self.layout.directory, self.layout.port());
        let Some(node) = self.nodes.iter_mut().find(|node| node.this_replica == replica) else {
            return Ok(());
        };
        change(node);
        write_node(node, &configs).map(drop)
    }

    /// Writes each replica's file and the run file; returns the replicas' files.
    ///
    /// # Errors
    /// A directory cannot be written.
    pub fn write(&self) -> anyhow::Result<Vec<PathBuf>> {
        let configs = runfile::config_directory(&self.layout.directory, self.layout.port());
        // No other user may replace a replica's socket, whatever the umask is.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&configs);
        made.with_context(|| format!("making {}", configs.display()))?;
        let mut paths = Vec::new();
        for node in &self.nodes {
            if let Durability::Disk(data) = &node.durability {
                // It will contain clients' values.
                let made = DirBuilder::new().recursive(true).mode(0o700).create(data);
                made.map_err(|error| {
                    let name = data.display();
                    misuse(format!("{name} cannot be made: {error}; give a directory that can be (--data)"))
                })?;
            }
            paths.push(write_node(node, &configs)?);
        }
        if let Some(key) = &self.key {
            GroupKey::keep(key).with_context(|| format!("writing {}", key.display()))?;
        }
        let Layout { mode, places, directory } = &self.layout;
        RunFile::of_this_process(mode.to_string(), places.clone()).write(directory)?;
        Ok(paths)
    }
}

fn write_node<O: ServiceOptions>(node: &NodeConfig<O>, configs: &Path) -> anyhow::Result<PathBuf> {
    let path = configs.join(format!("replica-{}.toml", node.this_replica));
    fs::write(&path, node.to_toml()).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

fn durability<O>(wish: &ClusterOptions<O>) -> anyhow::Result<Durability> {
    match (&wish.data, wish.on_disk) {
        (None, true) => Err(misuse("--durability disk needs a directory for the logs; add --data DIR")),
        (Some(_), false) => {
            Err(misuse("--data is only used with --durability disk; add that, or drop --data"))
        }
        (None, false) => Ok(Durability::Memory),
        (Some(data), true) => {
            // Children read the path from a file; it must not depend on the directory in which they are started.
            let data = std::path::absolute(data).with_context(|| format!("--data {}", data.display()))?;
            Ok(Durability::Disk(data))
        }
    }
}

/// The directory for the socket files of clients, if there is to be one.
fn client_sockets<O>(wish: &ClusterOptions<O>) -> anyhow::Result<Option<PathBuf>> {
    let Some(directory) = &wish.client_sockets else { return Ok(None) };
    let name = format!("--client-sockets {}", directory.display());
    // Children read the path from a file; it must not depend on the directory in which they are started.
    let directory = std::path::absolute(directory).with_context(|| name.clone())?;
    if !directory.is_dir() {
        return Err(misuse(format!("{name}: there is no such directory; make it first")));
    }
    let longest = client_socket(&directory, u8::MAX).path;
    Endpoint::unix(longest).map_err(|(what, remedy)| misuse(format!("{name}: {what}; {remedy}")))?;
    Ok(Some(directory))
}

/// TLS for clients, if there is to be some.
fn tls<O>(wish: &ClusterOptions<O>) -> anyhow::Result<Option<Arc<ClientTls>>> {
    let Some((certificate, key)) = &wish.tls else { return Ok(None) };
    // Children read the paths from a file, as with the sockets.
    let whole = |path: &Path| std::path::absolute(path).with_context(|| path.display().to_string());
    let loaded = ClientTls::load(&whole(certificate)?, &whole(key)?);
    let flag = |is_of_key| if is_of_key { "--tls-key" } else { "--tls-cert" };
    let loaded = loaded.map_err(|problem| misuse(format!("{problem} ({})", flag(problem.is_of_key))))?;
    Ok(Some(Arc::new(loaded)))
}

/// Where a replica serves clients of this machine.
fn client_socket(directory: &Path, replica: u8) -> SocketPath {
    let path = directory.join(format!("replica-{replica}.sock"));
    SocketPath { path, mode: config::DEFAULT_SOCKET_MODE }
}

/// Client ports of `count` replicas, and of a witness if there is one, from `first` on (any free ones when it is 0),
/// one more port per replica for its peers, and a socket file.
fn place(
    first: u16,
    (count, witness): (u8, bool),
    directory: &Path,
) -> anyhow::Result<Vec<ReplicaAddresses>> {
    let count = count + u8::from(witness);
    RunFile::sweep(directory);
    let running = RunFile::all_alive(directory);
    let mut taken: Vec<u16> = running
        .iter()
        .flat_map(|file| &file.replicas)
        .flat_map(|place| [place.clients.port(), place.peers.port()])
        .collect();
    let clients: Vec<u16> = if first == 0 {
        pick(usize::from(count), &taken)?
    } else {
        if let Some(other) = running.iter().find(|file| file.port() == first) {
            return Err(anyhow!(
                "a cluster runs already on port {first} (process {}); stop it with Ctrl-C there or `kill {}`, or \
                 choose another --port",
                other.supervisor,
                other.supervisor
            ));
        }
        client_ports(first, count)?
    };
    taken.extend(&clients);
    let peers = pick(usize::from(count), &taken)?;
    let port = clients.first().copied().unwrap_or(0);
    let place = |(number, (clients, peers)): (u8, (u16, u16))| ReplicaAddresses {
        number,
        clients: loopback(clients),
        peers: loopback(peers),
        admin: runfile::config_directory(directory, port).join(format!("admin-{number}.sock")),
        witness: witness && number == count,
    };
    let places: Vec<ReplicaAddresses> = (1..).zip(clients.into_iter().zip(peers)).map(place).collect();
    for place in &places {
        Endpoint::unix(&place.admin).map_err(|(what, _)| {
            misuse(format!("{what}; set XDG_RUNTIME_DIR to a directory with a shorter path"))
        })?;
    }
    Ok(places)
}

fn client_ports(first: u16, count: u8) -> anyhow::Result<Vec<u16>> {
    let ports: Option<Vec<u16>> = (0..count).map(|step| first.checked_add(u16::from(step))).collect();
    let ports = ports.ok_or_else(|| misuse(format!("there are no {count} ports from {first} on")))?;
    for (number, port) in (1..).zip(&ports) {
        let number: u8 = number;
        TcpListener::bind(loopback(*port)).map_err(|error| {
            anyhow!(
                "port {port}, for the clients of replica {number}, cannot be used: {error}; stop what listens there \
                 or choose another --port (--port 0 takes any free ones)"
            )
        })?;
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options for a service without settings.
    type Wish = super::ClusterOptions<()>;
    type Plan = super::ClusterPlan<()>;

    fn wish(mode: &str) -> Wish {
        Wish { port: Some(0), mode: mode.parse().expect("a mode"), ..Wish::default() }
    }

    #[test]
    fn a_mode_brings_its_number_of_replicas() {
        assert_eq!(Plan::new(&wish("RDGX")).expect("planned").layout.places.len(), 3);
        assert_eq!(Plan::new(&wish("00G0")).expect("planned").layout.places.len(), 1);
        let even = Plan::new(&Wish { replicas: Some(4), ..wish("RD00") }).unwrap_err().to_string();
        assert!(even.contains("use 3 or 5"), "{even}");
    }

    #[test]
    fn every_address_is_used_once() {
        let plan = Plan::new(&Wish { replicas: Some(5), ..wish("RDGX") }).expect("planned");
        let mut ports: Vec<u16> =
            plan.layout.places.iter().flat_map(|place| [place.clients.port(), place.peers.port()]).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 10);
        let mut sockets: Vec<_> = plan.layout.places.iter().map(|place| &place.admin).collect();
        sockets.dedup();
        assert_eq!(sockets.len(), 5);
    }

    #[test]
    fn a_port_in_use_is_told_before_anything_starts() {
        let held = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = held.local_addr().expect("its address").port();
        let told = Plan::new(&Wish { port: Some(port), ..wish("RDGX") }).unwrap_err().to_string();
        assert!(told.contains(&format!("port {port}, for the clients of replica 1")), "{told}");
    }

    #[test]
    fn a_group_has_one_key_which_stays_with_its_logs() {
        let scratch = tempfile::tempdir().expect("a directory");
        let data = Some(scratch.path().join("logs"));
        let disk = Plan::new(&Wish { on_disk: true, data, ..wish("RDGX") }).expect("planned");
        let expected = scratch.path().join("logs/group.key");
        assert!(disk.nodes.iter().all(|node| node.group_key_file.as_ref() == Some(&expected)));
        let write = |plan: &Plan| {
            let configs = plan.write().expect("written");
            let loaded: Vec<_> =
                configs.iter().map(|path| NodeConfig::<()>::load(path).expect("a right file")).collect();
            plan.layout.clean();
            loaded
        };
        let first = write(&disk);
        assert!(
            first[0].group_key.is_some() && first.iter().all(|node| node.group_key == first[0].group_key)
        );
        assert_eq!(write(&disk)[0].group_key, first[0].group_key, "the next start has another key");
        let memory = Plan::new(&wish("RDGX")).expect("planned");
        assert_ne!(write(&memory)[0].group_key, write(&memory)[0].group_key);
        assert_eq!(write(&Plan::new(&wish("00G0")).expect("planned"))[0].group_key, None);
    }

    #[test]
    fn disk_and_directory_come_together() {
        let data = Some(PathBuf::from("logs"));
        assert!(
            Plan::new(&Wish { on_disk: true, ..wish("RDGX") })
                .unwrap_err()
                .to_string()
                .contains("--data DIR")
        );
        assert!(Plan::new(&Wish { data: data.clone(), ..wish("RDGX") }).is_err());
        let plan = Plan::new(&Wish { on_disk: true, data, ..wish("RDGX") }).expect("planned");
        let expected = std::env::current_dir().expect("a directory").join("logs/replica-2");
        assert_eq!(plan.nodes[1].durability, Durability::Disk(expected));
    }
}
