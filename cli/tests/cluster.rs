//! The tests that start clusters, in one binary: what they share is compiled and linked once.
//!
//! `cargo test -p cli --test cluster corruption` runs those of one file.

mod support;

mod checker;
mod conformance;
mod corruption;
mod determinism;
mod failover;
mod founding;
mod real_clients;
