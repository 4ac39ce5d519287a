//! Counters of the client side, for services that show them and for the replica's checks of itself. What a thread
//! counts per request is on cache lines of its own: several client threads would otherwise take these lines from each
//! other.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::clients::listing::{ConnectionInfo, Listing};
use crate::limits;
use crate::settings::Settings;

/// Counters of a replica's client side that a service may want to show, and the settings that belong to them.
#[derive(Debug, Default)]
pub struct ClientCounters {
    /// The replica, from 0, and its process: its incarnation, once clients are served. Both are a part of the names of
    /// connections.
    pub replica: u8,
    /// See [`ClientCounters::replica`].
    pub process: AtomicU64,
    /// Most connections at the same time.
    pub connections_max: AtomicU64,
    /// The TCP port of the clients.
    pub port: AtomicU64,
    /// The address on which clients are accepted.
    pub listen: Option<SocketAddr>,
    /// The socket file on which clients are accepted, too.
    pub socket: Option<PathBuf>,
    /// Threads that execute requests.
    pub workers: AtomicU64,
    /// 1 while the kernel refuses to accept clients (too many open files, for example), otherwise 0.
    pub cannot_accept: AtomicU64,
    /// How often the kernel has begun to refuse.
    pub accept_stops: AtomicU64,
    /// Connections refused because of the limit.
    pub refused: AtomicU64,
    /// Requests whose second decoding had another result: their connections were closed.
    pub misread: AtomicU64,
    /// Replies that differed, when they were to leave, from the ones voted on: their connections were closed.
    pub withheld: AtomicU64,
    /// The commit index that this replica knows, as of its last tick.
    pub committed: AtomicU64,
    /// Last batch up to which the vote is closed here, as of its last tick.
    pub validated: AtomicU64,
    /// Connections that were closed because they held room and made no progress, while others waited for room.
    pub evicted: AtomicU64,
    /// Connections that were closed because they sent nothing for too long.
    pub idle: AtomicU64,
    /// Connections that were closed because their clients completed no handshake of TLS, or sent what is not TLS.
    pub tls_failed: AtomicU64,
    /// Replies that did not come although the votes on their requests must be over: their connections were closed.
    pub overdue: AtomicU64,
    /// Signs of a fault in the client side itself: calls on sockets that the kernel refused and that no healthy process
    /// makes, a connection with the socket of another one, counts that cannot be right.
    pub own_faults: AtomicU64,
    threads: PerThread,
}

/// What each client thread counts for itself.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ThreadCounters {
    /// Connections that it was given since the start.
    pub accepted: AtomicU64,
    /// Those of them that are closed.
    pub closed: AtomicU64,
    /// Bytes received from clients.
    pub bytes_in: AtomicU64,
    /// Bytes sent to clients.
    pub bytes_out: AtomicU64,
    /// Its ticks: while they stand still, it makes no progress.
    pub looks: AtomicU64,
    /// Bytes that are held for clients now: input, requests in flight, replies.
    pub held: AtomicU64,
    /// Connections that wait for room now.
    pub waiting: AtomicU64,
    /// Once this replica stops: connections with a request that is not answered.
    pub unanswered: AtomicU64,
    /// Its connections, for [`ClientCounters::connections`].
    pub(crate) connections: Listing,
}

impl ThreadCounters {
    /// Connections open now.
    pub fn open(&self) -> u64 {
        // In this order: one that is accepted and closed in between counts as open for a moment.
        let closed = self.closed.load(Relaxed);
        self.accepted.load(Relaxed).saturating_sub(closed)
    }
}

/// One or more.
#[derive(Debug)]
struct PerThread(Box<[ThreadCounters]>);

impl PerThread {
    fn new(count: usize) -> Self {
        PerThread((0..count.max(1)).map(|_| ThreadCounters::default()).collect())
    }
}

impl Default for PerThread {
    fn default() -> Self {
        PerThread::new(1)
    }
}

impl ClientCounters {
    /// Counters of zero, with the values of the settings.
    pub fn of(settings: &Settings) -> Self {
        ClientCounters {
            replica: settings.me,
            connections_max: AtomicU64::new(settings.max_connections as u64),
            port: AtomicU64::new(u64::from(settings.clients.port())),
            listen: Some(settings.clients),
            socket: settings.access.socket.as_ref().map(|socket| socket.path.clone()),
            workers: AtomicU64::new(settings.workers as u64),
            ..ClientCounters::with_threads(settings.client_threads())
        }
    }

    /// Counters of zero, for so many client threads.
    pub fn with_threads(threads: usize) -> Self {
        ClientCounters { threads: PerThread::new(threads), ..ClientCounters::default() }
    }

    /// The counters of each client thread.
    pub fn threads(&self) -> &[ThreadCounters] {
        &self.threads.0
    }

    /// The sum of a counter over all client threads.
    pub fn sum(&self, counter: impl Fn(&ThreadCounters) -> &AtomicU64) -> u64 {
        self.threads().iter().map(|thread| counter(thread).load(Relaxed)).sum()
    }

    /// Connections open now.
    pub fn open(&self) -> u64 {
        self.threads().iter().map(ThreadCounters::open).sum()
    }

    /// The open connections, [`limits::LISTED_CONNECTIONS`] at most; [`ClientCounters::open`] is the number of all.
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        let mut all = Vec::new();
        for thread in self.threads() {
            let left = limits::LISTED_CONNECTIONS - all.len();
            all.extend(thread.connections.first(left, thread.looks.load(Relaxed)));
        }
        all
    }

    /// Records whether the kernel accepts clients now.
    pub(crate) fn note_accepts(&self, accepts: bool) {
        let before = self.cannot_accept.swap(u64::from(!accepts), Relaxed);
        self.accept_stops.fetch_add(u64::from(!accepts && before == 0), Relaxed);
    }

    /// Requests and replies that were found wrong or lost between the sockets and the log.
    pub fn failed_checks(&self) -> u64 {
        self.misread.load(Relaxed) + self.withheld.load(Relaxed) + self.overdue.load(Relaxed)
    }
}
