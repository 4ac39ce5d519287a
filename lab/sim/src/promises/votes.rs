//! No reply leaves without its vote.

use vote::Place;
use wire::ReplicaId;

use super::{About, Broken, Promise};
use crate::facts::Facts;
use crate::world::{Observed, What};

/// Counts the replicas' results itself, independent of the voters.
pub struct Votes;

impl Promise for Votes {
    fn about(&self) -> About {
        About {
            name: "votes",
            section: "EDCC'16 section IV-B, Fig. 2",
            promise: "No reply leaves before f+1 replicas have come to the same result, its own among them \
                or f+1 others.",
            check: "When a reply passes the gate, f+1 replicas must have executed that request with equal \
                digests, and the bytes must be those of their reply.",
        }
    }

    fn see(&mut self, observed: &Observed, facts: &Facts) -> Broken {
        let What::Released { place, reply, .. } = &observed.what else { return Ok(()) };
        let Some(row) = facts.results.get(&place.batch) else {
            return Err(format!("the reply at {place} left and nobody has executed the request"));
        };
        let results: Vec<_> = row.iter().flatten().filter_map(|all| all.get(number(place))).collect();
        let agree = results.iter().filter(|one| {
            !one.failed && one.reply_digest == vote::digest::reply(one.request_checksum, reply)
        });
        let digests: Vec<u128> = agree.map(|one| one.digest).collect();
        let most = digests.iter().map(|one| digests.iter().filter(|other| *other == one).count()).max();
        if most.unwrap_or(0) >= facts.must_agree(place.batch) {
            return Ok(());
        }
        Err(format!(
            "the reply at {place} left replica {}: {} of {} executed it so",
            ReplicaId(observed.replica),
            most.unwrap_or(0),
            results.len()
        ))
    }
}

fn number(place: &Place) -> usize {
    usize::from(place.request)
}
