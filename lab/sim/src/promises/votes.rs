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
                or f+1 others. If that is not possible any more, as replicas are away and others have failed at the \
                request themselves, at most f, those that are left must all have come to it.",
            check: "When a reply passes the gate, f+1 replicas must have executed that request with equal \
                digests, and the bytes must be those of their reply. With fewer, one must have failed at the request, \
                at most f, and every other one that has executed it must have the same.",
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
        let most = most.unwrap_or(0);
        let failed = results.iter().filter(|one| one.failed).count();
        let is_left_over =
            most > 0 && most + failed == results.len() && (1..=facts.faults()).contains(&failed);
        if most >= facts.must_agree(place.batch) || (is_left_over && facts.replicas > 2) {
            return Ok(());
        }
        Err(format!(
            "the reply at {place} left replica {}: {} of {} executed it so",
            ReplicaId(observed.replica),
            most,
            results.len()
        ))
    }
}

fn number(place: &Place) -> usize {
    usize::from(place.request)
}
