//! A cluster of real processes, started the way an operator starts one, that never outlives the test.

use crosscheck::admin::Endpoint;
use crosscheck::admin::client::Link;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Clusters of one test binary run one after another: each should have the machine for itself.
static TURN: Mutex<()> = Mutex::new(());

/// How long a cluster, or a corrupted replica, may take to serve. Generous: machines of CI are slow.
pub const PATIENCE: Duration = Duration::from_secs(60);

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
}

impl Default for Wish {
    fn default() -> Self {
        Wish { replicas: 3, mode: "RDGX", workers: 2, disk: false, witness: false, reads: "batch" }
    }
}

/// A running cluster; replicas are counted from 0 here, as in an array.
pub struct Cluster {
    supervisor: Child,
    told: Arc<Mutex<Vec<Value>>>,
    clients: Vec<SocketAddr>,
    admin: Vec<Endpoint>,
    data: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Cluster {
    /// Starts a cluster and waits until all replicas serve.
    pub fn up(wish: &Wish) -> Cluster {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let data = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_crosscheck"));
        command.args(["up", "--json", "--port", "0", "--mode", wish.mode]);
        command.args(["--replicas", &wish.replicas.to_string(), "--workers", &wish.workers.to_string()]);
        command.args(["--reads", wish.reads]);
        if wish.witness {
            command.arg("--witness");
        }
        if wish.disk {
            command.args(["--durability", "disk", "--data"]).arg(data.path().join("log"));
        }
        let mut supervisor = command
            .env("XDG_RUNTIME_DIR", data.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the crosscheck command starts");
        let told = listen(&mut supervisor);
        let mut cluster = Cluster { supervisor, told, clients: vec![], admin: vec![], data, _turn: turn };
        cluster.wait_until("the cluster is ready, or has given up", |cluster| {
            !cluster.events("ready").is_empty() || cluster.supervisor_is_gone()
        });
        assert!(!cluster.events("ready").is_empty(), "`crosscheck up` gave up: {:#?}", cluster.told());
        let text = |event: &Value, name: &str| event[name].as_str().expect("an address").to_owned();
        let places = cluster.events("replica");
        assert_eq!(places.len(), wish.replicas + usize::from(wish.witness), "{places:?}");
        let replicas = places.iter().filter(|event| event["witness"] != true);
        let clients = replicas.map(|event| text(event, "clients").parse().expect("host and port"));
        cluster.clients = clients.collect();
        cluster.admin = places.iter().map(|event| Endpoint::Unix(text(event, "admin").into())).collect();
        cluster
    }

    /// The addresses for clients, by replica.
    pub fn clients(&self) -> &[SocketAddr] {
        &self.clients
    }

    /// The directory of a replica's log.
    pub fn data_of(&self, replica: usize) -> std::path::PathBuf {
        self.data.path().join("log").join(format!("replica-{}", replica + 1))
    }

    /// All output of `up` so far.
    pub fn told(&self) -> Vec<Value> {
        self.told.lock().expect("the reader does not panic").clone()
    }

    /// The messages of all replicas, each after the number of its replica.
    pub fn said(&self) -> Vec<String> {
        let line = |event: Value| event["line"].as_str().map(|line| format!("{}: {line}", event["replica"]));
        self.events("said").into_iter().filter_map(line).collect()
    }

    /// Messages of replicas that discarded their state to receive that of their peers.
    pub fn replaced(&self) -> Vec<String> {
        let is_of_one =
            |line: &String| line.contains("has to be replaced") || line.contains("did not arrive");
        self.said().into_iter().filter(is_of_one).collect()
    }

    fn events(&self, kind: &str) -> Vec<Value> {
        self.told().into_iter().filter(|event| event["event"] == kind).collect()
    }

    /// Sends a command to a replica's admin socket; `None` when it does not answer.
    pub fn try_ask(&self, replica: usize, command: &Value) -> Option<Value> {
        let mut link = Link::new(self.admin[replica].clone());
        let answer = link.exchange(&format!("{command}\n"), Duration::from_secs(35)).ok()?;
        serde_json::from_str(&answer).ok()
    }

    /// Sends a command to a replica until it answers: one that is badly corrupted replaces itself, and is soon back.
    pub fn ask(&self, replica: usize, command: &Value) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = self.try_ask(replica, command) {
                return answer;
            }
            assert!(
                Instant::now() < deadline,
                "replica {} does not answer {command}\n{}",
                replica + 1,
                self.seen()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
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
        self.try_ask(replica, &json!({"cmd": "status"}))
    }

    /// The replica that most others follow now.
    pub fn leader(&self) -> usize {
        let mut found = 0;
        self.wait_until("there is a leader", |cluster| {
            let named: Vec<u64> = (0..cluster.admin.len())
                .filter_map(|replica| cluster.status(replica)?["leader"].as_u64())
                .collect();
            let most =
                named.iter().copied().max_by_key(|leader| named.iter().filter(|n| *n == leader).count());
            found = most.unwrap_or(0) as usize;
            found > 0
        });
        found - 1
    }

    /// The process of a replica: the one that `up` started last.
    pub fn pid(&self, replica: usize) -> u32 {
        let started = self.events("started");
        let last = started.iter().rev().find(|event| event["replica"] == replica + 1);
        last.expect("`up` says whom it starts")["pid"].as_u64().expect("a process id") as u32
    }

    /// Sends a signal to a replica.
    pub fn signal(&self, replica: usize, signal: Signal) {
        let pid = Pid::from_raw(self.pid(replica) as i32).expect("process ids are positive");
        kill_process(pid, signal).expect("the replica's process is there");
    }

    /// Waits until every replica reports that it serves.
    pub fn wait_serving(&self) {
        self.wait_until("all replicas serve", |cluster| {
            (0..cluster.admin.len())
                .all(|replica| cluster.status(replica).is_some_and(|status| status["phase"] == "serving"))
        });
    }

    /// Waits until replicas report equal digests of the state, taken at one position; fails with the digests if they
    /// stay unequal.
    pub fn assert_equal_state(&self) {
        let digests = self.settled_digests(PATIENCE / 2);
        let first = &digests[0];
        assert!(
            digests.iter().all(|digest| digest["digest"] == first["digest"]),
            "states differ: {digests:#?}"
        );
        assert!(first["digest"].is_string(), "no digests: {digests:?}");
    }

    /// Digests by replica, requested until all are equal, or `limit` has passed.
    pub fn settled_digests(&self, limit: Duration) -> Vec<Value> {
        let deadline = Instant::now() + limit;
        loop {
            let digests = self.digests();
            let equal = |name: &str| {
                digests[0][name] == digests[digests.len() - 1][name]
                    && digests.windows(2).all(|pair| pair[0][name] == pair[1][name])
            };
            if (digests[0]["digest"].is_string() && equal("digest")) || Instant::now() > deadline {
                return digests;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Every replica's digest of one position of the log, while requests go on.
    fn digests(&self) -> Vec<Value> {
        // A replica that is replacing itself answers later; until then its digest is null, and equal to no other.
        let ask = |replica, command: &Value| self.try_ask(replica, command).unwrap_or(Value::Null);
        let first = ask(0, &json!({"cmd": "digest"}));
        let at = json!({"cmd": "digest", "at": {"index": first["index"], "ticket": first["ticket"]}});
        // A witness, the last one, has no state.
        let others = (1..self.clients.len()).map(|replica| ask(replica, &at));
        std::iter::once(first.clone()).chain(others).collect()
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

    /// For messages: the last output of `up`, and the state of every replica.
    pub fn seen(&self) -> String {
        let told = self.told().into_iter().rev().take(8).map(|event| format!("  told: {event}\n"));
        let statuses = (0..self.admin.len()).map(|replica| match self.status(replica) {
            Some(status) => format!("  replica {}: {status}\n", replica + 1),
            None => format!("  replica {}: no answer\n", replica + 1),
        });
        told.chain(statuses).collect()
    }

    /// Sends Ctrl-C: the cluster must stop cleanly, and leave no process.
    pub fn finish(mut self) {
        self.end(Signal::INT);
        let exit = self.supervisor.wait().expect("it was waited for");
        assert!(
            exit.success(),
            "`crosscheck up` ended with {exit} after Ctrl-C: {:?}",
            self.events("stopped")
        );
        for pid in self.pids() {
            assert!(!is_crosscheck(pid), "replica process {pid} outlived the cluster");
        }
    }

    fn supervisor_is_gone(&self) -> bool {
        !is_crosscheck(self.supervisor.id())
    }

    fn pids(&self) -> Vec<u32> {
        self.events("started")
            .iter()
            .filter_map(|event| event["pid"].as_u64())
            .map(|pid| pid as u32)
            .collect()
    }

    fn end(&mut self, signal: Signal) {
        let pid = Pid::from_raw(self.supervisor.id() as i32).expect("process ids are positive");
        if matches!(self.supervisor.try_wait(), Ok(None)) {
            let _ = kill_process(pid, signal);
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while matches!(self.supervisor.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Cluster {
    /// A failed test leaves no process running: only processes that this cluster started are ended.
    fn drop(&mut self) {
        self.end(Signal::TERM);
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
        for pid in self.pids() {
            if is_crosscheck(pid)
                && let Some(pid) = Pid::from_raw(pid as i32)
            {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Whether a process is still the program we started, and not another one with the same id.
fn is_crosscheck(pid: u32) -> bool {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
    exe.is_ok_and(|exe| exe == std::path::Path::new(env!("CARGO_BIN_EXE_crosscheck")))
}

/// Collects the JSON lines of `up`.
fn listen(supervisor: &mut Child) -> Arc<Mutex<Vec<Value>>> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (lines, into) = (BufReader::new(supervisor.stdout.take().expect("piped")), told.clone());
    std::thread::spawn(move || {
        for line in lines.lines().map_while(Result::ok) {
            let event: Value = serde_json::from_str(&line).unwrap_or(Value::String(line));
            // Status lines come continuously; tests request a status directly where they need one.
            if event["event"] != "status" {
                into.lock().expect("nobody panics while it is held").push(event);
            }
        }
    });
    told
}
