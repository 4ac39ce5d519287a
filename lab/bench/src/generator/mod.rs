//! The load generator: one thread, many connections, closed or open loop; its own processor time is measured too.
//!
//! In a closed loop every connection keeps a fixed number of requests in progress; a latency runs from the moment a
//! request was made to its reply. In an open loop requests have intended times that the server cannot delay; a latency
//! runs from the intended time, even if the request had to wait before it was sent, so that a stall does not hide the
//! requests that it delays (coordinated omission).

mod arrivals;
mod connection;
mod draw;
mod maker;
mod model;
mod seen;
#[cfg(test)]
mod tests;
mod timeline;
mod timer;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use mio::{Events, Poll, Token};
use rustix::time::{ClockId, clock_gettime};

use super::definition::{Op, Workload};
use super::wire::{Dialect, Reply, Taken};
use arrivals::Arrivals;
use connection::GeneratorConnection;
use maker::Maker;
use model::Opinion;
use node::signals::Ending;
use timer::Timer;

pub use draw::Draw;
pub use maker::KeyName;
pub use model::Pattern;
pub use seen::MeasuredCounts;
pub use timeline::{STEP_NS, Timeline, TimelineStep};

/// A server that answers nothing for this long has failed.
const SILENCE: Duration = Duration::from_secs(10);
/// How long replies are waited for after the last request.
const DRAIN: Duration = Duration::from_secs(3);
/// Connections and requests per connection that store the keys before the load.
const FILLERS: (usize, usize) = (16, 16);
/// The most requests that wait to be sent in an open loop; more means that the rate is far above the server's capacity.
const MOST_BACKLOG: u64 = 1 << 20;
/// Connections that may break before a measurement is given up, where nothing breaks them on purpose.
const MOST_BROKEN: u64 = 100;
/// Events taken from the kernel at a time.
const EVENTS: usize = 1024;

/// All settings of a generator.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The servers' protocol.
    pub dialect: Dialect,
    /// Where to connect; connections are spread in turn.
    pub addresses: Vec<SocketAddr>,
    /// The requests.
    pub workload: Workload,
    /// How many connections.
    pub connections: usize,
    /// The most requests in progress per connection.
    pub pipeline: usize,
    /// Intended requests per second of an open loop; none: closed loop.
    pub rate: Option<f64>,
    /// Whether replies are compared with a model.
    pub verify: bool,
    /// Decides all random draws.
    pub seed: u64,
    /// Whether replies are also counted step by step.
    pub timeline: bool,
    /// Whether servers are restarted meanwhile: then a connection that breaks is made again to the next address that
    /// accepts.
    pub restarts: bool,
}

/// The source of requests, which decides when the next one is made.
#[derive(Debug)]
enum RequestSource {
    /// No more requests.
    Nothing,
    /// These keys, once each.
    First(std::vec::IntoIter<u32>),
    /// One as soon as another is answered.
    Closed,
    /// At intended times.
    Open(Arrivals),
}

/// The generator.
#[derive(Debug)]
pub struct Generator {
    setup: Setup,
    poll: Poll,
    events: Events,
    timer: Timer,
    epoch: Instant,
    connections: Vec<GeneratorConnection>,
    maker: Maker,
    source: RequestSource,
    /// Requests in progress per connection, for the present source.
    depth: usize,
    /// Measured time: begin and end.
    window: (u64, u64),
    /// Bytes sent and received by the end of the measured time.
    bytes: (u64, u64),
    turn: usize,
    backlog: u64,
    on_their_way: u64,
    last_received: u64,
    seen: MeasuredCounts,
    ending: Option<Ending>,
}

impl Generator {
    /// Stores the keys, and connects.
    ///
    /// # Errors
    /// A server does not accept, falls silent or refuses to store.
    pub fn prepare(setup: Setup, pattern: &Arc<Pattern>) -> anyhow::Result<Self> {
        if setup.verify && setup.workload.keys < setup.connections {
            bail!(
                "verifying needs a key per connection, and {} connections have {} keys",
                setup.connections,
                setup.workload.keys
            );
        }
        let maker = Maker::new(
            &setup.workload,
            setup.dialect,
            setup.connections,
            setup.verify,
            setup.seed,
            Arc::clone(pattern),
        );
        let keys = maker.first_keys();
        let mut filler = Generator::connect(setup.clone(), maker, FILLERS.0.min(keys.len()))?;
        filler.store(keys).context("storing the keys before the load")?;
        let Generator { maker, .. } = filler;
        let connections = setup.connections;
        Generator::connect(setup, maker, connections)
    }

    fn connect(setup: Setup, maker: Maker, count: usize) -> anyhow::Result<Self> {
        let poll = Poll::new()?;
        let timer = Timer::new(poll.registry(), Token(count))?;
        let open = |number: usize| {
            let address = setup.addresses[number % setup.addresses.len()];
            GeneratorConnection::open(address, poll.registry(), Token(number))
                .with_context(|| format!("connecting to {address}"))
        };
        let connections = (0..count).map(open).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Generator {
            depth: setup.pipeline,
            setup,
            poll,
            events: Events::with_capacity(EVENTS),
            timer,
            epoch: Instant::now(),
            connections,
            maker,
            source: RequestSource::Nothing,
            window: (u64::MAX, u64::MAX),
            bytes: (0, 0),
            turn: 0,
            backlog: 0,
            on_their_way: 0,
            last_received: 0,
            seen: MeasuredCounts::default(),
            ending: None,
        })
    }

    fn store(&mut self, keys: Vec<u32>) -> anyhow::Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        self.depth = FILLERS.1;
        self.source = RequestSource::First(keys.into_iter());
        self.last_received = self.now();
        for number in 0..self.connections.len() {
            self.top_up(number, self.last_received)?;
        }
        while self.on_their_way > 0 {
            self.step(u64::MAX)?;
        }
        let refused = self.seen.refused;
        if refused > 0 {
            bail!("{refused} were refused: {}", self.seen.words.join("; "));
        }
        Ok(())
    }

    /// Stops with an error as soon as the operator requests the end.
    pub fn heed(&mut self, ending: &Ending) {
        self.ending = Some(ending.clone());
    }

    /// Begins the load and runs it for `warmup` without measuring.
    ///
    /// # Errors
    /// A server falls silent, or connections break repeatedly.
    pub fn warm_up(&mut self, warmup: Duration) -> anyhow::Result<()> {
        let now = self.now();
        self.last_received = now;
        self.depth = self.setup.pipeline;
        self.source = match self.setup.rate {
            Some(rate) => RequestSource::Open(Arrivals::new(rate, now, self.setup.seed ^ 0x0FE7)),
            None => RequestSource::Closed,
        };
        for number in 0..self.connections.len() {
            self.top_up(number, now)?;
        }
        self.run_until(now + nanoseconds(warmup))
    }

    /// Measures for `span`; returns how long that took, and the processor time of this thread meanwhile.
    ///
    /// # Errors
    /// A server falls silent, or connections break repeatedly.
    pub fn measure(&mut self, span: Duration) -> anyhow::Result<(Duration, Duration)> {
        // Errors during the warm-up count as errors of the measurement.
        let before = std::mem::take(&mut self.seen);
        self.seen = before.only_troubles();
        self.seen.timeline = self.setup.timeline.then(Timeline::begin);
        let begin = self.now();
        let cpu = own_cpu();
        self.window = (begin, begin + nanoseconds(span));
        self.run_until(self.window.1)?;
        self.bytes = (self.seen.bytes_sent, self.seen.bytes_received);
        Ok((span, own_cpu().saturating_sub(cpu)))
    }

    /// Ends the load, waits for the replies that are due, and returns the counts.
    ///
    /// # Errors
    /// Connections break repeatedly.
    pub fn finish(mut self) -> anyhow::Result<MeasuredCounts> {
        self.source = RequestSource::Nothing;
        let deadline = self.now() + nanoseconds(DRAIN);
        while (self.on_their_way > 0 || self.backlog > 0) && self.now() < deadline {
            self.step(deadline)?;
        }
        let now = self.now();
        let window = self.window;
        for connection in &self.connections {
            let waiting = connection.pending.iter().map(|pending| pending.intended);
            for intended in waiting.chain(connection.backlog.iter().copied()) {
                if (window.0..window.1).contains(&intended) {
                    self.seen.unanswered += 1;
                    self.seen.latency(now.saturating_sub(intended));
                }
            }
        }
        // Bytes that were transferred after the measured time belong to no measurement.
        (self.seen.bytes_sent, self.seen.bytes_received) = self.bytes;
        Ok(self.seen)
    }

    /// The counts since measuring began.
    pub fn seen(&self) -> &MeasuredCounts {
        &self.seen
    }

    /// Keys for which any reply is accepted, because a request for them may still be executed.
    pub fn adrift(&self) -> usize {
        self.maker.adrift()
    }

    fn now(&self) -> u64 {
        nanoseconds(self.epoch.elapsed())
    }

    fn run_until(&mut self, end: u64) -> anyhow::Result<()> {
        while self.now() < end {
            self.step(end)?;
        }
        Ok(())
    }

    /// Sends the requests that are due, waits for events until `end` at most, and handles them.
    fn step(&mut self, end: u64) -> anyhow::Result<()> {
        if self.ending.as_ref().is_some_and(Ending::asked) {
            bail!("ended by the operator");
        }
        let now = self.send_due()?;
        if now.saturating_sub(self.last_received) > nanoseconds(SILENCE) && self.on_their_way > 0 {
            bail!("no reply for {} s with {} requests on their way", SILENCE.as_secs(), self.on_their_way);
        }
        let mut wait = end.saturating_sub(now).min(nanoseconds(SILENCE) / 10);
        if let RequestSource::Open(arrivals) = &self.source {
            wait = wait.min(arrivals.next().saturating_sub(now));
        }
        // The poll counts in milliseconds: an intended time between two of them needs the timer.
        if matches!(self.source, RequestSource::Open(_)) {
            self.timer.set(wait)?;
        }
        let timeout = Duration::from_millis(wait.div_ceil(1_000_000));
        // The buffer is taken out while its events are handled, and put back afterwards.
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        match self.poll.poll(&mut events, Some(timeout)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => events.clear(),
            other => other?,
        }
        for event in &events {
            let number = event.token().0;
            if number < self.connections.len() {
                self.on_event(number, event.is_readable() || event.is_read_closed(), event.is_writable())?;
            }
        }
        self.events = events;
        Ok(())
    }

    /// Open loop: makes the requests whose time has come.
    fn send_due(&mut self) -> anyhow::Result<u64> {
        let now = self.now();
        let RequestSource::Open(arrivals) = &mut self.source else { return Ok(now) };
        let due: Vec<u64> = std::iter::from_fn(|| arrivals.due(now)).collect();
        for intended in due {
            let number = self.turn % self.connections.len();
            self.turn += 1;
            if self.backlog >= MOST_BACKLOG {
                bail!(
                    "{MOST_BACKLOG} requests wait to be sent: the rate is far above what this side can do; lower `rate`"
                );
            }
            self.connections[number].backlog.push_back(intended);
            self.backlog += 1;
            self.top_up(number, now)?;
        }
        Ok(now)
    }

    fn on_event(&mut self, number: usize, readable: bool, writable: bool) -> anyhow::Result<()> {
        let connection = &mut self.connections[number];
        if writable && !connection.out.is_empty() {
            let went = connection.flush();
            self.account(number, went)?;
        }
        if readable {
            let came = self.connections[number].fill();
            let now = self.now();
            match came {
                Ok(came) => self.seen.bytes_received += came as u64,
                Err(error) => return self.broken(number, &error.to_string()),
            }
            if let Err(what) = self.take_replies(number, now) {
                self.seen.wrong += 1;
                return self.broken(number, what);
            }
            self.top_up(number, now)?;
        }
        Ok(())
    }

    /// Takes all complete replies.
    fn take_replies(&mut self, number: usize, now: u64) -> Result<(), &'static str> {
        let connection = &mut self.connections[number];
        let measured = (self.window.0..self.window.1).contains(&now);
        while let Some(pending) = connection.pending.front().copied() {
            let (used, reply) = match self.setup.dialect.take(pending.op, connection.received()) {
                Taken::Incomplete => return Ok(()),
                Taken::Nonsense(what) => return Err(what),
                Taken::Whole(used, reply) => (used, reply),
            };
            let seen = &mut self.seen;
            match self.maker.judge(&pending, &reply) {
                Opinion::Right => {}
                Opinion::Lost => seen.lost += 1,
                Opinion::Wrong(known) => {
                    seen.wrong += 1;
                    let op = pending.op.name();
                    seen.complaint(&format!(
                        "{op} answered {}, but the model expected {known:?}",
                        brief(&reply)
                    ));
                }
            }
            let gets = record_reply(seen, &pending.op, &reply, measured);
            if let Some(timeline) = seen.timeline.as_mut().filter(|_| measured) {
                timeline.record(now - self.window.0, now.saturating_sub(pending.intended));
            }
            if (self.window.0..self.window.1).contains(&pending.intended) {
                seen.latency(now.saturating_sub(pending.intended));
            }
            if let Some(unique) = gets {
                connection.last_gets = Some((pending.key, unique));
            }
            connection.take(used);
            connection.pending.pop_front();
            self.on_their_way -= 1;
            self.last_received = now;
        }
        if connection.received().is_empty() { Ok(()) } else { Err("bytes that answer no request") }
    }

    /// Makes and sends as many requests as may be in progress.
    fn top_up(&mut self, number: usize, now: u64) -> anyhow::Result<()> {
        let connection = &mut self.connections[number];
        let before = connection.pending.len();
        while connection.pending.len() < self.depth {
            let pending = match &mut self.source {
                RequestSource::Nothing | RequestSource::Open(_) => {
                    let Some(intended) = connection.backlog.pop_front() else { break };
                    self.backlog -= 1;
                    self.maker.write_next(number, connection.last_gets, intended, &mut connection.out)
                }
                RequestSource::First(keys) => {
                    let Some(key) = keys.next() else { break };
                    self.maker.write_first(key, now, &mut connection.out)
                }
                RequestSource::Closed => {
                    self.maker.write_next(number, connection.last_gets, now, &mut connection.out)
                }
            };
            connection.pending.push_back(pending);
        }
        let made = connection.pending.len() - before;
        if made == 0 {
            return Ok(());
        }
        self.on_their_way += made as u64;
        let went = connection.flush();
        self.account(number, went)
    }

    fn account(&mut self, number: usize, went: std::io::Result<usize>) -> anyhow::Result<()> {
        match went {
            Ok(went) => {
                self.seen.bytes_sent += went as u64;
                Ok(())
            }
            Err(error) => self.broken(number, &error.to_string()),
        }
    }

    /// Reconnects; the outcome of requests in progress is unknown from now on.
    fn broken(&mut self, number: usize, why: &str) -> anyhow::Result<()> {
        self.seen.broken += 1;
        self.seen.complaint(&format!("connection: {why}"));
        if self.seen.broken > MOST_BROKEN && !self.setup.restarts {
            bail!("{MOST_BROKEN} connections broke: {}", self.seen.words.join("; "));
        }
        let others = if self.setup.restarts { &self.setup.addresses[..] } else { &[] };
        let lost = self.connections[number]
            .reopen(others, self.poll.registry(), Token(number))
            .with_context(|| format!("connecting again after: {why}"))?;
        self.on_their_way -= lost.len() as u64;
        for pending in &lost {
            self.maker.give_up(pending);
        }
        // The first event of the new connection reports that it is writable, and has nothing to send: so the first
        // requests are made here.
        let now = self.now();
        self.top_up(number, now)
    }
}

/// A reply without its bytes.
fn brief(reply: &Reply<'_>) -> String {
    match reply {
        Reply::Value { bytes, .. } => format!("a value of {} bytes", bytes.len()),
        other => format!("{other:?}"),
    }
}

/// Counts a reply; returns the unique number in the reply to a `gets`.
fn record_reply(seen: &mut MeasuredCounts, op: &Op, reply: &Reply<'_>, measured: bool) -> Option<u64> {
    if let Reply::Refused(words) = reply {
        seen.refused += 1;
        seen.complaint(&String::from_utf8_lossy(words));
    }
    if measured {
        seen.completed += 1;
    }
    match (op, reply) {
        (Op::Get | Op::Gets, Reply::Value { unique, .. }) => {
            seen.hits += u64::from(measured);
            (*op == Op::Gets).then_some(*unique)
        }
        (Op::Get | Op::Gets, Reply::Missing) => {
            seen.misses += u64::from(measured);
            None
        }
        _ => None,
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Processor time that the calling thread has used.
fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
