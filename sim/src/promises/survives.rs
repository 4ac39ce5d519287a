//! Every acknowledged write survives.

use super::{About, Broken, End, Promise};
use crate::client::Asked;
use crate::facts::Facts;
use crate::model::Command;

/// Looks at the end: what is read is what was last written, and every replica has all of it.
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

    fn answered(&mut self, asked: &Asked, reply: &[u8], facts: &mut Facts) -> Broken {
        let Command::Get { keys, unique: false } = &asked.command else { return Ok(()) };
        // What fades may be there or not by now: `replies` knows.
        if !facts.reading || facts.model.fades(keys) || facts.model.get(keys) == reply {
            return Ok(());
        }
        let (was, is) = (facts.model.get(keys), String::from_utf8_lossy(reply));
        Err(format!("{keys:?} reads {is:?}, and {:?} was written", String::from_utf8_lossy(&was)))
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
