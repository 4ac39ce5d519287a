//! Replicas agree on the order.

use super::{About, Broken, Promise};
use crate::facts::{self, Facts};
use crate::world::{Observed, What};

/// Compares every batch with the first delivery of the same number.
pub struct Order;

impl Promise for Order {
    fn about(&self) -> About {
        About {
            name: "order",
            section: "EDCC'16 section III-C; ARCHITECTURE.md, a position's outcome is a function of the log",
            promise: "All replicas take the same requests, with the same time and seed, from the same \
                positions: turns on locks are handed out in that order alone.",
            check: "The stamp and the bytes of every delivered batch are compared with its first delivery; \
                none is left out.",
        }
    }

    fn see(&mut self, observed: &Observed, facts: &Facts) -> Broken {
        let What::Delivered { batch, ordered } = &observed.what else { return Ok(()) };
        match facts.order.get(batch) {
            Some(first) if *first == facts::digest_of(ordered) => Ok(()),
            Some(_) => {
                Err(format!("replica {} has another batch {batch} than the others", observed.replica + 1))
            }
            None if *batch > facts.last_batch => {
                Err(format!("batch {batch} was delivered and {} was the last", facts.last_batch))
            }
            // It is so old that the run has dropped it.
            None => Ok(()),
        }
    }
}
