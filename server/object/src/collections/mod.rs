//! Keyed collections as members of critical types: each operation touches a few objects of about 1 KiB at most,
//! however many entries there are.
//!
//! A large `BTreeMap` or `Vec` in an object is summed as a whole by each request that enters the object. These
//! collections keep their entries in objects of their own, in a [`crate::Store`] within the member. So an entry is
//! checked when it is visited, and undo, repair, state transfer and digests are those of any object. The owner's
//! checksum covers the number of entries, where the first object is, and which objects there are.

mod delegate;
mod map;
mod node;
pub(crate) mod part;
mod queue;
mod scan;
mod set;
mod size;
mod table;
mod tree;
mod tree_change;

pub use map::{Entries, Map};
pub use queue::{Items, Queue};
pub use set::{Set, SetKeys};
pub use table::{Objects, Table};

/// Objects of a collection have at most about so many bytes, unless a single entry has more.
pub const NODE_BYTES: usize = size::FULL;
