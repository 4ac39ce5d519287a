//! Every acknowledged write survives.

use super::{About, Broken, End, Promise};
use crate::facts::Facts;

/// Looks at the end: every replica is at least as far as everything that was answered.
pub struct Survives;

impl Promise for Survives {
    fn about(&self) -> About {
        About {
            name: "survives",
            section: "EDCC'16 section II; design section 5",
            promise: "What was acknowledged to a client is not lost, whatever f replicas do.",
            check: "At the end every replica has taken every position that was ever answered; then every client reads every key, and `replies` compares with the model, which has executed all of them.",
        }
    }

    fn settled(&mut self, facts: &Facts, _end: &End) -> Broken {
        let Some(answered) = facts.answered else { return Ok(()) };
        match facts.delivered.iter().position(|delivered| *delivered < answered.batch) {
            Some(replica) => Err(format!(
                "replica {} ended at batch {}, and {answered} was answered",
                replica + 1,
                facts.delivered[replica]
            )),
            None => Ok(()),
        }
    }
}
