//! Repaired objects equal the majority's.

use std::collections::BTreeMap;

use vote::{Content, Packed, Place};

use super::{About, Broken, Promise};
use crate::facts::Facts;
use crate::world::{Observed, What};

/// Turns whose packed objects are remembered.
const KEPT: usize = 256;

/// The objects that each replica packed at the turn of each RECOVER.
#[derive(Default)]
pub struct PackedRepairs {
    packed: BTreeMap<Place, BTreeMap<u8, Vec<Packed>>>,
}

impl Promise for PackedRepairs {
    fn about(&self) -> About {
        About {
            name: "repairs",
            section: "EDCC'16 section IV-C (RECOVER and REPAIR)",
            promise: "An object is overwritten only with what f+1 replicas have at that position.",
            check: "What is about to be installed is compared, byte by byte, with what the other replicas \
                packed at the same turn: f+1 of them have exactly that.",
        }
    }

    fn see(&mut self, observed: &Observed, facts: &Facts) -> Broken {
        match &observed.what {
            What::Packed { turn, objects } => {
                self.packed.entry(*turn).or_default().insert(observed.replica, objects.clone());
                if self.packed.len() > KEPT {
                    self.packed.pop_first();
                }
                Ok(())
            }
            What::Installing { turn, objects } => {
                let Some(packed) = self.packed.get(turn) else {
                    return Err(format!("objects are installed at {turn}, and nobody packed any"));
                };
                let has = |object: &Packed, of: &[Packed]| {
                    of.iter().any(|other| other == object && other.content != Content::Damaged)
                };
                let alike = |object: &Packed| packed.values().filter(|of| has(object, of)).count();
                match objects.iter().find(|object| alike(object) <= facts.faults()) {
                    Some(object) => Err(format!(
                        "object {}:{} is overwritten at {turn} with what {} replicas have",
                        object.region_id,
                        object.id,
                        alike(object)
                    )),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
