//! In verified mode: an executor has one word.

use std::collections::BTreeMap;

use verify::StateToken;
use wire::ReplicaId;

use super::{About, Broken, Promise};
use crate::facts::Facts;
use crate::world::{Observed, What};

/// Tokens that are remembered.
const KEPT: usize = 100_000;

/// A token's place: the batch, the view, the executor, and the token before.
type TokenPlace = (u64, u64, u8, StateToken);

/// The tokens of all executors, over all their processes.
#[derive(Default)]
pub struct VotesOnce {
    sent: BTreeMap<TokenPlace, StateToken>,
}

impl Promise for VotesOnce {
    fn about(&self) -> About {
        About {
            name: "votes-once",
            section: "server/verify/src/executor/incarnation.rs",
            promise: "In mode R0GV a replica sends one token for each view, batch and token before, over all its \
                processes: so only one of them can be agreed on.",
            check: "Every token that a replica sends is compared with what its processes have sent there.",
        }
    }

    fn see(&mut self, observed: &Observed, _facts: &Facts) -> Broken {
        let What::Voted { view, version, parent } = &observed.what else { return Ok(()) };
        let place = (version.number, *view, observed.replica, *parent);
        let first = *self.sent.entry(place).or_insert(version.token);
        if self.sent.len() > KEPT {
            self.sent.pop_first();
        }
        if first == version.token {
            return Ok(());
        }
        Err(format!(
            "replica {} has sent two tokens for batch {} in view {view}",
            ReplicaId(observed.replica),
            version.number
        ))
    }
}
