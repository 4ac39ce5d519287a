//! Exactly once: no command has two positions, and each command with a position was sent by a client.

use super::{About, Broken, Promise};
use crate::facts::{Facts, is_own};
use crate::world::{Observed, What};

/// Counts positions per request.
pub struct Once;

impl Promise for Once {
    fn about(&self) -> About {
        About {
            name: "once",
            section: "ARCHITECTURE.md, exactly-once rule (server/order/src/sessions.rs)",
            promise: "A client's command takes effect at most once, also across leader changes and retries, \
                and nothing that nobody asked for takes effect.",
            check: "Encoded requests in the order are counted against those that clients sent (written \
                values differ, so that equal requests are rare).",
        }
    }

    fn see(&mut self, observed: &Observed, facts: &Facts) -> Broken {
        let What::Delivered { batch, ordered } = &observed.what else { return Ok(()) };
        for request in ordered.requests().filter(|request| !is_own(&request.bytes)) {
            match facts.sent_as(&request.bytes) {
                Some(sent) if sent.ordered <= sent.sent => {}
                Some(sent) => {
                    return Err(format!(
                        "{:?} was sent {} times and has {} positions, the last in batch {batch}",
                        sent.command, sent.sent, sent.ordered
                    ));
                }
                None => return Err(format!("batch {batch} has a request that no client sent")),
            }
        }
        Ok(())
    }
}
