//! Decode and Externalize: the client sockets. Their bytes become requests, which have a checksum from then on, and
//! each connection gets its replies in the order of its requests. [`Clients`] owns no thread: a replica with one worker
//! runs it on the order thread, and [`thread`] runs one on each of several threads. The first of them accepts
//! ([`accepting`]).

pub mod accepting;
mod budget;
#[cfg(test)]
mod budget_tests;
pub mod certificate;
mod connection;
mod excess;
mod input;
mod leaving;
pub mod listing;
#[cfg(test)]
mod listing_tests;
#[cfg(test)]
mod owed_tests;
mod socket;
#[cfg(test)]
mod stopping_tests;
mod stream;
#[cfg(test)]
mod tests;
pub mod thread;
mod tls;
#[cfg(test)]
mod tls_tests;
#[cfg(test)]
mod unix_tests;
#[cfg(test)]
mod unsolicited_tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use bytes::Bytes;
use mio::event::Event;
use mio::{Interest, Registry, Token};
use object::Sealed;

use crate::connections::ConnectionId;
use crate::counters::{ClientCounters, ThreadCounters};
use crate::limits;
use crate::service::{MakeProtocol, NewConnection, Protocol};
use crate::socket_errors::is_own_fault_without_peer;
use accepting::{Accepted, Acceptor};
pub use budget::Shares;
use budget::{Budget, Cost, Wait};
use certificate::ClientTls;
use connection::ending::rests;
use connection::{Connection, LateWith, Now, Reading, StepOutcome};
pub use excess::ExcessRights;
use listing::ClientAddress;
use socket::ClientSocket;
use stream::ClientStream;
use tls::TlsSession;

/// Tokens from here on belong to the clients' sockets.
pub const FIRST_TOKEN: usize = 1 << 32;
const LISTENER: Token = Token(FIRST_TOKEN);
const UNIX_LISTENER: Token = Token(FIRST_TOKEN + 1);
const CONNECTIONS: usize = FIRST_TOKEN + 2;

/// The destination of a reply: one place in the reply sequence of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// The number of the connection's slot among those of all client threads ([`ReplyTo::thread`]).
    pub slot: u32,
    /// Distinguishes this connection from earlier ones in the same slot.
    pub generation: u32,
    /// Place in the connection's sequence of replies.
    pub sequence: u64,
    /// The estimated cost of the request, in bytes: budget that is released with its reply.
    pub cost: u32,
}

impl ReplyTo {
    /// The client thread, of so many, that has the connection.
    pub fn thread(self, threads: usize) -> usize {
        self.slot as usize % threads
    }
}

/// The numbers of one client thread's slots: those that leave its number when they are divided by that of the threads.
#[derive(Clone, Copy, Debug)]
struct SlotNumbers {
    thread: u32,
    threads: u32,
}

impl SlotNumbers {
    /// Those of one thread of so many, at most 64.
    fn of(thread: usize, threads: usize) -> Self {
        SlotNumbers { thread: thread as u32, threads: threads as u32 }
    }

    /// The thread's own counters.
    fn counters(self, all: &ClientCounters) -> &ThreadCounters {
        &all.threads()[self.thread as usize]
    }

    /// The number of a slot in the thread's table.
    fn number(self, slot: u32) -> u32 {
        slot * self.threads + self.thread
    }

    /// The slot in the thread's table that has this number, if it is one of the thread's.
    fn slot(self, number: u32) -> Option<u32> {
        (number % self.threads == self.thread).then_some(number / self.threads)
    }
}

/// A reply, and the checksum of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Checksum of the ordered request at whose position it was made, as the log has it. A connection accepts a reply
    /// only to the request that waits there: the vote compares positions, and only this replica knows to which client
    /// each belongs.
    pub request_checksum: u32,
    /// Its bytes.
    pub bytes: Bytes,
    /// Their digest, if they were voted on: the bytes are compared with it once more before the socket gets them.
    pub voted: Option<u128>,
}

/// A request that is sent to the order thread.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The number of the request among those of its client thread, from 0: none is ordered twice, and none is skipped.
    pub number: u64,
    /// The destination of its reply.
    pub to: ReplyTo,
    /// The service's encoding of it, summed when it was made (`order::batch`).
    pub request: order::Request,
}

/// The interface of the client side for the thread that drives it.
pub trait ClientSide: Send {
    /// Serves a connection that another thread accepted.
    fn adopt(&mut self, accepted: Accepted);

    /// Handles an event of the poll for a token of this module; appends requests to `submissions`.
    fn on_event(&mut self, event: &Event, submissions: &mut Vec<Submission>);

    /// Continues with input that no event will announce again.
    fn read_on(&mut self, submissions: &mut Vec<Submission>);

    /// Whether [`ClientSide::read_on`] or [`ClientSide::flush`] has work: the thread must not sleep.
    fn has_unread(&self) -> bool;

    /// A validated reply takes its place; it leaves with the next [`ClientSide::flush`]. `None` means that there is no
    /// correct reply: the connection is closed rather than answered wrongly.
    fn answer(&mut self, to: ReplyTo, reply: Option<Reply>);

    /// The reply to a request that has run comes later, by [`ClientSide::answer_owed`].
    fn owe(&mut self, to: ReplyTo);

    /// As [`ClientSide::answer`], for a reply that was owed.
    fn answer_owed(&mut self, to: ReplyTo, reply: Option<Reply>);

    /// The last stage: replies leave, one system call per connection.
    fn flush(&mut self);

    /// This replica is about to stop: no client is accepted, and none is read from. Each connection ends when the
    /// requests that were read are answered, and is closed once its client has closed it, too. Until then what it still
    /// sends is dropped. Only one that asked for nothing lately is closed soon: no reply to it can be on its way.
    fn drain(&mut self, submissions: &mut Vec<Submission>);

    /// Called every [`limits::TICK`]. Handles some connections, in turn, as if their sockets had just reported all
    /// possible events, and closes those with an overdue reply: no event announces an event, a request or a reply that
    /// a fault has lost.
    fn tick(&mut self, submissions: &mut Vec<Submission>);
}

/// Detects whether a thread drives each part of the client side: the reference to it may be corrupted, and its thread
/// may have ended.
#[derive(Debug, Default)]
pub(crate) struct Driven(Vec<Progressing>);

/// What was seen of one client thread.
#[derive(Clone, Debug, Default)]
struct Progressing {
    looks: u64,
    /// Ticks since it last made progress.
    still: u32,
}

impl Driven {
    /// Called once per [`limits::TICK`]: false when a client thread has begun, and has stood still for
    /// [`limits::CLIENTS_PATIENCE`].
    pub(crate) fn looks_so(&mut self, counters: &ClientCounters) -> bool {
        self.0.resize(counters.threads().len(), Progressing::default());
        let mut all_move = true;
        for (seen, thread) in self.0.iter_mut().zip(counters.threads()) {
            let looks = thread.looks.load(Relaxed);
            seen.still = if looks > 0 && looks == seen.looks { seen.still + 1 } else { 0 };
            seen.looks = looks;
            all_move &=
                u128::from(seen.still) * limits::TICK.as_micros() < limits::CLIENTS_PATIENCE.as_micros();
        }
        all_move
    }
}

/// The limits on clients, and the protection against corruption between their bytes and a request.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most connections at a time, of all client threads.
    pub connections: usize,
    /// Longest request, bytes.
    pub request: usize,
    /// Whether a client's bytes are read from the kernel and decoded twice (see [`input`]).
    pub twice: bool,
    /// How the memory for the clients of one thread is divided.
    pub shares: Shares,
    /// A connection with nothing in flight that sends nothing for so long is closed.
    pub idle: Option<Duration>,
}

/// The client side of one replica, or one thread's part of it.
pub struct Clients<P> {
    registry: Registry,
    /// In the thread that accepts.
    acceptor: Option<Acceptor>,
    numbers: SlotNumbers,
    make_protocol: MakeProtocol<P>,
    counters: Arc<ClientCounters>,
    /// What clients speak over TCP, if that is TLS. A socket file is guarded by its permissions.
    tls: Option<Arc<ClientTls>>,
    bounds: Bounds,
    connections: Vec<ConnectionEntry<P>>,
    free: Vec<u32>,
    /// Connections with unread input, because of a limit or the end of their turn.
    unread: Vec<u32>,
    /// Connections whose replies leave with the next flush.
    answered: Vec<u32>,
    outstanding: usize,
    budget: Budget,
    excess: ExcessRights,
    /// The number of replies so far, and the tick of the last one.
    answers: u64,
    answered_at: u64,
    ticks: u64,
    /// Slot of the connection that the next tick checks first.
    next_look: usize,
    /// The number of requests passed on so far.
    submitted: u64,
    /// Connections that were closed to free budget and not reported yet, and the tick of the last report.
    closed_unmoved: usize,
    reported_unmoved: Option<u64>,
    /// The buffer for reads of a socket; its connection keeps only the bytes that were read.
    scratch: Vec<u8>,
    /// What connections that have ended order, with their slots and generations, until the next tick.
    farewells: Vec<(u32, u32, order::Request)>,
    /// This replica is about to stop.
    drains: Sealed<bool>,
}

struct ConnectionEntry<P> {
    generation: u32,
    connection: Option<Connection<P>>,
    /// Once its client could read the end: the tick after which it is closed, if the client has not closed it before.
    ended: Option<u64>,
}

impl<P: Protocol> Clients<P> {
    /// The part of thread number `thread`, whose poll's `registry` reports events of the sockets. One thread gets the
    /// acceptor; all share the right to `excess`.
    ///
    /// # Errors
    /// When the listening socket cannot be registered.
    pub fn new(
        registry: Registry,
        mut acceptor: Option<Acceptor>,
        (thread, excess): (usize, &ExcessRights),
        make_protocol: MakeProtocol<P>,
        counters: Arc<ClientCounters>,
        bounds: Bounds,
    ) -> io::Result<Self> {
        if let Some(acceptor) = &mut acceptor {
            acceptor.register(&registry)?;
        }
        Ok(Clients {
            registry,
            acceptor,
            numbers: SlotNumbers::of(thread, counters.threads().len()),
            make_protocol,
            counters,
            tls: None,
            bounds,
            connections: Vec::new(),
            free: Vec::new(),
            unread: Vec::new(),
            answered: Vec::new(),
            outstanding: 0,
            budget: Budget::new(bounds.shares, excess.of_thread(thread)),
            excess: excess.clone(),
            answers: 0,
            answered_at: 0,
            ticks: 0,
            next_look: 0,
            submitted: 0,
            closed_unmoved: 0,
            reported_unmoved: None,
            scratch: vec![0; limits::READ_CHUNK],
            farewells: Vec::new(),
            drains: Sealed::new(false),
        })
    }

    /// Clients speak TLS over TCP.
    #[must_use]
    pub fn speaks(self, tls: Option<Arc<ClientTls>>) -> Self {
        Clients { tls, ..self }
    }

    /// What is read from an accepted socket, and written to it.
    fn stream(&self, socket: ClientSocket, peer: ClientAddress) -> io::Result<ClientStream> {
        match &self.tls {
            Some(tls) if peer != ClientAddress::Unix && P::ASKS_FOR_TLS => {
                Ok(ClientStream::offering_tls(socket, tls.config()))
            }
            Some(tls) if peer != ClientAddress::Unix => {
                Ok(ClientStream::with_tls(socket, TlsSession::new(tls.config(), self.ticks)?))
            }
            _ => Ok(socket.into()),
        }
        .map(|stream: ClientStream| stream.since(self.ticks))
    }

    /// This thread's own counters.
    fn own(&self) -> &ThreadCounters {
        self.numbers.counters(&self.counters)
    }

    /// The socket accepts bytes again, if it did not; returns whether that is new.
    fn unblock(&mut self, slot: u32) -> bool {
        let entry = self.connections.get_mut(slot as usize);
        entry.and_then(|entry| entry.connection.as_mut()).is_some_and(Connection::unblock)
    }

    fn on_writable(&mut self, slot: u32) {
        let entry = self.connections.get_mut(slot as usize).filter(|entry| entry.ended.is_none());
        let Some(connection) = entry.and_then(|entry| entry.connection.as_mut()) else { return };
        self.budget.take_out(connection.held());
        let own = self.numbers.counters(&self.counters);
        let outcome = connection.write(self.bounds.twice, &self.counters, own);
        self.budget.put_back(connection.held());
        self.finish_step(slot, outcome);
    }

    fn on_readable(&mut self, slot: u32, ending: bool, submissions: &mut Vec<Submission>) {
        if self.connections.get(slot as usize).is_some_and(|entry| entry.ended.is_some()) {
            return self.close_gently(slot);
        }
        self.read(slot, submissions, |connection, reading, submit| connection.read(ending, reading, submit));
    }

    /// Lets one connection read, or continue with its input, by `read`.
    fn read(
        &mut self,
        slot: u32,
        submissions: &mut Vec<Submission>,
        read: impl FnOnce(
            &mut Connection<P>,
            &mut Reading<'_>,
            &mut dyn FnMut(u64, order::Request, u32),
        ) -> StepOutcome,
    ) {
        let Some(entry) = self.connections.get_mut(slot as usize) else { return };
        let generation = entry.generation;
        let Some(connection) = entry.connection.as_mut() else { return };
        let before = submissions.len();
        let (number, submitted) = (self.numbers.number(slot), &mut self.submitted);
        self.budget.take_out(connection.held());
        let mut reading = Reading {
            bounds: self.bounds,
            counters: &self.counters,
            own: self.numbers.counters(&self.counters),
            tick: self.ticks,
            scratch: &mut self.scratch,
            budget: &mut self.budget,
            left: limits::OUTSTANDING_PER_CLIENT_THREAD.saturating_sub(self.outstanding),
            drains: *self.drains.as_is(),
        };
        let outcome = read(connection, &mut reading, &mut |sequence, request, cost| {
            let to = ReplyTo { slot: number, generation, sequence, cost };
            submissions.push(Submission { number: *submitted, to, request });
            *submitted += 1;
        });
        self.budget.put_back(connection.held());
        self.outstanding += submissions.len() - before;
        self.finish_step(slot, outcome);
    }

    fn finish_step(&mut self, slot: u32, outcome: StepOutcome) {
        match outcome {
            StepOutcome::Open { unread, unsent, waits } => {
                if unread && !self.unread.contains(&slot) {
                    self.unread.push(slot);
                }
                if unsent {
                    self.answered.push(slot);
                }
                let entry = &mut self.connections[slot as usize];
                if let (Some(wait), Some(connection)) = (waits, &mut entry.connection)
                    && connection.enqueue()
                {
                    self.budget.enqueue(wait, (slot, entry.generation), self.ticks);
                }
            }
            StepOutcome::Ended if *self.drains.as_is() => self.close_gently(slot),
            StepOutcome::Ended | StepOutcome::Closed => self.close(slot),
        }
    }

    /// This replica stops: ends what a client reads, and closes the connection once the client has closed it, too. A
    /// socket that is closed earlier resets the connection if its client still sends, and replies on their way are
    /// lost. So only one without any is closed soon.
    fn close_gently(&mut self, slot: u32) {
        let entry = &mut self.connections[slot as usize];
        let Some(connection) = &mut entry.connection else { return };
        let until = *entry.ended.get_or_insert_with(|| match rests(connection, self.ticks) {
            true => self.ticks + limits::ticks(limits::END_PATIENCE),
            false => u64::MAX,
        });
        if self.ticks > until || !connection.end_gently(&self.counters) {
            self.close(slot);
        }
    }

    /// This replica stops: drops what clients still send behind the end of their connections, and counts the others.
    fn end_connections(&mut self) {
        for slot in 0..self.connections.len() as u32 {
            if self.connections[slot as usize].ended.is_some() {
                self.close_gently(slot);
            }
        }
        let is_unanswered = |entry: &&ConnectionEntry<P>| entry.connection.is_some() && entry.ended.is_none();
        let unanswered = self.connections.iter().filter(is_unanswered).count();
        self.own().unanswered.store(unanswered as u64, Relaxed);
    }

    fn close(&mut self, slot: u32) {
        let entry = &mut self.connections[slot as usize];
        entry.ended = None;
        if let Some(connection) = entry.connection.take() {
            self.budget.take_out(connection.held());
            // Replies in flight will find another generation; they are counted when they come.
            let farewell = connection.end(&self.registry, &self.counters, self.bounds.twice);
            let (number, generation) = (self.numbers.number(slot), entry.generation);
            self.farewells.extend(farewell.map(|request| (number, generation, request)));
            entry.generation = entry.generation.wrapping_add(1);
            self.free.push(slot);
            self.own().closed.fetch_add(1, Relaxed);
            self.own().connections.closed(self.numbers.number(slot));
        }
    }

    /// The first connection that waits for this, if it is still open and would find budget now. Closed connections
    /// before it are removed.
    #[inline]
    fn next_fitting(&self, wait: Wait) -> Option<u32> {
        let (slot, generation) = self.budget.head(wait)?;
        let entry = &self.connections[slot as usize];
        let connection = entry.connection.as_ref().filter(|_| entry.generation == generation);
        let fits = |connection: &Connection<P>| {
            connection.waits() != Some(wait) || connection.would_fit(&self.budget, &self.bounds)
        };
        connection.is_none_or(fits).then_some(slot)
    }

    /// Lets connections that waited for budget continue, in their order, as far as there is some.
    fn let_in(&mut self, submissions: &mut Vec<Submission>) {
        for wait in self.budget.waits() {
            while self.outstanding < limits::OUTSTANDING_PER_CLIENT_THREAD
                && let Some(slot) = self.next_fitting(wait)
            {
                let (_, generation) = self.budget.head(wait).unwrap_or_default();
                self.budget.dequeue(wait, self.ticks);
                if self.connections[slot as usize].generation == generation {
                    self.read(slot, submissions, |connection, reading, submit| {
                        connection.go_on(reading, submit)
                    });
                }
            }
        }
    }

    /// Closes connections that hold budget and make no progress, if others have waited for budget for too long.
    fn make_room(&mut self) {
        let Some(wait) = self.budget.starved(self.ticks) else { return };
        self.budget.look_again(wait, self.ticks);
        let is_stalled = |entry: &mut ConnectionEntry<P>| {
            entry.connection.as_mut().is_some_and(|one| one.is_stalled(wait))
        };
        let slots = self.connections.iter_mut().enumerate();
        let stalled: Vec<u32> =
            slots.filter_map(|(slot, entry)| is_stalled(entry).then_some(slot as u32)).collect();
        if stalled.is_empty() {
            return;
        }
        let before = self.budget.held();
        stalled.iter().for_each(|slot| self.close(*slot));
        self.counters.evicted.fetch_add(stalled.len() as u64, Relaxed);
        self.closed_unmoved += stalled.len();
        // Many messages of this kind would fill the log.
        if self.reported_unmoved.is_none_or(|reported| self.ticks - reported >= limits::CLOSED_REPORT_TICKS) {
            crate::message(format_args!(
                "{} client connections were closed: their replies filled the buffers (the last \
                    ones {} KiB) and were not read, while others waited. {} still wait. Raise \
                    buffer_limit_mb if such clients are yours",
                self.closed_unmoved,
                (before - self.budget.held()) >> 10,
                self.budget.waiting()
            ));
            (self.reported_unmoved, self.closed_unmoved) = (Some(self.ticks), 0);
        }
    }

    /// Whether the data for all connections is possible. With an empty buffer, reads return nothing, as if every client
    /// had hung up. No client is read from while more requests are in flight than allowed. None is accepted while more
    /// connections are counted than allowed.
    fn is_valid(&self) -> bool {
        let taken = self.connections.len() - self.free.len().min(self.connections.len());
        let connections = || self.connections.iter().filter_map(|entry| entry.connection.as_ref());
        let held = || connections().map(|one| one.held().bytes()).sum::<usize>();
        let acceptor = self.acceptor.as_ref();
        let counts_right = !self.ticks.is_multiple_of(limits::RECOUNT_TICKS) || self.budget.held() == held();
        self.scratch.len() == limits::READ_CHUNK
            && counts_right
            // Else every connection would be ended as soon as it is there.
            && self.drains.is_intact()
            && self.budget.shares() == self.bounds.shares
            && self.excess.is_valid(self.counters.threads().len())
            && (self.outstanding > 0 || self.budget.cost_in_execution() == 0)
            && self.outstanding <= limits::OUTSTANDING_PER_CLIENT_THREAD
            && self.own().accepted.load(Relaxed).checked_sub(self.own().closed.load(Relaxed))
                == Some(taken as u64)
            && acceptor.is_none_or(|acceptor| acceptor.is_valid(&self.counters))
    }

    fn look_at(&mut self, slot: u32, submissions: &mut Vec<Submission>) {
        let now = Now {
            tick: self.ticks,
            answers: self.answers,
            answered_at: self.answered_at,
            outstanding: self.outstanding as u64,
            committed: self.counters.committed.load(Relaxed),
            validated: self.counters.validated.load(Relaxed),
        };
        let entry = &mut self.connections[slot as usize];
        let Some(connection) = entry.connection.as_mut() else { return };
        if entry.ended.is_some() {
            return self.close_gently(slot);
        }
        let is_valid = connection.is_valid(self.bounds.shares.connection)
            && (connection.waits().is_none() || self.budget.has((slot, entry.generation)));
        self.counters.own_faults.fetch_add(u64::from(!is_valid), Relaxed);
        if connection.is_overdue(&now) {
            self.counters.overdue.fetch_add(1, Relaxed);
            return self.close(slot);
        }
        if let Some(late) = connection.is_late_with(self.ticks) {
            let is_login = late == LateWith::Login;
            let count = if is_login { &self.counters.idle } else { &self.counters.tls_failed };
            count.fetch_add(1, Relaxed);
            return self.close(slot);
        }
        let idle_ticks = connection.idle_ticks(self.ticks);
        let (own, number) = (self.numbers.counters(&self.counters), self.numbers.number(slot));
        own.connections.seen(number, connection.state(), self.ticks - idle_ticks);
        let idle_ticks = u128::from(idle_ticks);
        if self.bounds.idle.is_some_and(|idle| idle_ticks * limits::TICK.as_micros() > idle.as_micros()) {
            self.counters.idle.fetch_add(1, Relaxed);
            return self.close(slot);
        }
        connection.ask_anew();
        self.budget.take_out(connection.held());
        connection.push_unsolicited(&self.budget, self.bounds.twice);
        self.budget.put_back(connection.held());
        connection.unblock();
        self.on_writable(slot);
        self.on_readable(slot, false, submissions);
    }

    /// The kernel refused a call, possibly one that no healthy process makes.
    fn on_refused(&self, error: &io::Error) {
        self.counters.own_faults.fetch_add(u64::from(is_own_fault_without_peer(error)), Relaxed);
    }

    /// Submits what connections have ordered that have ended since the last tick.
    fn say_farewell(&mut self, submissions: &mut Vec<Submission>) {
        let room = limits::OUTSTANDING_PER_CLIENT_THREAD.saturating_sub(self.outstanding);
        let count = self.farewells.len().min(room);
        for (slot, generation, request) in self.farewells.drain(..count) {
            let cost = self.budget.begin(Cost::new(request.bytes.len(), 0));
            // The connection that has places in a sequence is gone when the reply comes.
            let to = ReplyTo { slot, generation, sequence: u64::MAX, cost };
            submissions.push(Submission { number: self.submitted, to, request });
            self.submitted += 1;
            self.outstanding += 1;
        }
    }

    /// A request is no longer on its way.
    #[inline]
    fn has_run(&mut self, to: ReplyTo) {
        self.outstanding = self.outstanding.saturating_sub(1);
        (self.answers, self.answered_at) = (self.answers + 1, self.ticks);
        self.budget.end(to.cost);
    }

    /// Something becomes of a place of a connection, if that is still open: with the next flush bytes may leave, or it
    /// ends.
    #[inline(always)]
    fn change(&mut self, to: ReplyTo, change: impl FnOnce(&mut Connection<P>)) {
        let slot = self.numbers.slot(to.slot).unwrap_or(u32::MAX);
        let connection = self
            .connections
            .get_mut(slot as usize)
            .filter(|entry| entry.generation == to.generation)
            .and_then(|entry| entry.connection.as_mut());
        if let Some(connection) = connection {
            self.budget.take_out(connection.held());
            change(connection);
            self.budget.put_back(connection.held());
            if self.answered.last() != Some(&slot) {
                self.answered.push(slot);
            }
        }
    }

    fn accept(&mut self) {
        let Some(acceptor) = &mut self.acceptor else { return };
        for accepted in acceptor.accept(&self.counters, self.bounds.connections) {
            self.adopt(accepted);
        }
    }
}

impl<P: Protocol> ClientSide for Clients<P> {
    fn adopt(&mut self, accepted: Accepted) {
        let Accepted { mut socket, peer } = accepted;
        self.own().accepted.fetch_add(1, Relaxed);
        if matches!(peer, ClientAddress::Tcp(_)) {
            socket.leaves_at_once();
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.connections.push(ConnectionEntry { generation: 0, connection: None, ended: None });
            (self.connections.len() - 1) as u32
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Token(CONNECTIONS + slot as usize);
        let registered = self.registry.register(&mut socket, token, interest);
        let stream = match registered.and_then(|()| self.stream(socket, peer)) {
            Ok(stream) => stream,
            Err(error) => {
                self.on_refused(&error);
                crate::message(format_args!("a client could not be served: {error}"));
                self.free.push(slot);
                self.own().closed.fetch_add(1, Relaxed);
                return;
            }
        };
        let offers_tls = P::ASKS_FOR_TLS && self.tls.is_some() && peer != ClientAddress::Unix;
        let (number, generation) = (self.numbers.number(slot), self.connections[slot as usize].generation);
        let process = self.counters.process.load(Acquire);
        let in_process = u64::from(generation) << 32 | u64::from(number);
        let id = ConnectionId::new(self.counters.replica, process, in_process);
        let protocol =
            (self.make_protocol)(&NewConnection { id, peer, counters: self.counters.clone(), offers_tls });
        let connection = Connection::new(stream, protocol, self.bounds.shares.connection, self.ticks);
        self.connections[slot as usize].connection = Some(connection);
        self.own().connections.opened((number, generation), peer, self.ticks);
        if *self.drains.as_is() {
            self.finish_step(slot, StepOutcome::Ended);
        }
    }

    fn on_event(&mut self, event: &Event, submissions: &mut Vec<Submission>) {
        if matches!(event.token(), LISTENER | UNIX_LISTENER) {
            return self.accept();
        }
        let slot = (event.token().0 - CONNECTIONS) as u32;
        // Each event also tells whether the socket accepts bytes.
        if event.is_writable() && self.unblock(slot) {
            self.on_writable(slot);
        }
        let ending = event.is_read_closed() || event.is_error();
        if event.is_readable() || ending {
            self.on_readable(slot, ending, submissions);
        }
    }

    fn read_on(&mut self, submissions: &mut Vec<Submission>) {
        self.let_in(submissions);
        for slot in std::mem::take(&mut self.unread) {
            self.on_readable(slot, false, submissions);
        }
    }

    fn has_unread(&self) -> bool {
        // With too much in flight, unread input can continue only after an answer.
        let has_input =
            !self.unread.is_empty() || self.budget.waits().any(|wait| self.next_fitting(wait).is_some());
        (has_input && self.outstanding < limits::OUTSTANDING_PER_CLIENT_THREAD) || !self.answered.is_empty()
    }

    fn answer(&mut self, to: ReplyTo, reply: Option<Reply>) {
        self.has_run(to);
        self.change(to, |connection| connection.answer(to.sequence, reply));
    }

    fn owe(&mut self, to: ReplyTo) {
        self.has_run(to);
        self.change(to, |connection| connection::owe(connection, to.sequence));
    }

    fn answer_owed(&mut self, to: ReplyTo, reply: Option<Reply>) {
        self.change(to, |connection| connection.answer(to.sequence, reply));
    }

    fn flush(&mut self) {
        // Bytes that are still unsent then have their turn with the next flush.
        let mut answered = std::mem::take(&mut self.answered);
        // Each connection has one turn, however many replies came.
        answered.sort_unstable();
        answered.dedup();
        for slot in answered.drain(..) {
            self.on_writable(slot);
        }
        if self.answered.is_empty() {
            self.answered = answered;
        }
    }

    fn drain(&mut self, submissions: &mut Vec<Submission>) {
        // Those that have connected read the end, and no reset.
        self.accept();
        self.drains.set(true);
        self.acceptor = None;
        (0..self.connections.len() as u32).for_each(|slot| self.on_readable(slot, false, submissions));
        self.end_connections();
    }

    fn tick(&mut self, submissions: &mut Vec<Submission>) {
        self.ticks += 1;
        self.own().looks.fetch_add(1, Relaxed);
        self.counters.own_faults.fetch_add(u64::from(!self.is_valid()), Relaxed);
        self.accept();
        self.budget.give_back_excess();
        self.make_room();
        self.say_farewell(submissions);
        self.own().held.store(self.budget.held() as u64, Relaxed);
        self.own().waiting.store(self.budget.waiting() as u64, Relaxed);
        if *self.drains.as_is() {
            self.end_connections();
        }
        for _ in 0..self.connections.len().min(limits::LOOKS_PER_TICK) {
            self.next_look = (self.next_look + 1) % self.connections.len();
            self.look_at(self.next_look as u32, submissions);
        }
    }
}
