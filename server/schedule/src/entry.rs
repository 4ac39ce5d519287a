//! The output of the agreement layer: entries of the ordered log, each a batch of requests.

use std::sync::Arc;

use crate::Footprint;

/// The index of an entry that is not part of the log: its only request runs between two entries, and has no position.
pub(crate) const BETWEEN: u64 = 0;

/// One entry of the ordered log: a batch, with everything that its requests may see of the outside world.
#[derive(Debug)]
pub struct Entry<R> {
    /// Log index, from 1; grows from entry to entry (gaps are allowed).
    pub index: u64,
    /// Leader's time in microseconds; the schedule makes it strictly monotone.
    pub time_us: u64,
    /// Leader's random seed.
    pub seed: u64,
    /// Run `lag` empty positions afterwards, so that retries and spawned requests finish without further entries.
    pub drain: bool,
    /// A row for each request, in order; may be empty (a tick, which fires timers).
    pub rows: Vec<BatchRow<R>>,
}

/// One request of an entry, with the locks it may take.
#[derive(Debug)]
pub struct BatchRow<R> {
    /// The decoded request.
    pub request: R,
    /// Computed once, when the entry is decoded: declared, or partly left to [`Footprint::predict`].
    pub footprint: Footprint,
    /// Requests of one stream (a client's connection) run in log order even with ordinary locks, which promise nothing
    /// about others. Turns order everything that conflicts and need no stream.
    pub stream: Option<u64>,
}

/// Where a request came from; equal on all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The `request`-th request of the log entry.
    Entry {
        /// Index of the entry.
        index: u64,
        /// Place within the entry.
        request: u32,
    },
    /// Spawned by the request at `position`.
    Spawned {
        /// Dispatch position of the spawning request.
        position: u64,
        /// Place among the requests it spawned.
        number: u32,
    },
    /// A timer set by the request at `position`.
    Timer {
        /// Dispatch position of the request that set the timer.
        position: u64,
        /// Place among the timers it set.
        number: u32,
    },
}

/// A request that the service made itself: spawned or a timer.
pub(crate) struct Internal<R> {
    pub request: R,
    pub footprint: Footprint,
    pub seed: u64,
    pub origin: Origin,
}

/// A request that can be kept beyond the position that ran it.
pub(crate) enum Source<R> {
    Entry(Arc<Entry<R>>, u32),
    Internal(Arc<Internal<R>>),
}

impl<R> Source<R> {
    pub fn request(&self) -> &R {
        match self {
            Source::Entry(entry, at) => &entry.rows[*at as usize].request,
            Source::Internal(internal) => &internal.request,
        }
    }

    /// The declared footprint of the request, without locks that were predicted or missed later.
    pub fn declared(&self) -> &Footprint {
        match self {
            Source::Entry(entry, at) => &entry.rows[*at as usize].footprint,
            Source::Internal(internal) => &internal.footprint,
        }
    }

    pub fn origin(&self) -> Origin {
        match self {
            Source::Entry(entry, at) => Origin::Entry { index: entry.index, request: *at },
            Source::Internal(internal) => internal.origin,
        }
    }
}

impl<R> Clone for Source<R> {
    fn clone(&self) -> Self {
        match self {
            Source::Entry(entry, at) => Source::Entry(Arc::clone(entry), *at),
            Source::Internal(internal) => Source::Internal(Arc::clone(internal)),
        }
    }
}
