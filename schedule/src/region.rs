//! Placeholder bound until `object::Region` is there.

/// A region of objects behind a lock.
pub trait Region: Send {}
