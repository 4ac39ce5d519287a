//! What a service sees of an object that was repaired, so that evidence can say what was wrong in its users' words.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use object::{Health, Members, ObjectId, Region};

use crate::limits;

/// An object that has just been repaired, for [`Service::explain`](crate::Service::explain).
pub struct RepairedObject<'a> {
    /// Its id.
    pub id: ObjectId,
    /// As it was: its members may be wrong in any way.
    pub wrong: Members<'a>,
    /// As it is now.
    pub right: Members<'a>,
    region: &'a dyn Region,
    looks: &'a Looks,
}

impl RepairedObject<'_> {
    /// The root of the region in which it is.
    pub fn root(&self) -> ObjectId {
        self.region.root()
    }

    /// Shows another object behind the same lock. None if there is none of that id, if it does not fit its checksum, or
    /// if the explanations of this repair have looked at as many as they may ([`limits::EXPLAINING_LOOKS`]).
    pub fn look_at<R>(&self, id: ObjectId, see: impl FnOnce(&Members<'_>) -> R) -> Option<R> {
        if !self.looks.may_look() || self.region.check(id) != Health::Intact {
            return None;
        }
        let packed = self.region.pack(id)?;
        self.looks.have_seen(packed.len());
        Some(see(&self.region.members(&packed).ok()?))
    }
}

/// How much the explanations after one repair may still look at.
pub(crate) struct Looks {
    explained: Cell<usize>,
    objects: Cell<usize>,
    bytes: Cell<usize>,
}

impl Looks {
    /// For one repair.
    pub fn new() -> Self {
        Looks {
            explained: Cell::new(limits::EXPLAINED_OBJECTS),
            objects: Cell::new(limits::EXPLAINING_LOOKS),
            bytes: Cell::new(limits::EXPLAINING_BYTES),
        }
    }

    fn may_look(&self) -> bool {
        self.bytes.get() > 0 && take_one(&self.objects)
    }

    fn have_seen(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
    }
}

fn take_one(left: &Cell<usize>) -> bool {
    let before = left.get();
    left.set(before.saturating_sub(1));
    before > 0
}

/// The service's explanation of a repair, in one line. Both versions are packed objects of one class.
pub(crate) fn explained(
    region: &dyn Region,
    id: ObjectId,
    (wrong, right): (&[u8], &[u8]),
    looks: &Looks,
    explain: fn(&RepairedObject<'_>) -> Option<String>,
) -> Option<String> {
    if !take_one(&looks.explained) {
        return None;
    }
    // The rest of the state may be corrupted too: whatever comes of that is this record's loss only.
    let text = catch_unwind(AssertUnwindSafe(|| {
        let (wrong, right) = (region.members(wrong).ok()?, region.members(right).ok()?);
        explain(&RepairedObject { id, wrong, right, region, looks })
    }));
    let text = text.ok().flatten()?;
    let is_long = text.chars().nth(limits::EXPLANATION_CHARACTERS).is_some();
    let kept = text.chars().take(limits::EXPLANATION_CHARACTERS);
    let mut line: String = kept.map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    line.push_str(if is_long { " ..." } else { "" });
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanations_look_at_so_many_bytes_in_all() {
        let looks = Looks::new();
        looks.have_seen(limits::EXPLAINING_BYTES - 1);
        assert!(looks.may_look());
        looks.have_seen(2);
        assert!(!looks.may_look());
    }
}
