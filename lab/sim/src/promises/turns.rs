//! Replicas agree on the order of the locks.

use std::collections::BTreeMap;

use vote::Place;
use wire::ReplicaId;

use super::{About, Broken, Promise};
use crate::facts::Facts;
use crate::world::{Observed, RequestOutcome, What};

/// Requests that are remembered; far more than the distance between any two replicas.
const KEPT: usize = 200_000;

/// Compares the position and the locks of every request with those at the replica that ran it first.
#[derive(Default)]
pub struct Turns {
    /// By place in the log: position in the schedule, and locks.
    turns: BTreeMap<Place, (u64, u64)>,
    /// By position: the place that has it.
    places: BTreeMap<u64, Place>,
}

impl Promise for Turns {
    fn about(&self) -> About {
        About {
            name: "turns",
            section: "EDCC'16 section III-C; ARCHITECTURE.md, a replica that has lost count does not stay",
            promise: "Every request runs at one position of the schedule, the same at all replicas, and \
                takes the same locks there: so each lock has the same holders in the same order.",
            check: "Position and locks of every result are compared with those of the first replica that \
                had it; no two requests have one position. A replica that faults strike is left out until \
                all are equal again: from then on it must agree.",
        }
    }

    fn see(&mut self, observed: &Observed, facts: &Facts) -> Broken {
        let What::Executed { batch, outcomes } = &observed.what else { return Ok(()) };
        if facts.victims.contains(&observed.replica) {
            return Ok(());
        }
        for (number, outcome) in (0..).zip(outcomes).filter(|(_, outcome)| !outcome.failed) {
            self.compare(Place::new(*batch, number), outcome)
                .map_err(|how| format!("replica {}: {how}", ReplicaId(observed.replica)))?;
        }
        while self.turns.len() > KEPT {
            let Some((_, (position, _))) = self.turns.pop_first() else { break };
            self.places.remove(&position);
        }
        Ok(())
    }
}

impl Turns {
    fn compare(&mut self, place: Place, outcome: &RequestOutcome) -> Broken {
        let turn = (outcome.position, outcome.locks);
        if let Some(first) = self.turns.get(&place) {
            return match *first {
                (position, _) if position != turn.0 => Err(format!(
                    "request {place} ran at position {}, and at {position} where it ran first",
                    turn.0
                )),
                (_, locks) if locks != turn.1 => {
                    Err(format!("request {place} took other locks than where it ran first"))
                }
                _ => Ok(()),
            };
        }
        // It is so old that it is no longer remembered.
        if self.turns.len() >= KEPT && self.turns.first_key_value().is_some_and(|(oldest, _)| place < *oldest)
        {
            return Ok(());
        }
        match self.places.insert(outcome.position, place) {
            None => {
                self.turns.insert(place, turn);
                Ok(())
            }
            Some(other) => {
                Err(format!("requests {other} and {place} both ran at position {}", outcome.position))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_position_other_locks_and_a_position_taken_twice_are_seen() {
        let outcome = |position, locks| RequestOutcome {
            digest: 0,
            reply_digest: 0,
            request_checksum: 0,
            position,
            time_us: 0,
            locks,
            failed: false,
        };
        let mut turns = Turns::default();
        let at = |request| Place::new(4, request);
        assert_eq!(turns.compare(at(0), &outcome(10, 7)), Ok(()));
        assert_eq!(turns.compare(at(0), &outcome(10, 7)), Ok(()));
        assert!(turns.compare(at(0), &outcome(11, 7)).is_err());
        assert!(turns.compare(at(0), &outcome(10, 8)).is_err());
        assert!(turns.compare(at(1), &outcome(10, 7)).is_err());
    }
}
