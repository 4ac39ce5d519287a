//! Every integration test of the crate in one binary: what they share is compiled and linked once.

mod support;

mod look;
mod once;
mod speculate;
mod twice;
