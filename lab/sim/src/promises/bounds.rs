//! Memory and queues stay within `limits`.

use crosscheck::stepped::Occupancy;
use wire::ReplicaId;

use super::{About, Broken, Promise};

/// Compares a replica's memory and queues with its own bounds, after each of its steps.
pub struct Bounds;

impl Promise for Bounds {
    fn about(&self) -> About {
        About {
            name: "bounds",
            section: "the `limits` of order, vote and crosscheck",
            promise: "Every queue, window and buffer of a replica has a named bound, and holds no more, \
                whatever its peers and clients do.",
            check: "After every step of a replica: what waits for a batch, for the leader, for execution \
                and for each peer, open and parked batches and their bytes, evidence, and what is \
                remembered of runs and repairs, each against its bound.",
        }
    }

    fn stepped(&mut self, replica: u8, loads: &[Occupancy]) -> Broken {
        match loads.iter().find(|load| load.holds > load.bound) {
            Some(Occupancy { what, holds, bound }) => {
                Err(format!("replica {} has {holds} {what}, and may have {bound}", ReplicaId(replica)))
            }
            None => Ok(()),
        }
    }
}
