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
pub use find::{ClusterTarget, ReplicaHandle};
pub use keeper::Keeper;
#[cfg(test)]
pub use observer::tests::status as test_status;
pub use observer::{Observer, ReplicaRow, once};
pub use plan::{ClusterOptions, ClusterPlan, Layout};
pub use runfile::ReplicaAddresses;
pub use supervisor::{Supervisor, SupervisorEvent};
