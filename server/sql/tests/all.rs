//! All tests of the service, as one binary.

mod client;
mod corruption;
mod determinism;
mod queries;
