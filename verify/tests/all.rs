//! One binary of all tests that use this crate from outside.

mod explore;
mod explore_all;
mod explore_memory;
mod explore_pair;
mod founding;
mod hostile;
mod messages;
mod protections;
mod support;
mod transcripts;
mod transcripts_pair;
