//! Every integration test of the crate in one binary: what they share is compiled and linked once.

mod support;

mod binary;
mod closing;
mod corruption;
mod eviction;
mod lists;
mod login;
mod model;
mod rollback;
mod watching;
