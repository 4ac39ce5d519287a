//! Only a method that could change something can pass through an object.

use object::{Store, critical};

#[critical]
pub struct Leaf {
    value: u64,
}

#[critical]
pub struct Root {
    leaves: Store<Leaf>,
}

#[critical]
impl Root {
    #[through]
    pub fn len(&self) -> usize {
        self.leaves.len()
    }
}

fn main() {}
