//! No wrong reply reaches a client.

use super::{About, Broken, Promise};
use crate::client::Asked;
use crate::facts::Facts;

/// Compares with the model, which executes the log as one plain memcached.
pub struct Replies;

impl Promise for Replies {
    fn about(&self) -> About {
        About {
            name: "replies",
            section: "EDCC'16 sections III-B (fault model) and IV-B",
            promise: "Every answer that reaches a client is the one that a correct memcached gives at that position.",
            check: "An independent model executes the ordered commands; every byte of every answer is \
                compared, and every unique stands for one version.",
        }
    }

    fn answered(&mut self, asked: &Asked, reply: &[u8], facts: &mut Facts) -> Broken {
        let Some(place) = asked.place else {
            return Err(format!("{:?} was answered and has no position", asked.command));
        };
        let Some(expected) = facts.expected.get(&place).cloned() else {
            return Err(format!("{:?} was answered at {place}, where nothing was asked", asked.command));
        };
        facts
            .model
            .compare(&expected, place, reply)
            .map_err(|why| format!("{:?} at {place}: {why}", asked.command))
    }
}
