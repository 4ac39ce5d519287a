//! Every integration test of the crate in one binary: what they share is compiled and linked once.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod support;

mod abi;
mod calls;
mod contexts;
mod copies;
mod cores;
mod examples;
mod imports;
mod libsei;
mod memory;
mod mutations;
mod outside;
mod paper;
mod rules;
mod streams;
mod threads;
