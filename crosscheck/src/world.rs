//! The few ties of a replica's order thread to the world outside: its clocks, what it says to people, and how long its
//! helper may take. A process of its own has [`Os`]; a simulation brings its own, so that one seed decides everything.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use std::{fmt, io, thread};

use bytes::Bytes;
use mio::{Poll, Waker};
use parking_lot::{Condvar, Mutex};
use vote::{Packed, Place, RequestResult};

use crate::admin::{EvidenceRecord, Position};
use crate::clients::ReplyTo;
use crate::image::Image;
use crate::mailbox::{MAILBOX, Mailbox};
use crate::peers::Net;
use crate::snapshot::SnapshotError;
use crate::stepped_workers::SteppedWorkers;
use crate::{ServeError, limits, snapshot};

/// Something a replica did that a checker from outside wants to see. [`Os`] looks at none of it, which costs nothing.
#[derive(Debug)]
pub enum Observation<'a> {
    /// A batch was taken from the order.
    Delivered {
        /// Its number, counted alike at every replica.
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
    /// A reply passed the gate.
    Released {
        /// The request.
        place: Place,
        /// Who gets it, if a client of this replica does.
        to: Option<ReplyTo>,
        /// The very bytes.
        reply: &'a Bytes,
    },
    /// At the turn of a RECOVER: the objects as this replica has them, none at the one that is repaired.
    Packed {
        /// Turn of the RECOVER.
        turn: Place,
        /// Them.
        objects: &'a [Packed],
    },
    /// Objects that f+1 replicas agree on are about to overwrite this replica's.
    Installing {
        /// Turn of the RECOVER.
        turn: Place,
        /// Them.
        objects: &'a [Packed],
    },
    /// The whole state was digested at an ordered position.
    Digest {
        /// Which batch, and who asked.
        position: Position,
        /// 128 bits over every object of every region.
        digest: u128,
    },
    /// Evidence was kept.
    Evidence(&'a EvidenceRecord),
}

/// The world as the order thread of a replica sees it.
pub trait World: Send + 'static {
    /// What the peers' connections stand on.
    type Net: Net;

    /// Microseconds since the start; monotonic.
    fn now_us(&self) -> u64;

    /// Microseconds since 1970, for the leader's stamp and for people.
    fn wall_us(&self) -> u64;

    /// Begins to measure how long handlers run.
    fn stopwatch(&self) -> impl Fn() -> Duration;

    /// How long a SCRUB took that was measured to take `time`.
    fn scrub_took(&self, time: Duration) -> Duration;

    /// Tells the operator.
    fn say(&self, what: fmt::Arguments<'_>);

    /// Writes the state of a checkpoint into `directory`, meanwhile if that takes time; `done` is told how it went.
    ///
    /// # Errors
    /// When it cannot even be begun.
    fn keep(
        &self,
        directory: &Path,
        state: Bytes,
        done: impl FnOnce(Result<(), SnapshotError>) + Send + 'static,
    ) -> io::Result<()>;

    /// Log entries after which a replica with its log on disk writes its state, so that the log can be shortened.
    fn entries_per_snapshot(&self) -> u64 {
        limits::ENTRIES_PER_SNAPSHOT
    }

    /// Whether the program itself, of which a piece is looked at, is still what it was.
    fn program_is_sound(&mut self) -> bool {
        true
    }

    /// Something happened that a checker may want to see.
    fn see(&mut self, seen: Observation<'_>);
}

/// The operating system: real clocks, and the order thread's poll.
pub(crate) struct Os {
    pub poll: Poll,
    waker: Arc<Waker>,
    started: Instant,
    /// None where the kernel does not show it.
    image: Option<Image>,
}

impl Os {
    /// # Errors
    /// When the kernel gives no poll.
    pub fn new() -> Result<Self, ServeError> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), MAILBOX)?);
        Ok(Os { poll, waker, started: Instant::now(), image: Image::of_this_process().ok() })
    }

    /// A mailbox into the thread that sleeps in the poll.
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

    fn program_is_sound(&mut self) -> bool {
        self.image.as_mut().is_none_or(Image::next_is_sound)
    }

    fn stopwatch(&self) -> impl Fn() -> Duration {
        let begun = Instant::now();
        move || begun.elapsed()
    }

    fn scrub_took(&self, time: Duration) -> Duration {
        time
    }

    fn say(&self, what: fmt::Arguments<'_>) {
        crate::message(what);
    }

    fn keep(
        &self,
        directory: &Path,
        state: Bytes,
        done: impl FnOnce(Result<(), SnapshotError>) + Send + 'static,
    ) -> io::Result<()> {
        let directory = directory.to_owned();
        let write = move || done(snapshot::write(&order::System, &directory, &state));
        thread::Builder::new().name("snapshot".into()).spawn(write).map(drop)
    }

    fn see(&mut self, _seen: Observation<'_>) {}
}

/// Makes the other threads of a stepped replica and its order thread take turns: while one runs, the others
/// wait. So it makes no difference that they are several.
#[derive(Clone, Default)]
pub(crate) enum Lockstep {
    /// All run as they can.
    #[default]
    Free,
    /// The helper of a single worker goes, or rests.
    Helper(Arc<(Mutex<bool>, Condvar)>),
    /// Several workers.
    SteppedWorkers(Arc<SteppedWorkers>),
}

impl Lockstep {
    /// For a replica that is stepped, with so many workers; `seed` decides how they overtake each other.
    pub fn strict(workers: usize, seed: u64) -> Self {
        if workers == 1 {
            Lockstep::Helper(Arc::default())
        } else {
            Lockstep::SteppedWorkers(SteppedWorkers::new(workers, seed))
        }
    }

    /// The workers, if there are several and they are stepped.
    pub fn stepped_workers(&self) -> Option<&Arc<SteppedWorkers>> {
        match self {
            Lockstep::SteppedWorkers(workers) => Some(workers),
            Lockstep::Free | Lockstep::Helper(_) => None,
        }
    }

    /// The order thread does what sets the helper going (and says whether it did), then waits until the
    /// helper can do nothing more by itself. A worker of several goes on when it is chosen.
    pub fn hand_over(&self, set_going: impl FnOnce() -> bool) {
        match self {
            Lockstep::Free => {
                set_going();
            }
            Lockstep::Helper(pair) => {
                let (goes, rests) = &**pair;
                *goes.lock() = true;
                let went = set_going();
                let mut goes = goes.lock();
                *goes &= went;
                while *goes {
                    rests.wait(&mut goes);
                }
            }
            Lockstep::SteppedWorkers(workers) => {
                set_going();
                workers.stir();
            }
        }
    }

    /// The helper can do nothing more by itself: it says so as the last thing before it waits.
    pub fn rest(&self) {
        if let Lockstep::Helper(pair) = self {
            let (goes, rests) = &**pair;
            *goes.lock() = false;
            rests.notify_all();
        }
    }
}
