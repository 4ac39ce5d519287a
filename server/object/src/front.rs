//! What `#[critical]` puts before the members of an object: a header, and with it the version where its class has
//! several. A file of its own, since a header knows nothing of classes.

use crate::acting;
use crate::class::Class;
use crate::header::{Header, VersionedHeader};
use crate::id::ObjectId;
use crate::request;

/// What stands before the members of an object.
pub trait Front: Sized {
    /// That of an object that the current request creates, of this class.
    fn new(class: &'static Class) -> Self;
    /// That of an object that is about to be replaced from packed bytes.
    fn blank(class: &'static Class, id: ObjectId) -> Self;
    /// Id and checksum.
    fn header(&self) -> &Header;
    /// The same, to change it.
    fn header_mut(&mut self) -> &mut Header;
}

impl Front for Header {
    #[inline]
    fn new(_class: &'static Class) -> Self {
        Header::unsealed(request::new_id())
    }
    fn blank(_class: &'static Class, id: ObjectId) -> Self {
        Header::blank(id)
    }
    #[inline]
    fn header(&self) -> &Header {
        self
    }
    #[inline]
    fn header_mut(&mut self) -> &mut Header {
        self
    }
}

impl Front for VersionedHeader {
    fn new(class: &'static Class) -> Self {
        let version = class.version_as_of(acting::behavior());
        VersionedHeader::of(Header::unsealed(request::new_id()), version)
    }
    fn blank(class: &'static Class, id: ObjectId) -> Self {
        VersionedHeader::of(Header::blank(id), class.version)
    }
    #[inline]
    fn header(&self) -> &Header {
        self.header()
    }
    #[inline]
    fn header_mut(&mut self) -> &mut Header {
        self.header_mut()
    }
}
