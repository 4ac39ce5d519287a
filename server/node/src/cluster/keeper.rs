//! Runs a supervisor in the background, for commands that need a cluster while they do other work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::bail;

use super::find::ReplicaHandle;
use super::observer::{Observer, ReplicaRow};
use super::plan::ClusterPlan;
use super::supervisor::{Supervisor, SupervisorEvent};
use crate::ServiceOptions;
use crate::signals::Ending;

/// Pause between two checks of the children.
const TICK: Duration = Duration::from_millis(20);

/// A cluster that is supervised until this is stopped or dropped.
#[derive(Debug)]
pub struct Keeper {
    /// Its replicas.
    pub replicas: Vec<ReplicaHandle>,
    /// Their statuses.
    pub observer: Arc<Observer>,
    supervisor: Arc<Mutex<Supervisor>>,
    events: Receiver<SupervisorEvent>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<u8>>>,
}

impl Keeper {
    /// Starts the replicas of `plan`; when the cluster is stopped, they have `patience` to end by themselves.
    ///
    /// # Errors
    /// The plan's files cannot be written, or there are no more threads.
    pub fn start<O: ServiceOptions>(plan: &ClusterPlan<O>, patience: Duration) -> anyhow::Result<Self> {
        let replicas = plan.replicas();
        let observer = Arc::new(Observer::start(&replicas)?);
        let supervisor = Arc::new(Mutex::new(Supervisor::new(plan)?));
        let over = Arc::new(AtomicBool::new(false));
        let (tell, events) = mpsc::channel();
        let (asked, seen, own) = (Arc::clone(&over), Arc::clone(&observer), Arc::clone(&supervisor));
        let thread = thread::Builder::new().name("keeper".into()).spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                let now = Instant::now();
                let mut supervisor = lock(&own);
                for event in supervisor.tick(now) {
                    // If the receiver is gone, the event is no longer needed.
                    let _ = tell.send(event);
                }
                for row in seen.rows().iter().filter(|row| row.serving().is_some()) {
                    supervisor.note_serving(row.replica.number, now);
                }
                drop(supervisor);
                thread::sleep(TICK);
            }
            lock(&own).stop(patience)
        })?;
        Ok(Keeper { replicas, observer, supervisor, events, over, thread: Some(thread) })
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
            for event in self.events() {
                if let SupervisorEvent::Hopeless { replica, why } = event {
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

    /// The events since the last call.
    pub fn events(&self) -> Vec<SupervisorEvent> {
        self.events.try_iter().collect()
    }

    /// Stops the cluster; returns the replicas that had to be killed.
    pub fn stop(mut self) -> Vec<u8> {
        self.finish()
    }

    fn finish(&mut self) -> Vec<u8> {
        self.over.store(true, Ordering::Relaxed);
        let killed = self.thread.take().map(JoinHandle::join);
        // A panic of the keeper's thread is a bug of this program; its replicas end because their pipes close.
        killed.map_or_else(Vec::new, |killed| killed.unwrap_or_default())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Each step of a supervisor completes under the lock: after a panic elsewhere its state is still consistent.
fn lock(supervisor: &Mutex<Supervisor>) -> MutexGuard<'_, Supervisor> {
    supervisor.lock().unwrap_or_else(PoisonError::into_inner)
}
