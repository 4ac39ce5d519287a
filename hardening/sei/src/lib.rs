//! Error isolation for C programs: a handler runs twice in one process, and nothing leaves it that differs.
//!
//! The library of Behrens et al., *Scalable Error Isolation for Distributed Systems*, NSDI 2015 (SEI), for programs
//! that GCC compiles with `-fgnu-tm`. `include/sei.h` is what a program calls, `include/sei/wrap.h` what calls of the C
//! library become inside handlers; `docs/sei.md` is the guide. Linux on x86-64 only, empty elsewhere.
//!
//! A handler passes five phases ([`handler`]):
//!
//! | Phase | What happens | Where |
//! |---|---|---|
//! | I | the message's CRC is compared; a corrupt message is discarded | `Handler::prepare` |
//! | E1 | first run; every write keeps the old value | `Handler::before_write`, [`log`] |
//! | R | the new values are kept, the old ones restored | `Log::reset` |
//! | E2 | second run; calls are given the first run's results, replies get their CRC | [`calls`], [`message`] |
//! | V | logs, state, calls, input, output and locks are compared | `Handler::validate` |
//!
//! Then locks are released ([`locks`]), and deferred calls happen. Any check that fails ends the process with status 86
//! and one line that says which ([`fail`]). [`abi`] has the functions that the compiler calls, `api` those of `sei.h`,
//! [`shims`] those of `sei/shim.h`; all `unsafe` is in these three.

pub mod barrier;
pub mod calls;
pub mod copies;
pub mod crc;
pub mod fail;
pub mod gate;
pub mod guard;
pub mod handler;
pub mod limits;
pub mod locks;
pub mod log;
pub mod memory;
pub mod message;
#[cfg(all(test, loom))]
mod model;
pub mod mutate;
pub mod rotate;
pub mod stacks;
mod sync;

#[cfg(all(target_os = "linux", target_arch = "x86_64", not(loom)))]
pub mod abi;
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(loom)))]
pub mod api;
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(loom)))]
mod process;
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(loom)))]
pub mod shims;
