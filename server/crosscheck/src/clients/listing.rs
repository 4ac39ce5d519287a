//! The list of client connections for operators: what each thread has seen of its own, by the time of its last look.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use parking_lot::Mutex;

use crate::limits;

/// The other end of a client connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAddress {
    /// It came over TCP, from this address.
    Tcp(SocketAddr),
    /// It is a process of this machine, over the socket file.
    Unix,
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientAddress::Tcp(address) => write!(f, "tcp:{address}"),
            ClientAddress::Unix => f.write_str("unix"),
        }
    }
}

/// What a client connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// Nothing of a request has come.
    Idle,
    /// A part of a request has come.
    Reading,
    /// A whole request, or the rest of a long one, waits for memory.
    WaitsForMemory,
    /// It waits for the replies to its requests.
    Executing,
    /// Its client does not read its replies.
    Writing,
    /// No more is read: it ends with its last reply.
    Closing,
}

/// One client connection, as of the last look at it: looks come in turn, [`limits::LOOKS_PER_TICK`] at each
/// [`limits::TICK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// No other connection that is open has it; later ones may.
    pub id: u32,
    /// The other end.
    pub peer: ClientAddress,
    /// What it does.
    pub state: ConnectionState,
    /// Seconds since it sent, received or waited for something: since its last command.
    pub idle_s: u64,
}

/// What a thread has seen of one connection.
#[derive(Clone, Copy, Debug)]
struct Seen {
    generation: u32,
    peer: ClientAddress,
    state: ConnectionState,
    /// The tick of its thread at which it last did something.
    active: u64,
}

/// The connections of one client thread, by their numbers. Only the thread changes them; any thread may read.
#[derive(Debug, Default)]
pub(crate) struct Listing(Mutex<BTreeMap<u32, Seen>>);

impl Listing {
    /// A connection was opened at this tick.
    pub(super) fn opened(&self, (id, generation): (u32, u32), peer: ClientAddress, tick: u64) {
        self.0.lock().insert(id, Seen { generation, peer, state: ConnectionState::Idle, active: tick });
    }

    /// What was seen of it; its last progress was at this tick.
    pub(super) fn seen(&self, id: u32, state: ConnectionState, active: u64) {
        if let Some(seen) = self.0.lock().get_mut(&id) {
            (seen.state, seen.active) = (state, active);
        }
    }

    /// Whether it is open.
    pub(crate) fn has(&self, id: u32, generation: u32) -> bool {
        self.0.lock().get(&id).is_some_and(|seen| seen.generation == generation)
    }

    /// It was closed.
    pub(super) fn closed(&self, id: u32) {
        self.0.lock().remove(&id);
    }

    /// At most so many of them, at this tick of the thread.
    pub(crate) fn first(&self, most: usize, tick: u64) -> Vec<ConnectionInfo> {
        let seen = self.0.lock();
        let info = |(id, seen): (&u32, &Seen)| {
            let idle_us = u128::from(tick.saturating_sub(seen.active)) * limits::TICK.as_micros();
            let idle_s = u64::try_from(idle_us / 1_000_000).unwrap_or(u64::MAX);
            ConnectionInfo { id: *id, peer: seen.peer, state: seen.state, idle_s }
        };
        seen.iter().take(most).map(info).collect()
    }
}
