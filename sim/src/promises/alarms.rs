//! No false alarm without a fault.

use wire::ReplicaId;

use super::{About, Broken, Promise, RunEnd};
use crate::facts::Facts;
use crate::reference::Reference;
use crate::world::{Observed, What};

/// Where no state was corrupted, no error may be reported.
pub struct Alarms;

impl Promise for Alarms {
    fn about(&self) -> About {
        About {
            name: "alarms",
            section: "EDCC'16 section IV-D (false positives)",
            promise: "Correct replicas never disagree: without a corruption there is no evidence, no repair \
                and no failed check, also across crashes, partitions and leader changes. In mode R0GV no batch is \
                taken back without a fault, whatever number of workers runs it.",
            check: "Any evidence in a run in which nothing was corrupted so far is a false alarm, and so is any \
                rollback in a run without faults; at the end the counters of every replica are 0.",
        }
    }

    fn see(&mut self, observed: &Observed, facts: &Facts) -> Broken {
        match &observed.what {
            // A replica that lags comes to a view later than others: a rollback needs some fault, of the network too.
            What::Diverged(_) | What::TookBack { .. } if !facts.disturbed => {
                Err(format!("replica {} took batches back without a fault", ReplicaId(observed.replica)))
            }
            What::Evidence(record) if facts.corrupted.is_empty() => Err(format!(
                "replica {} kept evidence and nothing was corrupted: {record:?}",
                ReplicaId(observed.replica)
            )),
            _ => Ok(()),
        }
    }

    fn settled(&mut self, facts: &Facts, end: &RunEnd, _model: &mut dyn Reference) -> Broken {
        if facts.corrupted.is_empty() && end.alarms.iter().any(|alarms| *alarms > 0) {
            return Err(format!("alarms per replica without a corruption: {:?}", end.alarms));
        }
        Ok(())
    }
}
