//! A cluster of replicas on this machine: planned, started as processes, supervised, and found again by other commands.
//!
//! Commands, tests and laboratories start clusters here and nowhere else: a [`ClusterPlan`] decides its files, a
//! [`Keeper`] supervises it from this process, a [`DetachedCluster`] is `up --json` in a process of its own. Both have
//! an [`EventLog`] and a [`ReplicaHandle`] of each replica to ask; [`Dress`] and [`ClusterHooks`] change how a process
//! is started.

mod backoff;
mod child;
mod detached;
mod events;
mod find;
mod hooks;
mod keeper;
mod observer;
mod plan;
pub mod ports;
mod runfile;
mod supervisor;

pub use child::{Dress, Process, in_words, send_signal, serve};
pub use detached::DetachedCluster;
pub use events::EventLog;
pub use find::{ClusterTarget, ReplicaHandle, at_once, named_leader};
pub use hooks::ClusterHooks;
pub use keeper::{Keeper, KeeperOptions};
#[cfg(test)]
pub use observer::tests::status as test_status;
pub use observer::{Observer, Polling, ReplicaRow, once};
pub use plan::{ClusterOptions, ClusterPlan, Layout};
pub use runfile::ReplicaAddresses;
pub use supervisor::{Supervisor, SupervisorEvent};
