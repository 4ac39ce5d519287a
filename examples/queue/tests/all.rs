//! Every integration test of the crate in one binary: what they share is compiled and linked once.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test may do what a handler may not"
)]

mod beanstalkd;
mod deterministic;
#[path = "../../support/group.rs"]
mod group;
mod model;
mod replicated;
mod support;
