//! No false alarm without a fault.

use wire::ReplicaId;

use super::{About, Broken, Promise, RunEnd};
use crate::facts::Facts;
use crate::reference::Reference;
use crate::world::{Observed, What};

/// View changes at most while machines get busier and busier, until patience has come up to what batches take.
const BUSY_VIEWS: u64 = 2;

/// Where no state was corrupted, no error may be reported.
pub struct Alarms;

impl Promise for Alarms {
    fn about(&self) -> About {
        About {
            name: "alarms",
            section: "EDCC'16 section IV-D (false positives)",
            promise: "Correct replicas never disagree: without a corruption there is no evidence, no repair \
                and no failed check, also across crashes, partitions and leader changes. In mode R0GV no batch is \
                taken back without a fault, and no view changes, whatever number of workers runs it; on machines that \
                get slower and slower no more than twice.",
            check: "Any evidence in a run in which nothing was corrupted so far is a false alarm (but for the \
                record of a state that one replica had to give on its word alone), and so is any rollback, and any \
                view but the first one, in a run without faults (on busy machines, where a request takes up to 100 ms: \
                any view after the third); at the end the counters of every replica are 0.",
        }
    }

    fn see(&mut self, observed: &Observed, facts: &Facts) -> Broken {
        // A batch that takes four times as long as any before is taken for lost.
        let most_views = if facts.busy { BUSY_VIEWS } else { 0 };
        match &observed.what {
            // A replica that lags comes to a view later than others: a rollback needs some fault, of the network too.
            What::Diverged(_) | What::TookBack { .. } if !facts.disturbed && !facts.busy => {
                Err(format!("replica {} took batches back without a fault", ReplicaId(observed.replica)))
            }
            What::Followed { view, .. } if *view > most_views && !facts.disturbed => Err(format!(
                "replica {} follows view {view}, and there was no fault",
                ReplicaId(observed.replica)
            )),
            // The last replica that has everything gave its state on its word alone, and the record says so.
            What::Evidence(record) if record.class == "unvouched" && !facts.chain_victims.is_empty() => {
                Ok(())
            }
            What::Evidence(record) if facts.corrupted.is_empty() => Err(format!(
                "replica {} kept evidence and nothing was corrupted: {record:?}",
                ReplicaId(observed.replica)
            )),
            _ => Ok(()),
        }
    }

    fn at_end(&mut self, facts: &Facts, end: &RunEnd, _model: &mut dyn Reference) -> Broken {
        if facts.corrupted.is_empty() && end.alarms.iter().any(|alarms| *alarms > 0) {
            return Err(format!("alarms per replica without a corruption: {:?}", end.alarms));
        }
        Ok(())
    }
}
