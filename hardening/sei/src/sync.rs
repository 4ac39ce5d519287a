//! Atomics of the standard library, or loom's when a model is checked.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Sequentially consistent accesses before this are ordered before those behind it: they are so by themselves, and loom
/// only knows it of fences.
#[inline(always)]
pub fn order_all() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}
