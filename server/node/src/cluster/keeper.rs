//! Runs a supervisor in the background, for commands that need a cluster while they do other work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::bail;

use super::events::EventLog;
use super::find::ReplicaHandle;
use super::hooks::ClusterHooks;
use super::observer::{Observer, Polling, ReplicaRow};
use super::plan::ClusterPlan;
use super::supervisor::{Supervisor, SupervisorEvent};
use crate::ServiceOptions;
use crate::signals::Ending;

/// Pause between two checks of the children.
const TICK: Duration = Duration::from_millis(20);

/// How a cluster is kept.
#[derive(Clone, Debug)]
pub struct KeeperOptions {
    /// How long replicas may take to end by themselves when the cluster is stopped.
    pub stop: Duration,
    /// Pause before a dead replica is started again; none: longer each time that it dies again soon.
    pub restart_after: Option<Duration>,
    /// How often statuses are requested.
    pub polling: Polling,
    /// Additions to the supervision.
    pub hooks: Arc<dyn ClusterHooks>,
}

impl KeeperOptions {
    /// The defaults.
    pub fn new(stop: Duration) -> Self {
        KeeperOptions { stop, restart_after: None, polling: Polling::default(), hooks: Arc::new(()) }
    }
}

/// A cluster that is supervised until this is stopped or dropped.
#[derive(Debug)]
pub struct Keeper {
    /// Its replicas.
    pub replicas: Vec<ReplicaHandle>,
    /// Their statuses.
    pub observer: Arc<Observer>,
    /// What happened to them.
    pub events: EventLog,
    supervisor: Arc<Mutex<Supervisor>>,
    over: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<Vec<u8>>>>,
}

impl Keeper {
    /// Starts the replicas of `plan`; when the cluster is stopped, they have `patience` to end by themselves.
    ///
    /// # Errors
    /// The plan's files cannot be written, or there are no more threads.
    pub fn start<O: ServiceOptions>(plan: &ClusterPlan<O>, patience: Duration) -> anyhow::Result<Self> {
        Self::start_with(plan, KeeperOptions::new(patience))
    }

    /// The same with further options.
    ///
    /// # Errors
    /// As for [`Keeper::start`].
    pub fn start_with<O: ServiceOptions>(
        plan: &ClusterPlan<O>,
        options: KeeperOptions,
    ) -> anyhow::Result<Self> {
        let replicas = plan.replicas();
        let KeeperOptions { stop, restart_after, polling, hooks } = options;
        let observer = Arc::new(Observer::start_with(&replicas, polling, &hooks)?);
        let mut supervisor = Supervisor::new(plan, hooks)?;
        restart_after.into_iter().for_each(|pause| supervisor.restart_after(pause));
        let supervisor = Arc::new(Mutex::new(supervisor));
        let over = Arc::new(AtomicBool::new(false));
        let events = EventLog::default();
        let tick = restart_after.map_or(TICK, |pause| pause.min(TICK));
        let (asked, seen, own) = (Arc::clone(&over), Arc::clone(&observer), Arc::clone(&supervisor));
        let log = events.clone();
        let thread = thread::Builder::new().name("keeper".into()).spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                let now = Instant::now();
                let mut supervisor = lock(&own);
                supervisor.tick(now).into_iter().for_each(|event| log.push(event));
                for row in seen.rows().iter().filter(|row| row.serving().is_some()) {
                    supervisor.note_serving(row.replica.number, now);
                }
                drop(supervisor);
                thread::sleep(tick);
            }
            lock(&own).stop(stop)
        })?;
        let thread = Mutex::new(Some(thread));
        Ok(Keeper { replicas, observer, events, supervisor, over, thread })
    }

    /// Waits until every replica serves.
    ///
    /// # Errors
    /// One cannot come up, the operator ended the command, or `patience` is over.
    pub fn until_ready(&self, patience: Duration, ending: &Ending) -> anyhow::Result<Vec<ReplicaRow>> {
        let deadline = Instant::now() + patience;
        loop {
            let rows = self.observer.rows();
            if rows.iter().all(ReplicaRow::is_ready) {
                return Ok(rows);
            }
            for event in self.events.all() {
                if let SupervisorEvent::Hopeless { replica, why, .. } = event {
                    bail!("replica {replica} does not come up: {why}");
                }
            }
            if ending.sleep(TICK) {
                bail!("ended before the cluster was ready");
            }
            if Instant::now() > deadline {
                let rows: Vec<String> = rows.iter().map(|row| format!("{:?}", row.seen)).collect();
                bail!("the cluster is not ready after {} s: {}", patience.as_secs(), rows.join("; "));
            }
        }
    }

    /// The supervisor, locked: the background thread checks no child meanwhile.
    pub fn supervisor(&self) -> MutexGuard<'_, Supervisor> {
        lock(&self.supervisor)
    }

    /// Stops the cluster; returns the replicas that had to be killed.
    pub fn stop(&self) -> Vec<u8> {
        self.over.store(true, Ordering::Relaxed);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let killed = thread.map(JoinHandle::join);
        // A panic of the keeper's thread is a bug of this program; its replicas end because their pipes close.
        killed.map_or_else(Vec::new, |killed| killed.unwrap_or_default())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Each step of a supervisor completes under the lock: after a panic elsewhere its state is still consistent.
fn lock(supervisor: &Mutex<Supervisor>) -> MutexGuard<'_, Supervisor> {
    supervisor.lock().unwrap_or_else(PoisonError::into_inner)
}
