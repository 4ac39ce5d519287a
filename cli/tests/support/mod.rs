//! What the cluster tests share: clusters of real processes, a load that checks every byte, and tools found or named.
#![allow(dead_code, reason = "each test target uses another part of it")]

pub mod checker;
pub mod stock;
