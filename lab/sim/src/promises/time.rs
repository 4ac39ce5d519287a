//! Ordered time is the true time, even if single clocks are wrong.

use wire::ReplicaId;

use super::{About, Broken, Promise, RunEnd};
use crate::facts::Facts;
use crate::reference::Reference;
use crate::world::{EPOCH_US, Observed, What};

/// How far ordered time may be ahead of the true time, and behind it once all faults are over.
const APART_US: u64 = 2_000_000;

/// Compares the stamp of every batch with the run's own clock.
#[derive(Default)]
pub struct Time {
    /// The last batch that any replica took, and how far its stamp was behind the true time then.
    last: (u64, u64),
}

impl Promise for Time {
    fn about(&self) -> About {
        About {
            name: "time",
            section: "EDCC'16 section III-B (fault model: one replica's clock is one fault); \
                ARCHITECTURE.md, Ordered time",
            promise: "Whatever one replica's clock says, nothing expires early, and what has its time \
                expires within 2 s.",
            check: "No batch that any replica takes is stamped more than 2 s later than the run's own \
                clock; when all faults are over, new ones are stamped at most 2 s earlier.",
        }
    }

    fn see(&mut self, observed: &Observed, facts: &Facts) -> Broken {
        let What::Delivered { batch, ordered } = &observed.what else { return Ok(()) };
        let true_us = EPOCH_US + facts.now_us;
        let ahead_us = ordered.time_us.saturating_sub(true_us);
        if *batch > self.last.0 {
            self.last = (*batch, true_us.saturating_sub(ordered.time_us));
        }
        match ahead_us > APART_US {
            true => Err(format!(
                "batch {batch} is stamped {ahead_us} us ahead of the true time, and replica {} took it",
                ReplicaId(observed.replica)
            )),
            false => Ok(()),
        }
    }

    fn at_end(&mut self, _facts: &Facts, _end: &RunEnd, _model: &mut dyn Reference) -> Broken {
        let (batch, behind_us) = self.last;
        match behind_us > APART_US {
            true => Err(format!("batch {batch} was stamped {behind_us} us behind the true time")),
            false => Ok(()),
        }
    }
}
