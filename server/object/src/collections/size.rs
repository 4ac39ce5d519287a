//! How many bytes entries have in an object: collections divide their objects by these.

use crate::summed::Summed;
use std::cell::Cell;

/// An object of a collection has at most so many bytes of entries, unless a single entry has more: about as many as are
/// summed in the time that finding the object takes.
pub(crate) const FULL: usize = 1 << 10;

thread_local! {
    /// Values are packed here, to be measured or hashed.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes of a value.
pub(crate) fn of<T: Summed>(value: &T) -> usize {
    of_all(std::slice::from_ref(value))
}

/// Bytes of some values.
pub(crate) fn of_all<T: Summed>(values: &[T]) -> usize {
    if T::FIXED > 0 { values.len() * T::FIXED } else { packed(values, <[u8]>::len) }
}

/// What `work` makes of the values' packed bytes.
pub(crate) fn packed<T: Summed, R>(values: &[T], work: impl FnOnce(&[u8]) -> R) -> R {
    let mut room = ROOM.take();
    room.clear();
    T::pack_all(values, &mut room);
    let result = work(&room);
    // A long value is no reason to keep the memory.
    if room.capacity() <= 16 * FULL {
        ROOM.set(room);
    }
    result
}
