//! Where stacks are: a handler's own frames, and those of the library below them, are neither logged nor undone, so it
//! has to be known on which stack a handler runs.
//!
//! A thread's own is asked of the C library. Programs with coroutines, or with a signal's own stack, have others.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::fail::Reason;
use crate::limits;

/// The stacks that a program has told of.
#[derive(Debug, Default)]
pub struct Stacks {
    /// The end of each, by its first address. No two of them overlap.
    ends: BTreeMap<usize, usize>,
}

impl Stacks {
    /// None.
    pub const fn new() -> Self {
        Self { ends: BTreeMap::new() }
    }

    /// Adds one. It takes the place of all that overlap it: their memory was freed. Without bytes it removes those with
    /// this address.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&mut self, begin: usize, bytes: usize) -> Result<(), Reason> {
        let end = begin.saturating_add(bytes);
        let last = end.max(begin.saturating_add(1));
        while let Some((&old, &old_end)) = self.ends.range(..last).next_back()
            && old_end > begin
        {
            self.ends.remove(&old);
        }
        if bytes == 0 {
            return Ok(());
        }
        if self.ends.len() >= limits::STACKS {
            return Err(Reason::TooManyStacks);
        }
        self.ends.insert(begin, end);
        Ok(())
    }

    /// The stack that an address lies in. A stack pointer may be its end.
    pub fn of(&self, address: usize) -> Option<Range<usize>> {
        let (&begin, &end) = self.ends.range(..address).next_back()?;
        (address <= end).then_some(begin..end)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_found_by_an_address_in_it() {
        let mut stacks = Stacks::new();
        stacks.add(1000, 500).unwrap();
        stacks.add(1500, 500).unwrap();
        assert_eq!(stacks.of(1000), None, "nothing is left of it");
        assert_eq!(stacks.of(1001), Some(1000..1500));
        assert_eq!(stacks.of(1500), Some(1000..1500));
        assert_eq!(stacks.of(2000), Some(1500..2000));
        assert_eq!(stacks.of(2001), None);
    }

    #[test]
    fn one_that_overlaps_others_takes_their_place() {
        let mut stacks = Stacks::new();
        for begin in [1000, 2000, 3000] {
            stacks.add(begin, 1000).unwrap();
        }
        stacks.add(1500, 1000).unwrap();
        assert_eq!(stacks.of(1200), None);
        assert_eq!(stacks.of(2400), Some(1500..2500));
        assert_eq!(stacks.of(3500), Some(3000..4000));
        stacks.add(3000, 0).unwrap();
        assert_eq!(stacks.of(3500), None);
    }

    #[test]
    fn there_is_room_for_a_bounded_number() {
        let mut stacks = Stacks::new();
        for at in 0..limits::STACKS {
            stacks.add(at * 100, 100).unwrap();
        }
        assert_eq!(stacks.add(limits::STACKS * 100, 100), Err(Reason::TooManyStacks));
        assert_eq!(stacks.add(300, 100), Ok(()), "in the place of another one");
    }
}
