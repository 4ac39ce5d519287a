//! The value that unwinds when an object cannot be trusted: corruption is handled, never a panic of ours.

use crate::id::ObjectId;
use std::fmt;

/// An object that failed its check. It leaves the handler by unwinding. The runner of handlers catches it, abandons the
/// request at this replica, and reports the object for repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupted {
    /// The object, or [`ObjectId::NONE`] if only [`crate::Region::blame`] can find it.
    pub object: ObjectId,
    /// Its class.
    pub class: &'static str,
    /// The kind of error.
    pub how: How,
}

/// In which way an object was found corrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Its members do not sum to its checksum.
    Checksum,
    /// A piece of a large value does not sum to the piece's checksum.
    Piece,
    /// A reference to it exists, but the object does not.
    Missing,
    /// It fits its checksum, and is not what a collection has in its place.
    Structure,
}

impl fmt::Display for Corrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.how {
            How::Checksum => "does not fit its checksum",
            How::Piece => "has a piece that does not fit its checksum",
            How::Missing => "is referred to and does not exist",
            How::Structure => "is not what its collection has in its place",
        };
        write!(f, "{} {} {how}", self.class, self.object)
    }
}

impl std::error::Error for Corrupted {}
