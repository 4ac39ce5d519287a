//! The verification stage of Eve (Kapritsos et al., OSDI 2012, section 6): replicas execute a batch first, and agree
//! afterwards on the state and the outputs that it led to. For crashes only (in the paper's terms r = 0).
//!
//! Two pure state machines, which own no socket, clock, thread or random source. A process has a [`Verifier`] and an
//! [`Executor`]; a witness has only the first.
//!
//! | You look for | It is |
//! |---|---|
//! | when a version is recorded, and when tokens cannot agree any more | `verifier::recorder::step` |
//! | from which record a view starts (rule 1) | `verifier::recorder::rank`, used by `verifier::change::try_to_lead` |
//! | when an executor acts (rule 2) | `executor::Executor::has_quorum` |
//! | what a verifier without memory may do (rule 3) | `verifier::recover` |
//! | where an executor abstains, and why | `executor::incarnation` |
//! | when all tokens are waited for (extra protection) | `verifier::extra` |
//! | two replicas without a third verifier | `verifier::pair` |
//! | every bound and time | [`limits`] |
//! | what was explored, and how each wrong rule fails | docs/design.md, section 14 |
//!
//! **The way of a batch.** Each executor runs it and sends VERIFY, with the token of the state after it, to all
//! verifiers. A verifier that has enough equal tokens, all of which continue its record, records the version and sends
//! RECORDED to all executors. What a quorum has recorded is stable: replies may leave. Two message delays, and no
//! round before the execution. Where tokens cannot agree, where a batch is late or its primary is gone, the verifiers
//! change to the next view; executors roll back to its start.
//!
//! **What a host must do.**
//!
//! - Pass every message of the stage to both machines of its process, with the slot that the link knows as its sender.
//!   Messages that a process sends to itself are passed directly. Messages of a connection are dropped once a later
//!   incarnation of its peer has sent a heartbeat.
//! - Perform commands in order, and batches in order. Ask [`Executor::may_begin_after`] before each batch. No batch
//!   runs between a [`ExecutorCommand::Rewind`], [`ExecutorCommand::Diverged`] or [`ExecutorCommand::Behind`] and its
//!   end.
//! - Call both machines with their `Tick` every few milliseconds, and tell the verifier about connections.
//! - Choose a new random `incarnation` for each start of a process.
//!
//! A batch in a group of three, from its execution until it is stable:
//!
//! ```
//! use verify::*;
//!
//! // Three processes of a group that begins. Process 1 has the operator's permission.
//! let config = |slot: Slot| {
//!     let config = Config::new(Layout::Crash { failures: 1 }, slot, 70 + u64::from(slot), StateToken(0));
//!     if slot == 1 { config.that_begins() } else { config }
//! };
//! let mut verifiers: Vec<Verifier> = (0..3).map(|slot| Verifier::new(config(slot))).collect();
//! let mut executors: Vec<Executor> = (0..3).map(|slot| Executor::new(config(slot))).collect();
//!
//! // A host passes events in and performs commands. This one has no network, and keeps what is stable.
//! fn host(verifiers: &mut [Verifier], executors: &mut [Executor], now_us: u64, first: (Slot, Option<ExecutorEvent>))
//! -> Vec<(Slot, Version)> {
//!     let (mut mail, mut stable) = (Vec::new(), Vec::new());
//!     let post = |mail: &mut Vec<(Slot, Slot, VerifyMessage)>, from, to, message: VerifyMessage| match to {
//!         Recipients::One(slot) => mail.push((from, slot, message)),
//!         // All three processes have both machines.
//!         _ => (0..3).for_each(|to| mail.push((from, to, message.clone()))),
//!     };
//!     let (slot, event) = first;
//!     let mut verify = vec![(slot, VerifierEvent::Tick)];
//!     let mut execute = vec![(slot, event.unwrap_or(ExecutorEvent::Tick))];
//!     while !verify.is_empty() || !execute.is_empty() {
//!         for (slot, event) in verify.drain(..) {
//!             let mut commands = Vec::new();
//!             verifiers[slot as usize].handle(event, now_us, &mut commands);
//!             for command in commands {
//!                 if let VerifierCommand::Send { to, message } = command {
//!                     post(&mut mail, slot, to, message);
//!                 }
//!             }
//!         }
//!         for (slot, event) in execute.drain(..) {
//!             let mut commands = Vec::new();
//!             executors[slot as usize].handle(event, now_us, &mut commands);
//!             for command in commands {
//!                 match command {
//!                     ExecutorCommand::Send { to, message } => post(&mut mail, slot, to, message),
//!                     ExecutorCommand::Stable(version) => stable.push((slot, version)),
//!                     _ => {}
//!                 }
//!             }
//!         }
//!         for (from, to, message) in mail.drain(..) {
//!             verify.push((to, VerifierEvent::Message { from, message: message.clone() }));
//!             execute.push((to, ExecutorEvent::Message { from, message }));
//!         }
//!     }
//!     stable
//! }
//!
//! // The group begins: the verifiers find out that nobody has a memory, and all executors follow view 0.
//! for millisecond in 0..200 {
//!     (0..3).for_each(|slot| {
//!         host(&mut verifiers, &mut executors, 1_000 * millisecond, (slot, None));
//!     });
//! }
//! assert!(executors.iter().all(|executor| executor.view() == Some(0) && executor.may_begin_after(0)));
//!
//! // All three run batch 1 and come to the same state.
//! let version = Version { number: 1, token: StateToken(0xabc) };
//! let mut executed = |slot| {
//!     let event = ExecutorEvent::Executed { view: 0, version, parent: StateToken(0) };
//!     host(&mut verifiers, &mut executors, 200_000, (slot, Some(event)))
//! };
//! assert_eq!(executed(0), []);
//! assert_eq!(executed(1), [(0, version), (1, version)], "two equal tokens are enough");
//! assert_eq!(executed(2), [(2, version)]);
//! ```

mod config;
mod executor;
pub mod limits;
mod message;
mod saved;
mod slots;
mod verifier;
mod version;

pub use config::{Config, Layout, Rules};
pub use executor::{Executor, ExecutorCommand, ExecutorEvent};
pub use message::{AskRound, Here, Lineup, Reason, TokenRecord, VerifyMessage};
pub use saved::{SAVED_BYTES, SavedRecord};
pub use slots::{CrashVector, Slot, Slots};
pub use verifier::{Recipients, Timer, Verifier, VerifierCommand, VerifierEvent};
pub use version::{StateToken, Version};
pub use wire::Malformed;
