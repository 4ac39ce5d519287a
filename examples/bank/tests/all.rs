//! Every integration test of the crate in one binary: what they share is compiled and linked once.

mod deterministic;
mod group;
mod guide;
mod later;
mod model;
mod replicated;
mod simulated;
mod upgrade;
