//! Finds the leaves in which two replicas' trees differ, a level at a time, without sending either tree.
//!
//! Eve (OSDI 2012, section 6.1) transfers the difference of two states; the walk says where that is when the list of
//! changed objects is no longer at hand. It is a value that asks and is answered, so that the messages between are the
//! caller's business, and an answer may be late, of another version, or wrong.

use crate::tree::{CHILDREN, Tree};

/// What the other replica is asked for: values of one level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// 0 for leaves.
    pub level: usize,
    /// Numbers of the values, ascending.
    pub numbers: Vec<u32>,
}

/// A walk down one's own tree, from the root to the leaves that another tree does not share.
#[derive(Clone, Debug)]
pub struct Walk {
    question: Question,
    /// The limit of numbers in a question.
    limit: usize,
    /// Whether there were more differences than the limit.
    is_cut: bool,
}

impl Walk {
    /// Begins at the root. No question has more than `limit` numbers: where more nodes differ, the rest is left out,
    /// and [`Walk::is_cut`] says so.
    pub fn new(tree: &Tree, limit: usize) -> Walk {
        let question = Question { level: tree.levels() - 1, numbers: vec![0] };
        Walk { question, limit: limit.max(CHILDREN), is_cut: false }
    }

    /// What to ask for.
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// Whether more leaves differ than those that are found.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Compares the other replica's values with one's own. `None`: there is another question. Else the leaves that
    /// differ; none if the trees are equal, or if the answer has not as many values as the question has numbers.
    pub fn answer(&mut self, tree: &Tree, theirs: &[u64]) -> Option<Vec<u32>> {
        let Question { level, numbers } = &self.question;
        let ours = tree.values(*level, numbers).filter(|ours| ours.len() == theirs.len()).unwrap_or_default();
        let values = ours.iter().zip(theirs);
        let differing: Vec<u32> = numbers
            .iter()
            .zip(values)
            .filter(|(_, (ours, theirs))| ours != theirs)
            .map(|(number, _)| *number)
            .collect();
        let Some(below) = level.checked_sub(1).filter(|_| !differing.is_empty()) else {
            return Some(differing);
        };
        let width = tree.width(below);
        let children = |number: u32| {
            let first = number.saturating_mul(CHILDREN as u32);
            first.min(width)..first.saturating_add(CHILDREN as u32).min(width)
        };
        let mut numbers: Vec<u32> = differing.into_iter().flat_map(children).collect();
        self.is_cut |= numbers.len() > self.limit;
        numbers.truncate(self.limit);
        self.question = Question { level: below, numbers };
        None
    }
}

#[cfg(test)]
mod tests {
    use object::{Change, ObjectId};
    use wire::SplitMix64;

    use super::*;
    use crate::shape::TreeShape;

    fn walk(ours: &Tree, theirs: &Tree, limit: usize) -> (Vec<u32>, bool) {
        let mut walk = Walk::new(ours, limit);
        loop {
            let Question { level, numbers } = walk.question();
            assert!(numbers.len() <= limit);
            let answer = theirs.values(*level, numbers).expect("trees of one shape");
            if let Some(found) = walk.answer(ours, &answer) {
                return (found, walk.is_cut());
            }
        }
    }

    #[test]
    fn exactly_the_leaves_that_differ_are_found() {
        for (seed, shape) in
            [(1, TreeShape::even(4, 65_536)), (2, TreeShape::even(3, 7)), (3, TreeShape::even(40, 1_000))]
        {
            let mut random = SplitMix64::new(seed);
            let mut ours = Tree::new(shape.clone());
            let regions = u64::from(shape.leaves().min(3));
            let any = |random: &mut SplitMix64| Change {
                region_id: random.below(regions) as u32,
                id: ObjectId::new(random.below(1 << 30), 0),
                old: Change::ABSENT,
                new: random.next_u64() | 1,
            };
            (0..1_000).for_each(|_| ours.apply(any(&mut random)));
            for differences in [0, 1, 40] {
                let mut theirs = ours.clone();
                let mut leaves: Vec<u32> = (0..differences)
                    .map(|_| {
                        let change = any(&mut random);
                        theirs.apply(change);
                        shape.leaf(change.region_id, change.id).expect("a leaf")
                    })
                    .collect();
                leaves.sort_unstable();
                leaves.dedup();
                ours.root();
                theirs.root();
                assert_eq!(walk(&ours, &theirs, 10_000), (leaves, false), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_limit_finds_some_of_them_and_says_so() {
        let mut ours = Tree::new(TreeShape::even(1, 65_536));
        let theirs = {
            let mut theirs = ours.clone();
            for position in 0..5_000 {
                theirs.apply(Change {
                    region_id: 0,
                    id: ObjectId::new(position, 0),
                    old: Change::ABSENT,
                    new: 9,
                });
            }
            theirs.root();
            theirs
        };
        ours.root();
        let (found, is_cut) = walk(&ours, &theirs, 64);
        assert!(is_cut && !found.is_empty() && found.len() <= 64, "{} leaves", found.len());
    }

    #[test]
    fn an_answer_of_another_length_ends_the_walk() {
        let mut tree = Tree::new(TreeShape::even(1, 256));
        tree.root();
        for answer in [vec![], vec![1, 2]] {
            assert_eq!(Walk::new(&tree, 100).answer(&tree, &answer), Some(vec![]));
        }
    }
}
