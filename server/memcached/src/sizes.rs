//! Estimates the lengths of values, so that the memory for a retrieval's reply is known before the request is admitted.
//!
//! A table of one word per slot of the key's hash, written when a value is stored, found or not found, and
//! read when a client asks for it. It is never part of the state and decides no reply: a wrong estimate only
//! makes a request wait too long or not long enough. So it may differ from replica to replica. The slot of a key
//! depends on a secret number of the process, so that no client can choose keys that hide how long another value is.
//!
//! Of several keys with one slot, the one with the longer value keeps it, since long values matter. Each use of another
//! key lowers the slot's estimate by a quarter. So a key without a slot has none of the recently used long values.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::command::KeyHash;

/// Slots; a power of two.
const SLOTS: usize = 1 << 16;
/// Estimate in bytes for an unknown value. After a restart there are many of these, and requests that
/// run at the same time must not need many times their estimate. A request for one such value still counts as small.
pub const UNKNOWN: usize = 12 << 10;

/// The estimated lengths of all keys' values.
#[derive(Debug)]
pub struct Sizes {
    /// Tag of the key that has the slot, and class of its value; 0 is an empty slot.
    slots: Box<[AtomicU32]>,
    secret: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        // bookkeeping: lengths decide when a request is admitted, and no reply; clients must not know which keys share
        // a slot
        let secret = std::collections::hash_map::RandomState::new().hash_one(SLOTS);
        Sizes { slots: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(), secret }
    }
}

impl Sizes {
    /// The value of a key has this many bytes now.
    pub fn note(&self, key: KeyHash, bytes: usize) {
        let (slot, tag) = self.slot(key);
        let (before, class) = (slot.load(Relaxed), class(bytes));
        let now = match is_of(before, tag) || class >= class_of(before) {
            true => entry(tag, class),
            false => before - 1,
        };
        if now != before {
            slot.store(now, Relaxed);
        }
    }

    /// There is no value under that key.
    pub fn note_absent(&self, key: KeyHash) {
        self.note(key, 0);
    }

    /// The value of a key may have this many bytes soon.
    pub fn raise(&self, key: KeyHash, bytes: usize) {
        let (slot, tag) = self.slot(key);
        if class(bytes) >= class_of(slot.load(Relaxed)) {
            slot.store(entry(tag, class(bytes)), Relaxed);
        }
    }

    /// The length of a key's value, at most a quarter too high; for an unknown key that of others in its slot, if that
    /// is small.
    pub fn expected(&self, key: KeyHash) -> usize {
        let (slot, tag) = self.slot(key);
        let entry = slot.load(Relaxed);
        match (is_of(entry, tag), class_of(entry)) {
            (true, class) => bytes(class),
            (false, 0) => UNKNOWN,
            (false, class) => bytes(class).min(UNKNOWN),
        }
    }

    /// Its slot, and its tag there.
    fn slot(&self, key: KeyHash) -> (&AtomicU32, u32) {
        let mixed = key.mixed_with(self.secret);
        (&self.slots[mixed as usize % SLOTS], (mixed >> 40) as u32)
    }
}

fn entry(tag: u32, class: u8) -> u32 {
    tag << 8 | u32::from(class)
}

fn class_of(entry: u32) -> u8 {
    entry as u8
}

fn is_of(entry: u32, tag: u32) -> bool {
    class_of(entry) != 0 && entry >> 8 == tag
}

/// Four classes for each doubling, from 1 on, which is no value.
fn class(bytes: usize) -> u8 {
    if bytes == 0 {
        return 1;
    }
    let bytes = (bytes as u64).clamp(4, u64::from(u32::MAX));
    let doublings = bytes.ilog2();
    (doublings << 2 | ((bytes >> (doublings - 2)) as u32 & 3)) as u8
}

/// The most bytes of a class.
fn bytes(class: u8) -> usize {
    if class < 8 {
        return 0;
    }
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
        assert_eq!(sizes.expected(key), UNKNOWN);
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
        sizes.note_absent(key);
        assert_eq!(sizes.expected(key), 0);
    }

    /// Keys in the slot of another one: a client that could find them without the secret could have long replies
    /// estimated as short ones.
    #[test]
    fn another_key_does_not_hide_a_long_value() {
        let sizes = Sizes::default();
        let long = KeyHash::of(b"big");
        let place = |key: KeyHash| std::ptr::from_ref(sizes.slot(key).0);
        let keys = (0..).map(|number: u32| KeyHash::of(format!("x{number}").as_bytes()));
        let others: Vec<KeyHash> = keys.filter(|key| place(*key) == place(long)).take(3).collect();
        sizes.note(long, 1_000_000);
        others.iter().for_each(|other| sizes.note(*other, 1));
        assert!(sizes.expected(long) >= 400_000, "{}", sizes.expected(long));
        assert_eq!(sizes.expected(others[0]), UNKNOWN, "no estimate is known");
        sizes.note(long, 1_000_000);
        assert!(sizes.expected(long) >= 1_000_000, "as soon as it is seen again");
        // A long value that is no longer used loses its slot in the end.
        (0..100).for_each(|_| sizes.note(others[1], 100));
        assert!(sizes.expected(others[1]) < 200 && sizes.expected(others[2]) < 200);
        // Another process has other slots.
        let elsewhere = Sizes::default();
        let place = |key: KeyHash| std::ptr::from_ref(elsewhere.slot(key).0);
        assert!(others.iter().any(|other| place(*other) != place(long)));
    }
}
