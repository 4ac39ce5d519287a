//! A real cluster under real trouble: `serve` processes on hosts of their own, clients that record what they saw, and a
//! checker that decides whether a single correct server could have answered so.
//!
//! A [`plan::Plan`] describes a run: which troubles come, how long, and what is corrupted meanwhile.
//! [`run::run`] makes the hosts ([`ground`]: namespaces of threads joined by a switch in this process,
//! [`switch`]), starts the replicas on them ([`replica`]), lets clients ask ([`client`]), troubles one replica
//! at a time ([`trouble`], [`corrupt`]), waits until everything has healed, and gives the histories to the
//! checker ([`check`]) while the run goes on. Everything that is made belongs to threads and processes of
//! this run, so that the kernel takes it back however the run ends.
#![cfg(target_os = "linux")]

pub mod announce;
pub mod check;
pub mod client;
pub mod corrupt;
pub mod draw;
pub mod ground;
pub mod history;
pub mod keeper;
pub mod plan;
pub mod replica;
pub mod report;
pub mod run;
pub mod switch;
pub mod trouble;
