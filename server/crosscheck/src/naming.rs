//! Names of objects for evidence: the class from the service's author, and the name from the service itself.

use std::collections::VecDeque;
use std::fmt;

use object::{Members, ObjectId, RegionId};
use schedule::{Access, Lock, Turn};
use vote::{Content, Packed};

use crate::explain::RepairedObject;
use crate::limits;

/// The function by which a service names an object ([`crate::Service::name_of`]).
pub(crate) type NameOf = dyn Fn(&Members<'_>) -> Option<String>;

/// What a service can say of its objects.
pub(crate) struct Words {
    /// [`crate::Service::name_of`].
    pub name_of: fn(&Members<'_>) -> Option<String>,
    /// [`crate::Service::explain`].
    pub explain: fn(&RepairedObject<'_>) -> Option<String>,
}

/// One object with its class, and the service's name for it if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub region_id: RegionId,
    pub id: ObjectId,
    /// The class, without its path.
    pub class: &'static str,
    pub name: Option<String>,
}

impl Named {
    /// Names an object by its right bytes; `None` if they belong to no class of the region.
    pub fn of(
        region: &dyn object::Region,
        region_id: RegionId,
        id: ObjectId,
        packed: &[u8],
        name_of: &NameOf,
    ) -> Option<Self> {
        let members = region.members(packed).ok()?;
        Some(Named { region_id, id, class: members.class, name: name_of(&members) })
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Named { region_id, id, class, name } = self;
        match name {
            Some(name) => write!(f, "{name} ({class}, object {region_id}:{id})"),
            None => write!(f, "{class} (object {region_id}:{id})"),
        }
    }
}

/// Names of packed objects, while their regions are held.
pub(crate) fn of_packed<R>(
    turn: &mut Turn<'_, R>,
    locks: &[&dyn Lock],
    objects: &[Packed],
    name_of: &NameOf,
) -> Vec<Named> {
    let mut all = Vec::new();
    turn.visit_regions(locks, |held, access| {
        for object in objects.iter().filter(|object| object.region_id == held && !object.id.is_none()) {
            if let Content::Present(bytes) = &object.content {
                all.extend(Named::of(region_of(&access), held, object.id, bytes, name_of));
            }
        }
    });
    all
}

/// The objects behind a lock, whatever the access to it.
pub(crate) fn region_of<'a>(access: &'a Access<'_>) -> &'a dyn object::Region {
    match access {
        Access::Exclusive(region) => &**region,
        Access::Shared(region) => *region,
    }
}

/// The names of the objects in the last records. They come from the bytes of a peer or of this replica, and are only
/// shown to people.
#[derive(Debug, Default)]
pub(crate) struct Names(VecDeque<Named>);

impl Names {
    /// Stores names, and returns whether any of them is new. A class alone does not replace a name.
    pub fn learn(&mut self, names: Vec<Named>) -> bool {
        let mut is_new = false;
        for new in names {
            match self.0.iter_mut().find(|old| (old.region_id, old.id) == (new.region_id, new.id)) {
                Some(old) if *old == new || (new.name.is_none() && old.class == new.class) => continue,
                Some(old) => *old = new,
                None => self.0.push_back(new),
            }
            is_new = true;
        }
        while self.0.len() > limits::NAMES_KEPT {
            self.0.pop_front();
        }
        is_new
    }

    /// The text with the names of the objects that appear in it as `object REGION_ID:ID`.
    pub fn put_into(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("object ") {
            let (before, from) = rest.split_at(start);
            out.push_str(before);
            let is_named = before.ends_with(['(', ',']) || before.ends_with(", ");
            let named = self.0.iter().filter(|_| !is_named).find(|named| named.is_meant_at(from));
            let used = match named {
                Some(named) => {
                    out.push_str(&named.to_string());
                    named.plain().len()
                }
                None => {
                    out.push_str("object ");
                    "object ".len()
                }
            };
            rest = &from[used..];
        }
        out.push_str(rest);
        out
    }
}

impl Named {
    fn plain(&self) -> String {
        format!("object {}:{}", self.region_id, self.id)
    }

    /// Whether `text` begins with this object, and not with one whose number only has the same first digits.
    fn is_meant_at(&self, text: &str) -> bool {
        text.strip_prefix(&self.plain())
            .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(counter: u16, name: Option<&str>) -> Named {
        Named { region_id: 1, id: ObjectId::new(5, counter), class: "Account", name: name.map(str::to_owned) }
    }

    #[test]
    fn a_text_gets_the_names_that_are_known() {
        let mut names = Names::default();
        names.learn(vec![named(1, None), named(2, Some("account \"bob\""))]);
        let text = "object 1:5.1: checksum; object 1:5.2 and object 1:5.10, object 2:5.1";
        let reported = "Account (object 1:5.1): checksum; account \"bob\" (Account, object 1:5.2) and object 1:5.10, \
                    object 2:5.1";
        assert_eq!(names.put_into(text), reported);
        assert_eq!(names.put_into(reported), reported, "once");
        assert_eq!(names.put_into("reply"), "reply");
    }

    #[test]
    fn a_name_is_not_lost_to_a_class_and_old_names_go() {
        let mut names = Names::default();
        assert!(names.learn(vec![named(1, Some("alice"))]));
        assert!(!names.learn(vec![named(1, None)]));
        assert!(!names.learn(vec![named(1, Some("alice"))]));
        assert_eq!(names.put_into("object 1:5.1"), "alice (Account, object 1:5.1)");
        let more = (2..).take(limits::NAMES_KEPT).map(|counter| named(counter, None)).collect();
        names.learn(more);
        assert_eq!(names.put_into("object 1:5.1"), "object 1:5.1");
        assert_eq!(names.0.len(), limits::NAMES_KEPT);
    }
}
