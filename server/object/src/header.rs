//! The 16 bytes that protection adds to an object: its id, and the checksum of its members when it was last sealed. An
//! object of a class with several versions has its version too.

use crate::checksum::UNSEALED;
use crate::id::ObjectId;

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
    /// The header of an object that was just created.
    pub(crate) fn unsealed(id: ObjectId) -> Self {
        Header { id, sum: UNSEALED }
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

/// What stands before the members of an object whose class has several versions.
#[derive(Debug)]
pub struct VersionedHeader {
    header: Header,
    /// The version in which the object was written last. Its tag is part of the checksum.
    version: u16,
    /// Checksum of the members that a newer version has, which are not part of the other one: this replica's own.
    later: u64,
}

impl VersionedHeader {
    /// The header of an object that is in this version.
    pub(crate) fn of(header: Header, version: u16) -> Self {
        VersionedHeader { header, version, later: 0 }
    }

    /// Id and checksum.
    #[inline]
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    #[inline]
    pub(crate) fn header_mut(&mut self) -> &mut Header {
        &mut self.header
    }

    /// The version in which the object was written last.
    #[inline]
    pub fn version(&self) -> u16 {
        self.version
    }

    pub(crate) fn set_version(&mut self, version: u16) {
        self.version = version;
    }

    pub(crate) fn later(&self) -> u64 {
        self.later
    }

    pub(crate) fn set_later(&mut self, sum: u64) {
        self.later = sum;
    }
}
