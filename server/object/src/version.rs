//! Objects of classes with several versions: how an object of an older version has the members of the newest one.
//!
//! In memory an object has the members of all versions. Those of its own version are in its checksum and in its packed
//! bytes. Those that came later have the values that `#[since]` gives them: a function of the others, computed again
//! whenever the others have changed, so that a handler that only reads finds them. They have a checksum of this replica
//! alone. Members that an object's version has no more are blank.
//!
//! What a request changes, it writes in the version of the behavior that its group acts as
//! ([`crate::request::act_as`]): that is equal on all replicas, and the first change behind the activation of a new
//! behavior makes the object one of the new version. No object changes its version without that, and none goes back.

use crate::acting;
use crate::checksum::Summer;
use crate::critical::Members;
use crate::header::VersionedHeader;
use crate::pack::Packer;
use wire::{Malformed, Put, Reader};

/// The checksum that the members of its version have now.
#[inline]
pub(crate) fn recompute<M: Members>(members: &M) -> u64 {
    let version = members.version();
    let tag = if M::HAS_OLDER { M::CLASS.tag_of(version) } else { M::CLASS.tag };
    let mut summer = Summer::new(tag, members.header().id());
    members.sum(version, &mut summer);
    summer.finish()
}

/// The members were written by a request: it makes the object one of the version of its time.
#[inline]
pub(crate) fn advance<M: Members>(members: &mut M) {
    if M::HAS_OLDER && members.version() < M::CLASS.version_as_of(acting::behavior()) {
        advance_to(members, M::CLASS.version_as_of(acting::behavior()));
    }
}

#[cold]
fn advance_to<M: Members>(members: &mut M, version: u16) {
    set_version(members, version);
    members.settle();
}

/// Whether the object is in the newest version: nothing of it follows from other members.
#[inline]
pub(crate) fn is_newest<M: Members>(members: &M) -> bool {
    !M::HAS_OLDER || members.version() == M::CLASS.version
}

/// Gives the members that do not belong to its version the values that they have in an object of that version.
#[inline]
pub(crate) fn settle<M: Members>(members: &mut M) {
    if M::HAS_OLDER {
        members.settle();
        let later = if is_newest(members) { 0 } else { sum_of_all(members) };
        members.versioned_mut().into_iter().for_each(|header| header.set_later(later));
    }
}

/// Whether the members that came behind its version are as [`settle`] left them.
#[inline]
pub(crate) fn later_fits<M: Members>(members: &M) -> bool {
    let fits = |header: &VersionedHeader| header.later() == sum_of_all(members);
    is_newest(members) || members.versioned().is_some_and(fits)
}

/// Puts the packed members of a version back, and makes the object one of that version; on an error nothing has
/// changed.
pub(crate) fn replace<M: Members>(members: &mut M, version: u16, body: &[u8]) -> Result<(), Malformed> {
    members.replace(version, &mut Reader::new(body))?;
    set_version(members, version);
    settle(members);
    Ok(())
}

/// Appends the members of an object, with their version, for [`replace_image`] at this replica.
pub(crate) fn pack_image<M: Members>(members: &M, out: &mut Vec<u8>) {
    if M::HAS_OLDER {
        out.put16(members.version());
    }
    members.pack(&mut Packer::new(out));
}

/// Puts an image back; on an error nothing has changed.
pub(crate) fn replace_image<M: Members>(members: &mut M, image: &[u8]) -> Result<(), Malformed> {
    if !M::HAS_OLDER {
        return replace(members, members.version(), image);
    }
    let mut reader = Reader::new(image);
    let version = reader.u16()?;
    replace(members, version, reader.rest())
}

/// The checksum of the members of the newest version.
fn sum_of_all<M: Members>(members: &M) -> u64 {
    let mut summer = Summer::new(M::CLASS.tag, members.header().id());
    members.sum(M::CLASS.version, &mut summer);
    summer.finish()
}

fn set_version<M: Members>(members: &mut M, version: u16) {
    members.versioned_mut().into_iter().for_each(|header| header.set_version(version));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Critical, critical};

    #[critical(version = 2)]
    struct Note {
        text: String,
        #[since(2)]
        shown: u64,
    }

    #[critical]
    impl Note {
        fn new(text: &str) -> Self {
            Self { text: text.to_owned(), shown: 0 }
        }
    }

    /// Without the version in it, the sum of an object is that of the same one in another version.
    #[test]
    fn the_version_is_part_of_the_checksum() {
        let [mut old, new] = ["a", "a"].map(|text| crate::genesis(0, || Note::new(text)));
        let version_of = |note: &Note| note.protected().read().version();
        let without_the_version = |note: &Note| {
            let members = note.protected().read();
            let mut summer = Summer::new(0, members.header().id());
            members.sum(members.version(), &mut summer);
            summer.finish()
        };
        let before = (recompute(old.protected().read()), without_the_version(&old));
        set_version(old.protected_mut().write(), 2);
        assert_eq!((version_of(&old), version_of(&new)), (2, 1));
        assert_eq!(without_the_version(&old), before.1, "nothing would show that the version is another one");
        assert_ne!(recompute(old.protected().read()), before.0);
    }

    /// The sum that replicas compare does not cover what came later; another one does.
    #[test]
    fn a_member_that_came_later_has_a_checksum_too() {
        let mut note = crate::genesis(0, || Note::new("a"));
        let sum = recompute(note.protected().read());
        assert!(later_fits(note.protected().read()));
        // A change in place, as a fault makes one: outside of a request, `write` would advance the version.
        let change = |members: &mut __NoteMembers| {
            members.shown = 1;
            set_version(members, 1);
        };
        change(note.protected_mut().write());
        assert_eq!(recompute(note.protected().read()), sum, "the object's own sum does not show it");
        assert!(!later_fits(note.protected().read()));
    }
}
