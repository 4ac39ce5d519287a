//! What the group of the open request acts as: the version in which objects are written. A file of its own, since the
//! header of an object needs it, and a request needs headers.

use std::cell::Cell;

/// Outside of a request, and where no service says otherwise.
const NEWEST: u16 = u16::MAX;

thread_local! {
    static BEHAVIOR: Cell<u16> = const { Cell::new(NEWEST) };
}

/// A request begins, or ends, of which nothing is known.
#[inline]
pub(crate) fn forget() {
    BEHAVIOR.set(NEWEST);
}

/// The open request runs while its group acts as this behavior.
pub(crate) fn set(behavior: u16) {
    BEHAVIOR.set(behavior);
}

/// What the open request acts as.
pub(crate) fn behavior() -> u16 {
    BEHAVIOR.get()
}
