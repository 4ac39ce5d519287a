//! One root over the checksums of all objects, kept by differences, that tells where two states differ.
//!
//! Eve (OSDI 2012, section 5.2) compares replicas by the root of a Merkle tree over their objects, in which objects
//! have slots that a scan in a fixed order gives to new ones. Here an object's leaf follows from its id, and a leaf is
//! the sum of its objects' hashes. Sums commute: requests of one batch may create objects in any order, and neither a
//! scan nor a list of slots is needed. Checksums of objects exist already, so no second pass over their bytes is made
//! either.
//!
//! [`TreeShape`] says which leaf an object has, [`Tree`] holds leaves and nodes, and [`Walk`] finds the leaves in which
//! the trees of two replicas differ, by comparing a level at a time.
//!
//! A sum of 64-bit values is made for accidental errors: two different states have the same root with a probability of
//! 2^-64. It is no protection against an adversary, who can choose objects whose hashes have the same sum. An object
//! that is corrupted while no request touches it is in no root, until [`Tree::differing`] compares the leaves with the
//! objects.

mod shape;
mod tree;
mod walk;

pub use shape::TreeShape;
pub use tree::Tree;
pub use walk::{Question, Walk};
