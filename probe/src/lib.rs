//! What tools and tests ask a memcached server with: one client, which checks every byte of every reply.

mod client;
pub mod testing;

pub use client::{CasReply, Client, Failure, StoreVerb, Value};
