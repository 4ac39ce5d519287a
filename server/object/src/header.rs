//! The 16 bytes that protection adds to an object: its id, and the checksum of its members when it was last sealed.

use crate::checksum::UNSEALED;
use crate::id::ObjectId;
use crate::request;

/// Hidden member of every critical object. Only this crate can read or change it.
#[derive(Debug)]
pub struct Header {
    id: ObjectId,
    sum: u64,
}

const _: () = assert!(size_of::<Header>() == 16, "the budget is 16 bytes per object");

/// Sum of an object without contents.
const BLANK: u64 = 1;

impl Header {
    /// The header of an object that the current request creates.
    #[allow(clippy::new_without_default)] // it draws a new id: nothing a default should do
    pub fn new() -> Self {
        Header { id: request::new_id(), sum: UNSEALED }
    }

    /// The header of an object that is about to be replaced from packed bytes. Until then it fails every check.
    pub fn blank(id: ObjectId) -> Self {
        Header { id, sum: BLANK }
    }

    /// Name of the object, equal on all replicas.
    #[inline]
    pub fn id(&self) -> ObjectId {
        self.id
    }

    #[inline]
    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    #[inline]
    pub(crate) fn is_sealed(&self) -> bool {
        self.sum != UNSEALED
    }

    #[inline]
    pub(crate) fn seal(&mut self, sum: u64) {
        self.sum = sum;
    }

    #[inline]
    pub(crate) fn unseal(&mut self) {
        self.sum = UNSEALED;
    }

    pub(crate) fn rename(&mut self, id: ObjectId) {
        self.id = id;
    }

    /// The address of the header: distinguishes an object from another one with the same (damaged) id.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
