//! One binary of all tests that use this crate from outside.

mod explore;
mod explore_all;
mod explore_live;
mod explore_memory;
mod explore_pair;
mod explore_reads;
mod founding;
mod hostile;
mod messages;
mod protections;
mod reads;
mod refounding;
mod support;
mod transcripts;
mod transcripts_pair;
