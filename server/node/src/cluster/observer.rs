//! Requests the status of every replica periodically, each from a thread of its own, so that a replica that hangs
//! delays no other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crosscheck::admin::client::Link;
use crosscheck::admin::{AdminCommand, ReplicaPhase, Status};

use super::find::{ReplicaHandle, at_once};
use super::hooks::ClusterHooks;

/// A replica that does not answer for this long is shown as down.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval over which the rate of requests is computed.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// The known state of one replica.
#[derive(Clone, Debug)]
pub struct ReplicaRow {
    /// The replica.
    pub replica: ReplicaHandle,
    /// Its last status, or why there is none.
    pub seen: Result<Status, String>,
    /// Requests per second it executes, once known.
    pub rate: Option<f64>,
}

impl ReplicaRow {
    /// Whether a request sent to it now would be executed without waiting for an election.
    pub fn is_ready(&self) -> bool {
        self.serving().is_some_and(|status| status.leader.is_some())
    }

    /// Whether it receives the state of the others, or waits for it.
    pub fn is_filled(&self) -> bool {
        let lacks = |status: &Status| status.phase == ReplicaPhase::Joining || status.receiving.is_some();
        self.seen.as_ref().is_ok_and(lacks)
    }

    /// Its status, when it serves clients.
    pub fn serving(&self) -> Option<&Status> {
        self.seen.as_ref().ok().filter(|status| status.phase == ReplicaPhase::Serving)
    }
}

/// Requests the status of every replica once, all at the same time.
pub fn once(replicas: &[ReplicaHandle]) -> Vec<ReplicaRow> {
    at_once(replicas, |replica| {
        let seen = replica.ask(&AdminCommand::Status, PATIENCE);
        let replica = replica.clone();
        with_number(ReplicaRow { replica, seen: seen.map_err(|why| why.to_string()), rate: None })
    })
}

/// How often statuses are requested.
#[derive(Clone, Copy, Debug)]
pub struct Polling {
    /// Pause between two requests.
    pub pause: Duration,
    /// A replica that does not answer for this long is down.
    pub patience: Duration,
}

impl Default for Polling {
    fn default() -> Self {
        Polling { pause: Duration::from_millis(100), patience: PATIENCE }
    }
}

/// The newest [`ReplicaRow`] of every replica; updated until the observer is dropped.
#[derive(Debug)]
pub struct Observer {
    rows: Arc<Vec<Mutex<ReplicaRow>>>,
    over: Arc<AtomicBool>,
}

impl Observer {
    /// Starts the threads.
    ///
    /// # Errors
    /// The operating system has no more threads.
    pub fn start(replicas: &[ReplicaHandle]) -> std::io::Result<Self> {
        Self::start_with(replicas, Polling::default(), &(Arc::new(()) as Arc<dyn ClusterHooks>))
    }

    /// The same at another interval; `hooks` learns of every status.
    ///
    /// # Errors
    /// As for [`Observer::start`].
    pub fn start_with(
        replicas: &[ReplicaHandle],
        polling: Polling,
        hooks: &Arc<dyn ClusterHooks>,
    ) -> std::io::Result<Self> {
        let unknown = |replica: &ReplicaHandle| ReplicaRow {
            replica: replica.clone(),
            seen: Err("no status received yet".into()),
            rate: None,
        };
        let rows: Arc<Vec<_>> =
            Arc::new(replicas.iter().map(|replica| Mutex::new(unknown(replica))).collect());
        let over = Arc::new(AtomicBool::new(false));
        for (index, replica) in replicas.iter().enumerate() {
            let (rows, over, replica) = (Arc::clone(&rows), Arc::clone(&over), replica.clone());
            let hooks = Arc::clone(hooks);
            thread::Builder::new().name(format!("observe-{}", index + 1)).spawn(move || {
                let mut link = Link::new(replica.admin);
                let mut rate = Rate::default();
                while !over.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    let seen = link.ask::<Status>(&AdminCommand::Status, polling.patience);
                    let seen = seen.map_err(|why| why.to_string());
                    seen.iter().for_each(|status| hooks.status(replica.number, asked, status));
                    let per_second = rate.after(seen.as_ref().ok(), Instant::now());
                    let mut row = lock(&rows[index]);
                    row.seen = seen;
                    row.rate = per_second;
                    drop(row);
                    thread::sleep(polling.pause);
                }
            })?;
        }
        Ok(Observer { rows, over })
    }

    /// The newest rows.
    pub fn rows(&self) -> Vec<ReplicaRow> {
        self.rows.iter().map(|row| with_number(lock(row).clone())).collect()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// The replica reports its own number; the order of the `--admin` options may differ.
fn with_number(mut row: ReplicaRow) -> ReplicaRow {
    if let Ok(status) = &row.seen {
        row.replica.number = status.replica;
    }
    row
}

/// A row is replaced as a whole: after a panic elsewhere it is still consistent.
fn lock(row: &Mutex<ReplicaRow>) -> MutexGuard<'_, ReplicaRow> {
    row.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Requests per second, from a counter that starts at zero with each process.
#[derive(Debug, Default)]
struct Rate {
    base: Option<(Instant, u32, u64)>,
    last: Option<f64>,
}

impl Rate {
    fn after(&mut self, status: Option<&Status>, now: Instant) -> Option<f64> {
        let Some(status) = status else {
            *self = Rate::default();
            return None;
        };
        match self.base {
            Some((at, pid, requests)) if pid == status.pid && status.requests >= requests => {
                if now - at >= RATE_WINDOW {
                    self.last = Some((status.requests - requests) as f64 / (now - at).as_secs_f64());
                    self.base = Some((now, pid, status.requests));
                }
            }
            _ => {
                self.last = None;
                self.base = Some((now, status.pid, status.requests));
            }
        }
        self.last
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A replica that serves and has detected nothing yet.
    pub fn status(replica: u8) -> Status {
        Status {
            replica,
            pid: 100 + u32::from(replica),
            phase: ReplicaPhase::Serving,
            mode: "RDGX".into(),
            leader: Some(1),
            incarnation: 1,
            logged: 0,
            committed: 10,
            executed: 10,
            validated: 10,
            verification: None,
            reads: crosscheck::admin::ReadCounts::default(),
            requests: 0,
            connections: 0,
            peers: vec![],
            mismatches: 0,
            repairs: 0,
            failed_checks: 0,
            dropped_frames: 0,
            refused: crosscheck::admin::RefusedPeers::default(),
            tolerates: 1,
            tolerates_why: None,
            waits_for: None,
            buffers: crosscheck::admin::Buffers::default(),
            held: 0,
            armed: 0,
            alone: false,
            last_repair_us: 0,
            last_evidence: None,
            large: Vec::new(),
            sent: crosscheck::admin::Sent::default(),
            behavior: 1,
            newest_behavior: 1,
            moved: Vec::new(),
            replacing: None,
            replicas: 3,
            adding: 0,
            resizing: None,
            counts: std::collections::BTreeMap::new(),
            receiving: None,
            giving: None,
        }
    }

    #[test]
    fn the_rate_is_per_second_and_forgets_a_restart() {
        let start = Instant::now();
        let mut rate = Rate::default();
        let mut seen = status(1);
        assert_eq!(rate.after(Some(&seen), start), None);
        seen.requests = 3000;
        assert_eq!(rate.after(Some(&seen), start + Duration::from_millis(500)), None);
        let told = rate.after(Some(&seen), start + Duration::from_secs(2)).expect("a rate");
        assert!((told - 1500.0).abs() < 1e-6, "{told}");
        seen.pid += 1;
        seen.requests = 5;
        assert_eq!(rate.after(Some(&seen), start + Duration::from_secs(4)), None);
        assert_eq!(rate.after(None, start + Duration::from_secs(5)), None);
    }
}
