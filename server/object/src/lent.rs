//! Long values in the before-images of the request that is running: the image refers to the memory of the object, which
//! takes other memory before it changes. So a value that is replaced is not copied.
//!
//! The values stay here until the request's notes are discarded. A request that is kept beyond its end, or run again,
//! has images with all bytes: what it may have to be rolled back to must not share a fault with the object.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// A long value, as [`crate::Pieces`] has it.
type Long = Arc<Box<[u8]>>;

thread_local! {
    static LENDING: Cell<bool> = const { Cell::new(false) };
    static HAS_LENT: Cell<bool> = const { Cell::new(false) };
    static LENT: RefCell<Vec<Long>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work`, which packs an image of this request, so that it refers to long values instead of copying them.
pub(crate) fn lending<R>(work: impl FnOnce() -> R) -> R {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            LENDING.set(false);
        }
    }
    LENDING.set(true);
    let _reset = Reset;
    work()
}

/// Keeps a value for the image that is being packed; returns its number there. None where images have all bytes.
pub(crate) fn lend(value: &Long) -> Option<u32> {
    if !LENDING.get() {
        return None;
    }
    HAS_LENT.set(true);
    LENT.with_borrow_mut(|lent| {
        lent.push(value.clone());
        Some(lent.len() as u32 - 1)
    })
}

/// The value with this number.
pub(crate) fn get(number: u32) -> Option<Long> {
    LENT.with_borrow(|lent| lent.get(number as usize).cloned())
}

/// The images are gone.
pub(crate) fn clear() {
    if HAS_LENT.replace(false) {
        LENT.with_borrow_mut(Vec::clear);
    }
}

/// Flips a bit of them, chosen by `seed`; false if there are none: an injected fault. An object that still has the
/// value is not damaged.
#[cfg(feature = "inject")]
pub(crate) fn flip(seed: u64) -> bool {
    LENT.with_borrow_mut(|lent| {
        let bits = lent.iter().map(|value| value.len() as u64 * 8).sum();
        let Some(mut bit) = seed.checked_rem(bits) else { return false };
        for value in lent {
            let of_value = value.len() as u64 * 8;
            if bit < of_value {
                Arc::make_mut(value)[(bit / 8) as usize] ^= 1 << (bit % 8);
                return true;
            }
            bit -= of_value;
        }
        false
    })
}
