//! In verified mode: replies leave when their batch is stable.

use std::collections::{BTreeMap, BTreeSet};

use verify::StateToken;
use wire::ReplicaId;

use super::{About, Broken, Promise};
use crate::facts::Facts;
use crate::world::{Observed, What};

/// Versions that are remembered.
const KEPT: usize = 200_000;

/// The replicas that came to a version, and those that recorded it; the last stable batch of each replica.
#[derive(Default)]
pub struct Released {
    ran: BTreeMap<(u64, StateToken), BTreeSet<u8>>,
    recorded: BTreeMap<(u64, StateToken), BTreeSet<u8>>,
    stable: BTreeMap<u8, u64>,
    /// Whether anything was scheduled before it was agreed on: else replies leave by votes.
    is_verified: bool,
}

impl Promise for Released {
    fn about(&self) -> About {
        About {
            name: "released",
            section: "Eve (OSDI'12) sections 4.1 and 6.1; server/verify/src/verifier/tally.rs",
            promise: "In mode R0GV a reply leaves only when its batch is stable, and a batch is stable only when f+1 \
                replicas have come to the same state after it and f+1 verifiers have recorded that. Of two \
                replicas both have to, unless one goes on alone, and one verifier records.",
            check: "When a batch becomes stable at a replica, f+1 replicas, itself among them, have ended it with that \
                token, and f+1 verifiers have recorded exactly the version that was agreed on. When a reply passes \
                the gate, its batch is the one that has just become stable there; that of a read which took no batch \
                was read after a batch that is stable there.",
        }
    }

    fn see(&mut self, observed: &Observed, facts: &Facts) -> Broken {
        let replica = observed.replica;
        match &observed.what {
            What::Speculated { .. } => self.is_verified = true,
            What::Folded { version, .. } => record(&mut self.ran, (version.number, version.token), replica),
            What::Recorded { version, .. } => {
                record(&mut self.recorded, (version.number, version.token), replica)
            }
            What::Installed { version, .. } => {
                self.stable.insert(replica, version.number);
            }
            What::Stable { version, is_agreed } => {
                self.stable.insert(replica, version.number);
                let key = (version.number, version.token);
                let count = |of: &BTreeMap<_, BTreeSet<u8>>| of.get(&key).map_or(0, BTreeSet::len);
                let (ran, recorded) = (count(&self.ran), count(&self.recorded));
                let is_own = self.ran.get(&key).is_some_and(|ran| ran.contains(&replica));
                let is_recorded = !is_agreed || recorded >= facts.must_record();
                if !is_own || ran < facts.must_agree(version.number) || !is_recorded {
                    return Err(format!(
                        "batch {} is stable at replica {}; {ran} replicas have come to that state, and {recorded} \
                            verifiers have recorded it",
                        version.number,
                        ReplicaId(replica)
                    ));
                }
            }
            What::Released { place, .. } if self.is_verified => {
                let stable = self.stable.get(&replica).copied().unwrap_or(0);
                if place.batch != stable {
                    return Err(format!(
                        "the reply at {place} left replica {}, where batch {stable} is the last stable one",
                        ReplicaId(replica)
                    ));
                }
            }
            What::ReadHere { batch, .. } if self.is_verified => {
                let stable = self.stable.get(&replica).copied().unwrap_or(0);
                if *batch > stable {
                    return Err(format!(
                        "a reply left replica {} that was read after batch {batch}, where batch {stable} is the last \
                            stable one",
                        ReplicaId(replica)
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn record(of: &mut BTreeMap<(u64, StateToken), BTreeSet<u8>>, key: (u64, StateToken), replica: u8) {
    of.entry(key).or_default().insert(replica);
    if of.len() > KEPT {
        of.pop_first();
    }
}
