//! A load of many clients that checks every byte of every reply against a sequential model of its own keys.
//!
//! Each client uses its own keys, so that its model is exact whatever the others do; a few keys are used by all:
//! counters, each of whose values may be returned once, and values that follow from their flags. When a connection is
//! lost, the commands on it may have been executed, may be executed later, or never: the model keeps every possible
//! state, and every later reply excludes some of them.

mod draw;
mod model;
mod pattern;
mod session;
mod shared;
mod wire;

pub use draw::Draw;
pub use shared::Counter;

use self::wire::Wire;
use pattern::Pattern;
use session::Session;
use shared::Shared;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The settings of a load.
#[derive(Clone, Debug)]
pub struct Load {
    /// Servers that hold the same state; clients are spread over them and move on when one is lost.
    pub endpoints: Vec<SocketAddr>,
    /// Clients, each with one connection.
    pub clients: usize,
    /// Own keys of each client.
    pub keys: usize,
    /// Counters, and values, that all clients use; 0 for none.
    pub shared: usize,
    /// Commands that a client sends before it reads replies, at most.
    pub pipeline: usize,
    /// Longest value in bytes.
    pub longest_value: usize,
    /// Whether numbers of 2^63 and more are incremented. Not with memcached 1.6.18: it searches for a minus sign beyond
    /// the end of such a number, and sometimes finds one in the old content of the memory.
    pub huge_numbers: bool,
    /// Commands of each client; none for "until stopped".
    pub commands: Option<u64>,
    /// How long a client waits for a server before it connects to the next.
    pub patience: Duration,
    /// The beginning of every key.
    pub prefix: String,
    /// The same seed draws the same commands.
    pub seed: u64,
}

impl Load {
    /// A mixed load of moderate size on these servers.
    pub fn on(endpoints: &[SocketAddr]) -> Self {
        Load {
            endpoints: endpoints.to_vec(),
            clients: 24,
            keys: 12,
            shared: 3,
            pipeline: 6,
            longest_value: 16 * 1024,
            huge_numbers: true,
            commands: None,
            patience: Duration::from_secs(5),
            prefix: String::new(),
            seed: 1,
        }
    }

    /// Sets the shared counters to 0 and lets the clients begin.
    pub fn start(self) -> Running {
        let shared = Arc::new(Shared::new(self.prefix.clone(), self.shared, self.clients));
        self.prepare(&shared);
        let load = Arc::new(self);
        let tally = Arc::new(Tally::new());
        let clients = (0..load.clients)
            .map(|number| {
                let mut session = Session::new(number, load.clone(), shared.clone(), tally.clone());
                let work = move || {
                    session.work();
                    session
                };
                std::thread::Builder::new().stack_size(256 * 1024).spawn(work).expect("a thread for a client")
            })
            .collect();
        Running { load, shared, tally, clients }
    }

    fn prepare(&self, shared: &Shared) {
        let mut wire =
            Wire::connect(self.endpoints[0], self.patience).expect("the first server accepts clients");
        for counter in 0..self.shared {
            let request = format!("set {} 0 0 1\r\n0\r\n", shared.counter_key(counter));
            wire.send(request.as_bytes()).expect("the first server reads");
            wire.next(&[&Pattern::text("STORED\r\n")]).expect("the first server stores a counter");
        }
    }
}

/// A running load.
pub struct Running {
    load: Arc<Load>,
    shared: Arc<Shared>,
    tally: Arc<Tally>,
    clients: Vec<JoinHandle<Session>>,
}

impl Running {
    /// Replies judged so far.
    pub fn answered(&self) -> u64 {
        self.tally.answered.load(Ordering::SeqCst)
    }

    /// Whether a wrong byte was detected.
    pub fn saw_wrong(&self) -> bool {
        !self.tally.wrong.lock().expect("no panic while it is held").is_empty()
    }

    /// Waits until `more` further replies were judged; false when `limit` passes first.
    pub fn wait_for(&self, more: u64, limit: Duration) -> bool {
        let (aim, deadline) = (self.answered() + more, Instant::now() + limit);
        while self.answered() < aim && Instant::now() < deadline && !self.saw_wrong() {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.answered() >= aim
    }

    /// Waits until `more` further replies were judged, and fails with the errors so far if that takes longer than a
    /// minute.
    pub fn must_go_on(&self, more: u64, what: &str) {
        if !self.wait_for(more, Duration::from_secs(60)) {
            let wrong = self.tally.wrong.lock().expect("no panic while it is held").join("\n  ");
            panic!("{what}: the load does not go on; wrong so far:\n  {wrong}");
        }
    }

    /// Longest time so far in which no client at all got a reply.
    pub fn longest_gap(&self) -> Duration {
        self.tally.longest_gap()
    }

    /// Discards the gaps so far.
    pub fn forget_gaps(&self) {
        self.tally.forget_gaps();
    }

    /// Stops the clients, then reads back every key at every one of `servers` and compares it with the model.
    pub fn stop_and_audit(self, servers: &[SocketAddr]) -> Report {
        self.tally.stop.store(true, Ordering::SeqCst);
        self.join_and_audit(servers)
    }

    /// Waits until every client has sent its commands, then audits.
    pub fn join_and_audit(self, servers: &[SocketAddr]) -> Report {
        let mut sessions: Vec<Session> = self
            .clients
            .into_iter()
            .map(|client| client.join().expect("a client's thread does not panic"))
            .collect();
        let longest_gap = self.tally.longest_gap();
        let deadline = Instant::now() + Duration::from_secs(60);
        if self.tally.wrong.lock().expect("no panic while it is held").is_empty() {
            for &server in servers {
                if !sessions.iter_mut().all(|session| session.audit(server, deadline)) {
                    break;
                }
            }
        }
        let counters = self.shared.accounts();
        for counter in &counters {
            for &server in servers {
                audit_counter(counter, server, self.load.patience, &self.tally);
            }
        }
        self.tally.report(longest_gap, counters)
    }
}

/// Every acknowledged increment is in the value, no lost one more than once, and no value was returned twice.
fn audit_counter(counter: &Counter, server: SocketAddr, patience: Duration, tally: &Tally) {
    if !counter.doubled.is_empty() {
        tally.wrong(format!("{}: values handed out twice: {:?}", counter.key, counter.doubled));
        return;
    }
    let least = counter.acknowledged.max(counter.highest);
    let most = counter.acknowledged + counter.maybe;
    let width = counter.highest.to_string().len();
    let fits: Vec<Pattern> = (least..=most)
        .map(|value| {
            let value = format!("{value:<width$}");
            Pattern::text(format!("VALUE {} 0 {}\r\n{value}\r\nEND\r\n", counter.key, value.len()))
        })
        .collect();
    let outcome = Wire::connect(server, patience).map_err(|error| format!("{error}")).and_then(|mut wire| {
        wire.send(format!("get {}\r\n", counter.key).as_bytes())
            .and_then(|()| wire.next(&fits.iter().collect::<Vec<_>>()))
            .map_err(|failure| format!("{failure:?}"))
    });
    if let Err(why) = outcome {
        tally.wrong(format!("{} at {server}: expected {least} to {most}: {why}", counter.key));
    }
}

/// The counts of all clients of a load together.
pub struct Tally {
    start: Instant,
    stop: AtomicBool,
    answered: AtomicU64,
    disconnects: AtomicU64,
    timeouts: AtomicU64,
    refusals: Mutex<Vec<String>>,
    wrong: Mutex<Vec<String>>,
    last_answer_us: AtomicU64,
    longest_gap_us: AtomicU64,
}

impl Tally {
    fn new() -> Self {
        Tally {
            start: Instant::now(),
            stop: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            disconnects: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            refusals: Mutex::default(),
            wrong: Mutex::default(),
            last_answer_us: AtomicU64::new(0),
            longest_gap_us: AtomicU64::new(0),
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn answered(&self) {
        self.answered.fetch_add(1, Ordering::SeqCst);
        let now = self.start.elapsed().as_micros() as u64;
        let before = self.last_answer_us.fetch_max(now, Ordering::SeqCst);
        if before > 0 {
            self.longest_gap_us.fetch_max(now.saturating_sub(before), Ordering::SeqCst);
        }
    }

    fn longest_gap(&self) -> Duration {
        Duration::from_micros(self.longest_gap_us.load(Ordering::SeqCst))
    }

    fn forget_gaps(&self) {
        self.longest_gap_us.store(0, Ordering::SeqCst);
    }

    fn lost(&self, timeout: bool) {
        let count = if timeout { &self.timeouts } else { &self.disconnects };
        count.fetch_add(1, Ordering::SeqCst);
    }

    fn refused(&self, line: String) {
        self.refusals.lock().expect("no panic while it is held").push(line);
    }

    /// A wrong byte ends the whole load: later replies would obscure the cause.
    fn wrong(&self, what: String) {
        self.wrong.lock().expect("no panic while it is held").push(what);
        self.stop.store(true, Ordering::SeqCst);
    }

    fn report(&self, longest_gap: Duration, counters: Vec<Counter>) -> Report {
        Report {
            answered: self.answered.load(Ordering::SeqCst),
            disconnects: self.disconnects.load(Ordering::SeqCst),
            timeouts: self.timeouts.load(Ordering::SeqCst),
            refusals: std::mem::take(&mut *self.refusals.lock().expect("no panic while it is held")),
            wrong: std::mem::take(&mut *self.wrong.lock().expect("no panic while it is held")),
            longest_gap,
            counters,
        }
    }
}

/// The observations of a load.
#[derive(Debug)]
pub struct Report {
    /// Replies that were read completely and were right.
    pub answered: u64,
    /// Connections that broke.
    pub disconnects: u64,
    /// Connections given up because the server did not answer.
    pub timeouts: u64,
    /// `SERVER_ERROR` lines: no answers, and not wrong.
    pub refusals: Vec<String>,
    /// Wrong bytes, lost writes, doubled increments: each in full.
    pub wrong: Vec<String>,
    /// Longest time in which no client got a reply.
    pub longest_gap: Duration,
    /// The accounts of the shared counters.
    pub counters: Vec<Counter>,
}

impl Report {
    /// Fails with all errors.
    pub fn assert_right(&self) {
        assert!(self.wrong.is_empty(), "the servers lied:\n  {}\n{self}", self.wrong.join("\n  "));
        assert!(self.answered > 0, "nothing was asked");
    }

    /// Also fails when a connection was lost or a command refused: then counters are exact.
    pub fn assert_undisturbed(&self) {
        self.assert_right();
        let disturbed = self.disconnects + self.timeouts + self.refusals.len() as u64;
        assert_eq!(disturbed, 0, "{self}\n  {:?}", self.refusals.first());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} replies right, {} wrong, {} disconnects, {} timeouts, {} refused, longest gap {:?}",
            self.answered,
            self.wrong.len(),
            self.disconnects,
            self.timeouts,
            self.refusals.len(),
            self.longest_gap
        )
    }
}
