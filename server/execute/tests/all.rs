//! Every integration test of the crate in one binary: what they share is compiled and linked once.

mod support;

mod once;
mod read_only;
mod speculate;
mod twice;
