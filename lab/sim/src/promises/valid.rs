//! In verified mode: what is stable came from a replica that no fault has hit.

use std::collections::{BTreeMap, BTreeSet};

use verify::StateToken;
use wire::ReplicaId;

use super::{About, Broken, Promise};
use crate::facts::Facts;
use crate::world::{Observed, What};

/// Versions that are remembered.
const KEPT: usize = 100_000;

/// The healthy replicas that came to a version.
#[derive(Default)]
pub struct Valid {
    healthy: BTreeMap<(u64, StateToken), BTreeSet<u8>>,
}

impl Promise for Valid {
    fn about(&self) -> About {
        About {
            name: "valid",
            section: "Eve (OSDI'12) section 6.3, theorem 1",
            promise: "In mode R0GV a state becomes stable only if a replica that no fault has hit has come to it.",
            check: "When a batch becomes stable, one of the replicas that ended it with that token is none that faults \
                may have hit since all were equal.",
        }
    }

    fn see(&mut self, observed: &Observed, facts: &Facts) -> Broken {
        // Where any replica may be hit, there is none to compare with. A batch that ends then may become stable when
        // all is healed: what each of them came to is recorded.
        let all_are_hit = facts.victims.len() == usize::from(facts.replicas);
        match &observed.what {
            What::Folded { version, .. } if all_are_hit || !facts.victims.contains(&observed.replica) => {
                self.healthy.entry((version.number, version.token)).or_default().insert(observed.replica);
                if self.healthy.len() > KEPT {
                    self.healthy.pop_first();
                }
            }
            What::Stable { version, .. } if !all_are_hit => {
                let oldest = self.healthy.first_key_value().map_or(u64::MAX, |((number, _), _)| *number);
                let is_known = self.healthy.contains_key(&(version.number, version.token));
                if !is_known && version.number > oldest {
                    return Err(format!(
                        "batch {} is stable at replica {}, and no replica that no fault has hit came to that state",
                        version.number,
                        ReplicaId(observed.replica)
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
