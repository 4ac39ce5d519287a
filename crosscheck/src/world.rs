//! The few ties of a replica's order thread to the world outside: its clocks, what it says to people, and how long its
//! helper may take. A process of its own has [`Os`]; a simulation brings its own, so that one seed decides everything.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use std::{fmt, io, thread};

use bytes::Bytes;
use mio::{Poll, Waker};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use vote::{Packed, Place, RequestResult};

use crate::admin::{EvidenceRecord, Position};
use crate::clients::ReplyTo;
use crate::image::Image;
use crate::peers::Net;
use crate::replica::{MAILBOX, SteppedWorkers};
use crate::snapshot::SnapshotError;
use crate::{ServeError, limits, mailbox::Mailbox, snapshot};

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

/// Whether the kernel refused a call on a socket because of what this process asked for, not because of what
/// the other end or the network did: a buffer that is not its memory, a descriptor that is not open. A
/// healthy process does not make such a call. (EINVAL is no such sign on a connection: Linux says it to who
/// reads or writes when the route has become a black hole.)
pub(crate) fn is_own_fault(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::FAULT | Errno::BADF | Errno::NOTSOCK))
}

/// The same of what has no other end yet: accepting, and asking the poll to hear of a socket.
pub(crate) fn is_own_fault_without_peer(error: &io::Error) -> bool {
    is_own_fault(error) || Errno::from_io_error(error) == Some(Errno::INVAL)
}

/// Whether accepting failed because of what befell the one connection that was next, or was interrupted:
/// others may wait behind it (accept(2): "treat them like EAGAIN by retrying").
pub(crate) fn is_of_one_attempt(error: &io::Error) -> bool {
    let of_one = [
        Errno::INTR,
        Errno::CONNABORTED,
        Errno::NETDOWN,
        Errno::PROTO,
        Errno::NOPROTOOPT,
        Errno::HOSTDOWN,
        #[cfg(target_os = "linux")]
        Errno::NONET,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
    ];
    Errno::from_io_error(error).is_some_and(|errno| of_one.contains(&errno))
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_what_this_process_got_wrong_is_its_own_fault() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        let lost = loop {
            if let Err(error) = stream.write(b"more").and_then(|_| stream.read(&mut [0; 8])) {
                break error;
            }
        };
        assert!(!is_own_fault(&lost), "{lost}");
        // Opened for reading alone.
        let refused = std::fs::File::open("/dev/null").unwrap().write(b"more").unwrap_err();
        assert!(is_own_fault(&refused), "{refused}");
        // A connection over a route that has become a black hole says so; a socket without another end does not.
        let invalid = Errno::INVAL.into();
        assert!(!is_own_fault(&invalid) && is_own_fault_without_peer(&invalid));
    }
}
