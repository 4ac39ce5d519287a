//! The dispatcher's state as data: together with the objects, all that a replica needs to continue from a position.

use std::sync::Arc;

use crate::entry::{Internal, Source};
use crate::footprint::Footprint;
use crate::predict::{Lesson, Predictor};

/// Timers with their deadlines in microseconds.
pub(crate) type Timers<R> = Vec<(u64, Arc<Internal<R>>)>;

/// The work that was dispatched or promised and has not run yet, at an exclusive position. All positions before are
/// resolved.
pub struct DispatcherState<R> {
    pub(crate) position: u64,
    pub(crate) entry_index: u64,
    pub(crate) request_index: u32,
    pub(crate) time_us: u64,
    pub(crate) draining: bool,
    /// The entry `entry_index` was begun: its time counts and its timers have fired.
    pub(crate) opened: bool,
    pub(crate) due: Vec<Arc<Due<R>>>,
    pub(crate) internal: Vec<Arc<Internal<R>>>,
    pub(crate) timers: Timers<R>,
    /// With the outcomes up to `position` - 1 - lag; lessons of later ones are in `due`.
    pub(crate) predictor: Predictor,
}

/// The outcome of an earlier position that takes effect when `position` is dispatched.
pub(crate) struct Due<R> {
    pub position: u64,
    pub again: Option<Again<R>>,
    pub spawned: Vec<Arc<Internal<R>>>,
    pub timers: Timers<R>,
    /// The lesson of the request about its kind.
    pub lesson: Option<Lesson>,
}

/// A request that missed its forecast.
pub(crate) struct Again<R> {
    pub source: Source<R>,
    /// Declared, predicted and missed before.
    pub footprint: Footprint,
    pub attempt: u32,
    pub time_us: u64,
    pub seed: u64,
    pub entry_index: u64,
}

impl<R> DispatcherState<R> {
    /// The state a service is born with: position 1 is dispatched next.
    pub fn genesis() -> Self {
        DispatcherState {
            position: 1,
            entry_index: 0,
            request_index: 0,
            time_us: 0,
            draining: false,
            opened: false,
            due: Vec::new(),
            internal: Vec::new(),
            timers: Vec::new(),
            predictor: Predictor::new(),
        }
    }

    /// The position that is dispatched next.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Mixed batches: the digest that [`EntryEnd::schedule`](crate::EntryEnd::schedule) tells of this state.
    pub fn digest(&self) -> u64 {
        crate::mixed::digest_of(self)
    }

    /// Number of kinds of requests whose locks are [forecast](Footprint::predict) from earlier ones.
    pub fn kinds(&self) -> usize {
        self.predictor.lessons().count()
    }

    /// Entries with a smaller index are skipped after a resume.
    pub fn entry_index(&self) -> u64 {
        self.entry_index
    }

    /// The first request of that entry that still has to run; 0 if the state was taken at the last one of the
    /// entry before.
    pub fn request_index(&self) -> u32 {
        self.request_index
    }
}
