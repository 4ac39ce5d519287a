//! The replicas of a run as a supervisor keeps them, and what their statuses said so far.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use cli::service::lab;
use crosscheck::admin::{
    AdminCommand, EvidenceList, EvidenceRecord, ReplicaPhase, StateDigest, Status, VerificationStatus,
};
use node::cluster::{
    self, ClusterHooks, KeeperOptions, Polling, Process, ReplicaHandle, SupervisorEvent, named_leader,
    send_signal,
};
use node::digest;
use rustix::process::Signal;
use serde::Serialize;

use crate::announce::Announcer;
use crate::plan::Plan;
use crate::releases::Releases;
use crate::replica::{self, limit_memory};
use crate::testbed::Testbed;

/// Pause between two requests for a status.
const WATCH: Duration = Duration::from_millis(20);
/// A status that is older does not count.
const FRESH: Duration = Duration::from_secs(1);
/// A replica that ended by itself is restarted after this long.
const PAUSE: Duration = Duration::from_millis(200);
/// How long replicas may take to stop.
const STOP: Duration = Duration::from_secs(5);
/// How long a replica that replaced itself may have been faulty before its process ended.
const UNWELL: Duration = Duration::from_secs(1);
/// How long its clients may take to move to other replicas.
const SETTLE: Duration = Duration::from_secs(2);
/// How long a replica may take to compute the digest of its whole state.
const DIGEST: Duration = Duration::from_secs(10);

/// The unexpected end of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Death {
    /// The replica, from 1.
    pub replica: u8,
    /// When, in nanoseconds of the run.
    pub at: u64,
    /// Its exit status as text.
    pub how: String,
}

/// What a replica reported in its status, summed over its processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Requests on which replicas disagreed.
    pub mismatches: u64,
    /// Objects it had repaired.
    pub repairs: u64,
    /// Entry checks that failed.
    pub failed_checks: u64,
    /// Frames dropped for their checksum.
    pub dropped_frames: u64,
    /// How often it took batches back: with every view that began after batches were executed, and where replicas
    /// differed.
    pub rollbacks: u64,
    /// Requests that it executed.
    pub requests: u64,
    /// Processes it had.
    pub processes: u64,
    /// How often it lost its memory or its place and received its state from its peers: incarnations after the first.
    pub state_transfers: u64,
}

#[derive(Debug, Default)]
struct WatchedReplica {
    /// The last status, and when it was asked for.
    last: Option<(Instant, Status)>,
    totals: Totals,
    incarnations: BTreeSet<u64>,
}

/// What was seen of the replicas, and where they are started.
#[derive(Debug)]
struct Sight {
    /// The program that replicas are; none: this one.
    program: Option<PathBuf>,
    /// The release that each replica's next process is.
    releases: Mutex<Releases>,
    testbed: Arc<Testbed>,
    watched: Vec<Mutex<WatchedReplica>>,
    deaths: Mutex<Vec<Death>>,
    announcer: Arc<Announcer>,
    logs: Vec<Mutex<File>>,
}

impl Sight {
    fn watched(&self, number: usize) -> MutexGuard<'_, WatchedReplica> {
        self.watched[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn releases(&self) -> MutexGuard<'_, Releases> {
        self.releases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClusterHooks for Sight {
    fn spawn(&self, replica: u8, command: Command) -> std::io::Result<Process> {
        let mut command = match &self.program {
            None => command,
            Some(program) => in_place_of(&command, program),
        };
        command.env(lab::RELEASE, self.releases().of(usize::from(replica) - 1).to_string());
        self.testbed.hosts[usize::from(replica) - 1]
            .run(move || Process::spawn(command, Stdio::null(), Stdio::piped()))
    }

    fn event(&self, event: &SupervisorEvent) {
        match event {
            SupervisorEvent::Started { .. } => {}
            SupervisorEvent::Died { replica, how, .. }
            | SupervisorEvent::Drained { replica, why: how }
            | SupervisorEvent::Hopeless { replica, why: how, .. } => {
                self.announcer.replaced(*replica, UNWELL, SETTLE, how);
                let death = Death { replica: *replica, at: self.announcer.now(), how: how.clone() };
                self.deaths.lock().unwrap_or_else(PoisonError::into_inner).push(death);
            }
            SupervisorEvent::Said { replica, line } => {
                let mut log =
                    self.logs[usize::from(*replica) - 1].lock().unwrap_or_else(PoisonError::into_inner);
                // The line is also kept in memory.
                let _ = writeln!(log, "{line}");
            }
        }
    }

    fn status(&self, replica: u8, requested_at: Instant, status: &Status) {
        if self.watched(usize::from(replica) - 1).record(requested_at, status.clone()) {
            self.announcer.replaced(replica, UNWELL, SETTLE, "it took the state of the others in place");
        }
    }
}

/// The same command with another program.
fn in_place_of(command: &Command, program: &Path) -> Command {
    let mut other = Command::new(program);
    other.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

/// The replicas of a run, counted from 0; they end when this is dropped.
#[derive(Debug)]
pub struct Keeper {
    cluster: cluster::Keeper,
    sight: Arc<Sight>,
}

impl Keeper {
    /// Starts the replicas of `plan` on their hosts, and supervises them; each is `program`, or this one. Their
    /// files are below `dir`, and their output goes to the files that `log` names.
    ///
    /// # Errors
    /// A file cannot be written, or no thread can be started.
    pub fn start(
        testbed: &Arc<Testbed>,
        plan: &Plan,
        program: Option<PathBuf>,
        dir: &Path,
        log: impl Fn(usize) -> PathBuf,
        announcer: &Arc<Announcer>,
    ) -> anyhow::Result<Arc<Self>> {
        let planned = replica::cluster(testbed, plan, dir)?;
        let open = |number| {
            let path = log(number);
            let file = OpenOptions::new().create(true).write(true).truncate(true).open(&path);
            file.map(Mutex::new).with_context(|| format!("making {}", path.display()))
        };
        let sight = Arc::new(Sight {
            program,
            releases: Mutex::new(Releases::new(plan.replicas)),
            testbed: Arc::clone(testbed),
            watched: (0..plan.replicas).map(|_| Mutex::default()).collect(),
            deaths: Mutex::default(),
            announcer: Arc::clone(announcer),
            logs: (0..plan.replicas).map(open).collect::<anyhow::Result<_>>()?,
        });
        let options = KeeperOptions {
            restart_after: Some(PAUSE),
            polling: Polling { pause: WATCH, patience: FRESH / 2 },
            hooks: Arc::clone(&sight) as Arc<dyn ClusterHooks>,
            ..KeeperOptions::new(STOP)
        };
        Ok(Arc::new(Keeper { cluster: cluster::Keeper::start_with(&planned, options)?, sight }))
    }

    /// The replicas, as commands see them.
    pub fn replicas(&self) -> &[ReplicaHandle] {
        &self.cluster.replicas
    }

    /// The replicas that execute requests: a witness does not.
    pub fn executors(&self) -> Vec<usize> {
        (0..self.size()).filter(|number| self.replicas()[*number].clients.is_some()).collect()
    }

    /// The number of replicas.
    pub fn size(&self) -> usize {
        self.replicas().len()
    }

    /// Kills a replica and keeps it down, or lets it come back.
    pub fn keep_down(&self, number: usize, down: bool) {
        let (mut supervisor, replica) = (self.cluster.supervisor(), number as u8 + 1);
        match down {
            true => supervisor.keep_down(replica),
            false => supervisor.let_up(replica, Instant::now()),
        }
    }

    /// Stops a replica as an operator would, and keeps it down.
    pub fn shut_down(&self, number: usize, patience: Duration) {
        self.cluster.supervisor().release(number as u8 + 1);
        let deadline = Instant::now() + patience;
        while self.pid(number).is_some() && Instant::now() < deadline {
            thread::sleep(WATCH);
        }
        self.keep_down(number, true);
    }

    /// Replicas that may become of another release now.
    pub fn upgradable(&self, choice: u64) -> Vec<usize> {
        self.sight.releases().due(choice)
    }

    /// Ends a replica's process, and keeps it down; the next one is of another release. Returns both releases.
    pub fn upgrade(&self, number: usize, is_killed: bool) -> (u16, u16) {
        if !is_killed {
            self.shut_down(number, STOP);
        }
        self.keep_down(number, true);
        self.sight.releases().change(number)
    }

    /// Stops a replica's process where it is, or lets it continue.
    pub fn freeze(&self, number: usize, freeze: bool) {
        // If it has ended already, there is no process to stop.
        self.pid(number).map(|pid| send_signal(pid, if freeze { Signal::STOP } else { Signal::CONT }));
    }

    /// Limits a replica's address space to its present size and `more` bytes; none: no limit.
    pub fn limit_memory(&self, number: usize, more: Option<u64>) {
        // If it has ended already, there is no process to limit.
        let _ = self.pid(number).map(|pid| limit_memory(pid, more));
    }

    /// The process of a replica, while it runs.
    pub fn pid(&self, number: usize) -> Option<u32> {
        self.cluster.supervisor().pid(number as u8 + 1)
    }

    /// Lines of a replica's output that contain `word`.
    pub fn said(&self, number: usize, word: &str) -> Vec<String> {
        let mut lines = self.cluster.events.lines(number as u8 + 1);
        lines.retain(|line| line.contains(word));
        lines
    }

    /// The last `count` lines of a replica's output.
    pub fn last_lines(&self, number: usize, count: usize) -> Vec<String> {
        let mut lines = self.said(number, "");
        lines.split_off(lines.len().saturating_sub(count))
    }

    /// Stops the replicas.
    pub fn stop(&self) {
        (0..self.size()).for_each(|number| self.freeze(number, false));
        self.cluster.stop();
    }

    /// A replica's latest status, unless it is old.
    pub fn status(&self, number: usize) -> Option<Status> {
        let watched = self.watched(number);
        let (at, status) = watched.last.as_ref()?;
        (at.elapsed() < FRESH).then(|| status.clone())
    }

    /// A replica's last status, however old, and its age.
    pub fn last_status(&self, number: usize) -> Option<(Duration, Status)> {
        self.watched(number).last.as_ref().map(|(at, status)| (at.elapsed(), status.clone()))
    }

    /// Whether every replica has answered a request for its status that was sent after `since`.
    pub fn all_answered_since(&self, since: Instant) -> bool {
        (0..self.size()).all(|number| self.status_since(number, since).is_some())
    }

    /// The status that a replica gave to a request sent after `since`.
    pub fn status_since(&self, number: usize, since: Instant) -> Option<Status> {
        self.watched(number).last.as_ref().filter(|(at, _)| *at > since).map(|(_, status)| status.clone())
    }

    /// How many further replicas may fail, as the leader says in a status that was asked for after `since`; 0 where
    /// none leads. None while that is not known yet.
    pub fn tolerates(&self, since: Instant) -> Option<u8> {
        let statuses: Vec<Option<Status>> =
            (0..self.size()).map(|number| self.status_since(number, since)).collect();
        let has_answer = statuses.iter().flatten().next().is_some();
        let Some(leader) = named_leader(statuses.iter().flatten()) else { return has_answer.then_some(0) };
        if statuses[usize::from(leader) - 1].is_none() {
            // A leader that does not answer for so long says nothing more.
            return self.status(usize::from(leader) - 1).is_none().then_some(0);
        }
        // One that was deposed and does not know it yet may say more than holds.
        let leads = |status: &&Status| status.replica == leader || status.leader == Some(status.replica);
        statuses.iter().flatten().filter(leads).map(|status| status.tolerates).min()
    }

    /// The sums of a replica's reports so far.
    pub fn totals(&self, number: usize) -> Totals {
        let watched = self.watched(number);
        let state_transfers = watched.incarnations.len().saturating_sub(1) as u64;
        Totals { state_transfers, ..watched.totals.clone() }
    }

    /// Processes that ended by themselves so far.
    pub fn deaths(&self) -> Vec<Death> {
        self.sight.deaths.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The replica that most replicas report as their leader, from 0.
    pub fn leader(&self) -> Option<usize> {
        let statuses: Vec<Status> = (0..self.size()).filter_map(|number| self.status(number)).collect();
        Some(usize::from(named_leader(&statuses)?) - 1)
    }

    /// Last batch up to which every replica reports that the vote is closed; none while one does not report.
    pub fn validated(&self) -> Option<u64> {
        let said: Vec<u64> =
            (0..self.size()).filter_map(|number| Some(self.status(number)?.validated)).collect();
        if said.len() == self.size() { said.into_iter().min() } else { None }
    }

    /// What is wrong with the group; none when all replicas serve, are connected, follow one leader, hold no reply
    /// back and keep pace, and no armed fault is left: one that waits for a client that is still away would take
    /// effect while the next victim is faulty.
    pub fn unwell(&self) -> Option<String> {
        let mut leaders = BTreeSet::new();
        for number in 0..self.size() {
            let Some(status) = self.status(number) else {
                return Some(format!("replica {} does not answer", number + 1));
            };
            let why = match &status {
                _ if status.phase != ReplicaPhase::Serving => format!("is {:?}", status.phase),
                _ if status.peers.len() + 1 < self.size() => format!("sees only {:?}", status.peers),
                _ if status.leader.is_none() => "knows no leader".to_owned(),
                _ if status.held > 0 => format!("holds back {} replies", status.held),
                _ if status.armed > 0 => format!("has {} faults armed", status.armed),
                _ if status.alone => "hears too few others".to_owned(),
                _ if status.verification.as_ref().is_some_and(VerificationStatus::lags) => "lags".to_owned(),
                _ if status.behavior != self.sight.releases().oldest() && self.sight.program.is_none() => {
                    format!("acts as behavior {}", status.behavior)
                }
                _ => {
                    leaders.extend(status.leader);
                    continue;
                }
            };
            return Some(format!("replica {} {why}", number + 1));
        }
        (leaders.len() > 1).then(|| format!("leaders {leaders:?}"))
    }

    /// Digests of all replicas that execute at one position of the log, while requests go on. `first` computes a new
    /// one first.
    ///
    /// # Errors
    /// As text: which replica returned none, or which ones differ.
    pub fn digests(&self, first: usize) -> Result<StateDigest, String> {
        let mut executors: Vec<ReplicaHandle> =
            self.replicas().iter().filter(|replica| replica.clients.is_some()).cloned().collect();
        executors.sort_by_key(|replica| usize::from(replica.number) != first + 1);
        let mut answers = digest::round(&executors, DIGEST);
        digest::compare(&answers)?;
        answers.swap_remove(0).1.map_err(|why| why.to_string())
    }

    /// Evidence records of a replica after number `after` of process `pid`; all of them if it has another process now.
    pub fn evidence(&self, number: usize, (pid, after): (u32, u64)) -> (u32, Vec<EvidenceRecord>) {
        let Some(now) = self.pid(number) else { return (pid, Vec::new()) };
        let after = if now == pid { after } else { 0 };
        let list = self.replicas()[number].ask::<EvidenceList>(&AdminCommand::Evidence { after }, DIGEST);
        (now, list.map(|list| list.records).unwrap_or_default())
    }

    fn watched(&self, number: usize) -> MutexGuard<'_, WatchedReplica> {
        self.sight.watched(number)
    }
}

impl WatchedReplica {
    /// Notes a replica's status. Returns whether it has put the whole state of the others in the place of its own.
    fn record(&mut self, requested_at: Instant, status: Status) -> bool {
        let before = self.last.as_ref().map(|(_, last)| last).filter(|last| last.pid == status.pid);
        let grown = |of: fn(&Status) -> u64| of(&status).saturating_sub(before.map_or(0, of));
        let totals = &mut self.totals;
        totals.processes += u64::from(before.is_none());
        totals.mismatches += grown(|status| status.mismatches);
        totals.repairs += grown(|status| status.repairs);
        totals.failed_checks += grown(|status| status.failed_checks);
        totals.dropped_frames += grown(|status| status.dropped_frames);
        totals.requests += grown(|status| status.requests);
        totals.rollbacks += grown(|status| status.verification.as_ref().map_or(0, |one| one.rollbacks));
        let taken = |status: &Status| status.verification.as_ref().map_or(0, |one| one.states_taken);
        let took_state = grown(taken) > 0;
        if status.incarnation > 0 {
            self.incarnations.insert(status.incarnation);
        }
        self.last = Some((requested_at, status));
        took_state
    }
}
