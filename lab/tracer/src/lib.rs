//! Native fault injection: one flipped bit in one dynamic instruction of a running server, after SEI's fault model
//! (Behrens et al., NSDI 2015, section 6), without Pin, source or recompilation.
//!
//! A golden run is single-stepped once and its sequence of instructions kept ([`profile`]). An injection restarts the
//! target ([`session`]), reaches the drawn instruction by one hardware breakpoint and a few steps, flips the bit
//! ([`inject`]) and lets the target run natively, under a client that compares every reply ([`client`]). A cluster
//! cannot be repeated exactly: there, sites are drawn from samples and faults are injected under load ([`cluster`]).
//!
//! Linux on x86-64 only; elsewhere the crate is empty.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod authority;
pub mod callers;
pub mod campaign;
pub mod client;
mod clock;
pub mod cluster;
pub mod code;
pub mod draw;
pub mod fault;
pub mod group;
pub mod hooks;
pub mod inject;
pub mod judge;
pub mod memory;
pub mod model;
pub mod mqtt;
pub mod parts;
mod postgres;
pub mod profile;
pub mod protocol;
pub mod record;

pub mod report;
pub mod result;
pub mod rows;
pub mod sample;
pub mod sei_table;
mod seized;
pub mod series;
pub mod session;
pub mod single;

pub mod symbols;
pub mod sys;
pub mod target;
pub mod threads;
pub mod trace;
pub mod user_io;
