//! The tests that start clusters, in one binary: their shared code is compiled and linked once.
//!
//! `cargo test -p cli --test cluster corruption` runs the tests of one file.

mod support;

mod backup;
mod broken;
mod builds;
mod checker;
mod conformance;
mod corruption;
mod determinism;
mod failover;
mod founding;
mod mistakes;
mod moving;
mod real_clients;
mod restarts;
mod settings;
mod sizes;
mod slow_disk;
mod verified;
