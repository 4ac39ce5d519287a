//! The memcached client of tools and tests, which checks every byte of every reply, and where hardened programs
//! are for it.

mod client;
pub mod hardened;
pub mod testing;

pub use client::{CasReply, Client, Failure, StoreVerb, Value};
