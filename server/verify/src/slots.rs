//! Sets of processes, and how often each verifier is known to have lost its memory.

use crate::limits::MAX_SLOTS;

/// A process of the group by its index from 0: it runs a verifier, an executor or both.
pub type Slot = u8;

/// A set of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slots(pub u16);

impl Slots {
    /// No process.
    pub const EMPTY: Slots = Slots(0);

    /// The processes from 0 up to `count`, without it.
    pub const fn first(count: u8) -> Slots {
        if count as usize >= MAX_SLOTS { Slots(u16::MAX) } else { Slots((1 << count) - 1) }
    }

    /// Only this process.
    pub const fn one(slot: Slot) -> Slots {
        Slots::EMPTY.with(slot)
    }

    /// Whether it is a member.
    pub const fn contains(self, slot: Slot) -> bool {
        (slot as usize) < MAX_SLOTS && self.0 & (1 << slot) != 0
    }

    /// The set with this member too.
    pub const fn with(self, slot: Slot) -> Slots {
        if slot as usize >= MAX_SLOTS { self } else { Slots(self.0 | 1 << slot) }
    }

    /// The set without this member.
    pub const fn without(self, slot: Slot) -> Slots {
        if slot as usize >= MAX_SLOTS { self } else { Slots(self.0 & !(1 << slot)) }
    }

    /// The members that are not in `other`.
    pub const fn minus(self, other: Slots) -> Slots {
        Slots(self.0 & !other.0)
    }

    /// The members that are in both.
    pub const fn and(self, other: Slots) -> Slots {
        Slots(self.0 & other.0)
    }

    /// The members of either.
    pub const fn or(self, other: Slots) -> Slots {
        Slots(self.0 | other.0)
    }

    /// How many members it has.
    pub const fn len(self) -> u8 {
        self.0.count_ones() as u8
    }

    /// Whether it has none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members, ascending.
    pub fn iter(self) -> impl Iterator<Item = Slot> {
        (0..MAX_SLOTS as Slot).filter(move |&slot| self.contains(slot))
    }

    /// The first member behind `slot`, around the end.
    pub fn next_after(self, slot: Slot) -> Option<Slot> {
        self.iter().find(|&member| member > slot).or_else(|| self.iter().next())
    }
}

/// How often each verifier is known to have lost its memory: the crash vector of Michael et al., *Recovering Shared
/// Objects Without Stable Storage* (DISC 2017). Every message of a verifier has one.
///
/// Messages form a quorum only if no sender of them has lost its memory as far as another one knows: for all senders i
/// and j, the vector of i has at least the count of i that the vector of j has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CrashVector {
    verifiers: u8,
    counts: [u16; MAX_SLOTS],
}

impl CrashVector {
    /// Nobody has lost its memory. More verifiers than [`MAX_SLOTS`] count as so many.
    pub const fn new(verifiers: u8) -> CrashVector {
        let verifiers = if verifiers as usize > MAX_SLOTS { MAX_SLOTS as u8 } else { verifiers };
        CrashVector { verifiers, counts: [0; MAX_SLOTS] }
    }

    /// A vector of these counts; none if there are more than [`MAX_SLOTS`].
    pub fn of(counts: &[u16]) -> Option<CrashVector> {
        let mut all = [0; MAX_SLOTS];
        all.get_mut(..counts.len())?.copy_from_slice(counts);
        Some(CrashVector { verifiers: counts.len() as u8, counts: all })
    }

    /// The counts, one per verifier.
    pub fn counts(&self) -> &[u16] {
        &self.counts[..self.verifiers as usize]
    }

    /// The count of one verifier; 0 for one that does not exist.
    pub fn of_slot(&self, slot: Slot) -> u16 {
        self.counts().get(slot as usize).copied().unwrap_or(0)
    }

    /// Sets the count of one verifier.
    pub(crate) fn set(&mut self, slot: Slot, count: u16) {
        if slot < self.verifiers {
            self.counts[slot as usize] = count;
        }
    }

    /// Takes over what `other` knows.
    pub fn join(&mut self, other: &CrashVector) {
        for slot in 0..self.verifiers {
            self.set(slot, self.of_slot(slot).max(other.of_slot(slot)));
        }
    }
}
