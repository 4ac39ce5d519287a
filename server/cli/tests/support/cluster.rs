//! A cluster of real processes, started the way an operator starts one, for tests that fail with its last words.

use crosscheck::admin::AdminCommand;
use crosscheck::admin::client::Link;
use node::cluster::{DetachedCluster, SupervisorEvent, named_leader, send_signal};
use node::digest::{self, DigestAnswer};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Clusters that run now, and the end of one. Most of a test is waiting, but a cluster is six busy threads: no more
/// than two of them at a time, however many tests the harness runs.
static RUNNING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());
const AT_ONCE: usize = 2;

/// Permission for one cluster to run.
struct Turn;

impl Turn {
    fn take() -> Turn {
        let running = RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running = RUNNING
            .1
            .wait_while(running, |running| *running == AT_ONCE)
            .unwrap_or_else(PoisonError::into_inner);
        *running += 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        RUNNING.1.notify_one();
    }
}

/// How long a cluster, or a corrupted replica, may take to serve. Generous: machines of CI are slow.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(35);

/// The options of a cluster.
#[derive(Clone, Debug)]
pub struct Wish {
    /// How many replicas.
    pub replicas: usize,
    /// The paper's letters.
    pub mode: &'static str,
    /// Worker threads of each replica.
    pub workers: usize,
    /// Whether the log is on disk.
    pub disk: bool,
    /// Whether there is a witness besides.
    pub witness: bool,
    /// How requests that only read are answered.
    pub reads: &'static str,
    /// Faults of a replica within 10 s at which it ends as broken hardware; 0 = never.
    pub faults_per_10s: u32,
    /// Milliseconds until a replica that ended is started again; none = as `up` does by itself.
    pub restart_after: Option<u32>,
    /// The backup that it begins with.
    pub restore: Option<PathBuf>,
    /// Memory for items in the replicas' files, in MiB.
    pub memory_mb: u64,
}

impl Default for Wish {
    fn default() -> Self {
        Wish {
            replicas: 3,
            mode: "RDGX",
            workers: 2,
            disk: false,
            witness: false,
            reads: "batch",
            faults_per_10s: 0,
            restart_after: None,
            restore: None,
            memory_mb: 64,
        }
    }
}

/// A running cluster; replicas are counted from 0 here, as in an array.
pub struct Cluster {
    up: DetachedCluster,
    clients: Vec<SocketAddr>,
    data: tempfile::TempDir,
    _turn: Turn,
}

impl Cluster {
    /// Starts a cluster and waits until all replicas serve.
    pub fn up(wish: &Wish) -> Cluster {
        let turn = Turn::take();
        let data = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_crosscheck"));
        command.args(["up", "--json", "--port", "0", "--mode", wish.mode]);
        command.args(["--replicas", &wish.replicas.to_string(), "--workers", &wish.workers.to_string()]);
        command.args(["--reads", wish.reads]).env("XDG_RUNTIME_DIR", data.path());
        command.args(["--faults-per-10s", &wish.faults_per_10s.to_string()]);
        command.args(["--memory", &wish.memory_mb.to_string()]);
        if let Some(pause) = wish.restart_after {
            command.args(["--restart-after", &pause.to_string()]);
        }
        if let Some(backup) = &wish.restore {
            command.arg("--restore").arg(backup);
        }
        if wish.witness {
            command.arg("--witness");
        }
        if wish.disk {
            command.args(["--durability", "disk", "--data"]).arg(data.path().join("log"));
        }
        let up = DetachedCluster::start(&mut command, PATIENCE).unwrap_or_else(|why| panic!("{why:#}"));
        assert_eq!(up.replicas.len(), wish.replicas + usize::from(wish.witness), "{:?}", up.replicas);
        let clients = up.replicas.iter().filter_map(|replica| replica.clients).collect();
        Cluster { up, clients, data, _turn: turn }
    }

    /// The addresses for clients, by replica.
    pub fn clients(&self) -> &[SocketAddr] {
        &self.clients
    }

    /// The admin socket of a replica, as an option of a command.
    pub fn admin_of(&self, replica: usize) -> String {
        self.up.replicas[replica].admin.to_string()
    }

    /// The directory of a replica's log.
    pub fn data_of(&self, replica: usize) -> PathBuf {
        self.data.path().join("log").join(format!("replica-{}", replica + 1))
    }

    /// The configuration file of a replica.
    pub fn config_of(&self, replica: usize) -> PathBuf {
        let admin = PathBuf::from(self.admin_of(replica));
        admin.parent().expect("a directory").join(format!("replica-{}.toml", replica + 1))
    }

    /// The messages of one replica.
    pub fn lines(&self, replica: usize) -> Vec<String> {
        self.up.events.lines(replica as u8 + 1)
    }

    /// The messages of all replicas.
    pub fn said(&self) -> Vec<String> {
        (0..self.up.replicas.len()).flat_map(|replica| self.lines(replica)).collect()
    }

    /// What happened to the replicas' processes.
    pub fn events(&self) -> Vec<SupervisorEvent> {
        self.up.events.all()
    }

    /// Messages of replicas that discarded their state to receive that of their peers.
    pub fn replaced(&self) -> Vec<String> {
        let is_of_one =
            |line: &String| line.contains("has to be replaced") || line.contains("did not arrive");
        self.said().into_iter().filter(is_of_one).collect()
    }

    /// Replicas that ended because of broken hardware.
    pub fn drained(&self) -> Vec<usize> {
        let drained = |event| match event {
            SupervisorEvent::Drained { replica, .. } => Some(usize::from(replica) - 1),
            _ => None,
        };
        self.events().into_iter().filter_map(drained).collect()
    }

    /// Sends a command, as its JSON, to a replica's admin socket; `None` when it does not answer.
    pub fn try_ask(&self, replica: usize, command: &Value) -> Option<Value> {
        let mut link = Link::new(self.up.replicas[replica].admin.clone());
        let answer = link.exchange(&format!("{command}\n"), ANSWER).ok()?;
        serde_json::from_str(&answer).ok()
    }

    /// Sends a command to a replica until it answers: one that is badly corrupted replaces itself, and is soon back.
    pub fn ask(&self, replica: usize, command: &Value) -> Value {
        let mut answer = None;
        self.wait_until(&format!("replica {} answers {command}", replica + 1), |cluster| {
            answer = cluster.try_ask(replica, command);
            answer.is_some()
        });
        answer.expect("it was waited for")
    }

    /// Runs another command for this cluster; returns its exit code and output.
    pub fn command(&self, arguments: &[&str]) -> (i32, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_crosscheck"))
            .args(arguments)
            .env("XDG_RUNTIME_DIR", self.data.path())
            .output()
            .expect("the crosscheck command starts");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
    }

    /// A replica's status; `None` while it is down or stopped.
    pub fn status(&self, replica: usize) -> Option<Value> {
        self.up.replicas[replica].ask(&AdminCommand::Status, ANSWER).ok()
    }

    /// The replica that most others follow now.
    pub fn leader(&self) -> usize {
        let mut found = None;
        self.wait_until("there is a leader", |cluster| {
            let statuses: Vec<_> =
                cluster.up.replicas.iter().filter_map(|replica| replica.status()).collect();
            found = named_leader(&statuses);
            found.is_some()
        });
        usize::from(found.expect("it was waited for")) - 1
    }

    /// The process of a replica: the one that `up` started last.
    pub fn pid(&self, replica: usize) -> u32 {
        *self.up.events.pids(replica as u8 + 1).last().expect("`up` says whom it starts")
    }

    /// Sends a signal to a replica.
    pub fn signal(&self, replica: usize, signal: Signal) {
        assert!(send_signal(self.pid(replica), signal), "the replica's process is there");
    }

    /// Waits until every replica reports that it serves.
    pub fn wait_serving(&self) {
        self.wait_until("all replicas serve", |cluster| {
            (0..cluster.up.replicas.len())
                .all(|replica| cluster.status(replica).is_some_and(|status| status["phase"] == "serving"))
        });
    }

    /// Waits until replicas report equal digests of the state, taken at one position; fails with the digests if they
    /// stay unequal.
    pub fn assert_equal_state(&self) {
        let digests = self.settled_digests(PATIENCE / 2);
        assert_eq!(digest::compare(&digests), Ok(()), "states differ: {digests:#?}");
    }

    /// Digests by replica, requested until all are equal, or `limit` has passed.
    pub fn settled_digests(&self, limit: Duration) -> Vec<DigestAnswer> {
        let deadline = Instant::now() + limit;
        loop {
            // A witness, the last one, has no state.
            let digests = digest::round(&self.up.replicas[..self.clients.len()], ANSWER);
            if digest::compare(&digests).is_ok() || Instant::now() > deadline {
                return digests;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Evidence records that a replica keeps, after number `after`.
    pub fn evidence(&self, replica: usize, after: u64) -> Vec<Value> {
        let answer = self.ask(replica, &json!({"cmd": "evidence", "after": after}));
        answer["records"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until a condition holds, and fails if it does not.
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut(&Cluster) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "waited {PATIENCE:?} until {what}\n{}", self.seen());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// For messages: the last events, and the state of every replica.
    pub fn seen(&self) -> String {
        let statuses: Vec<_> = (0..self.up.replicas.len()).map(|replica| self.status(replica)).collect();
        format!("{}\n{statuses:#?}", self.up.last_events())
    }

    /// Sends Ctrl-C: the cluster must stop cleanly, and leave no process.
    pub fn finish(mut self) {
        let exit = self.up.stop(Signal::INT).expect("`crosscheck up` ends after Ctrl-C");
        assert!(exit.success(), "`crosscheck up` ended with {exit} after Ctrl-C: {}", self.up.last_events());
        assert_eq!(self.up.living(), [0; 0], "processes of replicas outlived the cluster");
    }
}
