//! The queue against a plain model: every reply equals the model's. And its protocol against any bytes.

use std::collections::BTreeMap;

use crosscheck::object::{from_bytes, to_bytes};
use crosscheck::testing::{Replica, RequestEnd};
use crosscheck::{Action, ConnectionId, ConnectionsOfReplica, Owed, Progress, Protocol};
use proptest::prelude::*;
use queue::{BeanstalkConnection, MAX_TUBES, MAX_WATCHED, QueueCommand, QueueRequest, Setting, WorkQueue};

const CLIENTS: usize = 3;
/// Two of one region, and one of another.
const TUBES: [&str; 3] = ["default", "mail", "tube-13"];
const SECOND: u64 = 1_000_000;

/// A client's command, or time that passes. Jobs are named by their numbers, tubes by their places in [`TUBES`].
#[derive(Clone, Debug)]
enum Step {
    Put { pri: u32, delay: u64, ttr: u64 },
    Reserve,
    ReserveWithin(u64),
    ReserveJob(usize),
    Delete(usize),
    Release(usize, u32, u64),
    Bury(usize, u32),
    Touch(usize),
    Kick(u32),
    KickJob(usize),
    Peek(usize),
    PeekReady,
    PeekDelayed,
    PeekBuried,
    Use(usize),
    Watch(usize),
    Ignore(usize),
    Pause(usize, u64),
    ReadyOf(usize),
    Close,
    Pass(u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Ready,
    Reserved(usize, u64),
    Delayed(u64),
    Buried(usize),
}

/// A job of the model: its tube, priority, time to run and state.
#[derive(Clone, Debug)]
struct Entry {
    tube: usize,
    pri: u32,
    ttr: u64,
    state: State,
}

/// The queue without locks, objects, lists or timers.
#[derive(Default)]
struct Model {
    /// By number; those that are deleted are gone.
    jobs: BTreeMap<usize, Entry>,
    put: usize,
    buried: usize,
    used: [usize; CLIENTS],
    watched: [Vec<usize>; CLIENTS],
    paused_until: [u64; TUBES.len()],
    /// Clients that wait, with the times at which they give up, the longest waiting first.
    waiting: Vec<(usize, u64)>,
    /// Replies to clients that waited.
    later: Vec<(usize, String)>,
}

impl Model {
    fn new() -> Self {
        Model { watched: std::array::from_fn(|_| vec![0]), ..Model::default() }
    }

    /// When something happens next, up to this time.
    fn next_event(&self, now: u64, most: u64) -> Option<u64> {
        let of_job = |job: &Entry| match job.state {
            State::Reserved(_, until) | State::Delayed(until) => Some(until),
            State::Ready | State::Buried(_) => None,
        };
        let of_wait = |(client, until): &(usize, u64)| (*until).min(self.margin(*client));
        let jobs = self.jobs.values().filter_map(of_job);
        let all = jobs.chain(self.paused_until).chain(self.waiting.iter().map(of_wait));
        all.filter(|time| (now..=most).contains(time)).min()
    }

    /// Time has come this far.
    fn advance(&mut self, now: u64) {
        for job in self.jobs.values_mut() {
            if matches!(job.state, State::Reserved(_, until) | State::Delayed(until) if until <= now) {
                job.state = State::Ready;
            }
        }
        self.serve(now);
        for (client, until) in std::mem::take(&mut self.waiting) {
            match () {
                () if self.margin(client) <= now => self.later.push((client, "DEADLINE_SOON".to_owned())),
                () if until <= now => self.later.push((client, "TIMED_OUT".to_owned())),
                () => self.waiting.push((client, until)),
            }
        }
    }

    /// Gives ready jobs to clients that wait: region after region, in each the most urgent one first.
    fn serve(&mut self, now: u64) {
        loop {
            let waiting = |tube: usize| {
                self.waiting.iter().position(|(client, _)| self.watched[*client].contains(&tube))
            };
            let ready = self.jobs.iter().filter(|(_, job)| {
                job.state == State::Ready && self.paused_until[job.tube] <= now && waiting(job.tube).is_some()
            });
            let first =
                ready.min_by_key(|(number, job)| (queue::region_of_tube(TUBES[job.tube]), job.pri, **number));
            let Some((number, at)) = first.and_then(|(number, job)| Some((*number, waiting(job.tube)?)))
            else {
                return;
            };
            let (client, _) = self.waiting.remove(at);
            let reply = self.reserve(client, number, now);
            self.later.push((client, reply));
        }
    }

    /// When the last second of the client's first reservation begins.
    fn margin(&self, client: usize) -> u64 {
        let deadlines = self.jobs.values().filter_map(|job| match job.state {
            State::Reserved(by, until) if by == client => Some(until - SECOND),
            _ => None,
        });
        deadlines.min().unwrap_or(u64::MAX)
    }

    /// The reply to a command; jobs are in it by number.
    fn run(&mut self, client: usize, step: &Step, now: u64) -> String {
        let after = |delay: u64| if delay == 0 { State::Ready } else { State::Delayed(now + delay * SECOND) };
        let done = |is_done: bool, reply: &str| if is_done { reply } else { "NOT_FOUND" }.to_owned();
        match *step {
            Step::Put { pri, delay, ttr } => {
                let entry = Entry { tube: self.used[client], pri, ttr, state: after(delay) };
                self.jobs.insert(self.put, entry);
                self.put += 1;
                format!("INSERTED {}", self.put - 1)
            }
            Step::Reserve | Step::ReserveWithin(_) => {
                let until =
                    if let Step::ReserveWithin(seconds) = step { now + seconds * SECOND } else { u64::MAX };
                let is_in =
                    |tube: usize| self.watched[client].contains(&tube) && self.paused_until[tube] <= now;
                let ready = self.jobs.iter().filter(|(_, job)| is_in(job.tube) && job.state == State::Ready);
                match ready.min_by_key(|(number, job)| (job.pri, **number)).map(|(number, _)| *number) {
                    Some(number) => self.reserve(client, number, now),
                    None if self.margin(client) <= now => "DEADLINE_SOON".to_owned(),
                    None if until <= now => "TIMED_OUT".to_owned(),
                    None => {
                        self.waiting.push((client, until));
                        String::new()
                    }
                }
            }
            Step::ReserveJob(number) => self.reserve(client, number, now),
            Step::Delete(number) => {
                let may = self
                    .jobs
                    .get(&number)
                    .is_some_and(|job| !matches!(job.state, State::Reserved(by, _) if by != client));
                may.then(|| self.jobs.remove(&number));
                done(may, "DELETED")
            }
            Step::Release(number, pri, delay) => done(
                self.change(number, client, |job| (job.pri, job.state) = (pri, after(delay))),
                "RELEASED",
            ),
            Step::Bury(number, pri) => {
                self.buried += 1;
                let place = self.buried;
                done(
                    self.change(number, client, |job| (job.pri, job.state) = (pri, State::Buried(place))),
                    "BURIED",
                )
            }
            Step::Touch(number) => {
                let touch = |job: &mut Entry| job.state = State::Reserved(client, now + job.ttr * SECOND);
                done(self.change(number, client, touch), "TOUCHED")
            }
            Step::Kick(bound) => {
                let mut next: Vec<(u64, usize)> = self.of_used(client, buried);
                if next.is_empty() {
                    next = self.of_used(client, delayed);
                }
                let kicked = next.iter().take(bound as usize);
                let kicked = kicked
                    .filter_map(|(_, number)| self.jobs.get_mut(number).map(|job| job.state = State::Ready));
                format!("KICKED {}", kicked.count())
            }
            Step::KickJob(number) => {
                let job = self.jobs.get_mut(&number);
                let job = job.filter(|job| matches!(job.state, State::Buried(_) | State::Delayed(_)));
                done(job.map(|job| job.state = State::Ready).is_some(), "KICKED")
            }
            _ => self.run_more(client, step, now),
        }
    }

    fn run_more(&mut self, client: usize, step: &Step, now: u64) -> String {
        let done = |is_done: bool, reply: &str| if is_done { reply } else { "NOT_FOUND" }.to_owned();
        match *step {
            Step::Peek(number) => {
                if self.jobs.contains_key(&number) {
                    found(number)
                } else {
                    done(false, "")
                }
            }
            Step::PeekReady => {
                let is_ready = |job: &Entry| job.tube == self.used[client] && job.state == State::Ready;
                let ready = self.jobs.iter().filter(|(_, job)| is_ready(job));
                let first = ready.min_by_key(|(number, job)| (job.pri, **number));
                first.map_or_else(|| done(false, ""), |(number, _)| found(*number))
            }
            Step::PeekDelayed => self.peek(client, delayed),
            Step::PeekBuried => self.peek(client, buried),
            Step::Use(tube) => {
                self.used[client] = tube;
                format!("USING {}", TUBES[tube])
            }
            Step::Watch(tube) => {
                self.watched[client].retain(|other| *other != tube);
                self.watched[client].push(tube);
                format!("WATCHING {}", self.watched[client].len())
            }
            Step::Ignore(tube) if self.watched[client] == [tube] => "NOT_IGNORED".to_owned(),
            Step::Ignore(tube) => {
                self.watched[client].retain(|other| *other != tube);
                format!("WATCHING {}", self.watched[client].len())
            }
            Step::Pause(tube, seconds) => {
                let exists = self.exists(tube);
                if exists {
                    self.paused_until[tube] = now + seconds * SECOND;
                }
                done(exists, "PAUSED")
            }
            Step::ReadyOf(tube) => {
                let ready =
                    self.jobs.values().filter(|job| job.tube == tube && job.state == State::Ready).count();
                if self.exists(tube) { format!("current-jobs-ready: {ready}") } else { done(false, "") }
            }
            Step::Close => {
                self.jobs
                    .values_mut()
                    .filter(|job| matches!(job.state, State::Reserved(by, _) if by == client))
                    .for_each(|job| job.state = State::Ready);
                self.waiting.retain(|(other, _)| *other != client);
                (self.used[client], self.watched[client]) = (0, vec![0]);
                self.forget_pauses();
                String::new()
            }
            _ => String::new(),
        }
    }

    fn exists(&self, tube: usize) -> bool {
        let is_referred =
            self.used.contains(&tube) || self.watched.iter().any(|watched| watched.contains(&tube));
        tube == 0 || is_referred || self.jobs.values().any(|job| job.tube == tube)
    }

    /// The pause of a tube goes with it.
    fn forget_pauses(&mut self) {
        for tube in 0..TUBES.len() {
            if !self.exists(tube) {
                self.paused_until[tube] = 0;
            }
        }
    }

    fn reserve(&mut self, client: usize, number: usize, now: u64) -> String {
        let job = self.jobs.get_mut(&number).filter(|job| !matches!(job.state, State::Reserved(..)));
        let Some(job) = job else { return "NOT_FOUND".to_owned() };
        job.state = State::Reserved(client, now + job.ttr * SECOND);
        format!("RESERVED {number}")
    }

    fn change(&mut self, number: usize, client: usize, change: impl FnOnce(&mut Entry)) -> bool {
        let job = self.jobs.get_mut(&number);
        job.filter(|job| matches!(job.state, State::Reserved(by, _) if by == client)).map(change).is_some()
    }

    /// Jobs of the used tube that have an order in `list`, in that order.
    fn of_used(&self, client: usize, list: impl Fn(State) -> Option<u64>) -> Vec<(u64, usize)> {
        let jobs = self.jobs.iter().filter(|(_, job)| job.tube == self.used[client]);
        let mut jobs: Vec<_> = jobs.filter_map(|(number, job)| Some((list(job.state)?, *number))).collect();
        jobs.sort_unstable();
        jobs
    }

    fn peek(&self, client: usize, list: impl Fn(State) -> Option<u64>) -> String {
        let first = self.of_used(client, list).first().copied();
        first.map_or_else(|| "NOT_FOUND".to_owned(), |(_, number)| found(number))
    }
}

fn found(number: usize) -> String {
    format!("FOUND {number}")
}

fn buried(state: State) -> Option<u64> {
    if let State::Buried(place) = state { Some(place as u64) } else { None }
}

fn delayed(state: State) -> Option<u64> {
    if let State::Delayed(until) = state { Some(until) } else { None }
}

/// A new connection.
fn connection(number: u64) -> BeanstalkConnection {
    BeanstalkConnection::new(ConnectionId::new(1, 1, number))
}

/// The queue with its clients, and the ids of the jobs by number.
struct Real {
    replica: Replica<WorkQueue>,
    clients: Vec<BeanstalkConnection>,
    connections: u64,
    ids: Vec<u64>,
    /// What clients wait for.
    owed: Vec<(Owed, usize)>,
}

impl Real {
    fn new() -> Self {
        let clients = (1..=CLIENTS as u64).map(connection).collect();
        let replica = Replica::new(WorkQueue::new());
        Real { replica, clients, connections: CLIENTS as u64, ids: Vec::new(), owed: Vec::new() }
    }

    fn ask(&mut self, client: usize, text: &str) -> String {
        let reply = self.replica.talk(&mut self.clients[client], format!("{text}\r\n").as_bytes());
        String::from_utf8(reply).expect("text")
    }

    /// The reply to a step as the model has it.
    fn run(&mut self, client: usize, step: &Step) -> String {
        if let Step::Close = step {
            let ends = self.clients[client].closed();
            ends.into_iter().for_each(|ends| _ = self.replica.run(&ends));
            self.connections += 1;
            self.clients[client] = connection(self.connections);
            return String::new();
        }
        let reply = self.ask(client, &self.text(step));
        if reply.is_empty() {
            self.owed.push((self.replica.owed(), client));
        }
        if let Some(id) = reply.strip_prefix("INSERTED ") {
            self.ids.push(id.trim_end().parse().expect("an id"));
        }
        self.with_numbers(&reply)
    }

    /// The replies to clients that have waited, as the model has them.
    fn later(&mut self) -> Vec<(usize, String)> {
        let client =
            |owed: Owed| self.owed.iter().find(|(other, _)| *other == owed).expect("one that waits").1;
        let later = self.replica.take_later();
        let text = |reply: Vec<u8>| String::from_utf8(reply).expect("text");
        later.into_iter().map(|(owed, reply)| (client(owed), self.with_numbers(&text(reply)))).collect()
    }

    /// A reply with numbers of jobs in place of ids.
    fn with_numbers(&self, reply: &str) -> String {
        let number = |id: &str| {
            let id: u64 = id.parse().expect("an id");
            self.ids.iter().position(|other| *other == id).expect("a job that was put")
        };
        let first = reply.split("\r\n").next().unwrap_or_default();
        match first.split(' ').collect::<Vec<_>>()[..] {
            [word @ ("INSERTED" | "RESERVED" | "FOUND"), id, ..] => format!("{word} {}", number(id)),
            ["OK", _] => {
                let ready = reply.lines().find(|line| line.starts_with("current-jobs-ready"));
                ready.expect("statistics").to_owned()
            }
            _ => first.to_owned(),
        }
    }

    fn text(&self, step: &Step) -> String {
        let id = |number: usize| self.ids.get(number).copied().unwrap_or(0);
        match *step {
            Step::Put { pri, delay, ttr } => format!("put {pri} {delay} {ttr} 4\r\nbody"),
            Step::Reserve => "reserve".to_owned(),
            Step::ReserveWithin(seconds) => format!("reserve-with-timeout {seconds}"),
            Step::ReserveJob(number) => format!("reserve-job {}", id(number)),
            Step::Delete(number) => format!("delete {}", id(number)),
            Step::Release(number, pri, delay) => format!("release {} {pri} {delay}", id(number)),
            Step::Bury(number, pri) => format!("bury {} {pri}", id(number)),
            Step::Touch(number) => format!("touch {}", id(number)),
            Step::Kick(bound) => format!("kick {bound}"),
            Step::KickJob(number) => format!("kick-job {}", id(number)),
            Step::Peek(number) => format!("peek {}", id(number)),
            Step::PeekReady => "peek-ready".to_owned(),
            Step::PeekDelayed => "peek-delayed".to_owned(),
            Step::PeekBuried => "peek-buried".to_owned(),
            Step::Use(tube) => format!("use {}", TUBES[tube]),
            Step::Watch(tube) => format!("watch {}", TUBES[tube]),
            Step::Ignore(tube) => format!("ignore {}", TUBES[tube]),
            Step::Pause(tube, seconds) => format!("pause-tube {} {seconds}", TUBES[tube]),
            Step::ReadyOf(tube) => format!("stats-tube {}", TUBES[tube]),
            Step::Close | Step::Pass(_) => String::new(),
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 0..40_usize;
    let pri = || 0..3_u32;
    let delay = || prop_oneof![3 => Just(0), 1 => 1..100_u64];
    let tube = || 0..TUBES.len();
    prop_oneof![
        8 => (pri(), delay(), 1..100_u64).prop_map(|(pri, delay, ttr)| Step::Put { pri, delay, ttr }),
        3 => Just(Step::Reserve),
        6 => (0..20_u64).prop_map(Step::ReserveWithin),
        1 => number().prop_map(Step::ReserveJob),
        2 => number().prop_map(Step::Delete),
        3 => (number(), pri(), delay()).prop_map(|(number, pri, delay)| Step::Release(number, pri, delay)),
        3 => (number(), pri()).prop_map(|(number, pri)| Step::Bury(number, pri)),
        1 => number().prop_map(Step::Touch),
        2 => (0..3_u32).prop_map(Step::Kick),
        1 => number().prop_map(Step::KickJob),
        1 => number().prop_map(Step::Peek),
        1 => Just(Step::PeekReady),
        1 => Just(Step::PeekDelayed),
        1 => Just(Step::PeekBuried),
        2 => tube().prop_map(Step::Use),
        2 => tube().prop_map(Step::Watch),
        1 => tube().prop_map(Step::Ignore),
        1 => (tube(), 0..20_u64).prop_map(|(tube, seconds)| Step::Pause(tube, seconds)),
        2 => tube().prop_map(Step::ReadyOf),
        1 => Just(Step::Close),
        3 => (1..70_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_reply_is_as_the_model_says(steps in prop::collection::vec((0..CLIENTS, step()), 1..120)) {
        let (mut real, mut model) = (Real::new(), Model::new());
        for (at, (client, step)) in (1_u64..).zip(&steps) {
            // Each request has a fraction of a second of its own, so no two things happen at one time.
            let fraction = (2 * at + SECOND - real.replica.now_us % SECOND) % SECOND;
            let seconds = if let Step::Pass(seconds) = step { *seconds } else { 0 };
            let begins = real.replica.now_us + fraction + seconds * SECOND;
            while let Some(time) = model.next_event(real.replica.now_us, begins - 1) {
                real.replica.pass_time(time - real.replica.now_us);
                model.advance(time);
                same_later(&mut real, &mut model);
            }
            real.replica.now_us = begins;
            let waits = model.waiting.iter().any(|(other, _)| other == client);
            if matches!(step, Step::Pass(_)) || waits && !matches!(step, Step::Close) {
                continue;
            }
            let expected = model.run(*client, step, begins);
            model.serve(begins);
            prop_assert_eq!(real.run(*client, step), expected, "{:?} of client {}", step, client);
            same_later(&mut real, &mut model);
            model.forget_pauses();
        }
        // Everything goes, and the tubes with it.
        for client in 0..CLIENTS {
            real.run(client, &Step::Close);
        }
        for number in 0..real.ids.len() {
            real.run(0, &Step::Delete(number));
        }
        real.run(0, &Step::Close);
        let stats = real.ask(1, "stats");
        for line in ["jobs-ready: 0", "jobs-reserved: 0", "tubes: 1", "connections: 1"] {
            prop_assert!(stats.contains(&format!("\ncurrent-{line}\n")), "{line} in {stats}");
        }
    }

    #[test]
    fn any_bytes_are_answered_within_bounds(bytes in prop::collection::vec(byte(), 0..600)) {
        let mut rest = &bytes[..];
        let mut client = connection(1);
        loop {
            match client.next(rest) {
                Progress::NeedMore(length) => {
                    prop_assert!(length > rest.len() && length <= 70_000, "{length}");
                    break;
                }
                Progress::Done { used, action } => {
                    prop_assert!((1..=rest.len()).contains(&used), "{used}");
                    if let Action::Order(request) = action {
                        prop_assert!(request[0] < 0xf0 && from_bytes::<QueueRequest>(&request).is_ok());
                    }
                    rest = &rest[used..];
                }
            }
        }
    }
}

/// The clients that have waited got the same replies.
fn same_later(real: &mut Real, model: &mut Model) {
    assert_eq!(real.later(), std::mem::take(&mut model.later));
}

/// Bytes that are often valid protocol.
fn byte() -> impl Strategy<Value = u8> {
    let protocol = b"\r\n\r\n\r\n put 0 1 2 use watch tube ignore peek kick delete 345 stats".to_vec();
    prop_oneof![8 => prop::sample::select(protocol.to_vec()), 1 => any::<u8>()]
}

/// The actions for these bytes, which end with a whole command, however they are divided.
fn actions(bytes: &[u8]) -> Vec<Action> {
    let whole = actions_in_parts(bytes, bytes.len());
    for part in [1, 2, 7] {
        assert_eq!(actions_in_parts(bytes, part), whole, "in parts of {part} bytes");
    }
    whole
}

fn actions_in_parts(bytes: &[u8], part: usize) -> Vec<Action> {
    let (mut client, mut start, mut end, mut actions) = (connection(1), 0, 0, Vec::new());
    while start < bytes.len() {
        match client.next(&bytes[start..end]) {
            Progress::NeedMore(length) => {
                assert!(length > end - start && end < bytes.len(), "it waits for more than there is");
                end = (end + part).min(bytes.len());
            }
            Progress::Done { used, action } => {
                start += used;
                actions.extend(Some(action).filter(|action| *action != Action::Nothing));
            }
        }
    }
    actions
}

fn answer(text: &str) -> Action {
    Action::Reply(text.into())
}

#[test]
fn a_body_is_taken_as_it_is_and_a_wrong_one_is_refused() {
    let ordered = |action: &Action| match action {
        Action::Order(bytes) => from_bytes::<QueueRequest>(bytes).expect("a request").command,
        other => panic!("{other:?}"),
    };
    let body = "put 9 8 7 1\r\n\r\n";
    let bytes = format!("put 1 2 3 {}\r\n{body}\r\nput 0 0 0 0\r\n\r\n", body.len());
    let actions_of = actions(bytes.as_bytes());
    let put = |pri, delay, ttr, body: &str| QueueCommand::Put {
        tube: "default".into(),
        pri,
        delay,
        ttr,
        body: body.into(),
    };
    let commands: Vec<QueueCommand> = actions_of.iter().map(ordered).collect();
    assert_eq!(commands, [put(1, 2, 3, body), put(0, 0, 0, "")]);
    let longest = format!("put 0 0 0 65535\r\n{}\r\n", "x".repeat(65_535));
    assert!(matches!(&actions(longest.as_bytes())[..], [Action::Order(_)]));

    assert_eq!(
        actions(b"put 0 0 1 3\r\nabcdequit\r\n"),
        [answer("EXPECTED_CRLF\r\n"), Action::Close(Vec::new())]
    );
    // What is too long is skipped, whatever is in it.
    let long = format!("put 0 0 1 65536\r\n{}\r\nquit\r\n", "quit\r\n--".repeat(8_192));
    assert_eq!(actions(long.as_bytes()), [answer("JOB_TOO_BIG\r\n"), Action::Close(Vec::new())]);
    let long = format!("{}\r\nquit\r\n", "x".repeat(1_000));
    assert_eq!(actions(long.as_bytes()), [answer("BAD_FORMAT\r\n"), Action::Close(Vec::new())]);
}

#[test]
fn a_connection_watches_a_bounded_number_of_tubes() {
    let mut real = Real::new();
    for number in 1..MAX_WATCHED {
        assert_eq!(real.ask(0, &format!("watch tube-{number}")), format!("WATCHING {}\r\n", number + 1));
    }
    assert_eq!(real.ask(0, "watch one-more"), "OUT_OF_MEMORY\r\n");
    assert_eq!(real.ask(0, "watch default"), format!("WATCHING {MAX_WATCHED}\r\n"));
    assert_eq!(real.ask(1, "stats-tube one-more"), "NOT_FOUND\r\n");
    real.ask(1, "use tube-77");
    real.ask(1, "put 0 0 1 1\r\nx");
    assert!(real.ask(0, "reserve-with-timeout 0").starts_with("RESERVED "));
    real.run(0, &Step::Close);
    assert!(real.ask(1, "stats").contains("current-tubes: 2\n"), "no client watches them any more");
}

/// One timer makes a bounded number of jobs ready; the next batch makes more of them ready.
#[test]
fn many_jobs_that_are_due_at_once_become_ready_in_several_batches() {
    let mut real = Real::new();
    for delay in (2_000..3_000).rev() {
        real.run(0, &Step::Put { pri: 0, delay, ttr: 1 });
    }
    real.replica.pass_time(3_001 * SECOND);
    let delayed = |real: &mut Real| {
        let stats = real.ask(0, "stats-tube default");
        let line = stats.lines().find_map(|line| line.strip_prefix("current-jobs-delayed: "));
        line.and_then(|line| line.parse::<u32>().ok()).expect("a number")
    };
    assert!((1..1_000).contains(&delayed(&mut real)));
    for _ in 0..8 {
        real.replica.pass_time(1);
    }
    assert_eq!(delayed(&mut real), 0);
    assert!(real.ask(0, "peek-ready").starts_with(&format!("FOUND {} ", real.ids[0])));
}

/// The end of a connection, or of a replica's process, gives up a bounded number of things at once.
#[test]
fn the_end_of_a_connection_with_many_jobs_comes_in_several_requests() {
    let closed = QueueCommand::ReplicaClosed { connections: ConnectionsOfReplica::new(1, 2) };
    for ends in [None, Some(to_bytes(&closed.of_service()))] {
        let mut real = Real::new();
        real.ask(0, "watch mail");
        for number in 0..600 {
            real.ask(1, ["use mail", "use default"][number % 2]);
            real.run(1, &Step::Put { pri: 0, delay: 0, ttr: 100 });
            assert!(real.ask(0, "reserve").starts_with("RESERVED "));
        }
        let ends = ends.or_else(|| real.clients[0].closed()).expect("a request");
        assert_eq!(real.replica.run(&ends), RequestEnd::Replied(Vec::new()));
        real.clients[2] = BeanstalkConnection::new(ConnectionId::new(2, 1, 1));
        let stats = real.ask(2, "stats");
        for line in ["jobs-ready: 600", "jobs-reserved: 0", "tubes: 2"] {
            assert!(stats.contains(&format!("\ncurrent-{line}\n")), "{line} in {stats}");
        }
    }
}

#[test]
fn a_region_without_room_takes_no_jobs_and_makes_no_tubes() {
    let mut real = Real::new();
    let set = |real: &mut Real, megabytes| {
        let setting = QueueCommand::Settings { change: Some(Setting::RegionMb(megabytes)) };
        assert!(matches!(real.replica.run(&to_bytes(&setting.of_service())), RequestEnd::Replied(_)));
    };
    set(&mut real, 1);
    let put = format!("put 0 0 1 60000\r\n{}", "x".repeat(60_000));
    let first: u64 = real.ask(0, &put).trim_end().trim_start_matches("INSERTED ").parse().expect("an id");
    let more = (0..40).take_while(|_| real.ask(0, &put).starts_with("INSERTED ")).count();
    assert_eq!(more, 16, "17 in all: 1 MiB");
    assert_eq!(real.ask(0, &put), "OUT_OF_MEMORY\r\n");
    assert_eq!(real.ask(0, &format!("delete {first}")), "DELETED\r\n");
    assert!(real.ask(0, &put).starts_with("INSERTED "));
    set(&mut real, 2);
    assert!(real.ask(0, &put).starts_with("INSERTED "));

    let home = queue::region_of_tube("default");
    let mut names =
        (0..).map(|number| format!("tube-{number}")).filter(|name| queue::region_of_tube(name) == home);
    for name in names.by_ref().take(MAX_TUBES - 1) {
        assert_eq!(real.ask(0, &format!("use {name}")), format!("USING {name}\r\n"));
        assert!(real.ask(0, "put 0 0 1 1\r\nx").starts_with("INSERTED "));
    }
    let name = names.next().expect("another one");
    for command in ["use", "watch"] {
        assert_eq!(real.ask(0, &format!("{command} {name}")), "OUT_OF_MEMORY\r\n");
    }
    assert_eq!(real.ask(0, "put 0 0 1 1\r\nx"), "OUT_OF_MEMORY\r\n");
    assert_eq!(real.ask(1, "put 0 0 1 1\r\nx").split(' ').next(), Some("INSERTED"));
}
