//! Repair without a stop: from the wrong objects of a FAILED replica to the bytes that overwrite them.

mod recover;

pub use recover::Recover;
