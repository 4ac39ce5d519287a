//! Two builds of a service that differ in a critical type, or in the requests, are not taken for one: both refuse the
//! other one by name.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crosscheck::admin::client::ask;
use crosscheck::admin::{AdminCommand, Endpoint, Status};
use crosscheck::object::{Critical, ObjectId, Region, RegionId, Shape, Shaped, critical, genesis};
use crosscheck::schedule::{DetMutex, Footprint, Locks, Retry};
use crosscheck::{
    Action, Cx, GroupKey, MakeProtocol, Malformed, Progress, Protocol, Service, Settings, Stopper, serve,
};

/// A service with one object, whose type and whose requests differ from build to build.
#[derive(Locks)]
struct Versioned<T: Region, R> {
    root: DetMutex<T>,
    #[locks(skip)]
    requests: std::marker::PhantomData<fn() -> R>,
}

impl<T: Critical + Region + Send + Sync + 'static, R: Shaped> Service for Versioned<T, R> {
    type Request = ();

    fn decode(&self, _ordered: &Bytes) -> Result<(), Malformed> {
        Ok(())
    }
    fn encode(&self, (): &()) -> Vec<u8> {
        vec![0]
    }
    fn footprint(&self, (): &(), footprint: &mut Footprint) {
        footprint.write(0);
    }
    fn execute(&self, cx: &Cx<'_, Self>, (): &(), _reply: &mut Vec<u8>) -> Result<(), Retry> {
        cx.lock(&self.root).map(|_| ())
    }
    fn shape_of_requests(shape: &mut Shape) {
        shape.add::<R>();
    }
    fn panicked(&self, (): &(), _reply: &mut Vec<u8>) {}
    fn region_id_of(&self, _name: &str) -> Option<RegionId> {
        None
    }
    fn find(&self, _cx: &Cx<'_, Self>, _name: &str) -> Option<ObjectId> {
        None
    }
}

/// Clients say nothing here.
#[derive(Clone, PartialEq)]
struct Silence;

impl Protocol for Silence {
    fn next(&mut self, input: &[u8]) -> Progress {
        Progress::Done { used: input.len().max(1), action: Action::Nothing }
    }
}

/// The requests of all builds but one.
#[derive(Shaped)]
#[allow(dead_code, reason = "only its shape counts")]
enum Requests {
    Put(u64),
    Get,
}

/// Runs a replica of a build in a thread of its own.
type Build = fn(Settings, mpsc::Sender<Stopper>);

fn run<T: Critical + Region + Send + Sync + 'static, R: Shaped>(
    settings: Settings,
    root: fn() -> T,
    started: mpsc::Sender<Stopper>,
) {
    std::thread::spawn(move || {
        let service =
            Versioned::<T, R> { root: DetMutex::new(0, genesis(0, root)), requests: Default::default() };
        let protocol: MakeProtocol<Silence> = Arc::new(|_| Silence);
        serve(settings, service, protocol, |stopper| _ = started.send(stopper)).expect("it is stopped");
    });
}

// The types are in functions: all of them have one path, and differ in nothing but what the test is about.
fn first(settings: Settings, started: mpsc::Sender<Stopper>) {
    #[critical]
    struct Job {
        id: u64,
    }
    #[critical]
    impl Job {
        fn new() -> Self {
            Self { id: 0 }
        }
    }
    run::<Job, Requests>(settings, Job::new, started);
}

fn with_a_member(settings: Settings, started: mpsc::Sender<Stopper>) {
    #[critical]
    struct Job {
        id: u64,
        weight: u32,
    }
    #[critical]
    impl Job {
        fn new() -> Self {
            Self { id: 0, weight: 0 }
        }
    }
    run::<Job, Requests>(settings, Job::new, started);
}

fn with_a_request(settings: Settings, started: mpsc::Sender<Stopper>) {
    #[critical]
    struct Job {
        id: u64,
    }
    #[critical]
    impl Job {
        fn new() -> Self {
            Self { id: 0 }
        }
    }
    #[derive(Shaped)]
    #[allow(dead_code, reason = "only its shape counts")]
    enum Requests {
        Put(u64),
        Take,
        Get,
    }
    run::<Job, Requests>(settings, Job::new, started);
}

fn settings(me: u8, addresses: &[SocketAddr], directory: &Path, key: &GroupKey) -> Settings {
    let peers = addresses[..3].iter().map(|address| (*address).into()).collect();
    let clients = addresses[3 + usize::from(me)];
    Settings { group_key: Some(key.clone()), ..super::settings(me, peers, clients, admin(directory, me)) }
}

fn admin(directory: &Path, me: u8) -> Endpoint {
    Endpoint::Unix(directory.join(format!("{me}.sock")))
}

/// What replicas 1 and 2 say about each other, as soon as `until` holds for it.
fn meet(builds: [Build; 2], until: impl Fn(&[Status]) -> bool) -> Vec<Status> {
    let directory = tempfile::tempdir().expect("a directory");
    let listeners: Vec<TcpListener> =
        (0..6).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let addresses: Vec<SocketAddr> =
        listeners.iter().map(|listener| listener.local_addr().expect("its address")).collect();
    drop(listeners);
    let key = GroupKey::random(Some("builds")).expect("a key");
    let (started, stoppers) = mpsc::channel();
    for (me, build) in (0..).zip(builds) {
        build(settings(me, &addresses, directory.path(), &key), started.clone());
    }
    let stoppers: Vec<Stopper> = stoppers.iter().take(2).collect();
    let deadline = Instant::now() + Duration::from_secs(30);
    let statuses = loop {
        let status = |me| {
            ask::<Status>(&admin(directory.path(), me), &AdminCommand::Status, Duration::from_secs(5)).ok()
        };
        let statuses: Vec<Status> = (0..2).filter_map(status).collect();
        if statuses.len() == 2 && until(&statuses) {
            break statuses;
        }
        assert!(Instant::now() < deadline, "{statuses:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    stoppers.iter().for_each(Stopper::stop);
    statuses
}

fn are_refused(statuses: &[Status]) -> bool {
    statuses.iter().all(|status| !status.refused.replicas.is_empty())
}

#[test]
fn another_build_is_refused_by_name_at_both_ends() {
    let met = meet([first, first], |statuses| statuses.iter().all(|status| !status.peers.is_empty()));
    assert!(
        met.iter().all(|status| status.refused.replicas.is_empty()),
        "the same build is no other one: {met:?}"
    );
    let reported = |builds: [Build; 2]| -> Vec<String> {
        let statuses = meet(builds, are_refused);
        assert!(statuses.iter().all(|status| status.peers.is_empty() && status.refused.strangers == 0));
        statuses.into_iter().map(|status| status.refused.replicas.concat()).collect()
    };
    let member = reported([first, with_a_member]);
    assert!(
        member[0].starts_with("replica 2: class Job is 1 member (") && member[0].contains("2 members ("),
        "{member:?}"
    );
    assert!(member[1].starts_with("replica 1: class Job is 2 members ("), "{member:?}");
    let request = reported([first, with_a_request]);
    assert!(request.iter().all(|reported| reported.contains("set of requests is ")), "{request:?}");
    for reported in member.iter().chain(&request) {
        assert!(
            reported.contains("another build of the program") && reported.contains("run the same build"),
            "{reported}"
        );
    }
}
