//! A whole cluster in one thread from one seed: the shipped pipeline (`crosscheck::stepped`) of every replica
//! with the real service and its protocol, clients, network and clock, every fault we claim to survive, and
//! one checker per promise.
//!
//! [`simulate`] runs one seed with any service, which a [`Workload`] describes; [`run()`] uses memcached.
//! Two runs of a seed are the same, to the bit ([`RunSummary::hash`]). Every replica
//! has one worker; its helper thread, which waits for repairs, runs only while the simulation waits for it
//! (`crosscheck::stepped`), so that never more than one thread runs.
//!
//! - [`fault`]: the catalogue. [`plan`]: which faults are injected when, and why a correct copy still exists.
//!   [`strikes`]: chains of strikes, each while the victim of the one before recovers. [`copy_strikes`]: strikes at
//!   the steps of a copy of the state.
//! - [`workload`]: what the simulation requires of a service. [`memcached`]: the workload for memcached, with its
//!   model.
//! - [`promises`]: the checkers. [`reference`](mod@reference): the model of a run, with which they compare.
//! - [`campaign`]: many seeds over many clusters, kept and merged.
//! - [`net`], [`world`], [`disk`], [`log`], [`node`]: the environment of a replica. `run`: the loop.

pub mod campaign;
pub mod client;
pub mod copy_strikes;
pub mod disk;
pub mod facts;
pub mod fault;
pub mod log;
pub mod memcached;
pub mod mutation;
pub mod net;
pub mod node;
pub mod plan;
pub mod promises;
pub mod reference;
pub mod report;
pub mod rng;
mod run;
pub mod shrink;
pub mod slow;
pub mod strikes;
pub mod testing;
pub mod trace;
pub mod workload;
pub mod world;

pub use crate::memcached::run;
pub use plan::Faults;
pub use run::{Breach, Chains, Count, Options, RunSummary, Verified, Violation, Where, simulate};
pub use workload::{CommandSource, ReferenceModel, Turn, Workload, same_bytes};
