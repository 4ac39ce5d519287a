//! In verified mode: one history of states, whatever is rolled back.

use std::collections::BTreeMap;

use verify::{StateToken, Version};
use wire::ReplicaId;

use super::{About, Broken, Promise};
use crate::facts::Facts;
use crate::world::{Observed, What};

/// Batches that are remembered; far more than the distance between any two replicas.
const KEPT: usize = 100_000;

/// Remembers the token of every batch that was stable anywhere.
#[derive(Default)]
pub struct Stable {
    tokens: BTreeMap<u64, StateToken>,
    /// By replica: the last batch that was stable in its present process.
    last: BTreeMap<u8, u64>,
}

impl Promise for Stable {
    fn about(&self) -> About {
        About {
            name: "stable",
            section: "Eve (OSDI'12) sections 4.1 and 6.1; server/verify/src/executor.rs",
            promise: "In mode R0GV at most one state follows each batch, at all replicas and in all incarnations, and \
                what is stable is never taken back. A token contains the one before, so the states form one chain.",
            check: "The token of every batch that becomes stable at a replica, or that comes with a state from others, \
                is compared with that of the first replica; each replica's stable batches are without gaps; nothing \
                before one of them is taken back.",
        }
    }

    fn see(&mut self, observed: &Observed, _facts: &Facts) -> Broken {
        let replica = observed.replica;
        match &observed.what {
            What::Stable { version, .. } => {
                let last = self.last.insert(replica, version.number);
                self.compare(replica, version)?;
                match last {
                    Some(last) if last + 1 != version.number => Err(format!(
                        "batch {} is stable at replica {} after batch {last}",
                        version.number,
                        ReplicaId(replica)
                    )),
                    _ => Ok(()),
                }
            }
            What::Installed { version, .. } => {
                self.last.insert(replica, version.number);
                self.compare(replica, version)
            }
            What::TookBack { version: Version { number, .. }, .. } | What::Rewound { batch: number, .. } => {
                match self.last.get(&replica).filter(|last| *last > number) {
                    Some(last) => Err(format!(
                        "replica {} goes back to batch {number}, and batch {last} was stable there",
                        ReplicaId(replica)
                    )),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

impl Stable {
    fn compare(&mut self, replica: u8, version: &Version) -> Broken {
        let first = *self.tokens.entry(version.number).or_insert(version.token);
        if self.tokens.len() > KEPT {
            self.tokens.pop_first();
        }
        if first == version.token {
            return Ok(());
        }
        Err(format!(
            "after batch {} the state of replica {} is stable as {:032x}, and was stable as {:032x}",
            version.number,
            ReplicaId(replica),
            version.token.0,
            first.0
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_token_of_a_stable_batch_is_seen() {
        let version = |token| Version { number: 4, token: StateToken(token) };
        let mut stable = Stable::default();
        assert_eq!(stable.compare(0, &version(7)), Ok(()));
        assert_eq!(stable.compare(1, &version(7)), Ok(()));
        assert!(stable.compare(2, &version(8)).is_err());
    }
}
