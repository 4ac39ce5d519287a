//! Queues stay within their limits.

use super::{About, Broken, Promise};
use crate::facts::Facts;
use crate::world::{Observed, What};

/// Counts what is delivered and not yet executed.
pub struct Limits;

impl Promise for Limits {
    fn about(&self) -> About {
        About {
            name: "limits",
            section: "ARCHITECTURE.md, crosscheck/src/limits.rs",
            promise: "What waits is bounded: a batch has at most its limit of requests.",
            check: "Every delivered batch is counted. (Queues inside the rooms and memory are not looked at yet.)",
        }
    }

    fn see(&mut self, observed: &Observed, _facts: &Facts) -> Broken {
        match &observed.what {
            What::Delivered { batch, ordered } if ordered.len() > order::limits::BATCH_REQUESTS => {
                Err(format!("batch {batch} has {} requests", ordered.len()))
            }
            _ => Ok(()),
        }
    }
}
