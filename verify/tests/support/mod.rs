//! What the explorations share: a search, and a world of real machines and messages.

pub mod search;
pub mod world;
