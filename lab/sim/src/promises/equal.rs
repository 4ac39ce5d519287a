//! Healed replicas are bit-identical.

use wire::ReplicaId;

use super::{About, Broken, Promise, RunEnd};
use crate::facts::Facts;
use crate::reference::Reference;

/// Compares digests of the whole state at one position.
pub struct Equal;

impl Promise for Equal {
    fn about(&self) -> About {
        About {
            name: "equal",
            section: "EDCC'16 section IV-C",
            promise: "When the faults are over and everything has healed, all replicas have the same \
                objects, bit by bit, and hold nothing back.",
            check: "All replicas digest their whole state at one ordered position; objects that do not fit \
                their checksums count as different.",
        }
    }

    fn at_end(&mut self, facts: &Facts, end: &RunEnd, _model: &mut dyn Reference) -> Broken {
        let left = usize::from(facts.replicas) - facts.gone.len();
        if end.digests.len() != left {
            return Err(format!("{} of {left} replicas have a digest", end.digests.len()));
        }
        if end.digests.iter().any(|digest| *digest != end.digests[0]) {
            return Err(format!("the digests differ: {:032x?}", end.digests));
        }
        match end.held.iter().position(|held| *held > 0) {
            Some(replica) => {
                Err(format!("replica {} holds {} requests", ReplicaId(replica as u8), end.held[replica]))
            }
            None => Ok(()),
        }
    }
}
