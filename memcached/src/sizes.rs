//! How long values are, roughly: so that the memory that a retrieval's reply will take is known before it is let in.
//!
//! A table of one byte per slot of the key's hash, written when a value is stored and read when a client asks for it. It is never part of
//! the state and decides no reply: a wrong number (two keys share a slot) only makes a request wait too long or not long enough.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::command::KeyHash;

/// Slots; a power of two.
const SLOTS: usize = 1 << 16;

/// About how long the values of all keys are.
#[derive(Debug)]
pub struct Sizes(Box<[AtomicU8]>);

impl Default for Sizes {
    fn default() -> Self {
        Sizes((0..SLOTS).map(|_| AtomicU8::new(0)).collect())
    }
}

impl Sizes {
    /// The value of a key has so many bytes now.
    pub fn note(&self, key: KeyHash, bytes: usize) {
        self.slot(key).store(class(bytes), Relaxed);
    }

    /// The value of a key may have so many bytes soon.
    pub fn raise(&self, key: KeyHash, bytes: usize) {
        self.slot(key).fetch_max(class(bytes), Relaxed);
    }

    /// How long the value of a key is, at most a quarter too high unless another key has its slot; 0 if it was never stored.
    pub fn expected(&self, key: KeyHash) -> usize {
        bytes(self.slot(key).load(Relaxed))
    }

    fn slot(&self, key: KeyHash) -> &AtomicU8 {
        &self.0[key.tag() as usize % SLOTS]
    }
}

/// Four classes for each doubling, from 1 on; 0 is no value.
fn class(bytes: usize) -> u8 {
    let bytes = (bytes as u64).clamp(4, u64::from(u32::MAX));
    let doublings = bytes.ilog2();
    (doublings << 2 | ((bytes >> (doublings - 2)) as u32 & 3)) as u8 + 1
}

/// The most bytes of a class.
fn bytes(class: u8) -> usize {
    let Some(class) = class.checked_sub(1) else { return 0 };
    let (doublings, quarters) = (u32::from(class) >> 2, u64::from(class) & 3);
    (((5 + quarters) << doublings) >> 2) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_expected_as_long_as_it_is_or_a_quarter_longer() {
        let sizes = Sizes::default();
        let key = KeyHash::of(b"key");
        assert_eq!(sizes.expected(key), 0);
        for length in (0..30).flat_map(|shift| [(1usize << shift) - 1, 1 << shift, (1 << shift) + 1]) {
            sizes.note(key, length);
            let expected = sizes.expected(key);
            assert!(expected >= length && expected <= length + length / 4 + 5, "{length}: {expected}");
        }
        sizes.note(key, 1000);
        let before = sizes.expected(key);
        sizes.raise(key, 10);
        assert_eq!(sizes.expected(key), before);
        sizes.raise(key, 100_000);
        assert!(sizes.expected(key) >= 100_000);
    }
}
