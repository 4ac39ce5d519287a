//! Every integration test of the crate in one binary: what they share is compiled and linked once.

mod client;
mod corruption;
mod determinism;
mod dialect;
mod explained;
mod extended;
mod file_copy;
mod login;
mod protocol;
mod queries;
mod replicated;
mod simulated;
#[path = "../../../hardening/sei/tests/support/skipped.rs"]
mod skipped;
mod transactions;
