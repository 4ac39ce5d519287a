//! How many bytes entries have in an object: collections divide their objects by these.

use crate::summed::Summed;
use std::cell::Cell;

/// An object of a collection has at most so many bytes of entries, unless a single entry has more: about as many as are
/// summed in the time that finding the object takes.
pub(crate) const FULL: usize = 1 << 10;

thread_local! {
    /// Values of no fixed length are packed here to be measured.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes of a value.
pub(crate) fn of<T: Summed>(value: &T) -> usize {
    of_all(std::slice::from_ref(value))
}

/// Bytes of some values.
pub(crate) fn of_all<T: Summed>(values: &[T]) -> usize {
    if T::FIXED > 0 {
        return values.len() * T::FIXED;
    }
    let mut room = ROOM.take();
    room.clear();
    T::pack_all(values, &mut room);
    let bytes = room.len();
    // A long value is no reason to keep the memory.
    if bytes <= 16 * FULL {
        ROOM.set(room);
    }
    bytes
}
