//! Notes on batches by number. Batches come and go in ascending order: a ring costs a few instructions where a tree
//! costs hundreds.

use std::collections::VecDeque;

/// A map whose keys are mostly inserted at its end and removed at its beginning. Any other order is right, and slower.
#[derive(Debug)]
pub(crate) struct Ascending<T>(VecDeque<(u64, T)>);

impl<T> Default for Ascending<T> {
    fn default() -> Self {
        Ascending(VecDeque::new())
    }
}

impl<T> Ascending<T> {
    /// Adds an entry; an entry of the same number is replaced.
    pub fn insert(&mut self, number: u64, entry: T) {
        if self.0.back().is_none_or(|(last, _)| *last < number) {
            return self.0.push_back((number, entry));
        }
        match self.index(number) {
            Ok(index) => self.0[index] = (number, entry),
            Err(index) => self.0.insert(index, (number, entry)),
        }
    }

    /// The entry of this number.
    pub fn get(&self, number: u64) -> Option<&T> {
        self.index(number).ok().map(|index| &self.0[index].1)
    }

    /// The entry of this number, to be changed.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.index(number).ok().map(|index| &mut self.0[index].1)
    }

    /// The entries of greater numbers.
    pub fn after(&self, number: u64) -> impl Iterator<Item = &T> {
        let begin = self.0.partition_point(|(other, _)| *other <= number);
        self.0.range(begin..).map(|(_, entry)| entry)
    }

    /// The entry of the least number.
    pub fn first(&self) -> Option<&T> {
        self.0.front().map(|(_, entry)| entry)
    }

    /// Removes the entry of the least number.
    pub fn pop_first(&mut self) -> Option<T> {
        self.0.pop_front().map(|(_, entry)| entry)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    fn index(&self, number: u64) -> Result<usize, usize> {
        // Without gaps an entry lies as far from the first as their numbers are apart.
        let first = self.0.front().map_or(number, |(first, _)| *first);
        let guess = number.wrapping_sub(first) as usize;
        match self.0.get(guess) {
            Some((found, _)) if *found == number => Ok(guess),
            _ => self.0.binary_search_by_key(&number, |(number, _)| *number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_does_what_a_tree_does() {
        for seed in 0..200 {
            let (mut ring, mut tree) = (Ascending::default(), BTreeMap::new());
            for step in 0..60 {
                let drawn = wire::mix(seed << 8 | step);
                // Mostly the next number, and sometimes an earlier or a much later one.
                let number = if drawn.is_multiple_of(3) { drawn >> 8 & 0x3F } else { step };
                match drawn >> 32 & 3 {
                    0 => assert_eq!(ring.pop_first(), tree.pop_first().map(|(_, entry)| entry)),
                    1 => assert_eq!(ring.get_mut(number), tree.get_mut(&number)),
                    _ => {
                        ring.insert(number, step);
                        tree.insert(number, step);
                    }
                }
                assert_eq!(ring.get(number), tree.get(&number));
                assert!(ring.after(number).eq(tree.range(number + 1..).map(|(_, entry)| entry)));
                assert_eq!(ring.first(), tree.first_key_value().map(|(_, entry)| entry));
                assert_eq!(ring.len(), tree.len());
            }
        }
    }
}
