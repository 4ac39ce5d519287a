//! Compares digests across replicas, decides by majority who is right, names the wrong objects, and drives
//! their repair.
//!
//! A pure state machine, one per replica: an [`Event`] and the time go into a [`Voter`], [`Command`]s come out. It owns
//! no socket, clock, thread or random source (docs/design.md, sections 6 to 8; EDCC'16 sections IV-B to IV-D).
//!
//! | You look for | It is |
//! |---|---|
//! | the function that receives a CHECK | `voter::check::on_check` |
//! | who is VALID and who FAILED (Fig. 2) | [`classify`] |
//! | the line that holds back a corrupt reply | `gate::reply_may_leave` |
//! | the same at a replica that compares with itself | [`twice_may_leave`] |
//! | how a mismatch is traced down to an object | `voter::details::exchange_details`, then `voter::dispute::decide` |
//! | what happens when no f+1 agree | `voter::examine::no_majority`, then `voter::settle` |
//! | who proposes a RECOVER, and when | `repair::collect::propose` |
//! | the f+1 rule on REPAIR | `repair::install::agreed_claim` |
//! | the code that overwrites a corrupted object | `repair::install::finish`, by [`Command::Install`] |
//! | every bound | [`limits`] |
//!
//! **Three levels.** Replicas compare one 128-bit digest per batch. Only where two differ do they exchange the digests
//! of the batch's requests, and only for requests that differ their pairs. A reply leaves at the first level at which
//! this replica and f others agree on it; validation continues until every live replica is classified.
//!
//! **The checker is fallible too.** A fault may hit a vote, a digest, a stored pair, a reply or a message like any
//! object. A replica is therefore right when f+1 replicas have any of its batch digest, its stated digest or the digest
//! of its pairs; a value that does not fit is reported as `digest/vote` and repairs nothing.
//!
//! **What a pipeline must do.** Pass every batch to [`Event::Executed`] once, in any order; perform commands in order;
//! call [`Voter::flush`] once per round and [`Event::Tick`] every few milliseconds. A RECOVER's own [`RequestResult`]
//! should hold the pairs of the objects it lists, after the installation: the vote on it then shows whether the repair
//! succeeded.

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
mod sizes;
#[cfg(test)]
mod tests;
mod voter;

pub use classify::{Status, Verdict, Vote, Votes, classify};
pub use command::{BeyondRepair, Command, Dropped, Held, To};
pub use config::{Config, Protections, Replica};
pub use event::{
    Content, Event, Failure, Packed, Pairs, Place, Reexecution, RequestInfo, RequestResult, RunDigests,
    keeps_reply,
};
pub use evidence::{Classifier, Evidence, FaultClass, FaultStage, Finding, VoteCounters, WrongObject};
pub use gate::{Withheld, twice_may_leave, verified_may_leave};
pub use message::{Ask, Message, RepairPart};
pub use repair::{Recover, Scope};
pub use voter::Voter;
pub use wire::Malformed;
