//! Tests of this crate: the paper's algorithm, whole groups under every fault, and each protection removed.

mod cluster;
mod faults;
mod fig2;
mod messages;
mod no_majority;
mod outvoted;
mod properties;
mod protections;
mod repair;
mod replies;
mod service;
mod settle;
mod sizes;
mod started;
mod transcript;
mod window;
