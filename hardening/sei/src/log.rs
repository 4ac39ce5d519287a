//! The log of one run: each write's address, size and old value. It undoes the first run, and its comparison with the
//! second run's log shows every intermediate value in which the runs differ.
//!
//! NSDI'15 keeps the first old value of each variable (O with the flags Oc) and the set of variables written (U). An
//! append-only log has no decision "first write" that a fault could turn, and overlapping sizes are right.

use crate::copies::Copies;
use crate::fail::{FailedCheck, Reason};
use crate::limits;
use crate::memory::{ProgramMemory, Size};
use crate::mutate::{Protection, kept};

/// An entry: address and tag, old value. The tag is the size, 0 for the most frequent one, 8 bytes; or `RANGE`: then
/// the old value is offset and length of the old bytes in the arena.
type WriteEntry = [u64; 2];

const TAG_SHIFT: u32 = 56;
const ADDRESS: u64 = (1 << TAG_SHIFT) - 1;
const RANGE: u64 = 4;
const FIRST_ENTRIES: usize = 128;
/// The length of a log that takes nothing: no place is there.
const CLOSED: usize = usize::MAX;

/// What one run of a handler overwrote, in order.
pub struct Log {
    /// Room for them; what was not written yet is anything.
    entries: Vec<WriteEntry>,
    /// How many there are, or [`CLOSED`].
    length: usize,
    arena: Vec<u8>,
}

/// The state after the first run, at the addresses of its log (N in NSDI'15).
#[derive(Default)]
pub struct NewValues {
    /// One per entry of the log, and room for more.
    words: Vec<u64>,
    length: usize,
    arena: Vec<u8>,
}

/// Ranges whose content is not compared.
pub type Ignored = Vec<(usize, usize)>;

/// The tag of a word in its place.
#[inline(always)]
fn tag_of(size: Size) -> u64 {
    ((size as u64 + 1) & 3) << TAG_SHIFT
}

/// Does `usual` where the entry is a word of a usual size, by comparisons: a table of jumps for all sizes costs more
/// than the load or store behind it. `rest` does the same for any entry.
#[inline(always)]
fn by_size<R>(entry: &WriteEntry, mut usual: impl FnMut(usize, Size) -> R, rest: impl FnOnce() -> R) -> R {
    let address = address_of(entry);
    match entry[0] >> TAG_SHIFT {
        0 => usual(address, Size::B8),
        3 => usual(address, Size::B4),
        1 => usual(address, Size::B1),
        _ => rest(),
    }
}

#[inline(always)]
fn address_of(entry: &WriteEntry) -> usize {
    (entry[0] & ADDRESS) as usize
}

/// The size of a word; none for a range.
#[inline(always)]
fn size_of_word(entry: &WriteEntry) -> Option<Size> {
    match entry[0] >> TAG_SHIFT {
        0 => Some(Size::B8),
        1 => Some(Size::B1),
        2 => Some(Size::B2),
        3 => Some(Size::B4),
        _ => None,
    }
}

/// Offset of a range's old bytes in the arena, and how many they are.
fn range_of(entry: &WriteEntry) -> (usize, usize) {
    ((entry[1] >> 32) as usize, (entry[1] & 0xffff_ffff) as usize)
}

/// The state at an entry after the first run; that of a range goes to the end of `arena`.
#[inline(never)]
fn new_value(memory: &impl ProgramMemory, entry: &WriteEntry, arena: &mut Vec<u8>) -> u64 {
    let address = address_of(entry);
    match size_of_word(entry) {
        Some(size) => memory.load(address, size),
        None => {
            arena.extend_from_slice(memory.bytes(address, range_of(entry).1));
            0
        }
    }
}

fn is_ignored(ignored: &Ignored, address: usize) -> bool {
    ignored.iter().any(|&(begin, length)| address.wrapping_sub(begin) < length)
}

impl Default for Log {
    fn default() -> Self {
        Self { entries: vec![[0; 2]; FIRST_ENTRIES], length: CLOSED, arena: Vec::new() }
    }
}

impl Log {
    /// A run begins, and writes to it. A log that is not open takes nothing.
    pub fn open(&mut self) {
        self.length = 0;
    }

    /// No run writes to it any more.
    pub fn close(&mut self) {
        self.length = CLOSED;
    }

    /// Entries so far.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Keeps the word that is about to be overwritten. `read_at` is where it is read: another place than `address` in
    /// the second run of duplicated state.
    #[inline(always)]
    pub fn record(
        &mut self,
        memory: &impl ProgramMemory,
        address: usize,
        read_at: usize,
        size: Size,
    ) -> Result<(), Reason> {
        self.push(address as u64 | tag_of(size), memory.load(read_at, size))
    }

    /// The same where there is room, and nothing else to do; otherwise nothing is kept.
    #[inline(always)]
    pub fn record_within(
        &mut self,
        memory: &impl ProgramMemory,
        address: usize,
        read_at: usize,
        size: Size,
    ) -> bool {
        self.push_within(address as u64 | tag_of(size), memory.load(read_at, size))
    }

    #[inline(always)]
    fn push_within(&mut self, place: u64, old: u64) -> bool {
        let at = self.length;
        if let Some(slot) = self.entries.get_mut(at) {
            *slot = [place, old];
            self.length = at + 1;
            return true;
        }
        false
    }

    #[inline(always)]
    fn push(&mut self, place: u64, old: u64) -> Result<(), Reason> {
        if self.push_within(place, old) { Ok(()) } else { self.grow(place, old) }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, place: u64, old: u64) -> Result<(), Reason> {
        if self.length == CLOSED {
            return Err(Reason::AccessOutsideHandler);
        }
        if self.entries.len() >= limits::LOG_ENTRIES {
            return Err(Reason::LogFull);
        }
        let larger = (self.entries.len() * 2).min(limits::LOG_ENTRIES);
        self.entries.resize(larger, [0; 2]);
        self.entries[self.length] = [place, old];
        self.length += 1;
        Ok(())
    }

    /// Keeps `length` bytes that are about to be overwritten: words if they are few, else one entry.
    pub fn record_range(
        &mut self,
        memory: &impl ProgramMemory,
        address: usize,
        read_at: usize,
        length: usize,
    ) -> Result<(), Reason> {
        if length <= limits::WORDS_BYTES {
            let mut done = 0;
            for size in [Size::B8, Size::B4, Size::B2, Size::B1] {
                while length - done >= size.bytes() {
                    self.record(memory, address + done, read_at + done, size)?;
                    done += size.bytes();
                }
            }
            return Ok(());
        }
        let offset = self.arena.len();
        if length > limits::ARENA_BYTES - offset {
            return Err(Reason::ArenaFull);
        }
        self.arena.extend_from_slice(memory.bytes(read_at, length));
        self.push(address as u64 | RANGE << TAG_SHIFT, (offset as u64) << 32 | length as u64)
    }

    /// Phase R: keeps the state after the first run in `new`, and restores the one before it. Registered ranges of
    /// `copies` are not restored: the second run has its own copy of them.
    pub fn reset(&self, memory: &mut impl ProgramMemory, new: &mut NewValues, copies: &Copies) {
        if self.length == 0 {
            return;
        }
        new.take_room(self.length);
        for (entry, word) in self.entries().iter().zip(&mut new.words) {
            let arena = &mut new.arena;
            *word = by_size(
                entry,
                |address, size| memory.load(address, size),
                || new_value(memory, entry, arena),
            );
        }
        if cfg!(feature = "dup") {
            self.restore(memory, |address| !copies.has(address));
        } else {
            self.restore(memory, |_| true);
        }
    }

    /// Restores everything, for a handler that is to begin again.
    pub fn undo(&self, memory: &mut impl ProgramMemory) {
        self.restore(memory, |_| true);
    }

    fn restore(&self, memory: &mut impl ProgramMemory, wanted: impl Fn(usize) -> bool) {
        if kept(Protection::ReverseReset) {
            self.entries().iter().rev().for_each(|entry| self.restore_one(memory, entry, &wanted));
        } else {
            self.entries().iter().for_each(|entry| self.restore_one(memory, entry, &wanted));
        }
    }

    #[inline(always)]
    fn restore_one(
        &self,
        memory: &mut impl ProgramMemory,
        entry: &WriteEntry,
        wanted: &impl Fn(usize) -> bool,
    ) {
        let address = address_of(entry);
        if !wanted(address) {
            return;
        }
        match entry[0] >> TAG_SHIFT {
            0 => memory.store(address, Size::B8, entry[1]),
            3 => memory.store(address, Size::B4, entry[1]),
            1 => memory.store(address, Size::B1, entry[1]),
            _ => self.restore_other(memory, entry),
        }
    }

    #[inline(never)]
    fn restore_other(&self, memory: &mut impl ProgramMemory, entry: &WriteEntry) {
        if let Some(size) = size_of_word(entry) {
            return memory.store(address_of(entry), size, entry[1]);
        }
        let (offset, length) = range_of(entry);
        // A fault in the entry may point outside of the arena; the comparison in V sees the entry.
        if let Some(old) = self.arena.get(offset..offset + length) {
            memory.overwrite(address_of(entry), old);
        }
    }

    /// V: both runs wrote the same words in the same order, over the same old values.
    ///
    /// # Errors
    /// The first entry that differs.
    pub fn compare(&self, second: &Log, ignored: &Ignored) -> Result<(), FailedCheck> {
        if !kept(Protection::LogComparison) {
            return Ok(());
        }
        if (self.length, second.length) == (0, 0) {
            return Ok(());
        }
        let same = self.entries() == second.entries() && self.arena == second.arena;
        if same || (!kept(Protection::OldValues) && self.addresses_equal(second)) {
            return Ok(());
        }
        let first_counted = self.entries().iter().filter(|entry| !is_ignored(ignored, address_of(entry)));
        let mut second_counted =
            second.entries().iter().filter(|entry| !is_ignored(ignored, address_of(entry)));
        for entry in first_counted {
            match second_counted.next() {
                Some(other) if self.entry_equals(entry, second, other) => {}
                _ => return Err(Reason::LogsDiffer.at(address_of(entry))),
            }
        }
        match second_counted.next() {
            Some(extra) => Err(Reason::LogsDiffer.at(address_of(extra))),
            None => Ok(()),
        }
    }

    fn addresses_equal(&self, second: &Log) -> bool {
        self.entries().iter().map(|e| e[0]).eq(second.entries().iter().map(|e| e[0]))
    }

    fn entry_equals(&self, entry: &WriteEntry, second: &Log, other: &WriteEntry) -> bool {
        if size_of_word(entry).is_some() || size_of_word(other).is_some() {
            return entry == other;
        }
        let ((offset, length), (other_offset, other_length)) = (range_of(entry), range_of(other));
        entry[0] == other[0]
            && length == other_length
            && self.arena.get(offset..offset + length)
                == second.arena.get(other_offset..other_offset + length)
    }

    /// V: the state is what the first run had made of it.
    ///
    /// # Errors
    /// The first word that differs.
    pub fn state_is(
        &self,
        memory: &impl ProgramMemory,
        new: &NewValues,
        ignored: &Ignored,
        copies: &Copies,
    ) -> Result<(), FailedCheck> {
        if new.length != self.length {
            return Err(Reason::StateDiffers.into());
        }
        if self.length == 0 {
            return Ok(());
        }
        let mut arena = new.arena.as_slice();
        for (entry, &word) in self.entries().iter().zip(&new.words) {
            let is_same = |address, size| memory.load(address, size) == word;
            if !cfg!(feature = "dup") && by_size(entry, is_same, || false) {
                continue;
            }
            let address = address_of(entry);
            let second = copies.second(address);
            let same = match size_of_word(entry) {
                Some(size) => {
                    memory.load(second, size) == word
                        && (second == address || memory.load(address, size) == word)
                }
                None => {
                    let Some((bytes, rest)) = arena.split_at_checked(range_of(entry).1) else {
                        return Err(Reason::StateDiffers.at(address));
                    };
                    arena = rest;
                    memory.bytes(second, bytes.len()) == bytes
                        && (second == address || memory.bytes(address, bytes.len()) == bytes)
                }
            };
            if !same && !is_ignored(ignored, address) {
                return Err(Reason::StateDiffers.at(address));
            }
        }
        Ok(())
    }

    /// Empties the log; a long one gives its memory back.
    #[inline]
    pub fn clear(&mut self) {
        self.length = 0;
        if self.entries.len() > limits::KEPT_ENTRIES {
            self.entries = vec![[0; 2]; FIRST_ENTRIES];
        }
        if !self.arena.is_empty() {
            self.arena.clear();
            if self.arena.capacity() > limits::KEPT_BYTES {
                self.arena = Vec::new();
            }
        }
    }

    fn entries(&self) -> &[WriteEntry] {
        &self.entries[..self.length.min(self.entries.len())]
    }
}

impl NewValues {
    fn take_room(&mut self, entries: usize) {
        self.clear();
        self.length = entries;
        if self.words.len() < entries {
            self.words.resize(entries.next_power_of_two(), 0);
        }
    }

    /// Empties it; a long one gives its memory back.
    #[inline]
    pub fn clear(&mut self) {
        self.length = 0;
        if self.words.len() > limits::KEPT_ENTRIES {
            self.words = Vec::new();
        }
        if !self.arena.is_empty() {
            self.arena.clear();
            if self.arena.capacity() > limits::KEPT_BYTES {
                self.arena = Vec::new();
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::VectorMemory;

    fn opened() -> Log {
        let mut log = Log::default();
        log.open();
        log
    }

    fn memory() -> VectorMemory {
        VectorMemory((0..=255).collect())
    }

    fn write(memory: &mut VectorMemory, log: &mut Log, address: usize, size: Size, value: u64) {
        log.record(memory, address, address, size).unwrap();
        memory.store(address, size, value);
    }

    fn write_range(memory: &mut VectorMemory, log: &mut Log, address: usize, bytes: &[u8]) {
        log.record_range(memory, address, address, bytes.len()).unwrap();
        memory.overwrite(address, bytes);
    }

    /// Overlapping words and ranges, short and long.
    fn run(memory: &mut VectorMemory, log: &mut Log) {
        write(memory, log, 8, Size::B8, u64::MAX);
        write(memory, log, 10, Size::B2, 7);
        write_range(memory, log, 4, &[9; 100]);
        write(memory, log, 11, Size::B1, 3);
        write_range(memory, log, 100, &[5; 13]);
        write(memory, log, 8, Size::B4, 1);
    }

    #[test]
    fn overlapping_sizes_are_undone() {
        let before = memory();
        let mut now = memory();
        let mut log = opened();
        run(&mut now, &mut log);
        assert_ne!(now.0, before.0);
        log.undo(&mut now);
        assert_eq!(now.0, before.0);
    }

    #[test]
    fn two_equal_runs_agree() {
        let mut memory = memory();
        let (mut first, mut second, mut new) = (opened(), opened(), NewValues::default());
        let copies = Copies::new();
        run(&mut memory, &mut first);
        first.reset(&mut memory, &mut new, &copies);
        run(&mut memory, &mut second);
        first.compare(&second, &Vec::new()).unwrap();
        second.state_is(&memory, &new, &Vec::new(), &copies).unwrap();
    }

    #[test]
    fn every_bit_of_the_second_runs_state_counts() {
        let mut memory = memory();
        let (mut first, mut second, mut new) = (opened(), opened(), NewValues::default());
        let copies = Copies::new();
        run(&mut memory, &mut first);
        first.reset(&mut memory, &mut new, &copies);
        run(&mut memory, &mut second);
        for address in 4..113 {
            for bit in 0..8 {
                memory.0[address] ^= 1 << bit;
                assert!(
                    second.state_is(&memory, &new, &Vec::new(), &copies).is_err(),
                    "byte {address} bit {bit}"
                );
                memory.0[address] ^= 1 << bit;
            }
        }
    }

    #[test]
    fn a_missing_an_extra_and_another_old_value_are_seen() {
        let mut memory = memory();
        let (mut first, mut second) = (opened(), opened());
        write(&mut memory, &mut first, 8, Size::B4, 1);
        assert_eq!(first.compare(&second, &Vec::new()), Err(Reason::LogsDiffer.at(8)));
        assert_eq!(second.compare(&first, &Vec::new()), Err(Reason::LogsDiffer.at(8)));
        // The old value is 1 now.
        write(&mut memory, &mut second, 8, Size::B4, 1);
        assert_eq!(first.compare(&second, &Vec::new()), Err(Reason::LogsDiffer.at(8)));
    }

    #[test]
    fn ignored_words_are_not_compared() {
        let mut memory = memory();
        let (mut first, mut second, mut new) = (opened(), opened(), NewValues::default());
        let ignored = vec![(8, 4)];
        let copies = Copies::new();
        write(&mut memory, &mut first, 8, Size::B4, 1);
        write(&mut memory, &mut first, 20, Size::B1, 1);
        first.reset(&mut memory, &mut new, &copies);
        write(&mut memory, &mut second, 20, Size::B1, 1);
        first.compare(&second, &ignored).unwrap();
        first.state_is(&memory, &new, &ignored, &copies).unwrap();
        assert!(first.state_is(&memory, &new, &Vec::new(), &copies).is_err());
    }

    #[test]
    fn a_full_log_says_so() {
        let memory = memory();
        let mut log = opened();
        for _ in 0..limits::LOG_ENTRIES {
            log.record(&memory, 0, 0, Size::B1).unwrap();
        }
        assert_eq!(log.record(&memory, 0, 0, Size::B1), Err(Reason::LogFull));
        log.clear();
        assert_eq!(log.entries.len(), FIRST_ENTRIES);
    }
}
