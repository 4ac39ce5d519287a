//! Every integration test of the crate in one binary: what they share is compiled and linked once.

mod common;

mod compile_fail;
mod detection;
mod distance;
mod exempt;
mod packing;
mod requests;
mod standard;
mod store;
mod traits;
