//! A group begins once, and again only on an operator's command.

use wire::ReplicaId;

use super::{About, Broken, Promise};
use crate::facts::{self, Facts};
use crate::world::{Observed, What};

/// Remembers how the log begins. When an operator begins a group again, the run uses a new checker.
#[derive(Default)]
pub struct Founding {
    /// Digest of the first batch.
    first: Option<u128>,
}

impl Promise for Founding {
    fn about(&self) -> About {
        About {
            name: "founding",
            section: "server/order/src/raft/boot.rs (how a replica without a log gets into a group)",
            promise: "A group begins once, whoever loses his memory meanwhile. Replicas that have all lost \
                theirs begin no other one, and answer nobody, unless an operator says so.",
            check: "The first batch of the log, as first delivered, is the first batch whenever a replica \
                delivers one, in any of its incarnations, until an operator says that a group begins. After an \
                operator has said whose data counts, who had everything, `replies` and `survives` expect all of it.",
        }
    }

    fn see(&mut self, observed: &Observed, _facts: &Facts) -> Broken {
        let What::Delivered { batch: 1, ordered } = &observed.what else { return Ok(()) };
        let digest = facts::digest_of(ordered);
        if *self.first.get_or_insert(digest) == digest {
            return Ok(());
        }
        Err(format!(
            "replica {} begins another log than there was, and nobody told it to",
            ReplicaId(observed.replica)
        ))
    }
}
