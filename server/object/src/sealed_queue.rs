//! A queue that detects a lost, doubled, exchanged or stale entry; for memory outside of objects.

use std::collections::VecDeque;

use crate::sealed::SealBroken;

/// A queue whose entries are numbered without a gap, and whose two ends are counted separately.
///
/// An entry is only returned under the expected number. And `first + len == next` must hold, where the length is
/// the queue's own and the two counts are stored apart from it. So any one wrong number, count or length is always
/// found; so is an entry that was lost, doubled, exchanged with another, or left over from earlier. It costs two
/// comparisons at each access and 8 bytes for each entry. The contents of an entry are not covered: they have a
/// checksum of their own where that matters.
#[derive(Clone, Debug)]
pub struct SealedQueue<T> {
    entries: VecDeque<(u64, T)>,
    /// Number of the first entry.
    first: u64,
    /// Number of the next entry that is pushed.
    next: u64,
}

impl<T> Default for SealedQueue<T> {
    fn default() -> Self {
        SealedQueue::starting_at(0)
    }
}

impl<T> SealedQueue<T> {
    /// An empty queue whose first entry has this number.
    pub fn starting_at(number: u64) -> Self {
        SealedQueue { entries: VecDeque::new(), first: number, next: number }
    }

    /// Entries, by the queue's own length.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of the first entry, or of the next if there is none.
    #[inline]
    pub fn first_number(&self) -> u64 {
        self.first
    }

    /// Number that the next entry gets.
    #[inline]
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Whether there are as many entries as were pushed and not popped.
    #[inline]
    pub fn is_intact(&self) -> bool {
        self.first.wrapping_add(self.entries.len() as u64) == self.next
    }

    /// Appends an entry; returns its number.
    #[inline]
    pub fn push(&mut self, entry: T) -> u64 {
        let number = self.next;
        self.push_as(number, entry);
        number
    }

    /// Appends an entry that was numbered elsewhere, in an order that this queue has to keep. Another number than
    /// [`SealedQueue::next_number`] is found when the entry is reached.
    #[inline]
    pub fn push_as(&mut self, number: u64, entry: T) {
        self.entries.push_back((number, entry));
        self.next = self.next.wrapping_add(1);
    }

    /// The first entry.
    ///
    /// # Errors
    /// [`SealBroken`] when it is not the expected one, or the ends do not fit the length.
    #[inline]
    pub fn front(&self) -> Result<Option<&T>, SealBroken> {
        match self.entries.front() {
            _ if !self.is_intact() => Err(SealBroken),
            Some((number, _)) if *number != self.first => Err(SealBroken),
            front => Ok(front.map(|(_, entry)| entry)),
        }
    }

    /// As [`SealedQueue::front`], to be changed.
    ///
    /// # Errors
    /// Those of [`SealedQueue::front`].
    #[inline]
    pub fn front_mut(&mut self) -> Result<Option<&mut T>, SealBroken> {
        self.front()?;
        Ok(self.entries.front_mut().map(|(_, entry)| entry))
    }

    /// Takes the first entry.
    ///
    /// # Errors
    /// Those of [`SealedQueue::front`]; the queue is then left as it is.
    #[inline]
    pub fn pop(&mut self) -> Result<Option<T>, SealBroken> {
        self.pop_if(|_| true)
    }

    /// Takes the first entry, if it is one of these.
    ///
    /// # Errors
    /// Those of [`SealedQueue::front`]; the queue is then left as it is.
    #[inline]
    pub fn pop_if(&mut self, is_one: impl FnOnce(&T) -> bool) -> Result<Option<T>, SealBroken> {
        if !self.front()?.is_some_and(is_one) {
            return Ok(None);
        }
        self.first = self.first.wrapping_add(1);
        Ok(self.entries.pop_front().map(|(_, entry)| entry))
    }

    /// The last entry, without a check.
    #[inline]
    pub fn back(&self) -> Option<&T> {
        self.entries.back().map(|(_, entry)| entry)
    }

    /// The entry with this number; none if it is not in the queue.
    ///
    /// # Errors
    /// [`SealBroken`] when another entry is in its place, or the ends do not fit the length.
    #[inline]
    pub fn get(&self, number: u64) -> Result<Option<&T>, SealBroken> {
        match self.entries.get(self.index(number)?) {
            Some((found, _)) if *found != number => Err(SealBroken),
            entry => Ok(entry.map(|(_, entry)| entry)),
        }
    }

    /// As [`SealedQueue::get`], to be changed.
    ///
    /// # Errors
    /// Those of [`SealedQueue::get`].
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> Result<Option<&mut T>, SealBroken> {
        let index = self.index(number)?;
        match self.entries.get_mut(index) {
            Some((found, _)) if *found != number => Err(SealBroken),
            entry => Ok(entry.map(|(_, entry)| entry)),
        }
    }

    /// Where the entry with this number has to be.
    #[inline]
    fn index(&self, number: u64) -> Result<usize, SealBroken> {
        let index = number.wrapping_sub(self.first);
        if self.is_intact() { Ok(usize::try_from(index).unwrap_or(usize::MAX)) } else { Err(SealBroken) }
    }

    /// The entries from the first on, each checked when it is reached.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Result<&T, SealBroken>> {
        self.entries.iter().enumerate().map(|(index, (number, entry))| {
            let is_due = *number == self.first.wrapping_add(index as u64);
            if is_due { Ok(entry) } else { Err(SealBroken) }
        })
    }

    /// The entries as they are in memory, without a check.
    #[inline]
    pub fn as_is(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// As [`SealedQueue::as_is`], to be changed.
    #[inline]
    pub fn as_is_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.entries.iter_mut().map(|(_, entry)| entry)
    }

    /// Takes the first entry whatever its number, as a queue without protection does.
    #[cfg(any(test, feature = "inject"))]
    pub fn pop_unchecked(&mut self) -> Option<T> {
        self.first = self.first.wrapping_add(1);
        self.entries.pop_front().map(|(_, entry)| entry)
    }

    /// The entries with their numbers, without the counts, for fault injection.
    #[cfg(any(test, feature = "inject"))]
    pub fn entries_mut(&mut self) -> &mut VecDeque<(u64, T)> {
        &mut self.entries
    }

    /// The counts of both ends, for fault injection.
    #[cfg(any(test, feature = "inject"))]
    pub fn ends_mut(&mut self) -> (&mut u64, &mut u64) {
        (&mut self.first, &mut self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Entries 10 to 13 of a queue that has returned the first ten; each entry is its number.
    fn queue() -> SealedQueue<u64> {
        let mut queue = SealedQueue::default();
        (0..14).for_each(|number| _ = queue.push(number));
        (0..10).for_each(|number| assert_eq!(queue.pop(), Ok(Some(number))));
        queue
    }

    /// Pops until the end or the first error.
    fn drain(mut queue: SealedQueue<u64>) -> (Vec<u64>, Result<(), SealBroken>) {
        let mut popped = Vec::new();
        loop {
            match queue.pop() {
                Ok(Some(entry)) => popped.push(entry),
                Ok(None) => return (popped, Ok(())),
                Err(broken) => return (popped, Err(broken)),
            }
        }
    }

    type Corruption = fn(&mut SealedQueue<u64>);

    const CORRUPTIONS: [(&str, Corruption); 9] = [
        ("the first entry is lost", |queue| _ = queue.entries.pop_front()),
        ("one in the middle is lost", |queue| _ = queue.entries.remove(1)),
        ("the last entry is lost", |queue| _ = queue.entries.pop_back()),
        ("all are lost", |queue| queue.entries.clear()),
        ("one is doubled", |queue| queue.entries.insert(2, (11, 11))),
        ("one is appended again", |queue| queue.entries.push_back((10, 10))),
        ("two are exchanged", |queue| queue.entries.swap(1, 2)),
        ("the head is lost", |queue| queue.entries.rotate_left(1)),
        ("a stale entry takes a place", |queue| queue.entries[2] = (9, 9)),
    ];

    #[test]
    fn what_is_lost_doubled_exchanged_or_stale_is_found() {
        assert_eq!(drain(queue()), (vec![10, 11, 12, 13], Ok(())));
        for (what, corrupt) in CORRUPTIONS {
            let mut queue = queue();
            corrupt(&mut queue);
            let all_right = queue.is_intact() && queue.iter().all(|entry| entry.is_ok());
            let (popped, end) = drain(queue);
            assert!(!all_right && end == Err(SealBroken), "{what}");
            assert_eq!(popped[..], [10, 11, 12, 13][..popped.len()], "{what}: nothing wrong is given out");
        }
    }

    /// The same corruptions where nothing compares the numbers: each of them changes the output.
    #[test]
    fn without_the_numbers_nothing_would_be_found() {
        for (what, corrupt) in CORRUPTIONS {
            let mut queue = queue();
            corrupt(&mut queue);
            let popped: Vec<u64> = std::iter::from_fn(|| queue.pop_unchecked()).collect();
            assert_ne!(popped, [10, 11, 12, 13], "{what}");
        }
    }

    #[test]
    fn every_flipped_bit_of_a_number_or_of_a_count_is_found() {
        let strike = |bit: u32, place: usize| {
            let mut queue = queue();
            match place {
                0 => queue.first ^= 1 << bit,
                1 => queue.next ^= 1 << bit,
                entry => queue.entries[entry - 2].0 ^= 1 << bit,
            }
            queue
        };
        for (bit, place) in (0..u64::BITS).flat_map(|bit| (0..6).map(move |place| (bit, place))) {
            let (popped, end) = drain(strike(bit, place));
            assert_eq!(end, Err(SealBroken), "bit {bit}, {place}");
            assert_eq!(popped[..], [10, 11, 12, 13][..popped.len()], "bit {bit}, {place}");
            let mut queue = strike(bit, place);
            let found = (10..14).any(|number| queue.get_mut(number) != Ok(Some(&mut number.clone())));
            assert!(found, "bit {bit}, {place}");
        }
    }

    #[test]
    fn an_empty_queue_has_ends_that_meet() {
        let mut queue = SealedQueue::<u64>::starting_at(7);
        assert_eq!((queue.pop(), queue.next_number()), (Ok(None), 7));
        queue.next += 1;
        assert_eq!((queue.pop(), queue.front()), (Err(SealBroken), Err(SealBroken)));
    }

    #[test]
    fn an_entry_that_was_numbered_elsewhere_is_found_when_it_is_reached() {
        let mut queue = SealedQueue::starting_at(5);
        queue.push_as(5, 'a');
        queue.push_as(7, 'c');
        assert_eq!((queue.pop(), queue.pop()), (Ok(Some('a')), Err(SealBroken)));
        assert_eq!(queue.get_mut(6), Err(SealBroken));
    }

    proptest! {
        #[test]
        fn it_is_a_queue(ops in proptest::collection::vec(any::<Option<u64>>(), 0..100)) {
            let (mut queue, mut model) = (SealedQueue::default(), VecDeque::new());
            let mut popped = 0;
            for op in ops {
                match op {
                    Some(entry) => {
                        prop_assert_eq!(queue.push(entry), popped + model.len() as u64);
                        model.push_back(entry);
                    }
                    None => {
                        popped += u64::from(!model.is_empty());
                        prop_assert_eq!(queue.pop(), Ok(model.pop_front()));
                    }
                }
                prop_assert_eq!(queue.front(), Ok(model.front()));
                prop_assert_eq!(queue.back(), model.back());
                prop_assert!(queue.iter().map(Result::ok).eq(model.iter().map(Some)));
                prop_assert_eq!((queue.len(), queue.first_number()), (model.len(), popped));
                let last = queue.next_number().wrapping_sub(1);
                prop_assert_eq!(queue.get_mut(last), Ok(model.back_mut()));
                prop_assert_eq!(queue.get_mut(popped + model.len() as u64), Ok(None));
            }
        }

        #[test]
        fn a_corrupted_queue_gives_out_what_is_right_and_then_an_error(
            pushed in 1u64..40, popped in 0u64..40, kind in 0usize..7, at in any::<usize>(), other in any::<usize>()
        ) {
            let popped = popped.min(pushed - 1);
            let mut queue = SealedQueue::default();
            (0..pushed).for_each(|number| _ = queue.push(number));
            for number in 0..popped {
                prop_assert_eq!(queue.pop(), Ok(Some(number)));
            }
            let len = queue.len();
            let (at, other) = (at % len, other % len);
            match kind {
                0 => _ = queue.entries.remove(at),
                1 => queue.entries.insert(other, queue.entries[at]),
                2 if at != other => queue.entries.swap(at, other),
                3 => queue.entries[at] = (popped.wrapping_sub(1), popped.wrapping_sub(1)),
                4 => queue.entries.truncate(at),
                5 => queue.first = queue.first.wrapping_add(other as u64 + 1),
                _ => queue.next = queue.next.wrapping_sub(other as u64 + 1),
            }
            let (given, end) = drain(queue);
            prop_assert_eq!(end, Err(SealBroken));
            prop_assert!(given.iter().copied().eq(popped..popped + given.len() as u64));
        }
    }
}
