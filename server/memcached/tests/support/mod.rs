//! One replica in this process: the service behind the sequential schedule, and connections to it. Nothing is mocked.
#![allow(dead_code, reason = "the benchmark uses a part of this")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use crosscheck::object::request::{self, Protect, ScopeOptions};
use crosscheck::object::{Kept, ObjectId, Region, RegionId, Touched, corrupted};
use crosscheck::schedule::{
    self, Access, BatchRow, Entry, Footprint, LockRules, Outcome, Schedule, Step, Turn, Worker,
};
use crosscheck::{Action, ClientCounters, Cx, Job, Progress, Protocol, Service};
use memcached::command::{Command, Keys, decode};
use memcached::{Config, Connection, Memcached};

/// Ordered time at which every replica here starts: some second in 2023, in microseconds.
pub const START_US: u64 = 1_700_000_000_000_000;

/// A service of one replica, executed in log order.
pub struct Replica {
    pub service: Arc<Memcached>,
    schedule: Schedule<Job<Command>>,
    worker: Worker<Job<Command>>,
    clients: Arc<ClientCounters>,
    index: u64,
    /// Ordered time of the next request; grows by one with each, as under the schedule.
    pub now_us: u64,
    /// The state delta of the last request.
    pub touched: Option<Touched>,
    /// Whether objects are checked and sealed.
    pub protect: bool,
    /// What takes the requests back that ran since this was there, oldest first.
    pub kept: Option<Vec<Kept>>,
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Ran {
    /// The reply.
    Replied(Vec<u8>),
    /// A check failed; these objects do not fit their checksums, or do not exist.
    Corrupted(Vec<ObjectId>),
}

impl Replica {
    /// An empty replica.
    pub fn new(config: Config) -> Self {
        let service = Arc::new(Memcached::new(config).expect("the test's configuration works"));
        let shape =
            schedule::Config { mode: LockRules::Sequential, ..schedule::Config::new(1, config.shards) };
        let asked = service.clone();
        let (schedule, mut workers) =
            schedule::open(shape, move |job: &Job<Command>, footprint: &mut Footprint| {
                job.request().iter().for_each(|command| asked.footprint(command, footprint));
            });
        let worker = workers.pop().expect("one worker");
        let clients = Arc::new(ClientCounters::default());
        Replica {
            service,
            schedule,
            worker,
            clients,
            index: 0,
            now_us: START_US,
            touched: None,
            protect: true,
            kept: None,
        }
    }

    /// A new client connection.
    pub fn connect(&self) -> Connection {
        Connection::new(self.service.stats().clone(), self.clients.clone())
    }

    /// Executes an encoded request as the next one in the log.
    pub fn run(&mut self, ordered: &[u8]) -> Ran {
        let ordered = Bytes::copy_from_slice(ordered);
        let command = decode(&ordered).expect("a protocol's requests decode");
        let mut footprint = Footprint::new();
        self.service.footprint(&command, &mut footprint);
        self.index += 1;
        let rows = vec![BatchRow { request: Job::internal(command, ordered), footprint, stream: None }];
        let entry = Entry { index: self.index, time_us: self.now_us, seed: 0, drain: false, rows };
        self.now_us += 1;
        self.schedule.append(Arc::new(entry));
        let Step::Run(mut turn) = self.worker.next() else { panic!("the request does not run at once") };
        let locks = self.service.locks();
        let protect = if self.protect { Protect::Check } else { Protect::Nothing };
        let begin = if self.kept.is_some() { request::begin_with_whole_images } else { request::begin };
        begin(ScopeOptions { position: turn.position(), protect, keep_before_images: true });
        let mut reply = Vec::new();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let command = turn.request().request().expect("a client's request");
            let cx = Cx::new(turn.cx(), &*self.service);
            self.service.execute(&cx, command, &mut reply).expect("footprints are exact");
        }));
        match ended {
            Ok(()) => {
                turn.visit_regions(&locks, |region_id, access| {
                    if let Access::Exclusive(region) = access {
                        region.seal(region_id);
                    }
                });
                self.touched = Some(match &mut self.kept {
                    None => request::finish(),
                    Some(all) => {
                        let (touched, kept) = request::finish_keeping(Kept::new());
                        all.push(kept);
                        touched
                    }
                });
                turn.finish(Outcome::Done);
                Ran::Replied(reply)
            }
            Err(payload) => {
                let found = corrupted(&*payload).expect("handlers do not panic");
                let mut wrong = Vec::from_iter(Some(found.object).filter(|object| !object.is_none()));
                turn.visit_regions(&locks, |_, access| {
                    if let Access::Exclusive(region) = access {
                        wrong.extend(region.blame());
                        region.undo();
                    }
                });
                request::abandon();
                turn.finish(Outcome::Abandoned);
                Ran::Corrupted(wrong)
            }
        }
    }

    /// Feeds bytes of a client and returns what it gets, and whether the connection was closed.
    pub fn talk(&mut self, connection: &mut Connection, input: &[u8]) -> (Vec<u8>, bool) {
        let (_, output, closed) = self.talk_some(connection, input);
        (output, closed)
    }

    /// The same, and first how many bytes were used; the others have to be fed again, with more behind them.
    pub fn talk_some(&mut self, connection: &mut Connection, input: &[u8]) -> (usize, Vec<u8>, bool) {
        let whole = input.len();
        let (mut input, mut output) = (input, Vec::new());
        while let Progress::Done { used, action } = connection.next(input) {
            input = &input[used..];
            match action {
                Action::Nothing => {}
                Action::Reply(bytes) | Action::StartTls(bytes) => output.extend(bytes),
                Action::Order(ordered) => match self.run(&ordered) {
                    Ran::Replied(reply) => output.extend(reply),
                    Ran::Corrupted(wrong) => panic!("corrupted: {wrong:?}"),
                },
                Action::Close(bytes) => {
                    output.extend(bytes);
                    return (whole - input.len(), output, true);
                }
            }
        }
        (whole - input.len(), output, false)
    }

    /// Bytes in, bytes out, on a connection of their own.
    pub fn ask(&mut self, input: &str) -> String {
        let mut connection = self.connect();
        String::from_utf8_lossy(&self.talk(&mut connection, input.as_bytes()).0).into_owned()
    }

    /// Runs `visit` on the region behind a lock, outside of any request.
    pub fn with_region<R>(&mut self, region_id: u32, visit: impl FnOnce(&mut dyn Region) -> R) -> R {
        let service = self.service.clone();
        let mut turn = self.turn(region_id);
        turn.take_all();
        let mut visit = Some(visit);
        let mut result = None;
        turn.visit_regions(&service.locks(), |_, access| {
            if let (Access::Exclusive(region), Some(visit)) = (access, visit.take()) {
                result = Some(visit(region));
            }
        });
        turn.finish(Outcome::Done);
        result.expect("the region was shown")
    }

    /// A turn on one lock, for a request that does nothing.
    fn turn(&mut self, region_id: RegionId) -> Turn<'_, Job<Command>> {
        self.index += 1;
        let request = Command::Get { keys: Keys::new(), with_unique: false, touch: None };
        let request = Job::internal(request, Bytes::new());
        let rows = vec![BatchRow { request, footprint: Footprint::one(region_id), stream: None }];
        let entry = Entry { index: self.index, time_us: self.now_us, seed: 0, drain: false, rows };
        self.now_us += 1;
        self.schedule.append(Arc::new(entry));
        match self.worker.next() {
            Step::Run(turn) => turn,
            _ => panic!("the turn does not come"),
        }
    }

    /// The object of that name and the lock it lives behind, as the injector finds it.
    pub fn find(&mut self, name: &str) -> Option<(RegionId, ObjectId)> {
        let service = self.service.clone();
        let region_id = service.region_id_of(name)?;
        let turn = self.turn(region_id);
        let found = service.find(&Cx::new(turn.cx(), &*service), name);
        turn.finish(Outcome::Done);
        Some((region_id, found?))
    }

    /// Fails if any shard's objects do not fit together.
    pub fn audit(&mut self) {
        let service = self.service.clone();
        for region_id in 0..service.config().shards {
            let turn = self.turn(region_id);
            assert_eq!(
                service.audit(&Cx::new(turn.cx(), &*service), region_id).expect("the turn is on this lock"),
                Ok(()),
                "shard {region_id}"
            );
            turn.finish(Outcome::Done);
        }
    }

    /// How many requests have been ordered.
    pub fn position(&self) -> u64 {
        self.index
    }

    /// The digest of each shard.
    pub fn digests(&mut self) -> Vec<u128> {
        (0..self.service.config().shards)
            .map(|region_id| self.with_region(region_id, |region| region.digest()))
            .collect()
    }
}
