//! One replica in the test's process: the service behind the sequential schedule, without a network. Nothing is mocked.

use std::sync::Arc;

use bytes::Bytes;
use execute::End;
use object::{ObjectId, Region, RegionId};
use schedule::{Access, Entry, Footprint, LockRules, Origin, Outcome, Schedule, Step, Turn, Worker};
use vote::digest::{self, with_parts};
use vote::{Content, Packed, Place};

use super::{Runs, START_US, handle};
use crate::Cx;
use crate::job::{Job, Work};
use crate::later::{self, HasParts, Owed};
use crate::ordered::Control;
use crate::overwrite::{Overwritten, overwrite};
use crate::service::{Action, ObjectPart, Progress, Protocol, Service, declare, declared, words_of};

/// A service of one replica, which executes one request after the other.
pub struct Replica<S: Service> {
    service: Arc<S>,
    schedule: Schedule<Job<S::Request>>,
    worker: Worker<Job<S::Request>>,
    index: u64,
    /// Ordered time of the next request, in microseconds since 1970. It grows by one with each request; a test may set
    /// it forward, so that timers fire.
    pub now_us: u64,
    /// Replies to earlier requests that requests have made since they were last taken.
    later: Vec<(Owed, Vec<u8>)>,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// The client's reply.
    Replied(Vec<u8>),
    /// An object failed its check. These objects do not fit their checksums, or are missing.
    Corrupted(Vec<(RegionId, ObjectId)>),
}

impl<S: Service> Replica<S> {
    /// A replica with this service as its state.
    pub fn new(service: S) -> Self {
        let service = Arc::new(service);
        let locks = service.locks().len() as u32;
        let shape = schedule::Config { mode: LockRules::Sequential, ..schedule::Config::new(1, locks) };
        let asked = service.clone();
        let (schedule, mut workers) = schedule::open(shape, move |job: &Job<S::Request>, footprint| {
            if let Work::Service(request) = &job.work {
                declare(&*asked, request, footprint);
            }
        });
        let worker = workers.pop().unwrap_or_else(|| unreachable!("a sequential schedule has one worker"));
        Replica { service, schedule, worker, index: 0, now_us: START_US, later: Vec::new() }
    }

    /// The service.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// Executes an encoded request as the next one in the log, and the requests that it starts.
    ///
    /// # Panics
    /// If the bytes are no request of the service.
    pub fn run(&mut self, ordered: &[u8]) -> RequestEnd {
        let ordered = Bytes::copy_from_slice(ordered);
        let request = match self.service.decode(&ordered) {
            Ok(request) => request,
            Err(error) => panic!("{} is no request: {error:?}", ordered.escape_ascii()),
        };
        let footprint = declared(&*self.service, &request);
        self.append(vec![Job::internal(request, ordered)], footprint);
        self.run_all()
    }

    /// What the request that ran last owes if its reply comes later: the handler has got the same from
    /// [`Cx::owe_reply`].
    pub fn owed(&self) -> Owed {
        Owed::to(0, Place::new(self.index, 0))
    }

    /// Takes the replies that came later than their requests ([`Cx::reply_to`]).
    pub fn take_later(&mut self) -> Vec<(Owed, Vec<u8>)> {
        std::mem::take(&mut self.later)
    }

    /// Advances time by so many microseconds, and fires timers that are due by then.
    pub fn pass_time(&mut self, microseconds: u64) {
        self.now_us += microseconds;
        self.append(Vec::new(), Footprint::new());
        self.run_all();
    }

    /// Handles a client's bytes, and returns the bytes that it gets. Bytes after the last whole request are ignored.
    ///
    /// # Panics
    /// If an object fails its check; [`Replica::run`] returns which one.
    pub fn talk(&mut self, protocol: &mut impl Protocol, input: &[u8]) -> Vec<u8> {
        let (mut input, mut output) = (input, Vec::new());
        while let Progress::Done { used, action } = protocol.next(input) {
            input = &input[used..];
            match action {
                Action::Nothing => {}
                Action::Reply(bytes) | Action::StartTls(bytes) => output.extend(bytes),
                Action::Order(ordered) => match self.run(&ordered) {
                    RequestEnd::Replied(reply) => output.extend(reply),
                    RequestEnd::Corrupted(wrong) => panic!("corrupted: {wrong:?}"),
                },
                Action::Close(bytes) => {
                    output.extend(bytes);
                    break;
                }
            }
        }
        output
    }

    /// Runs `visit` on the region behind a lock, between two requests: to damage, check or repair its objects.
    ///
    /// # Panics
    /// If there is no such lock.
    pub fn with_region<R>(&mut self, region_id: RegionId, visit: impl FnOnce(&mut dyn Region) -> R) -> R {
        let service = self.service.clone();
        let (mut visit, mut result) = (Some(visit), None);
        self.with_turn(region_id, |mut turn| {
            turn.take_all();
            turn.visit_regions(&service.locks(), |_, access| {
                if let (Access::Exclusive(region), Some(visit)) = (access, visit.take()) {
                    result = Some(visit(region));
                }
            });
            turn.finish(Outcome::Done);
        });
        result.unwrap_or_else(|| panic!("the service has no lock {region_id}"))
    }

    /// Overwrites objects behind a lock with these packed versions, as a repair does. Returns what the evidence says of
    /// those that were wrong.
    pub fn repair(&mut self, region_id: RegionId, right: &[(ObjectId, Vec<u8>)]) -> Vec<String> {
        let service = self.service.clone();
        let packed = |(id, bytes): &(ObjectId, Vec<u8>)| {
            let content = Content::Present(bytes.clone().into());
            Packed { region_id, id: *id, content }
        };
        let objects: Vec<Packed> = right.iter().map(packed).collect();
        let mut overwritten = Overwritten::default();
        self.with_turn(region_id, |mut turn| {
            turn.take_all();
            overwritten = overwrite(&mut turn, &service.locks(), &objects, &words_of::<S>());
            turn.finish(Outcome::Done);
        });
        overwritten.into_notes()
    }

    /// The object with this operator's name, and its lock.
    pub fn find(&mut self, name: &str) -> Option<(RegionId, ObjectId)> {
        let service = self.service.clone();
        let region_id = service.region_id_of(name)?;
        let mut found = None;
        self.with_turn(region_id, |turn| {
            found = service.find(&Cx::new(turn.cx(), &*service), name);
            turn.finish(Outcome::Done);
        });
        Some((region_id, found?))
    }

    /// The part of its object that this name means ([`Service::part_of`]).
    pub fn part_of(&mut self, name: &str) -> Option<ObjectPart> {
        let service = self.service.clone();
        let region_id = service.region_id_of(name)?;
        let mut part = None;
        self.with_turn(region_id, |turn| {
            part = service.part_of(&Cx::new(turn.cx(), &*service), name);
            turn.finish(Outcome::Done);
        });
        part
    }

    /// The digest of each region, in the order of the locks.
    pub fn digests(&mut self) -> Vec<u128> {
        let locks = self.service.locks().len() as RegionId;
        (0..locks).map(|region_id| self.with_region(region_id, |region| region.digest())).collect()
    }

    /// A turn on one lock, for a request that does nothing.
    fn with_turn(&mut self, region_id: RegionId, body: impl FnOnce(Turn<'_, Job<S::Request>>)) {
        let work = Work::Control(Control::Noop { region_id, ticket: 0 });
        self.append(vec![Job::unordered(work)], Footprint::one(region_id));
        let service = self.service.clone();
        let locks = service.locks();
        loop {
            let Step::Run(mut turn) = self.worker.next() else { panic!("the turn does not come") };
            if matches!(turn.request().work, Work::Control(_)) {
                body(turn);
                break;
            }
            // The turn belongs to a timer that fires with the same entry.
            let (_, outcome, _) =
                handle((&*service, S::BEHAVIORS.newest), &locks, &mut turn, Runs::Once, &mut Vec::new());
            turn.finish(outcome);
        }
        self.run_all();
    }

    fn append(&mut self, jobs: Vec<Job<S::Request>>, footprint: Footprint) {
        self.index += 1;
        let row = |request| schedule::BatchRow { request, footprint, stream: None };
        let rows = jobs.into_iter().map(row).collect();
        let (index, time_us) = (self.index, self.now_us);
        self.now_us += 1;
        self.schedule.append(Arc::new(Entry { index, time_us, seed: index, drain: true, rows }));
    }

    /// Runs all requests that can run; returns the outcome of the log's request, or of the first one with a corrupted
    /// object.
    fn run_all(&mut self) -> RequestEnd {
        let locks = self.service.locks();
        let (mut replied, mut corrupted) = (Vec::new(), None);
        while let Step::Run(mut turn) = self.worker.next() {
            let mut reply = Vec::new();
            let (end, outcome, parts) =
                handle((&*self.service, S::BEHAVIORS.newest), &locks, &mut turn, Runs::Once, &mut reply);
            if let End::Corrupted(found, mut wrong) = end {
                wrong.extend(Some((0, found.object)).filter(|_| wrong.is_empty()));
                corrupted.get_or_insert(wrong);
            } else {
                let (own, later) = cut(reply, turn.request().checksum, parts);
                self.later.extend(later);
                if matches!(turn.origin(), Origin::Entry { .. }) {
                    replied = own;
                }
            }
            turn.finish(outcome);
        }
        corrupted.map_or(RequestEnd::Replied(replied), RequestEnd::Corrupted)
    }
}

/// The reply to the own client, none if that comes later, and those to others.
fn cut(reply: Vec<u8>, checksum: u32, parts: HasParts) -> (Vec<u8>, Vec<(Owed, Vec<u8>)>) {
    let reply = Bytes::from(reply);
    let all = parts.any.then(|| later::split(&reply, digest::reply(with_parts(checksum), &reply)));
    match all.flatten() {
        Some(parts) => (
            parts.own.map_or_else(Vec::new, |(own, _)| own.to_vec()),
            parts.later.into_iter().map(|(owed, bytes)| (owed, bytes.to_vec())).collect(),
        ),
        None => (reply.to_vec(), Vec::new()),
    }
}
