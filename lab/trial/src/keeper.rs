//! Keeps the replicas running as an operator's supervisor would, and collects their statuses.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crosscheck::admin::client::{Link, ask};
use crosscheck::admin::{
    AdminCommand, EvidenceList, EvidenceRecord, Position, ReplicaPhase, StateDigest, Status,
    VerificationStatus,
};
use node::cluster::in_words;
use serde::Serialize;

use crate::announce::Announcer;
use crate::ground::Ground;
use crate::replica::ReplicaProcess;

/// Pause between two checks of the processes.
const TICK: Duration = Duration::from_millis(20);
/// Pause between two requests for a status.
const WATCH: Duration = Duration::from_millis(20);
/// A status that is older does not count.
const FRESH: Duration = Duration::from_secs(1);
/// A replica that ended by itself is restarted after this long.
const PAUSE: Duration = Duration::from_millis(200);
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

#[derive(Debug)]
struct Ward {
    replica: ReplicaProcess,
    /// False while a trouble keeps it down.
    wanted: bool,
    start_at: Instant,
}

/// The replicas of a run; they end when this is dropped.
#[derive(Debug)]
pub struct Keeper {
    ground: Arc<Ground>,
    wards: Vec<Mutex<Ward>>,
    watched: Vec<Mutex<WatchedReplica>>,
    deaths: Mutex<Vec<Death>>,
    announcer: Arc<Announcer>,
    over: AtomicBool,
}

/// Threads of a [`Keeper`].
#[derive(Debug)]
pub struct Threads(Arc<Keeper>, Vec<JoinHandle<()>>);

impl Keeper {
    /// Starts the replicas, and threads that supervise them.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        ground: Arc<Ground>,
        replicas: Vec<ReplicaProcess>,
        announcer: Arc<Announcer>,
    ) -> anyhow::Result<(Arc<Self>, Threads)> {
        let now = Instant::now();
        let ward = |replica| Mutex::new(Ward { replica, wanted: true, start_at: now });
        let keeper = Arc::new(Keeper {
            watched: replicas.iter().map(|_| Mutex::default()).collect(),
            wards: replicas.into_iter().map(ward).collect(),
            ground,
            deaths: Mutex::default(),
            announcer,
            over: AtomicBool::new(false),
        });
        let mut threads = Vec::new();
        let own = Arc::clone(&keeper);
        threads.push(thread::Builder::new().name("keeper".into()).spawn(move || own.keep())?);
        for number in 0..keeper.wards.len() {
            let own = Arc::clone(&keeper);
            let name = format!("watch-{}", number + 1);
            threads.push(thread::Builder::new().name(name).spawn(move || own.watch(number))?);
        }
        Ok((Arc::clone(&keeper), Threads(keeper, threads)))
    }

    /// The replicas that execute requests, from 0: a witness does not.
    pub fn executors(&self) -> Vec<usize> {
        (0..self.size()).filter(|number| self.with(*number, |replica| replica.executes)).collect()
    }

    /// The number of replicas.
    pub fn size(&self) -> usize {
        self.wards.len()
    }

    /// Calls `act` with a replica, from 0.
    pub fn with<T>(&self, number: usize, act: impl FnOnce(&mut ReplicaProcess) -> T) -> T {
        act(&mut self.ward(number).replica)
    }

    /// Kills a replica and keeps it down, or lets it come back.
    pub fn keep_down(&self, number: usize, down: bool) {
        let mut ward = self.ward(number);
        ward.wanted = !down;
        ward.start_at = Instant::now();
        if down {
            ward.replica.kill();
        }
    }

    /// Stops a replica as an operator would, and keeps it down.
    pub fn shut_down(&self, number: usize, patience: Duration) {
        let mut ward = self.ward(number);
        ward.wanted = false;
        ward.replica.stop(patience);
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
    pub fn all_told_since(&self, since: Instant) -> bool {
        (0..self.size()).all(|number| self.told_since(number, since).is_some())
    }

    /// The status that a replica gave to a request sent after `since`.
    pub fn told_since(&self, number: usize, since: Instant) -> Option<Status> {
        self.watched(number).last.as_ref().filter(|(at, _)| *at > since).map(|(_, status)| status.clone())
    }

    /// How many further replicas may fail, as the leader says in a status that was asked for after `since`; 0 where
    /// none leads. None while that is not known yet.
    pub fn tolerates(&self, since: Instant) -> Option<u8> {
        let told: Vec<Option<Status>> =
            (0..self.size()).map(|number| self.told_since(number, since)).collect();
        let told_at_all = told.iter().flatten().next().is_some();
        let named: Vec<u8> = told.iter().flatten().filter_map(|status| status.leader).collect();
        let votes = |leader: &u8| named.iter().filter(|named| *named == leader).count();
        let Some(leader) = named.iter().copied().max_by_key(votes) else { return told_at_all.then_some(0) };
        if told[usize::from(leader) - 1].is_none() {
            // A leader that does not answer for so long says nothing more.
            return self.status(usize::from(leader) - 1).is_none().then_some(0);
        }
        // One that was deposed and does not know it yet may say more than holds.
        let leads = |status: &&Status| status.replica == leader || status.leader == Some(status.replica);
        told.iter().flatten().filter(leads).map(|status| status.tolerates).min()
    }

    /// The sums of a replica's reports so far.
    pub fn totals(&self, number: usize) -> Totals {
        let watched = self.watched(number);
        let state_transfers = watched.incarnations.len().saturating_sub(1) as u64;
        Totals { state_transfers, ..watched.totals.clone() }
    }

    /// Processes that ended by themselves so far.
    pub fn deaths(&self) -> Vec<Death> {
        self.deaths.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The replica that most replicas report as their leader, from 0.
    pub fn leader(&self) -> Option<usize> {
        let named: Vec<u8> = (0..self.size()).filter_map(|number| self.status(number)?.leader).collect();
        let votes = |leader: &u8| named.iter().filter(|named| *named == leader).count();
        let most = named.iter().copied().max_by_key(votes)?;
        Some(usize::from(most) - 1)
    }

    /// Last batch up to which every replica reports that the vote is closed; none while one does not report.
    pub fn validated(&self) -> Option<u64> {
        let said: Vec<u64> =
            (0..self.size()).filter_map(|number| Some(self.status(number)?.validated)).collect();
        if said.len() == self.size() { said.into_iter().min() } else { None }
    }

    /// What is wrong with the group; none when all replicas serve, are connected, follow one leader, hold no reply
    /// back and keep pace.
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
                _ if status.alone => "hears too few others".to_owned(),
                _ if status.verification.as_ref().is_some_and(VerificationStatus::lags) => "lags".to_owned(),
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
        let digest = |number: usize, at: Option<Position>| {
            ask::<StateDigest>(&self.ground.places[number].admin, &AdminCommand::Digest { at }, DIGEST)
                .map_err(|error| format!("no digest from replica {}: {error}", number + 1))
        };
        let one = digest(first, None)?;
        for number in self.executors().into_iter().filter(|number| *number != first) {
            let other = digest(number, Some(one.position))?;
            if other.digest != one.digest {
                return Err(format!("replicas {} and {} differ", first + 1, number + 1));
            }
        }
        Ok(one)
    }

    /// Evidence records of a replica after number `after` of process `pid`; all of them if it has another process now.
    pub fn evidence(&self, number: usize, (pid, after): (u32, u64)) -> (u32, Vec<EvidenceRecord>) {
        let Some(now) = self.ward(number).replica.pid() else { return (pid, Vec::new()) };
        let after = if now == pid { after } else { 0 };
        let admin = &self.ground.places[number].admin;
        let list: Result<EvidenceList, _> = ask(admin, &AdminCommand::Evidence { after }, DIGEST);
        (now, list.map(|list| list.records).unwrap_or_default())
    }

    fn keep(&self) {
        while !self.over.load(Ordering::Relaxed) {
            for number in 0..self.size() {
                self.look_after(number);
            }
            thread::sleep(TICK);
        }
    }

    fn look_after(&self, number: usize) {
        let mut ward = self.ward(number);
        if let Some(status) = ward.replica.ended() {
            ward.start_at = Instant::now() + PAUSE;
            let replica = number as u8 + 1;
            let how = in_words(status);
            self.announcer.replaced(replica, UNWELL, SETTLE, &how);
            let death = Death { replica, at: self.announcer.now(), how };
            self.deaths.lock().unwrap_or_else(PoisonError::into_inner).push(death);
        }
        if ward.wanted && ward.replica.pid().is_none() && Instant::now() >= ward.start_at {
            // If no process or memory is available to start it, the next attempt follows after the pause.
            ward.start_at = Instant::now() + PAUSE;
            let _ = ward.replica.start();
        }
    }

    fn watch(&self, number: usize) {
        let mut link = Link::new(self.ground.places[number].admin.clone());
        while !self.over.load(Ordering::Relaxed) {
            let asked = Instant::now();
            if let Ok(status) = link.ask::<Status>(&AdminCommand::Status, FRESH / 2) {
                let took_state = self.watched(number).note(asked, status);
                if took_state {
                    let replica = number as u8 + 1;
                    self.announcer.replaced(
                        replica,
                        UNWELL,
                        SETTLE,
                        "it took the state of the others in place",
                    );
                }
            }
            thread::sleep(WATCH);
        }
    }

    fn ward(&self, number: usize) -> MutexGuard<'_, Ward> {
        self.wards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watched(&self, number: usize) -> MutexGuard<'_, WatchedReplica> {
        self.watched[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchedReplica {
    /// Notes a replica's status. Returns whether it has put the whole state of the others in the place of its own.
    fn note(&mut self, asked: Instant, status: Status) -> bool {
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
        self.last = Some((asked, status));
        took_state
    }
}

impl Threads {
    /// Stops supervising the replicas, and then stops the replicas, which have `patience` each.
    pub fn stop(mut self, patience: Duration) {
        self.join();
        for number in 0..self.0.size() {
            self.0.with(number, |replica| {
                replica.freeze(false);
                replica.stop(patience);
            });
        }
    }

    fn join(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
        for thread in self.1.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.join();
        for number in 0..self.0.size() {
            self.0.with(number, ReplicaProcess::kill);
        }
    }
}
