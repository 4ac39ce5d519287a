//! Runs any service as a group of replicas: its program has the commands `up`, `serve`, `status`, `top`, `digest`,
//! `backup`, `evidence`, `inject`, `key`, `group` and `modes`, and a configuration file.
//!
//! An author implements [`Application`] in addition to [`crosscheck::Service`] and [`crosscheck::Protocol`], and writes
//! `fn main() -> std::process::ExitCode { node::main::<Bank>() }`. A program with commands of its own lists those of
//! this crate among them, as `cli` does, and uses [`cluster`] to run groups.

mod application;
pub mod backup;
pub mod cluster;
mod commands;
pub mod config;
pub mod descriptors;
pub mod digest;
pub mod evidence;
pub mod group;
pub mod inject;
pub mod key;
pub mod modes;
pub mod outcome;
pub mod program;
pub mod serve;
pub mod short;
pub mod signals;
pub mod status;
pub mod top;
pub mod up;
pub mod view;

pub use application::{Application, ReplicaParts, ServiceOptions, Wrong};
pub use clap;
pub use commands::{
    AFTER_HELP, AFTER_LONG_HELP, LONG_ABOUT, NodeCommand, RunCommand, SetupCommand, main, run,
};
