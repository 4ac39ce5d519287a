//! The effects of an attack on others: one well-behaved client per replica records its waits, and the memory of each
//! replica is recorded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::effort::Effort;
use super::lab::{Lab, REPLICAS};
use super::ms;
use super::outcome::Case;
use bench::peak_memory_of;
use memcached_client::{Client, Failure};
use node::view::grouped;

/// Between two requests of a client.
const PAUSE: Duration = Duration::from_millis(10);
/// How long one attempt may take; the wait continues with the next attempt.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause between two attempts to connect.
const RECONNECT: Duration = Duration::from_millis(20);
/// No well-behaved client may wait longer than this.
pub const LONGEST: Duration = Duration::from_millis(500);
/// Memory that a replica may use in addition to its two limits, in MiB: code, stacks, tables, memory kept by the
/// allocator.
const BESIDE_MB: u64 = 100;

/// The observations of one client.
#[derive(Clone, Debug, Default)]
struct ClientWaits {
    requests: u64,
    longest: Duration,
    failed: u64,
    wrong: u64,
    first: Option<String>,
}

/// Observes until requested to finish.
pub struct HostileWatch {
    over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<ClientWaits>>,
    /// Peak memory of each replica's process, and its memory at the beginning.
    memory: JoinHandle<Vec<u64>>,
    before: Vec<u64>,
    bound_mb: u64,
    since: Effort,
}

/// The observations.
pub struct Observations {
    waits: Vec<ClientWaits>,
    peak: Vec<u64>,
    before: Vec<u64>,
    bound_mb: u64,
    others: Option<String>,
}

impl HostileWatch {
    /// Begins to observe. The attack's own clients start later.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(lab: &Lab<'_>) -> anyhow::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let mut clients = Vec::new();
        for number in REPLICAS {
            let (over, address) = (Arc::clone(&over), lab.clients(number));
            let name = format!("watch-{number}");
            clients.push(thread::Builder::new().name(name).spawn(move || ask(number, address, &over))?);
        }
        let pids: Vec<u32> = REPLICAS.iter().filter_map(|number| lab.pid(*number)).collect();
        let (before, since) = (peaks(&pids), Effort::of(&pids));
        let own = Arc::clone(&over);
        let memory = thread::Builder::new().name("memory".into()).spawn(move || {
            // The peak is lost when a process ends.
            let mut most = vec![0; pids.len()];
            loop {
                let is_over = own.load(Ordering::Relaxed);
                most.iter_mut().zip(peaks(&pids)).for_each(|(most, peak)| *most = peak.max(*most));
                if is_over {
                    return most;
                }
                thread::sleep(PAUSE);
            }
        })?;
        let bound_mb = bound_mb(lab);
        Ok(HostileWatch { over, clients, memory, before, bound_mb, since })
    }

    /// Stops, and returns the observations.
    pub fn finish(self) -> Observations {
        self.over.store(true, Ordering::Relaxed);
        // A panic of one of these threads is a bug of this program: its observations are empty, so that the check
        // fails.
        let waits = self.clients.into_iter().map(|client| client.join().unwrap_or_default()).collect();
        let peak = self.memory.join().unwrap_or_default();
        Observations {
            waits,
            peak,
            before: self.before,
            bound_mb: self.bound_mb,
            others: self.since.of_others(),
        }
    }
}

impl Observations {
    /// Checks how long the clients of these replicas waited.
    pub fn check_waits(&self, case: &mut Case, replicas: &[u8]) {
        let waits: Vec<&ClientWaits> =
            replicas.iter().map(|number| &self.waits[usize::from(*number - 1)]).collect();
        let longest: Vec<String> = waits.iter().map(|waits| waits.longest.as_millis().to_string()).collect();
        let sum = |of: fn(&ClientWaits) -> u64| waits.iter().map(|waits| of(waits)).sum::<u64>();
        let (requests, failed, wrong) = (sum(|w| w.requests), sum(|w| w.failed), sum(|w| w.wrong));
        let is_served = waits.iter().all(|waits| waits.requests > 0) && failed + wrong == 0;
        let first = waits.iter().find_map(|waits| waits.first.as_ref());
        let first = first.map_or_else(String::new, |first| format!(": {first}"));
        let seen = format!("{} requests, {failed} failed, {wrong} wrong{first}", grouped(requests));
        case.check(is_served, "other clients receive right replies", seen);
        let seen = format!("longest {} ms at replica {}", longest.join(" / "), numbers(replicas));
        case.notes.extend(self.others.clone());
        let is_short = waits.iter().all(|waits| waits.longest < LONGEST);
        case.check_time(is_short, format!("they wait less than {}", ms(LONGEST)), seen);
    }

    /// Checks the peak memory of the replicas.
    pub fn check_memory(&self, case: &mut Case) {
        let mib = |bytes: &Vec<u64>| {
            bytes.iter().map(|bytes| (bytes >> 20).to_string()).collect::<Vec<_>>().join(" / ")
        };
        let holds = self.peak.len() == REPLICAS.len()
            && self.peak.iter().all(|peak| *peak > 0 && peak >> 20 < self.bound_mb);
        let what = format!("resident memory stays below {} MiB (limits + {BESIDE_MB})", self.bound_mb);
        let seen = format!(
            "peak {} MiB at replica {}, {} before",
            mib(&self.peak),
            numbers(&REPLICAS),
            mib(&self.before)
        );
        case.check(holds, what, seen);
    }
}

/// The memory that each replica may use, in MiB.
pub fn bound_mb(lab: &Lab<'_>) -> u64 {
    lab.memory_mb() + BESIDE_MB
}

fn numbers(replicas: &[u8]) -> String {
    replicas.iter().map(u8::to_string).collect::<Vec<_>>().join(" / ")
}

fn peaks(pids: &[u32]) -> Vec<u64> {
    pids.iter().map(|pid| peak_memory_of(*pid).unwrap_or(0)).collect()
}

/// Stores small values and reads them back, one request after another.
fn ask(number: u8, address: SocketAddr, over: &AtomicBool) -> ClientWaits {
    let mut waits = ClientWaits::default();
    let mut client = None;
    let key = format!("watched-{number}");
    'rounds: for round in 0u64.. {
        let value = format!("{number}.{round}");
        for stores in [true, false] {
            let since = Instant::now();
            loop {
                if over.load(Ordering::Relaxed) {
                    // A client that waits at the end counts its wait until then.
                    waits.longest = waits.longest.max(since.elapsed());
                    break 'rounds;
                }
                match attempt(&mut client, address, &key, value.as_bytes(), stores) {
                    Ok(is_right) => {
                        waits.requests += 1;
                        waits.wrong += u64::from(!is_right);
                        break;
                    }
                    Err(trouble) => {
                        waits.failed += 1;
                        waits.first.get_or_insert(format!("replica {number}: {trouble}"));
                        client = None;
                        thread::sleep(RECONNECT);
                    }
                }
            }
            waits.longest = waits.longest.max(since.elapsed());
            thread::sleep(PAUSE);
        }
    }
    waits
}

/// One request, over a new connection if there is none. Returns whether the value read is the one stored.
fn attempt(
    client: &mut Option<Client>,
    address: SocketAddr,
    key: &str,
    value: &[u8],
    stores: bool,
) -> Result<bool, Failure> {
    let connected = match client.take() {
        Some(connected) => connected,
        None => Client::connect(address, PATIENCE)?,
    };
    let connected = client.insert(connected);
    if stores {
        return connected.set(key, 0, value).map(|()| true);
    }
    // A set without an answer may have been executed or not; its repetition was answered.
    Ok(connected.get(key)?.is_some_and(|found| found.bytes == value))
}
