//! A method that passes through an object cannot change the object itself.

use object::{Ref, Store, critical};

#[critical]
pub struct Leaf {
    value: u64,
}

#[critical]
impl Leaf {
    pub fn set(&mut self, value: u64) {
        self.value = value;
    }
}

#[critical]
pub struct Root {
    count: u64,
    leaves: Store<Leaf>,
}

#[critical]
impl Root {
    #[through]
    pub fn count_as_well(&mut self, leaf: Ref<Leaf>) {
        *self.count += 1;
        self.leaves.expect_mut(leaf).set(1);
    }

    #[through]
    pub fn insert(&mut self, leaf: Leaf) {
        self.leaves.insert(leaf);
    }
}

fn main() {}
