//! A real cluster under real failures: `serve` processes on hosts of their own, clients that record their requests and
//! the answers, and a checker that decides whether a single correct server could have given these answers.
//!
//! A [`plan::Plan`] describes a run: the troubles, their duration, and the corruption meanwhile. [`run::run`] makes the
//! hosts ([`testbed`]: namespaces of threads joined by a switch in this process, [`switch`]), starts the replicas on
//! them ([`keeper`]) and the clients ([`client`]), brings troubles to one replica at a time ([`trouble`],
//! [`corrupt`]), waits until everything has healed, and gives the histories to the checker
//! ([`memcached_client::history::check`]) while the run goes on. All resources belong to threads and processes of this
//! run, so that the kernel releases them however the run ends.
//!
//! The replicas serve memcached or SQL ([`service`]); with SQL there is a bank beside, whose tables are compared row by
//! row with what clients were told ([`sql`]).
//!
//! Beside it stand attacks on small clusters ([`hostile`]), and runs in which nothing is wrong and no replica may
//! report anything ([`soak`]). [`command`] is the command line of all three.
#![cfg(target_os = "linux")]

pub mod announce;
pub mod client;
pub mod command;
pub mod corrupt;
pub mod draw;
mod hostile;
pub mod keeper;
mod place;
pub mod plan;
pub mod recovery;
mod releases;
pub mod replica;
pub mod report;
pub mod run;
pub mod service;
mod soak;
pub mod sql;
pub mod switch;
pub mod testbed;
pub mod trouble;
