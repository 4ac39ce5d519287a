//! The context of a handler: the schedule ([`schedule::Cx`]), and a typed way to start requests of its own service.

use std::ops::Deref;

use bytes::Bytes;
use schedule::Spawn;

use crate::job::Job;
use crate::later::{Collected, HasParts, Owed};
use crate::service::Service;

/// The running request's access to locks, time and random numbers, and a way to start requests. Dereferences to
/// [`schedule::Cx`], which has `lock`, `read`, `write`, `lock_two`, `now_us` and `rng`.
pub struct Cx<'a, S: Service> {
    schedule: schedule::Cx<'a, Job<S::Request>>,
    service: &'a S,
    behavior: u16,
    later: Collected,
}

impl<'a, S: Service> Cx<'a, S> {
    /// The context of a handler that runs on `service` in a turn with `schedule`, and acts as the newest behavior: for
    /// callers that run handlers themselves.
    pub fn new(schedule: schedule::Cx<'a, Job<S::Request>>, service: &'a S) -> Self {
        Cx::acting_as(schedule, service, S::BEHAVIORS.newest)
    }

    /// The same for one that acts as this behavior: what it writes is of the version of that behavior.
    pub fn acting_as(schedule: schedule::Cx<'a, Job<S::Request>>, service: &'a S, behavior: u16) -> Self {
        object::request::act_as(behavior);
        Cx { schedule, service, behavior, later: Collected::new(None) }
    }

    /// The same in a request whose reply, if it came later, would be this one.
    pub(crate) fn answering(self, own: Option<Owed>) -> Self {
        Cx { later: Collected::new(own), ..self }
    }

    /// The handler has succeeded at replica `me`: what it has to say to other clients joins its `reply`.
    pub(crate) fn end(self, me: u8, request_checksum: u32, reply: &mut Vec<u8>) -> HasParts {
        self.later.end(me, request_checksum, reply)
    }

    /// Which of the service's behaviors ([`Service::BEHAVIORS`]) the group acts as at this position.
    pub fn behavior(&self) -> u16 {
        self.behavior
    }

    /// Starts a request of this service if the running one succeeds. It runs [`schedule::LAG`] positions later, or
    /// soon after, and answers no client.
    pub fn spawn(&self, request: S::Request) {
        self.schedule.spawn(self.job(request));
    }

    /// Starts a request of this service with the first batch whose [time](schedule::Cx::now_us) is at least `time_us`
    /// (microseconds), if the running one succeeds.
    pub fn at(&self, time_us: u64, request: S::Request) {
        self.schedule.at(time_us, self.job(request));
    }

    /// The running request gets no reply now: the client waits until a request or timer answers it with
    /// [`Cx::reply_to`]. What the handler appends to its reply is dropped. Replies to later requests of the same
    /// connection wait behind it. If the client ends its connection meanwhile, it waits no more
    /// ([`Protocol::closed`](crate::Protocol::closed)).
    ///
    /// A request that the service has started itself has no client: it owes [`Owed::NOTHING`].
    pub fn owe_reply(&self) -> Owed {
        self.later.owe()
    }

    /// Answers a request that owes its reply, if the running one succeeds. The bytes are a part of what replicas
    /// compare of the running request. Nothing happens if the client is gone, or has its reply already.
    pub fn reply_to(&self, owed: Owed, reply: &[u8]) {
        self.later.reply_to(owed, reply);
    }

    fn job(&self, request: S::Request) -> Job<S::Request> {
        let ordered = Bytes::from(self.service.encode(&request));
        Job::internal(request, ordered)
    }
}

impl<'a, S: Service> Deref for Cx<'a, S> {
    type Target = schedule::Cx<'a, Job<S::Request>>;

    fn deref(&self) -> &Self::Target {
        &self.schedule
    }
}

impl<S: Service> Spawn<S::Request> for Cx<'_, S> {
    fn spawn(&self, request: S::Request) {
        Cx::spawn(self, request);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use execute::{Protection, Runner};
    use object::{ObjectId, Protect, RegionId, Summed, critical, genesis};
    use schedule::{BatchRow, Config, DetMutex, Entry, Footprint, Locks, Retry, Step, Waiters, Worker};
    use wire::Malformed;

    use super::*;
    use crate::packed_state::{PackWriter, PackedState};
    use crate::state::{self, CheckpointHead};

    #[derive(Clone, Debug, PartialEq, Summed)]
    enum Request {
        /// Starts two requests, one of them with a time.
        Start,
        /// Counts.
        Tick(u64),
        /// Waits until it is notified.
        Wait(u64),
        Notify,
        /// Locks both counters, or one of them twice.
        Move(RegionId, RegionId),
    }

    #[critical]
    struct Counter {
        ticks: Vec<u64>,
        waiting: Waiters<Request>,
    }

    #[critical]
    impl Counter {
        fn new() -> Self {
            Self { ticks: Vec::new(), waiting: Waiters::new() }
        }
        fn tick(&mut self, number: u64) {
            self.ticks.push(number);
        }
        fn take(&mut self) -> Option<u64> {
            self.ticks.pop()
        }
        fn ticks(&self) -> &[u64] {
            &self.ticks
        }
        fn waiting(&mut self) -> &mut Waiters<Request> {
            &mut self.waiting
        }
    }

    #[derive(Locks)]
    struct Ticker {
        counters: [DetMutex<Counter>; 2],
    }

    impl Ticker {
        fn new() -> Self {
            Ticker {
                counters: [0, 1].map(|region_id| DetMutex::new(region_id, genesis(region_id, Counter::new))),
            }
        }
        fn ticks(&mut self) -> Vec<Vec<u64>> {
            self.counters.iter_mut().map(|counter| counter.get_mut().ticks().to_vec()).collect()
        }
    }

    impl Service for Ticker {
        type Request = Request;

        fn decode(&self, ordered: &Bytes) -> Result<Request, Malformed> {
            object::from_bytes(ordered)
        }
        fn encode(&self, request: &Request) -> Vec<u8> {
            object::to_bytes(request)
        }
        fn footprint(&self, request: &Request, footprint: &mut Footprint) {
            match request {
                Request::Move(from, to) => {
                    [*from, *to].iter().for_each(|region_id| footprint.write(*region_id))
                }
                _ => footprint.write(0),
            }
        }
        fn execute(&self, cx: &Cx<'_, Self>, request: &Request, _reply: &mut Vec<u8>) -> Result<(), Retry> {
            match request {
                Request::Start => {
                    cx.spawn(Request::Tick(1));
                    cx.at(cx.now_us() + 100, Request::Tick(2));
                }
                Request::Tick(number) => cx.lock(&self.counters[0])?.tick(*number),
                Request::Wait(number) => {
                    cx.lock(&self.counters[0])?.waiting().wait(Request::Tick(*number));
                }
                Request::Notify => _ = cx.lock(&self.counters[0])?.waiting().notify_all(cx),
                Request::Move(from, to) => {
                    let counter = |region_id: RegionId| &self.counters[region_id as usize];
                    let mut two = cx.lock_two(counter(*from), counter(*to))?;
                    let moved = two.first().take();
                    moved.into_iter().for_each(|number| two.second().tick(number + 10));
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

    const LAG: u64 = 4;

    fn config() -> Config {
        Config { lag: LAG, ..Config::new(1, 2) }
    }

    fn footprint(job: &Job<Request>, footprint: &mut Footprint) {
        match job.request() {
            Some(request) => Ticker::new().footprint(request, footprint),
            None => footprint.make_all(),
        }
    }

    fn entry(index: u64, time_us: u64, jobs: Vec<Job<Request>>) -> Arc<Entry<Job<Request>>> {
        let row = |request: Job<Request>| {
            let mut locks = Footprint::new();
            footprint(&request, &mut locks);
            BatchRow { request, footprint: locks, stream: None }
        };
        let rows = jobs.into_iter().map(row).collect();
        Arc::new(Entry { index, time_us, seed: 0, drain: true, rows })
    }

    fn jobs_of(requests: &[Request]) -> Vec<Job<Request>> {
        let job = |request: &Request| Job::internal(request.clone(), object::to_bytes(request).into());
        requests.iter().map(job).collect()
    }

    /// Runs all jobs; returns the checkpoint that a job without a request makes.
    fn run(service: &Ticker, worker: &mut Worker<Job<Request>>) -> Option<PackedState> {
        let mut checkpoint = None;
        while let Step::Run(mut turn) = worker.next() {
            let locks = service.locks();
            let protection = Protection { protect: Protect::Check, undo: true };
            let runner = Runner { locks: &locks, protection, seal_hook: &() };
            let (_, outcome) =
                runner.once(&mut turn, &mut Vec::new(), |cx, job, reply| match job.request() {
                    Some(request) => service.execute(&Cx::new(*cx, service), request, reply),
                    None => Ok(()),
                });
            if turn.request().request().is_none() {
                let head = CheckpointHead { index: 1, batch: 1, order: order::State::default() };
                checkpoint = state::pack(&mut turn, service, &head, PackWriter::default()).ok();
            }
            turn.finish(outcome);
        }
        checkpoint
    }

    #[test]
    fn a_handler_starts_requests_of_its_own_and_a_checkpoint_has_those_that_wait() {
        let mut service = Ticker::new();
        let (schedule, mut workers) = schedule::open(config(), footprint);
        let mut jobs = jobs_of(&[Request::Wait(7), Request::Start, Request::Notify]);
        let head = CheckpointHead { index: 1, batch: 1, order: order::State::default() };
        jobs.push(Job::unordered(crate::job::Work::Checkpoint(Arc::new(head))));
        let (first, last) = (entry(1, 1_000, jobs), entry(2, 1_200, Vec::new()));
        schedule.append(first);
        let checkpoint = run(&service, &mut workers[0]).expect("a checkpoint");
        assert_eq!(service.ticks(), [vec![1, 7], vec![]], "the timer is not due");

        let mut other = Ticker::new();
        let (_, state) = state::load(&mut other, checkpoint).expect("its own checkpoint");
        let (resumed, mut other_workers) = schedule::resume(config(), footprint, state);
        assert_eq!(other.ticks(), [Vec::<u64>::new(), Vec::new()], "what was started has not run yet");
        for (schedule, service, workers) in
            [(&schedule, &mut service, &mut workers), (&resumed, &mut other, &mut other_workers)]
        {
            schedule.append(last.clone());
            run(service, &mut workers[0]);
            assert_eq!(service.ticks(), [vec![1, 7, 2], vec![]]);
        }
    }

    #[test]
    fn two_locks_in_either_order_and_one_lock_twice() {
        let mut service = Ticker::new();
        let (schedule, mut workers) = schedule::open(config(), footprint);
        let requests = [
            Request::Tick(1),
            Request::Tick(2),
            Request::Move(0, 1),
            Request::Move(1, 0),
            Request::Move(0, 0),
        ];
        schedule.append(entry(1, 1_000, jobs_of(&requests)));
        run(&service, &mut workers[0]);
        assert_eq!(service.ticks(), [vec![1, 32], vec![]]);
    }
}
