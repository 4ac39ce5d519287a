//! One batch on its way through the workers: its parallel batches open one after the other.

use std::sync::{Arc, OnceLock};

use crate::entry::{Entry, Internal};
use crate::mixer::ParallelBatches;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// A batch, how it is split, and how far it is.
///
/// Places count first the requests that earlier batches have started, then those of the batch in the order of its plan.
pub(super) struct Planned<R> {
    pub entry: Arc<Entry<R>>,
    /// Batches appended before.
    pub number: u64,
    plan: ParallelBatches,
    begun: OnceLock<Begun<R>>,
    claimed: AtomicBool,
    progress: OpenPlaces,
    ended: AtomicBool,
}

/// What is known of a batch once those before have ended.
pub(super) struct Begun<R> {
    /// Position of the first place.
    pub position: u64,
    pub time_us: u64,
    /// Requests that earlier ones have started.
    pub started: Vec<Arc<Internal<R>>>,
}

/// The request at a place.
pub(super) enum PlannedRequest<R> {
    /// The request with this number in the batch.
    Own(usize),
    Started(Arc<Internal<R>>),
}

/// What the end of a request means for its batch.
pub(super) enum Resolved {
    /// Others of its parallel batch are not resolved.
    OneOfMany,
    /// It was the last one of its parallel batch, and the next is open.
    OpenedNext,
    /// It was the last one of the batch.
    LastOfAll,
}

impl<R> Planned<R> {
    pub fn new(entry: Arc<Entry<R>>, number: u64, plan: ParallelBatches) -> Self {
        let is_complete = plan.order.len() == entry.rows.len();
        let plan = if is_complete { plan } else { ParallelBatches::in_arrival_order(entry.rows.len()) };
        Planned {
            entry,
            number,
            plan,
            begun: OnceLock::new(),
            claimed: AtomicBool::new(false),
            progress: OpenPlaces::new(),
            ended: AtomicBool::new(false),
        }
    }

    /// Whether the caller is to begin the batch: one worker is.
    pub fn claim_begin(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }

    /// The batches before have ended: its first requests may run. False if it has none.
    pub fn begin(&self, begun: Begun<R>) -> bool {
        let is_first = self.begun.set(begun).is_ok();
        debug_assert!(is_first, "one worker begins a batch");
        self.open_next()
    }

    pub fn has_begun(&self) -> bool {
        self.begun.get().is_some()
    }

    /// All of its requests are resolved, and the versions after it are known.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// A place whose request the caller is to run.
    pub fn claim(&self) -> Option<u64> {
        self.progress.claim()
    }

    /// The request at a place that was claimed, and its position. A request of the batch has the position of its number
    /// in it, however it is split.
    pub fn placed(&self, place: u64) -> Option<(u64, PlannedRequest<R>)> {
        let begun = self.begun.get()?;
        let started = begun.started.len() as u64;
        if let Some(internal) = begun.started.get(place as usize) {
            return Some((begun.position + place, PlannedRequest::Started(Arc::clone(internal))));
        }
        let number = *self.plan.order.get((place - started) as usize)?;
        Some((begun.position + started + u64::from(number), PlannedRequest::Own(number as usize)))
    }

    pub fn time_us(&self) -> u64 {
        self.begun.get().map_or(0, |begun| begun.time_us)
    }

    /// A request that was claimed is resolved.
    pub fn resolve(&self) -> Resolved {
        if !self.progress.resolve() {
            Resolved::OneOfMany
        } else if self.open_next() {
            Resolved::OpenedNext
        } else {
            Resolved::LastOfAll
        }
    }

    /// Opens the next parallel batch; false if there is none. Requests that earlier ones started run one at a time.
    fn open_next(&self) -> bool {
        let started = self.begun.get().map_or(0, |begun| begun.started.len()) as u64;
        let open = self.progress.open();
        let next = if open < started {
            Some(open + 1)
        } else {
            let behind = (open - started) as u32;
            // Ends ascend: the first one beyond what is open.
            let at = self.plan.ends.partition_point(|&end| end <= behind);
            self.plan.ends.get(at).map(|&end| started + u64::from(end))
        };
        next.map(|next| self.progress.open_to(next)).is_some()
    }
}

/// The places that may be claimed, and how many of them are not resolved.
pub(super) struct OpenPlaces {
    next: AtomicU64,
    open: AtomicU64,
    left: AtomicU64,
}

impl OpenPlaces {
    pub fn new() -> Self {
        OpenPlaces { next: AtomicU64::new(0), open: AtomicU64::new(0), left: AtomicU64::new(0) }
    }

    /// Places below are or were open.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    /// Opens the places from the open ones up to `end`. Nothing is open that is not resolved.
    pub fn open_to(&self, end: u64) {
        // Before they can be claimed. Who claims one has read `open`.
        self.left.store(end - self.open.load(Ordering::Relaxed), Ordering::Relaxed);
        self.open.store(end, Ordering::Release);
    }

    /// Takes an open place.
    pub fn claim(&self) -> Option<u64> {
        let mut next = self.next.load(Ordering::Relaxed);
        while next < self.open.load(Ordering::Acquire) {
            match self.next.compare_exchange(next, next + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(next),
                Err(now) => next = now,
            }
        }
        None
    }

    /// One that was claimed is resolved. True for the last open one: what all of them wrote is visible to the caller.
    pub fn resolve(&self) -> bool {
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
