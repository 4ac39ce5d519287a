//! Overwrites corrupted objects with right versions, and says what was wrong with each: the end of a repair.

use object::{ObjectId, Region, RegionId};
use schedule::{Access, Lock, Turn};
use vote::{Content, Packed};

use crate::evidence;
use crate::explain::{self, Looks};
use crate::naming::{Named, Words};

/// The outcome of a repair, by object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Overwritten {
    /// The errors of the objects that are right now.
    pub(crate) repaired: Vec<String>,
    /// The objects that could not be replaced, each with the reason.
    pub(crate) failed: Vec<String>,
}

impl Overwritten {
    /// Whether nothing had to be done.
    pub(crate) fn is_empty(&self) -> bool {
        self.repaired.is_empty() && self.failed.is_empty()
    }

    /// All objects with what happened to them.
    pub(crate) fn into_notes(self) -> Vec<String> {
        [self.repaired, self.failed].concat()
    }
}

/// Overwrites corrupted objects with versions that f+1 replicas agree on. Returns the errors of each object; objects
/// that were only suspected and are correct are left out.
pub(crate) fn overwrite<R>(
    turn: &mut Turn<'_, R>,
    locks: &[&dyn Lock],
    objects: &[Packed],
    words: &Words,
) -> Overwritten {
    let mut overwritten = Overwritten::default();
    let looks = Looks::new();
    turn.visit_regions(locks, |held, access| {
        let Access::Exclusive(region) = access else { return };
        let mut replaced = Vec::new();
        for object in objects.iter().filter(|object| object.region_id == held) {
            let intact = region.check(object.id) == object::Health::Intact;
            let before = region.pack(object.id);
            let done = match &object.content {
                Content::Present(bytes) if intact && before.as_deref() == Some(&**bytes) => continue,
                Content::Absent if before.is_none() => continue,
                Content::Present(bytes) if object.id.is_none() => region.load_all(bytes),
                Content::Present(bytes) => region.replace(object.id, Some(bytes)),
                Content::Absent => region.replace(object.id, None),
                Content::Damaged => continue,
            };
            match done {
                Ok(()) => replaced.push((object, before)),
                Err(error) => {
                    overwritten
                        .failed
                        .push(format!("object {held}:{} could not be replaced: {error}", object.id));
                }
            }
        }
        // Only now: an explanation may look at an object that was wrong too.
        let region: &dyn Region = region;
        let notes = replaced
            .iter()
            .map(|(object, before)| describe(region, held, (object, before.as_deref()), words, &looks));
        overwritten.repaired.extend(notes);
    });
    overwritten
}

/// The wrong bits of each field, and what the service says of them. The name comes from the right bytes.
fn describe(
    region: &dyn Region,
    region_id: RegionId,
    (object, before): (&Packed, Option<&[u8]>),
    words: &Words,
    looks: &Looks,
) -> String {
    let id = object.id;
    if id.is_none() {
        return format!("region {region_id}: replaced as a whole");
    }
    let called = |packed: &[u8]| called(region, (region_id, id), packed, words);
    match (&object.content, before) {
        (Content::Present(after), None) => format!("{}: it was missing", called(after)),
        (Content::Absent, Some(before)) => format!("{}: it should not exist", called(before)),
        (Content::Absent, None) | (Content::Damaged, _) => format!("object {region_id}:{id}"),
        (Content::Present(after), Some(before)) => match region.difference(before, after) {
            Ok(differences) if differences.is_empty() => {
                format!("{}: only its checksum was wrong", called(after))
            }
            Ok(differences) => {
                let members: Vec<String> = differences.iter().map(evidence::difference).collect();
                let text = format!("{}, {}", called(after), members.join(", "));
                match explain::explained(region, id, (before, after), looks, words.explain) {
                    Some(explanation) => format!("{text} ({explanation})"),
                    None => text,
                }
            }
            Err(_) => format!("{}: it was of another class", called(after)),
        },
    }
}

fn called(
    region: &dyn Region,
    (region_id, id): (RegionId, ObjectId),
    packed: &[u8],
    words: &Words,
) -> String {
    match Named::of(region, region_id, id, packed, &words.name_of) {
        Some(named) => named.to_string(),
        None => format!("object {region_id}:{id}"),
    }
}
