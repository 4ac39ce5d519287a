//! The members of one object behind the check: the only way to them, and it always checks.

use crate::any::AnyObject;
use crate::class::Class;
use crate::corrupted::{Corrupted, How};
use crate::critical::Members;
use crate::exempt;
use crate::header::Header;
use crate::ledger::Opened;
use crate::member::{Child, ChildMut};
use crate::pack::Packer;
use crate::place::StorePlace;
use crate::request;
use crate::version::{self, recompute};
use std::fmt;
use std::ops::Range;
use wire::Malformed;

/// Holds the members of a critical object, `M`, which no code outside of this crate can reach without [`read`] or
/// [`write`].
///
/// [`read`]: Protected::read
/// [`write`]: Protected::write
pub struct Protected<M, R> {
    members: M,
    redundancy: R,
}

impl<M: Members, R: Redundancy<M>> Protected<M, R> {
    /// A new object.
    pub fn new(members: M) -> Self {
        Protected { members, redundancy: R::default() }
    }

    /// Checks the object, if this request has not done so, notes it, and lets its members be read. A failed check
    /// leaves the request by unwinding with [`Corrupted`].
    #[inline]
    pub fn read(&self) -> &M {
        if !request::known(self.members.header()) {
            self.enter(None);
        }
        self.redundancy.repaired().unwrap_or(&self.members)
    }

    /// Checks the object, if this request has not done so, and lets its members be changed: its checksum is renewed
    /// when the request ends.
    #[inline]
    pub fn write(&mut self) -> &mut M {
        self.adopt();
        if !request::known_open(self.members.header_mut(), Opened::Whole) {
            self.open();
        }
        version::advance(&mut self.members);
        &mut self.members
    }

    /// Checks the object, if this request has not done so, for a method that passes through it: such a method changes
    /// objects in its stores and none of its own members, so its checksum stands. Called by woven code only, which
    /// makes a view of the members that admits nothing else.
    #[inline]
    pub fn through(&mut self) -> &mut M {
        if !request::known(self.header()) {
            self.enter(None);
        }
        // The check may have repaired it.
        self.adopt();
        &mut self.members
    }

    /// The members for a change of the hot ones only: they alone are kept as they were, and summed again.
    #[inline]
    pub fn write_hot(&mut self) -> &mut M {
        self.adopt();
        if !request::known_open(self.members.header_mut(), Opened::Hot) {
            self.open_hot();
        }
        version::advance(&mut self.members);
        &mut self.members
    }

    /// Checks the object and takes it apart.
    pub fn take(mut self) -> M {
        self.write();
        self.members
    }

    /// First entry of a request, or an entry after those of several other objects.
    #[inline(never)]
    pub(crate) fn enter(&self, place: Option<StorePlace>) {
        if exempt::is_exempt(M::CLASS) {
            return;
        }
        let is_entered = request::enter(self.header(), place, || self.fits());
        // The members of a copy that was repaired on the spot fit: that is how they were made.
        let is_repaired = || self.repair() && request::enter(self.header(), place, || true);
        if !(is_entered || is_repaired()) {
            let object = self.header().id();
            request::fail(Corrupted { object, class: M::CLASS.name, how: How::Checksum });
        }
    }

    /// Enters for a change, without opening yet.
    pub(crate) fn enter_mut(&mut self, place: Option<StorePlace>) {
        self.enter(place);
        self.adopt();
    }

    #[inline(never)]
    fn open(&mut self) {
        if exempt::is_exempt(M::CLASS) {
            self.adopt();
            return self.members.header_mut().unseal();
        }
        self.open_as(None);
    }

    #[inline(never)]
    fn open_hot(&mut self) {
        // The sum of an object that has none yet cannot be continued, and not that of one whose other members follow.
        let is_possible = request::can_open_hot(self.members.header())
            && !exempt::is_exempt(M::CLASS)
            && version::is_newest(&self.members);
        if is_possible { self.open_as(Some(M::hot)) } else { self.open() }
    }

    /// Opens the hot members, or all of them.
    #[inline]
    fn open_as(&mut self, hot: Option<fn(&M) -> u64>) {
        if request::checks() {
            self.enter(None);
        }
        self.adopt();
        let words = hot.map(|hot| hot(&self.members));
        let is_sealed_later = request::open(self.members.header(), words, |images| {
            version::pack_image(&self.members, images);
        });
        if !is_sealed_later {
            self.members.header_mut().unseal();
        }
    }

    /// Whether the members sum to the stored checksum.
    #[inline]
    fn fits(&self) -> bool {
        recompute(&self.members) == self.members.header().sum() && version::later_fits(&self.members)
    }

    #[cold]
    fn repair(&self) -> bool {
        let repaired = self.redundancy.repair();
        if repaired {
            request::count_local_repair();
        }
        repaired
    }

    /// Moves members that a reader repaired into their place.
    #[inline]
    fn adopt(&mut self) {
        if let Some(repaired) = self.redundancy.adopt() {
            self.members = repaired;
        }
    }

    pub(crate) fn header(&self) -> &Header {
        self.redundancy.repaired().unwrap_or(&self.members).header()
    }

    pub(crate) fn header_mut(&mut self) -> &mut Header {
        self.adopt();
        self.members.header_mut()
    }
}

impl<M: Members, R: Redundancy<M>> AnyObject for Protected<M, R> {
    fn class(&self) -> &'static Class {
        M::CLASS
    }
    fn version(&self) -> u16 {
        self.redundancy.repaired().unwrap_or(&self.members).version()
    }
    fn header(&self) -> &Header {
        Protected::header(self)
    }
    fn header_mut(&mut self) -> &mut Header {
        Protected::header_mut(self)
    }
    fn recompute(&self) -> u64 {
        recompute(self.redundancy.repaired().unwrap_or(&self.members))
    }
    fn resum(&mut self) -> u64 {
        self.adopt();
        version::settle(&mut self.members);
        recompute(&self.members)
    }
    fn later_fits(&self) -> bool {
        version::later_fits(self.redundancy.repaired().unwrap_or(&self.members))
    }
    fn is_flat(&self) -> bool {
        M::IS_FLAT
    }
    fn extent(&self) -> Range<usize> {
        let start = std::ptr::from_ref(self).addr();
        start..start + size_of::<Self>()
    }
    fn hot(&self) -> u64 {
        self.redundancy.repaired().unwrap_or(&self.members).hot()
    }
    fn set_hot(&mut self, words: u64) {
        self.adopt();
        self.members.set_hot(words);
    }
    fn is_intact(&self) -> bool {
        self.members.is_intact()
    }
    fn pack_body(&self, out: &mut Vec<u8>) {
        self.redundancy.repaired().unwrap_or(&self.members).pack(&mut Packer::new(out));
    }
    fn replace_body(&mut self, version: u16, body: &[u8]) -> Result<(), Malformed> {
        self.adopt();
        version::replace(&mut self.members, version, body)
    }
    fn pack_image(&self, out: &mut Vec<u8>) {
        version::pack_image(self.redundancy.repaired().unwrap_or(&self.members), out);
    }
    fn replace_image(&mut self, image: &[u8]) -> Result<(), Malformed> {
        self.adopt();
        version::replace_image(&mut self.members, image)
    }
    fn sealed(&mut self) {
        self.redundancy.keep(&self.members);
    }
    fn children<'a>(&'a self, visit: &mut dyn FnMut(u8, Child<'a>)) {
        self.members.children(visit);
    }
    fn children_mut<'a>(&'a mut self, visit: &mut dyn FnMut(u8, ChildMut<'a>)) {
        self.adopt();
        self.members.children_mut(visit);
    }
    #[cfg(feature = "inject")]
    fn damage(&mut self, member: usize, damage: crate::inject::Damage) -> bool {
        self.members.damage(member, damage)
    }
    #[cfg(feature = "inject")]
    fn damage_version(&mut self, version: u16) -> bool {
        self.members.versioned_mut().map(|header| header.set_version(version)).is_some()
    }
}

impl<M: Members, R: Redundancy<M>> fmt::Debug for Protected<M, R> {
    /// Prints the name only: members are reached through methods, also for printing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", M::CLASS.short_name(), self.header().id())
    }
}

/// A source from which an object can be repaired without the other replicas.
pub trait Redundancy<M: Members>: Default {
    /// Renews the copy; called after each seal.
    fn keep(&mut self, members: &M);
    /// Tries to repair; readers may do so at the same time. Afterwards [`Redundancy::repaired`] has the members.
    fn repair(&self) -> bool;
    /// Members that a reader repaired and that no writer has moved into their place yet.
    fn repaired(&self) -> Option<&M>;
    /// The same, to move them there.
    fn adopt(&mut self) -> Option<M>;
}

/// No copy: a damaged object waits for the other replicas.
#[derive(Debug, Default)]
pub struct NoCopy;

impl<M: Members> Redundancy<M> for NoCopy {
    #[inline]
    fn keep(&mut self, _members: &M) {}
    #[inline]
    fn repair(&self) -> bool {
        false
    }
    #[inline]
    fn repaired(&self) -> Option<&M> {
        None
    }
    #[inline]
    fn adopt(&mut self) -> Option<M> {
        None
    }
}
