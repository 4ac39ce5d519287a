//! Protected objects: each carries its checksum, is checked when a request first enters it, sealed again when the
//! request leaves it, and notes itself in the request's state delta.

mod delta;
mod id;

pub use delta::Pair;
pub use id::{Home, ObjectId};
