//! Every integration test of the crate in one binary: what they share is compiled and linked once.

mod support;

mod compile_fail;
mod fuzz;
mod mixed;
mod predict;
mod resume;
mod rules;
