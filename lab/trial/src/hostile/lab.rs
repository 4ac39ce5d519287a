//! A small cluster of this program for one attack, on loopback: it is started, damaged, kept down and restarted, and
//! its output is collected.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use crosscheck::admin::{AdminCommand, EvidenceList, EvidenceRecord, Status};
use tempfile::TempDir;

use super::outcome::Case;
use super::watch;
use crate::replica::limit_memory;
use cli::service::NodeConfig;
use cli::service::{ClusterOptions, ClusterPlan};
use memcached_client::{Client, Failure, KeyCommand};
use node::cluster::{Dress, Keeper, ReplicaHandle, ReplicaRow, SupervisorEvent, named_leader, once};
use node::signals::Ending;

/// How long a cluster may take to come up.
const START: Duration = Duration::from_secs(30);
/// How long replicas may take to stop; their state is no longer needed.
const STOP: Duration = Duration::from_secs(2);
/// Pause between two checks.
const LOOK: Duration = Duration::from_millis(20);
/// How long a client waits for a reply.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Pending requests of one client: their replies fit into the buffers of the two sockets.
const AT_ONCE: usize = 50;
/// The replicas of every cluster.
pub const REPLICAS: [u8; 3] = [1, 2, 3];

/// State that all attacks of a run share.
pub struct HostileRun<'a> {
    ending: &'a Ending,
    log: RefCell<File>,
    attack: Cell<&'static str>,
    cases: RefCell<Vec<Case>>,
}

impl<'a> HostileRun<'a> {
    /// The output of replicas goes into a file of `out`.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn new(ending: &'a Ending, out: &Path) -> anyhow::Result<Self> {
        let path = out.join("replicas.log");
        let log = File::create(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(HostileRun { ending, log: RefCell::new(log), attack: Cell::new(""), cases: RefCell::default() })
    }

    /// Begins the next attack.
    pub fn enter(&self, attack: &'static str) {
        self.attack.set(attack);
    }

    /// Ends the attack, and returns its cases.
    pub fn leave(&self) -> Vec<Case> {
        self.cases.take()
    }

    /// Records a case.
    pub fn record_case(&self, case: Case) {
        case.print();
        self.cases.borrow_mut().push(case);
    }

    /// Starts a cluster, and waits until all replicas serve.
    ///
    /// # Errors
    /// The cluster does not start, or the operator ended the command.
    pub fn cluster(&self, setup: Setup<'_>) -> anyhow::Result<Lab<'_>> {
        let scratch = tempfile::tempdir().context("a directory for the cluster's data")?;
        let data = setup.disk.then(|| scratch.path().join("data"));
        let wish = ClusterOptions {
            port: Some(0),
            workers: Some(setup.workers),
            on_disk: setup.disk,
            data: data.clone(),
            // Injected faults say nothing about this machine.
            faults_per_10s: Some(0),
            ..ClusterOptions::default()
        };
        let mut plan = ClusterPlan::new(&wish)?;
        plan.adapt(|node| (setup.change)(node, scratch.path()));
        for (replica, dress) in setup.dress {
            plan.set_dress(replica, dress);
        }
        let peers = plan.layout.places.iter().map(|place| place.peers).collect();
        let keeper = Keeper::start(&plan, STOP)?;
        let plan = RefCell::new(plan);
        let lab = Lab { run: self, plan, keeper, peers, data, scratch };
        let ready = lab.until(START, |lab| lab.is_whole() || !lab.deaths().is_empty())?;
        match lab.deaths().pop() {
            Some((number, how)) => bail!("replica {number} does not come up: {how}"),
            None => {
                ready.with_context(|| format!("not ready after {} s: {}", START.as_secs(), lab.seen()))?
            }
        };
        // The keeper polls the replicas. If one were killed before it was seen serving, its next process would begin
        // the group a second time.
        REPLICAS.iter().for_each(|number| lab.keeper.supervisor().note_serving(*number, Instant::now()));
        Ok(lab)
    }

    /// Waits for `pause`.
    ///
    /// # Errors
    /// The operator ended the command.
    pub fn sleep(&self, pause: Duration) -> anyhow::Result<()> {
        if self.ending.sleep(pause) {
            bail!("ended by the operator");
        }
        Ok(())
    }
}

/// Changes a replica's configuration; directories may be made below the path.
type ConfigChange<'a> = &'a dyn Fn(&mut NodeConfig, &Path);

/// The differences of a cluster from the default: three replicas in RDGX.
pub struct Setup<'a> {
    /// Threads of each replica that execute requests.
    pub workers: usize,
    /// Whether the log is on disk.
    pub disk: bool,
    /// The change to each replica's configuration.
    pub change: ConfigChange<'a>,
    /// How processes are started.
    pub dress: Vec<(u8, Dress)>,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Setup { workers: 1, disk: false, change: &|_, _| (), dress: Vec::new() }
    }
}

/// A running cluster.
pub struct Lab<'a> {
    run: &'a HostileRun<'a>,
    plan: RefCell<ClusterPlan>,
    /// Its processes and their statuses. Dropped before the directory.
    pub keeper: Keeper,
    peers: Vec<SocketAddr>,
    data: Option<PathBuf>,
    scratch: TempDir,
}

impl Lab<'_> {
    /// The replicas as commands see them.
    pub fn replicas(&self) -> &[ReplicaHandle] {
        &self.keeper.replicas
    }

    /// A replica, from 1.
    pub fn replica(&self, number: u8) -> &ReplicaHandle {
        &self.keeper.replicas[usize::from(number - 1)]
    }

    /// The address of a replica for clients.
    pub fn clients(&self, number: u8) -> SocketAddr {
        self.replica(number).clients.expect("a plan names the clients' addresses")
    }

    /// The address of a replica for its peers.
    pub fn peers(&self, number: u8) -> SocketAddr {
        self.peers[usize::from(number - 1)]
    }

    /// A directory that is removed with the cluster.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The data directory of a replica, with logs on disk.
    pub fn data(&self, number: u8) -> PathBuf {
        self.data.clone().unwrap_or_default().join(format!("replica-{number}"))
    }

    /// A client of a replica.
    ///
    /// # Errors
    /// The replica does not accept.
    pub fn client(&self, number: u8) -> anyhow::Result<Client> {
        Client::connect(self.clients(number), PATIENCE)
            .with_context(|| format!("connecting to replica {number}"))
    }

    /// A replica's status now; none while it is down.
    pub fn status(&self, number: u8) -> Option<Status> {
        self.replica(number).status()
    }

    /// The replica that the others follow.
    ///
    /// # Errors
    /// There is none.
    pub fn leader(&self) -> anyhow::Result<u8> {
        let statuses: Vec<_> = self.replicas().iter().filter_map(ReplicaHandle::status).collect();
        named_leader(&statuses).context("no replica knows a leader")
    }

    /// The evidence records of a replica.
    pub fn evidence(&self, number: u8) -> Vec<EvidenceRecord> {
        let answer: Result<EvidenceList, _> =
            self.replica(number).ask(&AdminCommand::Evidence { after: 0 }, PATIENCE);
        answer.map(|list| list.records).unwrap_or_default()
    }

    /// The process of a replica, while it has one.
    pub fn pid(&self, number: u8) -> Option<u32> {
        self.keeper.supervisor().pid(number)
    }

    /// Limits the address space of a replica's process to its present size and the memory that its limits allow.
    ///
    /// # Errors
    /// It has ended, or may not be limited.
    pub fn fence(&self, number: u8) -> anyhow::Result<()> {
        let pid = self.pid(number).context("a replica without a process")?;
        limit_memory(pid, Some(watch::bound_mb(self) << 20)).context("limiting its address space")
    }

    /// Kills these replicas together; they stay down.
    pub fn down(&self, replicas: &[u8]) {
        let mut supervisor = self.keeper.supervisor();
        replicas.iter().for_each(|number| supervisor.keep_down(*number));
    }

    /// Restarts these replicas.
    pub fn up(&self, replicas: &[u8]) {
        let mut supervisor = self.keeper.supervisor();
        replicas.iter().for_each(|number| supervisor.let_up(*number, Instant::now()));
    }

    /// The memory that each replica may use for clients, by its two limits, in MiB.
    pub fn memory_mb(&self) -> u64 {
        let plan = self.plan.borrow();
        plan.nodes().first().map_or(0, |node| node.service.memory_limit_mb + node.buffer_limit_mb)
    }

    /// Changes a replica's configuration; its next process reads it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn reconfigure(&self, number: u8, change: impl FnOnce(&mut NodeConfig)) -> anyhow::Result<()> {
        self.plan.borrow_mut().reconfigure(number, change)
    }

    /// Waits until a condition holds; returns how long that took, or none after `patience`.
    ///
    /// # Errors
    /// The operator ended the command.
    pub fn until(
        &self,
        patience: Duration,
        mut is_so: impl FnMut(&Self) -> bool,
    ) -> anyhow::Result<Option<Duration>> {
        let began = Instant::now();
        loop {
            if is_so(self) {
                return Ok(Some(began.elapsed()));
            }
            if began.elapsed() > patience {
                return Ok(None);
            }
            self.run.sleep(LOOK)?;
        }
    }

    /// Whether all replicas serve, and are connected to each other.
    pub fn is_whole(&self) -> bool {
        let is_whole = |row: &ReplicaRow| {
            row.is_ready() && row.serving().is_some_and(|status| status.peers.len() + 1 == REPLICAS.len())
        };
        once(self.replicas()).iter().all(is_whole)
    }

    /// Waits until these replicas serve.
    ///
    /// # Errors
    /// The operator ended the command.
    pub fn until_served(&self, replicas: &[u8], patience: Duration) -> anyhow::Result<Option<Duration>> {
        self.until(patience, |lab| {
            let rows = once(lab.replicas());
            let ready = |number: &u8| rows[usize::from(*number - 1)].is_ready();
            replicas.iter().all(ready)
        })
    }

    /// The state of each replica, for messages.
    pub fn seen(&self) -> String {
        let shown = |row: ReplicaRow| match row.seen {
            Ok(status) => format!("replica {} {:?}", status.replica, status.phase),
            Err(why) => format!("replica {}: {why}", row.replica.number),
        };
        once(self.replicas()).into_iter().map(shown).collect::<Vec<_>>().join(", ")
    }

    /// Lines of a replica's stderr with these words.
    pub fn said(&self, number: u8, words: &str) -> Vec<String> {
        let mut lines = self.keeper.events.lines(number);
        lines.retain(|line| line.contains(words));
        lines
    }

    /// Processes that ended by themselves: the replica, and how it ended.
    pub fn deaths(&self) -> Vec<(u8, String)> {
        self.keeper.events.deaths()
    }

    /// Discards the events so far; what replicas said is written to the log.
    pub fn forget(&self) {
        let mut log = self.run.log.borrow_mut();
        for event in self.keeper.events.take() {
            if let SupervisorEvent::Said { replica, line } = event {
                // Without the file, the events are still evaluated.
                let _ = writeln!(log, "{}: replica {replica}: {line}", self.run.attack.get());
            }
        }
    }

    /// Checks that no process ended by itself since [`Lab::forget`].
    pub fn check_alive(&self, case: &mut Case) {
        let deaths = self.deaths();
        let ended: Vec<String> =
            deaths.iter().map(|(number, how)| format!("replica {number}: {how}")).collect();
        let seen = if ended.is_empty() { "0 ended".to_owned() } else { ended.join("; ") };
        case.check(deaths.is_empty(), "no replica's process ends", seen);
    }

    /// Stores values through one replica, each acknowledged; [`Lab::check_stored`] reads them later.
    ///
    /// # Errors
    /// One is not.
    pub fn store(&self, through: u8, name: &str, count: usize, bytes: usize) -> anyhow::Result<()> {
        let mut client = self.client(through)?;
        for some in Vec::from_iter(0..count).chunks(AT_ONCE) {
            for number in some {
                client.queue_set(&format!("{name}-{number}"), 0, &value(name, *number, bytes));
            }
            client.flush()?;
            some.iter().try_for_each(|_| client.take_stored())?;
        }
        Ok(())
    }

    /// Checks that the stored values are returned by each of these replicas, byte by byte.
    pub fn check_stored(&self, case: &mut Case, at: &[u8], name: &str, count: usize, bytes: usize) {
        let missing: Vec<String> = at
            .iter()
            .map(|number| match self.missing(*number, name, count, bytes) {
                Ok(missing) => missing.to_string(),
                Err(why) => why.to_string(),
            })
            .collect();
        let what =
            format!("{} acknowledged values are there, at every replica", node::view::grouped(count as u64));
        let holds = missing.iter().all(|missing| missing == "0");
        case.check(holds, what, format!("{} missing or wrong", missing.join(" / ")));
    }

    fn missing(&self, number: u8, name: &str, count: usize, bytes: usize) -> Result<usize, Failure> {
        let mut client = Client::connect(self.clients(number), PATIENCE)?;
        let (mut missing, numbers) = (0, Vec::from_iter(0..count));
        for some in numbers.chunks(AT_ONCE) {
            some.iter().for_each(|number| client.queue(format!("{name}-{number}"), KeyCommand::GET));
            client.flush()?;
            for number in some {
                let found = client.take_value(&format!("{name}-{number}"))?;
                missing += usize::from(found.is_none_or(|found| found.bytes != value(name, *number, bytes)));
            }
        }
        Ok(missing)
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        self.forget();
    }
}

/// A value that contains its name.
fn value(name: &str, number: usize, bytes: usize) -> Vec<u8> {
    let text = format!("{name}.{number}.");
    text.bytes().cycle().take(bytes.max(1)).collect()
}
