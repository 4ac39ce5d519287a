//! Duplicated state: ranges of which a second copy exists, in which the second run reads and writes.
//!
//! For memory without ECC, and against pointers that were corrupted at rest (NSDI'15, section 7.1, "mc-sei-dup"). Both
//! copies hold the same pointers, those of the first copy; the second run adds each range's distance to every address
//! in it. A pointer in the first copy and its twin are stored, loaded and overwritten separately.

use crate::fail::Reason;
use crate::limits;
use crate::mutate::{Protection, kept};

/// A registered range and the distance to its second copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    begin: usize,
    length: usize,
    distance: usize,
}

/// The registered ranges.
#[derive(Clone, Debug)]
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
