//! What a simulation learns of requests that a service starts itself: which requests have started which, and when each
//! ran. No client has a reply to them, so no reply would show that one was forgotten, or ran too early.

use bytes::Bytes;
use parking_lot::Mutex;
use schedule::{Outcome, Turn};
use vote::Place;

use crate::job::{Job, Work};

/// A request has run that the service had started itself, or that has started others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TracedRun {
    /// Its place in the log; none if the service had started it itself.
    pub place: Option<Place>,
    /// Place of the request of the log that the replica's only worker ran before it; with several, of one of them.
    pub behind: Place,
    /// Number of the batch in which it ran.
    pub batch: u64,
    /// Its position in the schedule.
    pub position: u64,
    /// Ordered time at which it ran, in microseconds since 1970.
    pub time_us: u64,
    /// The request as the service encodes it.
    pub request: Bytes,
    /// Whether it has succeeded. If not, it has changed nothing, started nothing, and does not run again.
    pub is_done: bool,
    /// The requests that it has started.
    pub started: Vec<StartedRequest>,
}

/// A request that another one has started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StartedRequest {
    /// The earliest ordered time at which it may run, in microseconds since 1970; none if it is to run soon.
    pub at_us: Option<u64>,
    /// The request as the service encodes it.
    pub request: Bytes,
}

/// The place of the last request of the log that a replica's workers have run.
pub(crate) type LastPlace = Mutex<Place>;

/// The trace of a request whose turn ends with `outcome`, if it has one.
pub(crate) fn trace<R>(
    turn: &Turn<'_, Job<R>>,
    outcome: Outcome,
    last_place: &LastPlace,
) -> Option<Box<TracedRun>> {
    let job = turn.request();
    let place = job.place.as_ref().map(crate::job::InBatch::of_vote);
    let behind = match place {
        Some(place) => std::mem::replace(&mut *last_place.lock(), place),
        None => *last_place.lock(),
    };
    if matches!(outcome, Outcome::Mispredicted(_)) || !matches!(job.work, Work::Service(_)) {
        return None;
    }
    let is_done = outcome == Outcome::Done;
    let mut started = Vec::new();
    if is_done {
        turn.visit_started(|at_us, job| {
            started.push(StartedRequest { at_us, request: job.ordered.clone() });
        });
    }
    (place.is_none() || !started.is_empty()).then(|| {
        let (batch, position, time_us) = (turn.entry_index(), turn.position(), turn.time_us());
        let request = job.ordered.clone();
        Box::new(TracedRun { place, behind, batch, position, time_us, request, is_done, started })
    })
}
