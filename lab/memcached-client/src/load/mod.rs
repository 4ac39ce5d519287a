//! A load of many clients that checks every byte of every reply against a sequential model of its own keys.
//!
//! Each client uses its own keys, so that its model is exact whatever the others do; a few keys are used by all:
//! counters, each of whose values may be returned once, and values that follow from their flags. When a connection is
//! lost, the commands on it may have been executed, may be executed later, or never: the model keeps every possible
//! state, and every later reply excludes some of them.

mod draw;
mod session;
mod shared;
mod tally;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::session::Session;
use self::shared::Shared;
use self::wire::Wire;
use crate::blocking::{Client, Failure};
use crate::pattern::Pattern;
use crate::request::KeyCommand;

pub use draw::LoadDraw;
pub use shared::CounterAccount;
pub use tally::{LoadCounts, LoadReport, LoadTally};

/// The settings of a load.
#[derive(Clone, Debug)]
pub struct CheckedLoad {
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

impl CheckedLoad {
    /// A mixed load of moderate size on these servers.
    pub fn on(endpoints: &[SocketAddr]) -> Self {
        CheckedLoad {
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
    ///
    /// # Panics
    /// If the first server does not store the counters.
    pub fn start(self) -> RunningLoad {
        self.try_start().expect("the first server stores the counters")
    }

    /// As [`CheckedLoad::start`].
    ///
    /// # Errors
    /// The first server does not store the counters, or there are no more threads.
    pub fn try_start(self) -> Result<RunningLoad, Failure> {
        let shared = Arc::new(Shared::new(self.prefix.clone(), self.shared, self.clients));
        self.prepare(&shared)?;
        let load = Arc::new(self);
        let tally = Arc::new(LoadTally::new());
        let spawn = |number| {
            let mut session = Session::new(number, load.clone(), shared.clone(), tally.clone());
            let work = move || {
                session.work();
                session
            };
            std::thread::Builder::new().name("load".into()).stack_size(256 * 1024).spawn(work)
        };
        let clients: io::Result<_> = (0..load.clients).map(spawn).collect();
        let clients = clients.inspect_err(|_| tally.stop())?;
        Ok(RunningLoad { load, shared, tally, clients })
    }

    fn prepare(&self, shared: &Shared) -> Result<(), Failure> {
        let mut client = Client::connect(self.endpoints[0], self.patience)?;
        (0..self.shared).try_for_each(|counter| client.set(&shared.counter_key(counter), 0, b"0"))
    }
}

/// A running load.
#[derive(Debug)]
pub struct RunningLoad {
    load: Arc<CheckedLoad>,
    shared: Arc<Shared>,
    tally: Arc<LoadTally>,
    clients: Vec<JoinHandle<Session>>,
}

impl RunningLoad {
    /// The counts so far.
    pub fn counts(&self) -> LoadCounts {
        self.tally.counts()
    }

    /// The counts, readable while it runs.
    pub fn tally(&self) -> &LoadTally {
        &self.tally
    }

    /// Replies judged so far.
    pub fn answered(&self) -> u64 {
        self.counts().answered
    }

    /// Whether a wrong byte was detected.
    pub fn saw_wrong(&self) -> bool {
        self.counts().wrong > 0
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
            let wrong = self.tally.wrong_so_far().join("\n  ");
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

    /// Stops the clients; the counts at the end.
    ///
    /// # Panics
    /// If a client's thread has panicked.
    pub fn stop(self) -> LoadCounts {
        self.tally.stop();
        self.clients.into_iter().for_each(|client| drop(client.join().expect("a client does not panic")));
        self.tally.counts()
    }

    /// Stops the clients, then reads back every key at every one of `servers` and compares it with the model.
    pub fn stop_and_audit(self, servers: &[SocketAddr]) -> LoadReport {
        self.tally.stop();
        self.join_and_audit(servers)
    }

    /// Waits until every client has sent its commands, then audits.
    pub fn join_and_audit(self, servers: &[SocketAddr]) -> LoadReport {
        let mut sessions: Vec<Session> = self
            .clients
            .into_iter()
            .map(|client| client.join().expect("a client's thread does not panic"))
            .collect();
        let longest_gap = self.tally.longest_gap();
        let deadline = Instant::now() + Duration::from_secs(60);
        if self.tally.counts().wrong == 0 {
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
fn audit_counter(counter: &CounterAccount, server: SocketAddr, patience: Duration, tally: &LoadTally) {
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
        wire.send(&KeyCommand::GET.classic().bytes(counter.key.as_bytes()))
            .and_then(|()| wire.next(&fits.iter().collect::<Vec<_>>()))
            .map_err(|failure| format!("{failure:?}"))
    });
    if let Err(why) = outcome {
        tally.wrong(format!("{} at {server}: expected {least} to {most}: {why}", counter.key));
    }
}
