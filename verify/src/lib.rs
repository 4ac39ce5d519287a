//! The verification stage of Eve (Kapritsos et al., OSDI 2012, section 6.1): replicas execute first, and verifiers
//! agree afterwards on one state and output for each batch. For crashes only (in the paper's terms r = 0).

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
pub use message::{Here, Lineup, QuestionRound, Reason, TokenRecord, VerifyMessage};
pub use saved::{SAVED_BYTES, SavedRecord};
pub use slots::{CrashVector, Slot, Slots};
pub use verifier::{Recipients, Timer, Verifier, VerifierCommand, VerifierEvent};
pub use version::{StateToken, Version};
pub use wire::Malformed;
