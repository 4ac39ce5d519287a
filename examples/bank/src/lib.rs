//! A bank as a protected, replicated service: the example of docs/first-service.md, to be read and copied.
//!
//! - `account`, `office`, `state`: what is protected from corruption, as critical structs: [`Account`], [`Office`],
//!   [`Branch`].
//! - `request`: the requests, and their encoding in the log.
//! - `service`: the locks, the footprints and the handlers.
//! - `resp`: the protocol of `redis-cli`, as much of it as is needed.
//! - `program`: what makes a program of these.
//!
//! Money is counted in cents. `OPEN`, `DEPOSIT` and interest add money, `WITHDRAW` removes it, and other requests only
//! move it.

mod account;
mod office;
mod program;
mod request;
mod resp;
mod service;
mod state;

pub use account::Account;
pub use office::Office;
pub use program::Program;
pub use request::{Payment, Request};
pub use resp::RespConnection;
pub use service::Bank;
pub use state::{Branch, Bucket, MAX_BALANCE, Number, Refusal};

/// Largest sum of one deposit, withdrawal or payment, in cents.
pub const MAX_AMOUNT: u64 = MAX_BALANCE;
/// Longest name of an owner, in bytes.
pub const MAX_OWNER_BYTES: usize = 64;
/// Highest interest per period, in hundredths of a percent.
pub const MAX_RATE: u32 = 10_000;
/// Longest period between two payments of interest, and longest wait of a payment, in seconds.
pub const MAX_SECONDS: u64 = 3_600;
