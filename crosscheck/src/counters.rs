//! What the client side counts, for services that show it and for the replica's checks of itself.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::settings::Settings;

/// Counters of a replica's client side that a service may want to show, and the settings that belong to them.
#[derive(Debug, Default)]
pub struct ClientCounters {
    /// Connections at the same time at most.
    pub connections_max: AtomicU64,
    /// The TCP port of the clients.
    pub port: AtomicU64,
    /// Threads that execute requests.
    pub workers: AtomicU64,
    /// 1 while the kernel refuses to accept clients (too many open files, for example), otherwise 0.
    pub cannot_accept: AtomicU64,
    /// How often that has begun.
    pub accept_stops: AtomicU64,
    /// Connections open now.
    pub open: AtomicU64,
    /// Connections accepted since the start.
    pub accepted: AtomicU64,
    /// Connections refused because of the limit.
    pub refused: AtomicU64,
    /// Bytes received from clients.
    pub bytes_in: AtomicU64,
    /// Bytes sent to clients.
    pub bytes_out: AtomicU64,
    /// Requests that came to something else when they were decoded once more: their connections were closed.
    pub misread: AtomicU64,
    /// Replies that were not any more what was voted on when they were to leave: their connections were closed.
    pub withheld: AtomicU64,
    /// Ticks of the client side: it stands still when they do.
    pub looks: AtomicU64,
    /// Last log entry that this replica knows to be agreed on, as of its last tick.
    pub committed: AtomicU64,
    /// Last batch up to which the vote is closed here, as of its last tick.
    pub validated: AtomicU64,
    /// Bytes that are held for clients now: input, requests on their way, replies.
    pub held: AtomicU64,
    /// Connections that wait for room now.
    pub waiting: AtomicU64,
    /// Connections that were closed because they held room, did not move, and others waited for it.
    pub evicted: AtomicU64,
    /// Connections that were closed because nothing came from them for too long.
    pub idle: AtomicU64,
    /// Replies that did not come although the votes on their requests must be over: their connections were closed.
    pub overdue: AtomicU64,
    /// Signs that the client side itself was struck: calls on sockets that no healthy process makes and the
    /// kernel refused, a connection that has somebody else's socket, counts that cannot be right.
    pub own_faults: AtomicU64,
}

impl ClientCounters {
    /// Zeroes, and what the settings say.
    pub fn of(settings: &Settings) -> Self {
        ClientCounters {
            connections_max: AtomicU64::new(settings.max_connections as u64),
            port: AtomicU64::new(u64::from(settings.clients.port())),
            workers: AtomicU64::new(settings.workers as u64),
            ..ClientCounters::default()
        }
    }

    /// Whether the kernel accepts clients now.
    pub(crate) fn note_accepts(&self, accepts: bool) {
        let before = self.cannot_accept.swap(u64::from(!accepts), Relaxed);
        self.accept_stops.fetch_add(u64::from(!accepts && before == 0), Relaxed);
    }

    /// Requests and replies that were found to be wrong, or lost, on their way between the sockets and the log.
    pub fn failed_checks(&self) -> u64 {
        self.misread.load(Relaxed) + self.withheld.load(Relaxed) + self.overdue.load(Relaxed)
    }
}
