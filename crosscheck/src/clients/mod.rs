//! Decode and Externalize: the thread that owns the client sockets. It makes requests of their bytes, with a checksum
//! from that moment on, and sends each connection its replies in the order of its requests.

mod connection;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::limits;
use crate::mailbox::Mailbox;
use crate::service::{ClientCounters, MakeProtocol, Protocol};
use connection::{Connection, Fate, Reading};

/// Where a reply goes: one place in the reply sequence of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// Slot of the connection in its thread's table.
    pub slot: u32,
    /// Tells this connection from earlier ones in the same slot.
    pub generation: u32,
    /// Place in the connection's sequence of replies.
    pub sequence: u64,
}

/// A request on its way to the order thread.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Where its reply goes.
    pub to: ReplyTo,
    /// The service's encoding of it, summed when it was made (`order::batch`).
    pub request: order::Request,
}

/// What comes back.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The validated reply.
    Reply(ReplyTo, Bytes),
    /// No correct reply can be had: the connection is closed rather than answered wrongly.
    Drop(ReplyTo),
    /// Stop: close the listener and every connection.
    Stop,
}

const LISTENER: Token = Token(usize::MAX);
const MAILBOX: Token = Token(usize::MAX - 1);

/// The client side of one replica. [`Clients::run`] is the body of its thread.
pub struct Clients<P> {
    poll: Poll,
    listener: TcpListener,
    answers: Mailbox<Answer>,
    make_protocol: MakeProtocol<P>,
    counters: Arc<ClientCounters>,
    max_connections: usize,
    max_request: usize,
    connections: Vec<Entry<P>>,
    free: Vec<u32>,
    /// Connections with input left unread, because of a limit or their turn's end.
    unread: Vec<u32>,
    outstanding: usize,
    /// What one socket is read into; its connection keeps only what was read.
    scratch: Vec<u8>,
}

struct Entry<P> {
    generation: u32,
    connection: Option<Connection<P>>,
}

impl<P: Protocol> Clients<P> {
    /// Listens on `address`.
    ///
    /// # Errors
    /// When the address cannot be bound; the message names it.
    pub fn bind(
        address: SocketAddr,
        make_protocol: MakeProtocol<P>,
        counters: Arc<ClientCounters>,
        max_connections: usize,
        max_request: usize,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(address).map_err(|error| {
            io::Error::new(error.kind(), format!("clients cannot be served on {address}: {error}"))
        })?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), MAILBOX)?);
        let answers = Mailbox::new(&waker);
        Ok(Clients {
            poll,
            listener,
            answers,
            make_protocol,
            counters,
            max_connections,
            max_request,
            connections: Vec::new(),
            free: Vec::new(),
            unread: Vec::new(),
            outstanding: 0,
            scratch: vec![0; limits::READ_CHUNK],
        })
    }

    /// Where validated replies are left for this thread.
    pub fn answers(&self) -> Mailbox<Answer> {
        self.answers.clone()
    }

    /// Serves until [`Answer::Stop`]; `submit` takes the requests of one round.
    pub fn run(mut self, mut submit: impl FnMut(&mut Vec<Submission>)) {
        let mut events = Events::with_capacity(1024);
        let mut answers = Vec::new();
        let mut submissions = Vec::new();
        loop {
            // With too much on its way, only an answer lets unread input go on.
            let full = self.outstanding >= limits::OUTSTANDING_PER_CLIENT_THREAD;
            let pause = if self.unread.is_empty() || full { limits::IDLE } else { Duration::ZERO };
            if let Err(error) = self.poll.poll(&mut events, Some(pause))
                && error.kind() != io::ErrorKind::Interrupted
            {
                eprintln!("crosscheck: clients can no longer be served: {error}");
                return;
            }
            self.answers.take(&mut answers);
            if !self.externalize(&mut answers) {
                return;
            }
            for event in events.iter() {
                match event.token() {
                    LISTENER => self.accept(),
                    MAILBOX => {}
                    Token(slot) => {
                        let ending = event.is_read_closed() || event.is_error();
                        let readable = event.is_readable() || ending;
                        if event.is_writable() {
                            self.on_writable(slot as u32);
                        }
                        if readable {
                            self.on_readable(slot as u32, ending, &mut submissions);
                        }
                    }
                }
            }
            for slot in std::mem::take(&mut self.unread) {
                self.on_readable(slot, false, &mut submissions);
            }
            if !submissions.is_empty() {
                submit(&mut submissions);
                submissions.clear();
            }
        }
    }

    /// The last stage: validated replies take their places and leave. Returns whether to go on.
    fn externalize(&mut self, answers: &mut Vec<Answer>) -> bool {
        let mut touched: Vec<u32> = Vec::with_capacity(answers.len());
        for answer in answers.drain(..) {
            let (to, reply) = match answer {
                Answer::Reply(to, reply) => (to, Some(reply)),
                Answer::Drop(to) => (to, None),
                Answer::Stop => return false,
            };
            self.outstanding = self.outstanding.saturating_sub(1);
            if let Some(connection) = self.connection(to) {
                connection.answer(to.sequence, reply);
                if touched.last() != Some(&to.slot) {
                    touched.push(to.slot);
                }
            }
        }
        for slot in touched {
            let fate = match self.connections[slot as usize].connection.as_mut() {
                Some(connection) => connection.write(&self.counters),
                None => continue,
            };
            self.settle(slot, fate);
        }
        true
    }

    fn connection(&mut self, to: ReplyTo) -> Option<&mut Connection<P>> {
        let entry = self.connections.get_mut(to.slot as usize)?;
        if entry.generation == to.generation { entry.connection.as_mut() } else { None }
    }

    fn on_writable(&mut self, slot: u32) {
        let entry = self.connections.get_mut(slot as usize);
        let Some(connection) = entry.and_then(|entry| entry.connection.as_mut()) else { return };
        let fate = connection.write(&self.counters);
        self.settle(slot, fate);
    }

    fn on_readable(&mut self, slot: u32, ending: bool, submissions: &mut Vec<Submission>) {
        let Some(entry) = self.connections.get_mut(slot as usize) else { return };
        let generation = entry.generation;
        let Some(connection) = entry.connection.as_mut() else { return };
        let room = limits::OUTSTANDING_PER_CLIENT_THREAD.saturating_sub(self.outstanding);
        let before = submissions.len();
        let mut reading =
            Reading { max_request: self.max_request, counters: &self.counters, scratch: &mut self.scratch };
        let fate = connection.read(ending, room, &mut reading, |sequence, request| {
            submissions.push(Submission { to: ReplyTo { slot, generation, sequence }, request });
        });
        self.outstanding += submissions.len() - before;
        self.settle(slot, fate);
    }

    fn settle(&mut self, slot: u32, fate: Fate) {
        match fate {
            Fate::Open => {}
            Fate::Unread => {
                if !self.unread.contains(&slot) {
                    self.unread.push(slot);
                }
            }
            Fate::Closed => self.close(slot),
        }
    }

    fn close(&mut self, slot: u32) {
        let entry = &mut self.connections[slot as usize];
        if let Some(mut connection) = entry.connection.take() {
            // Replies still on their way find another generation; they are counted when they come.
            connection.deregister(self.poll.registry());
            entry.generation = entry.generation.wrapping_add(1);
            self.free.push(slot);
            self.counters.open.fetch_sub(1, Relaxed);
        }
    }

    fn accept(&mut self) {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    eprintln!("crosscheck: a client could not be accepted: {error}");
                    return;
                }
            };
            if self.counters.open.load(Relaxed) as usize >= self.max_connections {
                // The text memcached sends; a socket that cannot even take it is closed all the same.
                let _ = io::Write::write(&mut stream, b"ERROR Too many open connections\r\n");
                self.counters.refused.fetch_add(1, Relaxed);
                continue;
            }
            let _ = stream.set_nodelay(true);
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(Entry { generation: 0, connection: None });
                (self.connections.len() - 1) as u32
            });
            let interest = Interest::READABLE | Interest::WRITABLE;
            if let Err(error) = self.poll.registry().register(&mut stream, Token(slot as usize), interest) {
                eprintln!("crosscheck: a client could not be served: {error}");
                self.free.push(slot);
                continue;
            }
            let protocol = (self.make_protocol)(&self.counters);
            self.connections[slot as usize].connection = Some(Connection::new(stream, protocol));
            self.counters.open.fetch_add(1, Relaxed);
            self.counters.accepted.fetch_add(1, Relaxed);
        }
    }
}
