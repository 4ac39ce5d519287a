//! What the explorations share: a search, and a world of real machines and messages.

pub mod cluster;
pub mod live;
pub mod pair;
pub mod search;
pub mod table;
pub mod world;
