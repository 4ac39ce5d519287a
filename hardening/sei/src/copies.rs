//! Duplicated state: ranges of which a second copy exists, in which the second run reads and writes.
//!
//! For memory without ECC, and against pointers that were corrupted at rest (NSDI'15, section 7.1, "mc-sei-dup"). Both
//! copies hold the same pointers, those of the first copy; the second run adds each range's distance to every address
//! in it. A pointer in the first copy and its twin are stored, loaded and overwritten separately.

use crate::fail::Reason;
use crate::limits;
use crate::mutate::{Protection, kept};
use crate::sync::{AtomicU64, Ordering};

/// A registered range and the distance to its second copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    begin: usize,
    length: usize,
    distance: usize,
}

/// The registered ranges, as one thread knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    ranges: [Range; limits::STATE_RANGES],
    used: usize,
}

impl Copies {
    /// No range.
    pub const fn new() -> Self {
        Self { ranges: [Range { begin: 0, length: 0, distance: 0 }; limits::STATE_RANGES], used: 0 }
    }

    /// Adds a range whose second copy lies `distance` behind it.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&mut self, begin: usize, length: usize, distance: usize) -> Result<(), Reason> {
        let place = self.ranges.get_mut(self.used).ok_or(Reason::TooManyStateRanges)?;
        *place = Range { begin, length, distance };
        self.used += 1;
        Ok(())
    }

    /// Whether the address is in a registered range.
    #[inline(always)]
    pub fn has(&self, address: usize) -> bool {
        self.second(address) != address
    }

    /// Where the second run finds what the program knows at `address`.
    #[inline(always)]
    pub fn second(&self, address: usize) -> usize {
        if cfg!(feature = "dup") && kept(Protection::CopyTranslation) {
            for range in &self.ranges[..self.used.min(limits::STATE_RANGES)] {
                if address.wrapping_sub(range.begin) < range.length {
                    return address.wrapping_add(range.distance);
                }
            }
        }
        address
    }

    /// All ranges as (begin, length).
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize)> {
        let used = self.used.min(limits::STATE_RANGES);
        self.ranges[..used].iter().map(|range| (range.begin, range.length))
    }
}

impl Default for Copies {
    fn default() -> Self {
        Self::new()
    }
}

/// The registered ranges of a process. They are only ever added, so their number is the generation of each thread's
/// copy: a handler begins with one load, and with no lock.
pub struct SharedCopies {
    /// Begin, length and distance of each. They are complete before `used` counts them, and never change.
    ranges: Box<[[AtomicU64; 3]]>,
    used: AtomicU64,
}

impl SharedCopies {
    /// No range.
    pub fn new() -> Self {
        let empty = || [0; 3].map(AtomicU64::new);
        Self { ranges: (0..limits::STATE_RANGES).map(|_| empty()).collect(), used: AtomicU64::new(0) }
    }

    /// Adds a range whose second copy lies `distance` behind it. One thread at a time adds.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&self, begin: usize, length: usize, distance: usize) -> Result<(), Reason> {
        let used = self.used.load(Ordering::Relaxed);
        let place = self.ranges.get(used as usize).ok_or(Reason::TooManyStateRanges)?;
        for (part, value) in place.iter().zip([begin, length, distance]) {
            part.store(value as u64, Ordering::Relaxed);
        }
        self.used.store(used + 1, Ordering::Release);
        Ok(())
    }

    /// Adds to a thread's copy what was registered since.
    ///
    /// # Errors
    /// The copy has more than there are: a fault.
    #[inline(always)]
    pub fn refresh(&self, own: &mut Copies) -> Result<(), Reason> {
        let used = self.used.load(Ordering::Acquire) as usize;
        let is_old = own.used != used && (own.used == 0 || kept(Protection::CopyRefresh));
        if is_old { self.refresh_to(used, own) } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn refresh_to(&self, used: usize, own: &mut Copies) -> Result<(), Reason> {
        let new = self.ranges.get(own.used..used).ok_or(Reason::TooManyStateRanges)?;
        for parts in new {
            let [begin, length, distance] =
                parts.each_ref().map(|part| part.load(Ordering::Relaxed) as usize);
            own.add(begin, length, distance)?;
        }
        Ok(())
    }
}

impl Default for SharedCopies {
    fn default() -> Self {
        Self::new()
    }
}
