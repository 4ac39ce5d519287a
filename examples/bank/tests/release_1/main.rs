//! The bank's program of the release before, from which tests upgrade a group: the same code with the critical types of
//! that time, which know nothing of later ones. The crate has the name of the library, because the path of a type is
//! part of its identity.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the modules are those of the library, and this program has no users"
)]

use std::process::ExitCode;

mod account;
mod office;
#[path = "../../src/program.rs"]
mod program;
#[path = "../../src/request.rs"]
mod request;
#[path = "../../src/resp.rs"]
mod resp;
#[path = "../../src/service.rs"]
mod service;
#[path = "../../src/state.rs"]
mod state;

use resp::RespConnection;
use service::Bank;
use state::MAX_BALANCE;

fn main() -> ExitCode {
    node::main::<program::Program<1>>()
}

const MAX_AMOUNT: u64 = MAX_BALANCE;
const MAX_OWNER_BYTES: usize = 64;
const MAX_RATE: u32 = 10_000;
const MAX_SECONDS: u64 = 3_600;
