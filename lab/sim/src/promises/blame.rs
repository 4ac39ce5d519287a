//! The right replica is blamed.

use wire::ReplicaId;

use super::{About, Broken, Promise};
use crate::facts::Facts;
use crate::world::{Observed, What};

/// Evidence names only replicas that were corrupted.
pub struct Blame;

impl Promise for Blame {
    fn about(&self) -> About {
        About {
            name: "blame",
            section: "EDCC'16 section IV-B, Fig. 2 (FAILED)",
            promise: "Whoever is blamed was corrupted: a vote never names a correct replica.",
            check: "Every evidence record names a replica whose memory, computation or messages were \
                corrupted in this run. (Which object it names is compared by `repairs`.)",
        }
    }

    fn see(&mut self, observed: &Observed, facts: &Facts) -> Broken {
        let What::Evidence(record) = &observed.what else { return Ok(()) };
        match record.replica {
            // Bits that flip between two replicas are the fault of neither; they look like the sender's.
            Some(_) if record.stage == "message" && facts.corrupted.contains(&observed.replica) => Ok(()),
            Some(blamed) if !facts.corrupted.is_empty() && !facts.corrupted.contains(&(blamed - 1)) => {
                Err(format!(
                    "replica {} blames replica {blamed}, which was never corrupted: {record:?}",
                    ReplicaId(observed.replica)
                ))
            }
            _ => Ok(()),
        }
    }
}
