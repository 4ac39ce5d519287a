//! Every integration test of the crate in one binary: what they share is compiled and linked once.

mod deterministic;
#[path = "../../support/group.rs"]
mod group;
mod guide;
mod later;
mod model;
mod replicated;
#[path = "../../support/resp_client.rs"]
mod resp_client;
mod simulated;
mod upgrade;
