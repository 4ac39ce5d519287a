//! Accepts clients, and gives each to the client thread that has the fewest: one listening socket for a port, so that a
//! second process on it fails as it should, and perhaps one more for a socket file.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry};
use object::Sealed;
use socket2::{Domain, Socket, Type};

use super::listing::ClientAddress;
use super::socket::ClientSocket;
use super::thread::ThreadInput;
use super::{LISTENER, UNIX_LISTENER};
use crate::counters::ClientCounters;
use crate::limits;
use crate::mailbox::Mailbox;
use crate::service::Protocol;
use crate::socket_errors::{is_of_one_attempt, is_own_fault_without_peer};
use crate::socket_file::{self, SocketFile, SocketPath};

/// A connection that was accepted.
#[derive(Debug)]
pub struct Accepted {
    pub(super) socket: ClientSocket,
    pub(super) peer: ClientAddress,
}

/// The listening sockets, in the first client thread.
pub struct Acceptor {
    listener: TcpListener,
    unix: Option<UnixListener>,
    /// What clients are told that are not served since there are too many, and whether those over TCP understand it:
    /// they do not if they expect TLS.
    refusal: (&'static [u8], bool),
    /// The mailboxes of the other client threads.
    others: Vec<Mailbox<ThreadInput>>,
    /// Connections that each client thread was given, this one first. It has those that it has not closed, even if
    /// they are still on their way to it.
    given: Vec<Sealed<u64>>,
    /// The reason why no client can be accepted at present, once it was reported.
    reported_refusal: Option<i32>,
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
        let given = vec![Sealed::new(0)];
        Ok(Acceptor {
            listener,
            unix: None,
            refusal: (b"", false),
            others: Vec::new(),
            given,
            reported_refusal: None,
        })
    }

    /// Listens on a socket file, too. The file is removed when the second value is dropped.
    ///
    /// # Errors
    /// When the file cannot be made; the message names it.
    pub fn listens_on(self, file: &SocketPath) -> io::Result<(Self, SocketFile)> {
        let SocketPath { path, mode } = file;
        let refusal = |kind: io::ErrorKind, why: String| {
            let name = path.display();
            let remedy = "Make its directory, or choose another client_socket";
            io::Error::new(kind, format!("clients cannot be served on {name}: {why}. {remedy}"))
        };
        file.make_way().map_err(|error| refusal(io::ErrorKind::Other, error.to_string()))?;
        let bound = socket_file::bind(path, *mode, limits::LISTEN_BACKLOG);
        let (listener, file) = bound.map_err(|error| refusal(error.kind(), error.to_string()))?;
        listener.set_nonblocking(true)?;
        Ok((Acceptor { unix: Some(UnixListener::from_std(listener)), ..self }, file))
    }

    /// What clients of this protocol are told that are not served since there are too many. Those over TCP that expect
    /// TLS would not understand it.
    #[must_use]
    pub fn refuses_for<P: Protocol>(self, with_tls: bool) -> Self {
        Acceptor { refusal: (P::TOO_MANY_CLIENTS, P::ASKS_FOR_TLS || !with_tls), ..self }
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
        registry.register(&mut self.listener, LISTENER, Interest::READABLE)?;
        match &mut self.unix {
            Some(listener) => registry.register(listener, UNIX_LISTENER, Interest::READABLE),
            None => Ok(()),
        }
    }

    /// The next client that waits; `WouldBlock` if none does.
    fn next(&self) -> io::Result<Accepted> {
        match self.listener.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            accepted => {
                let (stream, from) = accepted?;
                return Ok(Accepted { socket: OwnedFd::from(stream).into(), peer: ClientAddress::Tcp(from) });
            }
        }
        let Some(unix) = &self.unix else { return Err(io::ErrorKind::WouldBlock.into()) };
        let (stream, _) = unix.accept()?;
        Ok(Accepted { socket: OwnedFd::from(stream).into(), peer: ClientAddress::Unix })
    }

    /// Accepts all clients that wait, as long as there are fewer than `most`, and returns those of this thread.
    pub(super) fn accept(&mut self, counters: &ClientCounters, most: usize) -> Vec<Accepted> {
        let mut own = Vec::new();
        loop {
            let accepted = match self.next() {
                Ok(accepted) => accepted,
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
            self.reported_refusal = None;
            counters.note_accepts(true);
            let has = self.connections(counters);
            if has.iter().sum::<u64>() >= most as u64 {
                counters.refused.fetch_add(1, Relaxed);
                let (text, is_understood) = self.refusal;
                if is_understood || accepted.peer == ClientAddress::Unix {
                    // A socket that does not accept it is closed as well.
                    let _ = accepted.socket.writev(&[io::IoSlice::new(text)]);
                }
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
    pub(super) fn is_valid(&self, counters: &ClientCounters) -> bool {
        self.given.len() == counters.threads().len() && self.given.iter().all(Sealed::is_intact)
    }

    /// No client can be accepted at present. A lasting error, such as a limit on open files, would otherwise be
    /// reported at each tick.
    fn on_refused(&mut self, error: &io::Error, counters: &ClientCounters) {
        counters.own_faults.fetch_add(u64::from(is_own_fault_without_peer(error)), Relaxed);
        counters.note_accepts(false);
        if self.reported_refusal != error.raw_os_error() {
            self.reported_refusal = error.raw_os_error();
            crate::message(format_args!("new clients cannot be accepted: {error}"));
        }
    }
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
