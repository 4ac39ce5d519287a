//! What one request touched: the value that replicas compare before a reply leaves.

use crate::id::{Home, ObjectId};

/// One line of a state delta: an object and its latest checksum (EDCC'16 section IV-B, the pair p = (C, I)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// Region the object lives in.
    pub home: Home,
    /// The object.
    pub id: ObjectId,
    /// Its checksum when the request left it, or [`Pair::REMOVED`].
    pub sum: u64,
}

impl Pair {
    /// Sum of an object that the request removed.
    pub const REMOVED: u64 = 0;
}
