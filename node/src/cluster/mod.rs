//! A cluster of replicas on this machine: planned, started as processes, supervised, and found again by other commands.

mod backoff;
mod child;
mod find;
mod keeper;
mod observer;
mod plan;
pub mod ports;
mod runfile;
mod supervisor;

pub use child::{Dress, Process, in_words, serve};
pub use find::{Replica, Target};
pub use keeper::Keeper;
#[cfg(test)]
pub use observer::tests::status as test_status;
pub use observer::{Observer, Row, once};
pub use plan::{Layout, Plan, Wish};
pub use runfile::Place;
pub use supervisor::{Event, Supervisor};
