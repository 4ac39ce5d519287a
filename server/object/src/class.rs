//! What is known of a critical type without its members: its name, and the versions in which its objects were written.
//!
//! A class has one version until an author changes its members. Then it has two, and so on; each has the number of the
//! behavior since which objects are written in it. An object keeps the version in which it was written last: the tag of
//! that version begins its checksum and its packed bytes, and only the members of that version are in them. So a build
//! that knows a newer version sums and packs an object of an older one to the same bytes as a build that does not.

use crate::shape::Shape;
use crate::type_name::{TypeName, fnv};

/// A critical type: its name, and the names of its tracked members in the order in which they are summed and packed.
#[derive(Debug)]
pub struct Class {
    /// Path of the type.
    pub name: &'static str,
    /// Names of the tracked members.
    pub members: &'static [&'static str],
    /// Stands for the name and the version in checksums and packed bytes. It covers the member names too, so that two
    /// builds whose types differ do not agree by accident.
    pub tag: u32,
    /// Describes the members: their names and types.
    pub shape: fn(&mut Shape),
    /// The version that these members are of.
    pub version: u16,
    /// The versions before, the oldest first.
    pub older: &'static [Class],
    /// Says of a packed object that it is in none of these versions.
    pub unknown: &'static str,
}

impl Class {
    /// The version of a class that never changed. It has no part in the tag.
    pub const FIRST: u16 = 1;

    /// A class; written by `#[critical]`.
    pub const fn new(name: &'static str, members: &'static [&'static str], shape: fn(&mut Shape)) -> Self {
        let mut tag = fnv(0x811C_9DC5, name.as_bytes());
        let mut index = 0;
        while index < members.len() {
            tag = fnv(fnv(tag, b"."), members[index].as_bytes());
            index += 1;
        }
        Class { name, members, tag, shape, version: Class::FIRST, older: &[], unknown: name }
    }

    /// The class of a type of this crate for one choice of its type parameters: `name` is its name with these.
    pub(crate) const fn of_instance(
        name: &'static TypeName,
        members: &'static [&'static str],
        shape: fn(&mut Shape),
        unknown: &'static str,
    ) -> Self {
        let class = Class::new(name.as_str(), members, shape);
        Class { tag: fnv(class.tag, &name.hash().to_le_bytes()), unknown, ..class }
    }

    /// The same in this version. A member of another type has the name that it had, so the number is in the tag.
    pub const fn in_version(self, version: u16) -> Self {
        let tag = if version == Class::FIRST { self.tag } else { tag_in(self.tag, version) };
        Class { tag, version, ..self }
    }

    /// The same with the versions before it, the oldest first, and with what is said of a version that is none of them.
    ///
    /// # Panics
    /// If two have the same tag; when the program is compiled.
    pub const fn with_older(self, older: &'static [Class], unknown: &'static str) -> Self {
        let mut index = 0;
        while index < older.len() {
            let mut next = index + 1;
            while next < older.len() {
                assert!(older[index].tag != older[next].tag, "{}", ONE_TAG);
                next += 1;
            }
            assert!(older[index].tag != self.tag, "{}", ONE_TAG);
            index += 1;
        }
        Class { older, unknown, ..self }
    }

    /// The name without its path.
    pub fn short_name(&self) -> &'static str {
        short_name(self.name)
    }

    /// All versions, the newest first.
    pub fn versions(&self) -> impl Iterator<Item = &Class> {
        std::iter::once(self).chain(self.older.iter().rev())
    }

    /// The version in which objects are written while the group acts as `behavior`.
    pub(crate) fn version_as_of(&self, behavior: u16) -> u16 {
        let found = self.versions().map(|class| class.version).find(|version| *version <= behavior);
        found.unwrap_or_else(|| self.older.first().map_or(self.version, |first| first.version))
    }

    /// The class in the version that has this tag.
    pub(crate) fn of_tag(&self, tag: u32) -> Option<&Class> {
        self.versions().find(|class| class.tag == tag)
    }

    /// The class in this version; the newest one, if a fault has changed the number.
    #[cfg(feature = "inject")]
    pub(crate) fn of_version(&self, version: u16) -> &Class {
        self.versions().find(|class| class.version == version).unwrap_or(self)
    }

    /// The tag of a version. A version that does not exist has one that is no other's.
    pub(crate) fn tag_of(&self, version: u16) -> u32 {
        let found = self.versions().find(|class| class.version == version);
        found.map_or_else(|| tag_in(!self.tag, version), |class| class.tag)
    }
}

/// The name of a class without its path.
pub fn short_name(class: &str) -> &str {
    class.rsplit("::").next().unwrap_or(class)
}

const ONE_TAG: &str = "two versions of this class have the same tag: give a member of one another name";

const fn tag_in(tag: u32, version: u16) -> u32 {
    fnv(fnv(tag, b"/"), &version.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_equal_name_and_other_members_differ() {
        let (one, two) = (Class::new("a::B", &["x", "y"], |_| ()), Class::new("a::B", &["y", "x"], |_| ()));
        assert_ne!(one.tag, two.tag);
        assert_eq!(one.short_name(), "B");
    }

    #[test]
    fn a_version_is_that_of_the_last_change_before_a_behavior() {
        static OLDER: [Class; 2] = [
            Class::new("a::B", &["x"], |_| ()).in_version(2),
            Class::new("a::B", &["x"], |_| ()).in_version(4),
        ];
        let class = Class::new("a::B", &["x"], |_| ()).in_version(7).with_older(&OLDER, "unknown");
        let as_of = |behavior| class.version_as_of(behavior);
        assert_eq!([0, 1, 2, 3, 4, 6, 7, u16::MAX].map(as_of), [2, 2, 2, 2, 4, 4, 7, 7]);
        let tags: Vec<u32> = (0..9).map(|version| class.tag_of(version)).collect();
        assert!((0..9).all(|at| !tags[at + 1..].contains(&tags[at])), "{tags:?}");
        let version_of = |tag| class.of_tag(tag).map(|class| class.version);
        assert_eq!([2, 4, 7, 3].map(|version| version_of(tags[version])), [Some(2), Some(4), Some(7), None]);
        assert_eq!(
            Class::new("a::B", &["x"], |_| ()).in_version(1).tag,
            Class::new("a::B", &["x"], |_| ()).tag
        );
    }
}
