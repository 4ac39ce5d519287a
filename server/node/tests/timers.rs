//! A timer of a single node fires although no client sends anything.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crosscheck::admin::Endpoint;
use crosscheck::object::{ObjectId, RegionId, critical, genesis};
use crosscheck::schedule::{DetMutex, Footprint, Locks, Retry};
use crosscheck::{Action, Cx, MakeProtocol, Malformed, Progress, Protocol, Service, Settings, serve};

/// Time after which a timer is due.
const AFTER_US: u64 = 300_000;

#[critical]
struct Bell {
    rung: u64,
}

#[critical]
impl Bell {
    fn new() -> Self {
        Self { rung: 0 }
    }
    fn ring(&mut self) {
        self.rung += 1;
    }
}

#[derive(Clone)]
enum Request {
    /// Of a client: sets the timer.
    Set,
    /// The timer.
    Ring,
}

#[derive(Locks)]
struct Bells {
    bell: DetMutex<Bell>,
    /// For the test: the last ordered time at which it rang. A node that runs requests twice notes both runs.
    #[locks(skip)]
    rang_us: Arc<AtomicU64>,
}

impl Service for Bells {
    type Request = Request;

    fn decode(&self, ordered: &Bytes) -> Result<Request, Malformed> {
        Ok(if ordered.as_ref() == [0] { Request::Set } else { Request::Ring })
    }
    fn encode(&self, request: &Request) -> Vec<u8> {
        vec![u8::from(matches!(request, Request::Ring))]
    }
    fn footprint(&self, _request: &Request, footprint: &mut Footprint) {
        footprint.write(0);
    }
    fn execute(&self, cx: &Cx<'_, Self>, request: &Request, _reply: &mut Vec<u8>) -> Result<(), Retry> {
        match request {
            Request::Set => cx.at(cx.now_us() + AFTER_US, Request::Ring),
            Request::Ring => {
                cx.lock(&self.bell)?.ring();
                self.rang_us.store(cx.now_us(), Ordering::SeqCst);
            }
        }
        Ok(())
    }
    fn panicked(&self, _request: &Request, _reply: &mut Vec<u8>) {}
    fn region_id_of(&self, _name: &str) -> Option<RegionId> {
        None
    }
    fn find(&self, _cx: &Cx<'_, Self>, _name: &str) -> Option<ObjectId> {
        None
    }
}

/// Each byte sets a timer.
#[derive(Clone, PartialEq)]
struct Bytewise;

impl Protocol for Bytewise {
    fn next(&mut self, input: &[u8]) -> Progress {
        match input {
            [] => Progress::NeedMore(1),
            [..] => Progress::Done { used: 1, action: Action::Order(vec![0]) },
        }
    }
}

fn rings_while_idle(mode: &str, workers: usize) {
    let directory = tempfile::tempdir().expect("a directory");
    let free = || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("its address")
    };
    let (peers, clients) = (vec![free().into()], free());
    let settings = Settings {
        mode: mode.parse().expect("a mode"),
        workers,
        begins: true,
        restore: None,
        ..super::settings(0, peers, clients, Endpoint::Unix(directory.path().join("admin.sock")))
    };
    let rang_us = Arc::new(AtomicU64::new(0));
    let bells = Bells { bell: DetMutex::new(0, genesis(0, Bell::new)), rang_us: Arc::clone(&rang_us) };
    let (started, stoppers) = mpsc::channel();
    let node = std::thread::spawn(move || {
        let protocol: MakeProtocol<Bytewise> = Arc::new(|_| Bytewise);
        serve(settings, bells, protocol, |stopper| _ = started.send(stopper)).expect("it is stopped");
    });
    let stopper = stoppers.recv().expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut client = loop {
        match TcpStream::connect(clients) {
            Ok(client) => break client,
            Err(error) => assert!(Instant::now() < deadline, "{mode}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    client.write_all(b"x").expect("it is sent");
    while rang_us.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < deadline, "{mode} with {workers} workers: the timer does not fire");
        std::thread::sleep(Duration::from_millis(10));
    }
    stopper.stop();
    node.join().expect("it ends");
}

#[test]
fn a_timer_of_a_single_node_fires_without_any_further_request() {
    for mode in ["0000", "00G0", "00GT"] {
        for workers in [1, 2] {
            rings_while_idle(mode, workers);
        }
    }
}
