//! In verified mode: what is rolled back leaves nothing behind.

use std::collections::BTreeMap;

use verify::StateToken;
use wire::ReplicaId;

use super::{About, Broken, Promise};
use crate::facts::Facts;
use crate::world::{Observed, What};

/// Batches of a replica that are remembered: more than may be rolled back.
const KEPT: usize = 1_000;

/// The states of the order and of the objects after the last batches of each replica.
#[derive(Default)]
pub struct Rewound {
    orders: BTreeMap<(u8, u64), u128>,
    tokens: BTreeMap<(u8, u64), StateToken>,
}

impl Promise for Rewound {
    fn about(&self) -> About {
        About {
            name: "rewound",
            section: "Eve (OSDI'12) section 5.2; server/execute/src/speculate.rs",
            promise: "In mode R0GV a replica that has taken batches back has the objects, and counts the requests that \
                were executed, as after the batch where it continues.",
            check: "Every rollback succeeds where nothing was corrupted (see `tree` for the objects); the version \
                that is left is the one that this replica had after that batch; the state of the exactly-once rule is \
                the one that it had when it had taken that batch.",
        }
    }

    fn see(&mut self, observed: &Observed, facts: &Facts) -> Broken {
        let me = observed.replica;
        let wrong = |what: &str, batch: u64| {
            Err(format!(
                "replica {} went back to batch {batch}, and its {what} is not that one's",
                ReplicaId(me)
            ))
        };
        match &observed.what {
            What::Speculated { batch, order } => {
                self.orders.insert((me, *batch), *order);
            }
            What::Folded { version, .. } => {
                self.tokens.insert((me, version.number), version.token);
            }
            What::Installed { version, order, .. } => {
                self.orders.retain(|(replica, _), _| *replica != me);
                self.tokens.retain(|(replica, _), _| *replica != me);
                self.orders.insert((me, version.number), *order);
                self.tokens.insert((me, version.number), version.token);
            }
            What::NotRolledBack { was_kept: true } if !facts.corrupted.contains(&me) => {
                return Err(format!("replica {} could not take batches back", ReplicaId(me)));
            }
            What::TookBack { version, .. }
                if self.tokens.get(&(me, version.number)).is_some_and(|token| *token != version.token) =>
            {
                return wrong("token", version.number);
            }
            What::Rewound { batch, order }
                if self.orders.get(&(me, *batch)).is_some_and(|known| known != order) =>
            {
                return wrong("state of the order", *batch);
            }
            What::Stable { version, .. } => {
                let oldest = version.number.saturating_sub(KEPT as u64);
                self.orders.remove(&(me, oldest));
                self.tokens.remove(&(me, oldest));
            }
            _ => {}
        }
        Ok(())
    }
}
