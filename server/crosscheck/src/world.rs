//! The few interfaces of a replica's order thread to its environment: its clocks, its messages to people, and the time
//! of its helper. A real process uses [`Os`]; a simulation has its own implementation, so that one seed decides
//! everything.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use std::{fmt, io};

use bytes::Bytes;
use mio::{Poll, Waker};
use parking_lot::{Condvar, Mutex};
use vote::{Packed, Place, RequestResult};

use crate::admin::{EvidenceRecord, Position};
use crate::clients::ReplyTo;
use crate::image::Image;
use crate::mailbox::{MAILBOX, Mailbox};
use crate::peers::Net;
use crate::snapshot::Extent;
use crate::state_writer::{StateSink, StateWriter, WriteEnd, Writes};
use crate::stepped_workers::SteppedWorkers;
use crate::traced::TracedRun;
use crate::{ServeError, limits};

/// An event in a replica, for an external checker. [`Os`] ignores all events, so they cost nothing.
#[derive(Debug)]
pub enum Observation<'a> {
    /// A batch was taken from the order.
    Delivered {
        /// Its number, equal at every replica.
        batch: u64,
        /// Its requests as ordered.
        requests: &'a order::Batch,
    },
    /// A batch has all its results at this replica.
    Executed {
        /// Its number.
        batch: u64,
        /// One result per request.
        results: &'a [RequestResult],
    },
    /// A request has run that the service had started itself, or that has started others. In verified mode: in a batch
    /// that may be rolled back.
    Traced(&'a TracedRun),
    /// A reply was released.
    Released {
        /// The request.
        place: Place,
        /// Its recipient, if it is a client of this replica.
        to: Option<ReplyTo>,
        /// Its bytes.
        reply: &'a Bytes,
    },
    /// At the turn of a RECOVER: this replica's versions of the objects, none at the replica that is repaired.
    Packed {
        /// Turn of the RECOVER.
        turn: Place,
        /// The objects.
        objects: &'a [Packed],
    },
    /// Objects that f+1 replicas agree on are about to overwrite this replica's.
    Installing {
        /// Turn of the RECOVER.
        turn: Place,
        /// The objects.
        objects: &'a [Packed],
    },
    /// The whole state was digested at an ordered position.
    Digest {
        /// The batch and the ticket.
        position: Position,
        /// 128 bits over every object of every region.
        digest: u128,
    },
    /// A packed state can be fetched from this replica from now on.
    StateMade {
        /// Its log index.
        index: u64,
        /// The digest of each piece.
        digests: &'a [u128],
    },
    /// A whole state has come from others, and takes the place of this replica's.
    StateTaken {
        /// Its log index.
        index: u64,
        /// The digest of each piece.
        digests: &'a [u128],
    },
    /// In verified mode: a whole state that has come from others is not the one that its proof stands for.
    StateRefused {
        /// The replica that had it alone; none if f+1 had the same.
        from: Option<u8>,
    },
    /// Evidence was kept.
    Evidence(&'a EvidenceRecord),
    /// In verified mode: a batch was scheduled. It may be rolled back.
    Speculated {
        /// Its number.
        batch: u64,
        /// Its parts, in order.
        parts: &'a [order::Delivered],
        /// The state of the order after it.
        order: &'a order::State,
    },
    /// In verified mode: all requests of a batch have ended.
    Folded {
        /// The state after it.
        version: verify::Version,
        /// Token of the state before it.
        parent: verify::StateToken,
        /// Numbers of its requests in an order in which they may have run one at a time; only with fault injection.
        order: &'a [u32],
    },
    /// In verified mode: a batch stays.
    Stable {
        /// The state after it.
        version: verify::Version,
        /// Whether this very version was agreed on; if not, a later one was.
        is_agreed: bool,
    },
    /// In verified mode: the verifier of this replica has recorded a version.
    Recorded(&'a verify::TokenRecord),
    /// The reply to a read leaves that took no batch.
    ReadHere {
        /// It is that of the state after this batch.
        batch: u64,
        /// Its recipient.
        to: ReplyTo,
        /// Its bytes.
        reply: &'a Bytes,
    },
    /// In verified mode: this replica follows another view, after a version.
    Followed {
        /// The view.
        view: u64,
        /// The version.
        version: verify::Version,
        /// Whether its first batch runs one request at a time.
        sequential: bool,
    },
    /// In verified mode: this replica's executor sends its token.
    Voted {
        /// The view.
        view: u64,
        /// The version.
        version: verify::Version,
        /// Token of the state before it.
        parent: verify::StateToken,
    },
    /// In verified mode: others have agreed on this version, and the own one is another.
    Diverged(verify::Version),
    /// In verified mode: batches were rolled back.
    TookBack {
        /// The version that is left.
        version: verify::Version,
        /// Whether the tree over the objects is the one that their checksums give; not compared without fault
        /// injection.
        is_right: Option<bool>,
    },
    /// In verified mode: batches could not be rolled back, and the replica replaces itself.
    NotRolledBack {
        /// Whether what takes them back was there.
        was_kept: bool,
    },
    /// In verified mode: the order continues after a batch.
    Rewound {
        /// The batch.
        batch: u64,
        /// The state of the order.
        order: &'a order::State,
    },
    /// In verified mode: the state is one that came from other replicas, or the first one.
    Installed {
        /// Its version.
        version: verify::Version,
        /// The state of the order.
        order: &'a order::State,
        /// It takes the place of another one.
        in_place: bool,
    },
}

/// The environment of a replica's order thread.
pub trait World: Send + 'static {
    /// The network of the peers' connections.
    type Net: Net;

    /// Microseconds since the start; monotonic.
    fn now_us(&self) -> u64;

    /// Microseconds since 1970, for the leader's stamp and for people.
    fn wall_us(&self) -> u64;

    /// Begins to measure how long handlers run.
    fn stopwatch(&self) -> impl Fn() -> Duration;

    /// The duration of a request of the pipeline itself that was measured to take `time`.
    fn measured(&self, time: Duration) -> Duration;

    /// Writes a message to the operator.
    fn say(&self, what: fmt::Arguments<'_>);

    /// Begins to write the state of a checkpoint, or its changes, into `directory`, in the background if this takes
    /// time; `done` gets the result. Writes that were begun before end first.
    ///
    /// # Errors
    /// When writing cannot begin.
    fn keep(
        &self,
        directory: &Path,
        extent: Extent,
        done: impl FnOnce(WriteEnd) + Send + 'static,
    ) -> io::Result<Box<dyn StateSink>>;

    /// Log entries after which a replica with its log on disk writes its state, so that the log can be shortened.
    fn entries_per_snapshot(&self) -> u64 {
        limits::ENTRIES_PER_SNAPSHOT
    }

    /// Bounds that a simulation makes small.
    fn scale(&self) -> limits::PipelineScale {
        limits::PipelineScale::default()
    }

    /// Checks a piece of the program itself; whether it is unchanged.
    fn program_is_valid(&mut self) -> bool {
        true
    }

    /// Passes an event to a checker.
    fn see(&mut self, seen: Observation<'_>);
}

/// The operating system: real clocks, and the order thread's poll.
pub(crate) struct Os {
    pub poll: Poll,
    waker: Arc<Waker>,
    started: Instant,
    /// The program's image; none where the kernel does not show it.
    image: Option<Image>,
    /// The last state that is written.
    writes: Writes,
}

impl Os {
    /// # Errors
    /// When the kernel creates no poll.
    pub fn new() -> Result<Self, ServeError> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), MAILBOX)?);
        Ok(Os {
            poll,
            waker,
            started: Instant::now(),
            image: Image::of_this_process().ok(),
            writes: Writes::default(),
        })
    }

    /// A mailbox of the thread that sleeps in the poll.
    pub fn mailbox<T>(&self) -> Mailbox<T> {
        Mailbox::new(&self.waker)
    }
}

/// Microseconds since 1970.
pub(crate) fn wall_us() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

impl World for Os {
    type Net = crate::peers::Tcp;

    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn wall_us(&self) -> u64 {
        wall_us()
    }

    fn program_is_valid(&mut self) -> bool {
        self.image.as_mut().is_none_or(Image::next_is_intact)
    }

    fn stopwatch(&self) -> impl Fn() -> Duration {
        let begun = Instant::now();
        move || begun.elapsed()
    }

    fn measured(&self, time: Duration) -> Duration {
        time
    }

    fn say(&self, what: fmt::Arguments<'_>) {
        crate::message(what);
    }

    fn keep(
        &self,
        directory: &Path,
        extent: Extent,
        done: impl FnOnce(WriteEnd) + Send + 'static,
    ) -> io::Result<Box<dyn StateSink>> {
        Ok(Box::new(StateWriter::begin(&self.writes, directory, extent, done)?))
    }

    fn see(&mut self, _seen: Observation<'_>) {}
}

/// Makes the other threads of a stepped replica and its order thread take turns: while one runs, the others wait. So
/// several threads behave like one.
#[derive(Clone, Default)]
pub(crate) enum Lockstep {
    /// All threads run freely.
    #[default]
    Free,
    /// The helper of a single worker: whether it runs.
    Helper(Arc<(Mutex<bool>, Condvar)>),
    /// Several workers.
    SteppedWorkers(Arc<SteppedWorkers>),
}

impl Lockstep {
    /// The lockstep of a stepped replica with so many workers; `seed` decides how they interleave.
    pub fn strict(workers: usize, seed: u64) -> Self {
        if workers == 1 {
            Lockstep::Helper(Arc::default())
        } else {
            Lockstep::SteppedWorkers(SteppedWorkers::new(workers, seed))
        }
    }

    /// Whether a simulation decides when each thread runs.
    pub fn is_strict(&self) -> bool {
        !matches!(self, Lockstep::Free)
    }

    /// The workers, if there are several and they are stepped.
    pub fn stepped_workers(&self) -> Option<&Arc<SteppedWorkers>> {
        match self {
            Lockstep::SteppedWorkers(workers) => Some(workers),
            Lockstep::Free | Lockstep::Helper(_) => None,
        }
    }

    /// Calls `set_going`, which wakes the helper (and returns whether it did), then waits until the helper can do
    /// nothing more by itself. Called by the order thread. One of several workers continues when it is chosen.
    pub fn hand_over(&self, set_going: impl FnOnce() -> bool) {
        match self {
            Lockstep::Free => {
                set_going();
            }
            Lockstep::Helper(pair) => {
                let (goes, parked) = &**pair;
                *goes.lock() = true;
                let went = set_going();
                let mut goes = goes.lock();
                *goes &= went;
                while *goes {
                    parked.wait(&mut goes);
                }
            }
            Lockstep::SteppedWorkers(workers) => {
                set_going();
                workers.wake_waiting();
            }
        }
    }

    /// Reports that the helper can do nothing more by itself; its last call before it waits.
    pub fn park(&self) {
        if let Lockstep::Helper(pair) = self {
            let (goes, parked) = &**pair;
            *goes.lock() = false;
            parked.notify_all();
        }
    }
}
