//! The requests that a request starts: to run later, or by a timer. They count only if the request succeeds.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use wire::derive;

use crate::cx::Run;
use crate::entry::{Internal, Origin};
use crate::footprint::Footprint;
use crate::state::Timers;

/// Something that starts requests of type `R`: the [`Cx`](crate::Cx) of a running request, or a wrapper around it.
pub trait Spawn<R> {
    /// Starts a request when the running one has succeeded.
    fn spawn(&self, request: R);
}

/// The requests that the running one has started so far.
pub(crate) struct Starts<R> {
    spawned: RefCell<Vec<R>>,
    timers: RefCell<Vec<(u64, R)>>,
    /// All lessons are forgotten.
    forgets_lessons: Cell<bool>,
}

/// Salts that separate the values derived from one request's seed.
const SPAWNED: u64 = 1 << 32;
const TIMERS: u64 = 1 << 33;

/// Spawned requests, and timers with their deadlines.
pub(crate) type Started<R> = (Vec<Arc<Internal<R>>>, Timers<R>);

impl<R> Starts<R> {
    pub const fn new() -> Self {
        Starts {
            spawned: RefCell::new(Vec::new()),
            timers: RefCell::new(Vec::new()),
            forgets_lessons: Cell::new(false),
        }
    }

    pub fn spawn(&self, request: R) {
        self.spawned.borrow_mut().push(request);
    }

    pub fn at(&self, time_us: u64, request: R) {
        self.timers.borrow_mut().push((time_us, request));
    }

    /// When the running request has succeeded, all lessons are forgotten.
    pub fn forget_lessons(&self) {
        self.forgets_lessons.set(true);
    }

    /// Whether all lessons are forgotten.
    #[inline]
    pub fn forgets_lessons(&self) -> bool {
        self.forgets_lessons.get()
    }

    /// Returns the requests that the request of `run` has started, as internal requests.
    pub fn take(&self, run: &Run, footprint: &dyn Fn(&R, &mut Footprint)) -> Started<R> {
        let make = |request: R, salt: u64, origin| {
            let mut locks = Footprint::new();
            footprint(&request, &mut locks);
            Arc::new(Internal { request, footprint: locks, seed: derive(run.seed.get(), salt), origin })
        };
        let position = run.position;
        let spawned = (0..).zip(self.spawned.take()).map(|(number, request)| {
            make(request, SPAWNED + u64::from(number), Origin::Spawned { position, number })
        });
        let timers = (0..).zip(self.timers.take()).map(|(number, (deadline, request))| {
            (deadline, make(request, TIMERS + u64::from(number), Origin::Timer { position, number }))
        });
        (spawned.collect(), timers.collect())
    }

    /// Shows what the running request has started so far, in this order; timers with their deadlines.
    pub fn visit(&self, mut visit: impl FnMut(Option<u64>, &R)) {
        self.spawned.borrow().iter().for_each(|request| visit(None, request));
        self.timers.borrow().iter().for_each(|(time_us, request)| visit(Some(*time_us), request));
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spawned.borrow().is_empty() && self.timers.borrow().is_empty()
    }

    /// Drops the requests started by a request that did not succeed.
    #[inline]
    pub fn forget(&self) {
        self.forgets_lessons.set(false);
        if !self.is_empty() {
            self.spawned.borrow_mut().clear();
            self.timers.borrow_mut().clear();
        }
    }
}
