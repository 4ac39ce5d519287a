//! In verified mode: a replica that differs is level again.

use std::collections::BTreeMap;

use wire::ReplicaId;

use super::{About, Broken, Promise, RunEnd};
use crate::facts::Facts;
use crate::reference::Reference;
use crate::world::{Observed, What};

/// Simulated time within which a replica that differed has the agreed state, or is another process.
const LEVEL_US: u64 = 30_000_000;

/// The replicas that differ now, and the views that began because tokens did.
#[derive(Default)]
pub struct Masked {
    /// By replica: the batch whose agreed state it does not have, and since when.
    behind: BTreeMap<u8, (u64, u64)>,
    /// By replica: the last view whose first batch was to run one request at a time, and the batch before.
    sequential: BTreeMap<u8, (u64, u64)>,
}

impl Promise for Masked {
    fn about(&self) -> About {
        About {
            name: "masked",
            section: "Eve (OSDI'12) sections 6.1 and 6.3; server/verify/src/verifier.rs",
            promise: "In mode R0GV a replica whose state differs from the agreed one has that state soon, or replaces \
                itself and is filled by the others. Where too many differ to agree, or where extra protection sees \
                any difference, one run of the batch one request at a time ends it.",
            check: "A replica that was told that it differs has a later stable batch within 30 s of simulated time. \
                Where faults have hit computations only, no two views that begin for a difference begin after \
                the same batch.",
        }
    }

    fn see(&mut self, observed: &Observed, facts: &Facts) -> Broken {
        let replica = observed.replica;
        match &observed.what {
            What::Diverged(version) => {
                self.behind.entry(replica).or_insert((version.number, facts.now_us));
            }
            What::Stable { version, .. } | What::Installed { version, .. } => {
                self.behind.retain(|of, (number, _)| *of != replica || *number > version.number);
            }
            What::Followed { view, version, sequential: true } => {
                let again = self.sequential.insert(replica, (*view, version.number));
                if facts.only_computes && again.is_some_and(|(_, number)| number == version.number) {
                    return Err(format!(
                        "view {view} begins after batch {} because states differ, and so did a view before",
                        version.number
                    ));
                }
            }
            _ => {}
        }
        let late = self.behind.iter().find(|(_, (_, since_us))| facts.now_us > since_us + LEVEL_US);
        match late {
            Some((late, (number, _))) => Err(format!(
                "replica {} still does not have the state after batch {number}",
                ReplicaId(*late)
            )),
            None => Ok(()),
        }
    }

    fn at_end(&mut self, _facts: &Facts, _end: &RunEnd, _model: &mut dyn Reference) -> Broken {
        match self.behind.first_key_value() {
            Some((replica, (number, _))) => {
                Err(format!("replica {} never had the state after batch {number}", ReplicaId(*replica)))
            }
            None => Ok(()),
        }
    }
}
