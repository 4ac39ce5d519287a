//! What replicas want of the group, by origin, so that no replica displaces the wish of another one: a part of the
//! order's state. A wish takes effect once a number of origins have the same at about the same ordered time.

use std::collections::BTreeMap;

use wire::{Malformed, Put, Reader};

use crate::limits;

/// Per origin: what it wants, and the ordered time of its wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wishes<T>(BTreeMap<u8, (u64, T)>);

impl<T> Default for Wishes<T> {
    fn default() -> Self {
        Wishes(BTreeMap::new())
    }
}

impl<T: PartialEq> Wishes<T> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that count at this time, each with its origin.
    pub fn fresh(&self, now_us: u64) -> impl Iterator<Item = (u8, &T)> {
        let fresh = self.0.iter().filter(move |(_, (at_us, _))| is_fresh(*at_us, now_us));
        fresh.map(|(&origin, (_, wish))| (origin, wish))
    }

    /// An origin wants this now. Returns how many want the same.
    pub fn add(&mut self, origin: u8, wish: T, now_us: u64) -> usize {
        self.0.retain(|_, (at_us, _)| is_fresh(*at_us, now_us));
        let others = self.0.iter().filter(|(by, (_, other))| **by != origin && *other == wish).count();
        self.0.insert(origin, (now_us, wish));
        others + 1
    }

    /// Keeps those that `stays` says.
    pub fn retain(&mut self, stays: impl Fn(&T) -> bool) {
        self.0.retain(|_, (_, wish)| stays(wish));
    }

    /// Appends them, each as `put` does.
    pub fn encode(&self, out: &mut Vec<u8>, put: impl Fn(&mut Vec<u8>, &T)) {
        out.put32(self.0.len() as u32);
        for (&origin, (at_us, wish)) in &self.0 {
            out.put8(origin).put64(*at_us);
            put(out, wish);
        }
    }

    /// Reads them, each as `take` does, which reads `least` bytes or more.
    pub fn decode(
        reader: &mut Reader<'_>,
        least: usize,
        take: impl Fn(&mut Reader<'_>) -> Result<T, Malformed>,
    ) -> Result<Self, Malformed> {
        let mut wishes = BTreeMap::new();
        for _ in 0..reader.count32(limits::SLOTS, size_of::<u8>() + size_of::<u64>() + least)? {
            let (origin, at_us) = (reader.u8()?, reader.u64()?);
            if wishes.last_key_value().is_some_and(|(&last, _)| origin <= last) {
                return Err(Malformed("wishes are not in order"));
            }
            wishes.insert(origin, (at_us, take(reader)?));
        }
        Ok(Wishes(wishes))
    }
}

fn is_fresh(at_us: u64, now_us: u64) -> bool {
    now_us.saturating_sub(at_us) < limits::WISH.as_micros() as u64
}
