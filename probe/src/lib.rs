//! The memcached client of tools and tests, which checks every byte of every reply.

mod client;
pub mod testing;

pub use client::{CasReply, Client, Failure, StoreVerb, Value};
