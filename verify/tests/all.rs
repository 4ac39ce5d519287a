//! One binary of all tests that use this crate from outside.

mod explore;
mod explore_all;
mod support;
