//! Every acknowledged write survives.

use wire::ReplicaId;

use super::{About, Broken, Promise, RunEnd};
use crate::client::SentCommand;
use crate::facts::Facts;
use crate::reference::Reference;

/// Checks at the end that every read returns the last write, and that every replica has all data.
pub struct Survives;

impl Promise for Survives {
    fn about(&self) -> About {
        About {
            name: "survives",
            section: "EDCC'16 section III-B; docs/design.md, section 5",
            promise: "What was acknowledged to a client is not lost, whatever f replicas do.",
            check: "At the end every client reads every key: each reads what the model has, which has \
                executed every acknowledged write. And every replica has taken every position that was ever \
                answered. Also, after all power was lost at once some replica has data.",
        }
    }

    fn answered(
        &mut self,
        sent: &SentCommand,
        reply: &[u8],
        facts: &Facts,
        model: &mut dyn Reference,
    ) -> Broken {
        match sent.place.filter(|_| facts.reading) {
            Some(place) => model.compare_final(sent.command, place, reply),
            None => Ok(()),
        }
    }

    fn at_end(&mut self, facts: &Facts, _end: &RunEnd, _model: &mut dyn Reference) -> Broken {
        let Some(answered) = facts.answered else { return Ok(()) };
        let lacks = |replica: &usize| {
            !facts.gone.contains(&(*replica as u8)) && facts.delivered[*replica] < answered.batch
        };
        match (0..facts.delivered.len()).find(lacks) {
            Some(replica) => Err(format!(
                "replica {} ended at batch {}, and {answered} was answered",
                ReplicaId(replica as u8),
                facts.delivered[replica]
            )),
            None => Ok(()),
        }
    }
}
