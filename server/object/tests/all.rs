//! The integration tests of the crate in one binary: what they share is compiled and linked once. `exempt.rs` is
//! another one.

mod common;

mod collections;
mod collections_faults;
mod compile_fail;
mod detection;
mod distance;
mod hot;
mod kept;
mod packing;
mod pieces;
mod region_copy;
mod requests;
mod standard;
mod store;
mod traits;
mod versions;
