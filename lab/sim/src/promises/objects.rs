//! Blame is right down to the object.

use wire::ReplicaId;

use super::{About, Broken, Promise};
use crate::facts::Facts;
use crate::world::{Observed, What};

/// Compares the objects that are reported not to fit their checksums with those that were hit.
pub struct Objects;

/// The text of evidence about an object that was found damaged at rest (`server/crosscheck/src/evidence.rs`).
const DAMAGED: &str = " does not fit its checksum";

impl Promise for Objects {
    fn about(&self) -> About {
        About {
            name: "objects",
            section: "EDCC'16 section IV-B (passive corruption); docs/design.md, section 6 (evidence)",
            promise: "An object that is said not to fit its checksum is one whose bytes, checksum or id a \
                fault has changed, at that replica.",
            check: "The run knows which object each fault has hit, at rest or before its seal. Every evidence \
                record that finds an object damaged, by an entry check or a scrub, names one of them. (Errors \
                that a handler made spread and have valid checksums: what a vote finds different is compared \
                by `repairs` and `equal`.)",
        }
    }

    fn see(&mut self, observed: &Observed, facts: &Facts) -> Broken {
        let What::Evidence(record) = &observed.what else { return Ok(()) };
        let Some(blamed) = record.replica else { return Ok(()) };
        for object in record.objects.iter().chain([&record.outcome]).filter_map(|text| damaged(text)) {
            if !facts.was_hit(blamed - 1, object) {
                return Err(format!(
                    "replica {} says that object {object} of replica {blamed} is damaged, and no fault has \
                        hit it: {record:?}",
                    ReplicaId(observed.replica)
                ));
            }
        }
        Ok(())
    }
}

/// The object, as lock and id, that `text` calls damaged.
fn damaged(text: &str) -> Option<&str> {
    let (before, _) = text.split_once(DAMAGED)?;
    let (_, object) = before.rsplit_once("object ")?;
    Some(object)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_damaged_object_is_found_in_what_is_reported() {
        let reported = "self-reported: object 3:17.4 does not fit its checksum";
        assert_eq!(super::damaged(reported), Some("3:17.4"));
        assert_eq!(super::damaged("object 3:17.4 is missing"), None);
    }
}
