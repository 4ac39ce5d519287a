//! Compares digests across replicas, decides by majority who is right, names the wrong objects, and drives their repair.
//!
//! A pure state machine, one per replica: an [`Event`] and the time go into a [`Voter`], [`Command`]s come out. It owns no
//! socket, clock, thread or random source. Where to find what a newcomer looks for is listed in ARCHITECTURE.md.

mod classify;
mod command;
mod config;
pub mod digest;
mod event;
mod evidence;
mod gate;
pub mod limits;
mod message;
mod record;
mod repair;
#[cfg(test)]
mod tests;
mod voter;
mod wire;

pub use classify::{Status, Verdict, Vote, Votes, classify};
pub use command::{BeyondRepair, Command, Dropped, Held, To};
pub use config::{Config, Protections, Replica};
pub use event::{Content, Event, Failure, Packed, Pairs, Place, Reexecution, RequestResult};
pub use evidence::{Class, Classifier, Counters, Evidence, FaultStage, Finding, WrongObject};
pub use message::{Ask, Malformed, Message, Repair};
pub use repair::Recover;
pub use voter::Voter;
