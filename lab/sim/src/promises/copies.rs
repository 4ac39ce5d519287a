//! A state that a replica takes is the one that the healthy others have made.

use std::collections::BTreeMap;

use wire::ReplicaId;

use super::{About, Broken, Promise};
use crate::facts::Facts;
use crate::world::{Observed, What};

/// Log indices whose states are remembered.
const KEPT: usize = 256;

/// The digests of the pieces of each state, by log index and replica.
#[derive(Default)]
pub struct TakenStates {
    made: BTreeMap<u64, BTreeMap<u8, Vec<u128>>>,
    last_batch: u64,
    /// Replicas verify after execution.
    is_verified: bool,
}

impl Promise for TakenStates {
    fn about(&self) -> About {
        About {
            name: "copies",
            section: "ARCHITECTURE.md, State transfer",
            promise: "Healthy replicas make the same state at a position, piece by piece, and a replica takes no \
                other one: nothing that was corrupted at a donor gets into it. In verified mode what a healthy replica \
                has made is the state of its version, in whatever pieces.",
            check: "The digests of all pieces of a state are compared when it is made, and when another replica takes \
                it: some replica has made just that, and no replica that was never corrupted has made another one at \
                this position. In verified mode, no replica refuses a state because of its proof that comes from one \
                that was never corrupted.",
        }
    }

    fn see(&mut self, observed: &Observed, facts: &Facts) -> Broken {
        if facts.last_batch < self.last_batch {
            // The group has begun anew.
            self.made.clear();
        }
        self.last_batch = facts.last_batch;
        let me = observed.replica;
        match &observed.what {
            What::Folded { .. } => {
                self.is_verified = true;
                Ok(())
            }
            What::StateRefused { from } => {
                let others =
                    (0..facts.replicas).filter(|one| *one != me && from.is_none_or(|from| from == *one));
                let are_corrupted = others.clone().any(|one| facts.corrupted.contains(&one));
                if are_corrupted || facts.corrupted.contains(&me) {
                    return Ok(());
                }
                let from: Vec<_> = others.map(ReplicaId).collect();
                Err(format!(
                    "replica {} refuses a state of {from:?}, which were never corrupted",
                    ReplicaId(me)
                ))
            }
            What::StateMade { index, digests } => {
                let made = self.made.entry(*index).or_default();
                made.insert(me, digests.clone());
                let is_compared = !self.is_verified && !facts.corrupted.contains(&me);
                let other = other_than(digests, made, facts).filter(|_| is_compared);
                let broken = other.map_or(Ok(()), |other| {
                    let (me, other) = (ReplicaId(me), ReplicaId(other));
                    Err(format!("replicas {me} and {other} make different states after entry {index}"))
                });
                if self.made.len() > KEPT {
                    self.made.pop_first();
                }
                broken
            }
            What::StateTaken { index, digests } => {
                let nobody = BTreeMap::new();
                let made = self.made.get(index).unwrap_or(&nobody);
                let me = ReplicaId(me);
                match other_than(digests, made, facts).filter(|_| !self.is_verified) {
                    Some(other) => Err(format!(
                        "replica {me} takes another state after entry {index} than replica {} has made",
                        ReplicaId(other)
                    )),
                    None if made.values().all(|one| one != digests) => {
                        Err(format!("replica {me} takes a state after entry {index} that nobody has made"))
                    }
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// A replica that was never corrupted and has made another state.
fn other_than(digests: &[u128], made: &BTreeMap<u8, Vec<u128>>, facts: &Facts) -> Option<u8> {
    let differs = |(replica, other): &(&u8, &Vec<u128>)| {
        other.as_slice() != digests && !facts.corrupted.contains(replica)
    };
    made.iter().find(differs).map(|(replica, _)| *replica)
}
