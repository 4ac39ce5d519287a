//! Decides which request runs when, identically on every replica: lagged ordered turns over one ordered log
//! (docs/determinism.md).
//!
//! Every worker iterates over the whole log with private tickets and runs the positions that are assigned to it. A
//! handler's [`Cx::lock`] waits for its ticket; a lock outside the forecast footprint gives [`Retry`], the request is
//! undone and runs again exactly [`Config::lag`] positions later with the larger footprint, and alone after
//! [`MAX_ATTEMPTS`] misses. The request at a position is a function of the log alone, so that replicas need no message
//! about it.
//!
//! Locks that do not follow from the request are forecast by its kind ([`Footprint::predict`]): the locks that the
//! latest request of the kind took, among those that were done `lag` positions before.
//!
//! ```text
//! let (schedule, workers) = schedule::open(config, footprint);
//! schedule.append(Arc::new(entry));                       // one producer thread
//! while let Some(mut turn) = worker.next_blocking() { // one thread per worker
//!     let result = handler(&turn.cx(), turn.request());
//!     turn.visit_regions(&locks, |lock, access| ..);  // seal, or undo after Err(Retry)
//!     turn.finish(Outcome::Done);                     // passes the turns
//! }
//! ```

mod brand;
mod cell;
mod chain;
mod codec;
mod condition;
mod current;
mod cx;
mod dispatch;
mod entry;
mod footprint;
mod lock;
mod locks;
mod log;
mod mixed;
mod mixer;
#[cfg(all(test, loom))]
mod model;
mod ordinary;
mod predict;
mod start;
mod state;
mod sync;
mod timers;
mod turn;
mod turn_state;
mod worker;
mod yield_point;

pub use cell::{DetGuard, ReadGuard, TwoGuards, WriteGuard};
pub use condition::Waiters;
pub use cx::{Cx, Retry};
pub use entry::{BatchRow, Entry, Origin};
pub use footprint::{Footprint, LockId};
pub use lock::{Access, DetMutex, DetRwLock, Lock};
pub use locks::{Locks, locks_of, locks_of_mut};
pub use log::{Config, LockRules, Schedule, Worker, open, resume, resume_paced};
pub use mixer::{Keys, Mixed, Mixer, ParallelBatches};
pub use predict::PREDICTED_KINDS;
pub use start::Spawn;
pub use state::DispatcherState;
pub use turn::{EntryEnd, Outcome, Scheduler, Step, Turn};
pub use turn_state::WorkerProgress;
pub use wire::{Malformed, SplitMix64};
pub use yield_point::YieldPoint;

/// Positions after which an outcome takes effect, unless [`Config::lag`] sets another number (docs/determinism.md,
/// section 11).
pub const LAG: u64 = 256;
/// Misses after which a request runs alone, where no lock is outside its footprint (docs/determinism.md, section 4).
pub const MAX_ATTEMPTS: u32 = 3;
