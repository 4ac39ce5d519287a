//! Accepts clients, and gives each to the client thread that has the fewest: one listening socket, so that a second
//! process on the same port fails as it should.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry};
use object::Sealed;
use socket2::{Domain, Socket, Type};

use super::LISTENER;
use super::listing::Peer;
use super::thread::ThreadInput;
use crate::counters::ClientCounters;
use crate::limits;
use crate::mailbox::Mailbox;
use crate::socket_errors::{is_of_one_attempt, is_own_fault_without_peer};

/// A connection that was accepted.
#[derive(Debug)]
pub struct Accepted {
    pub(super) stream: TcpStream,
    pub(super) peer: Peer,
}

/// The listening socket, in the first client thread.
pub struct Acceptor {
    listener: TcpListener,
    /// The mailboxes of the other client threads.
    others: Vec<Mailbox<ThreadInput>>,
    /// Connections that each client thread was given, this one first. It has those that it has not closed, even if
    /// they are still on their way to it.
    given: Vec<Sealed<u64>>,
    /// The reason why no client can be accepted at present, once it was reported.
    told_refusal: Option<i32>,
}

impl Acceptor {
    /// Listens on `address`, for this thread alone.
    ///
    /// # Errors
    /// When the address cannot be bound; the message names it.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = listen(address).map_err(|error| {
            io::Error::new(error.kind(), format!("clients cannot be served on {address}: {error}"))
        })?;
        Ok(Acceptor { listener, others: Vec::new(), given: vec![Sealed::new(0)], told_refusal: None })
    }

    /// Gives connections to these threads too, number 1 first.
    #[must_use]
    pub fn deals_out_to(self, others: Vec<Mailbox<ThreadInput>>) -> Self {
        let given = (0..=others.len()).map(|_| Sealed::new(0)).collect();
        Acceptor { given, others, ..self }
    }

    #[cfg(test)]
    pub(super) fn corrupt(&mut self, thread: usize, bit: u32) {
        self.given[thread].corrupt(|given| *given ^= 1 << bit);
    }

    #[cfg(test)]
    pub(super) fn listener(&self) -> &TcpListener {
        &self.listener
    }

    pub(super) fn register(&mut self, registry: &Registry) -> io::Result<()> {
        registry.register(&mut self.listener, LISTENER, Interest::READABLE)
    }

    /// Accepts all clients that wait, as long as there are fewer than `most`, and returns those of this thread.
    pub(super) fn accept(&mut self, counters: &ClientCounters, most: usize) -> Vec<Accepted> {
        let mut own = Vec::new();
        loop {
            let accepted = match self.listener.accept() {
                Ok((stream, from)) => Accepted { stream, peer: Peer::Tcp(from) },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    counters.note_accepts(true);
                    return own;
                }
                // The next client hung up while it waited; those after it may be accepted.
                Err(error) if is_of_one_attempt(&error) => continue,
                Err(error) => {
                    self.on_refused(&error, counters);
                    return own;
                }
            };
            self.told_refusal = None;
            counters.note_accepts(true);
            let has = self.connections(counters);
            if has.iter().sum::<u64>() >= most as u64 {
                counters.refused.fetch_add(1, Relaxed);
                refuse(accepted.stream);
                continue;
            }
            let fewest = has.iter().enumerate().min_by_key(|(_, has)| **has).map_or(0, |(thread, _)| thread);
            // A corrupted count is found at the next tick.
            let _ = self.given[fewest].update(|given| *given += 1);
            match fewest.checked_sub(1) {
                None => own.push(accepted),
                Some(other) => self.others[other].send(ThreadInput::Serve(accepted)),
            }
        }
    }

    /// The connections of each client thread, with those on their way to it.
    fn connections(&self, counters: &ClientCounters) -> Vec<u64> {
        let of_threads = self.given.iter().zip(counters.threads());
        of_threads.map(|(given, thread)| given.as_is().saturating_sub(thread.closed.load(Relaxed))).collect()
    }

    /// Whether its counts are those that it has made: with a wrong one no client might be accepted any more.
    pub(super) fn is_sound(&self, counters: &ClientCounters) -> bool {
        self.given.len() == counters.threads().len() && self.given.iter().all(Sealed::is_intact)
    }

    /// No client can be accepted at present. A lasting error, such as a limit on open files, would otherwise be
    /// reported at each tick.
    fn on_refused(&mut self, error: &io::Error, counters: &ClientCounters) {
        counters.own_faults.fetch_add(u64::from(is_own_fault_without_peer(error)), Relaxed);
        counters.note_accepts(false);
        if self.told_refusal != error.raw_os_error() {
            self.told_refusal = error.raw_os_error();
            crate::message(format_args!("new clients cannot be accepted: {error}"));
        }
    }
}

/// Tells a client that there are too many.
fn refuse(mut stream: TcpStream) {
    // The text that memcached sends; a socket that does not accept it is closed as well.
    let _ = io::Write::write(&mut stream, b"ERROR Too many open connections\r\n");
}

/// Listens like the standard library, with a longer queue.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // Without it, connections of an earlier process, which the kernel keeps for a minute, would keep a new process from
    // its port.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(limits::LISTEN_BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}
