//! In verified mode: the tree is that of the objects.

use wire::ReplicaId;

use super::{About, Broken, Promise};
use crate::facts::Facts;
use crate::world::{Observed, What};

/// Looks at what a replica that has taken batches back found.
pub struct Tree;

impl Promise for Tree {
    fn about(&self) -> About {
        About {
            name: "tree",
            section: "Eve (OSDI'12) section 5.2; server/tree/src/tree.rs",
            promise: "In mode R0GV the root that replicas compare is the one of their objects, whatever was changed, \
                created, removed and taken back.",
            check: "After every rollback the tree over all objects is computed again from their checksums, and has the \
                root of the tree that was kept by differences. Not where a fault has hit an object: until it is \
                replaced, the tree is right, and the objects are not.",
        }
    }

    fn see(&mut self, observed: &Observed, facts: &Facts) -> Broken {
        match &observed.what {
            What::TookBack { is_right: Some(false), .. } if facts.has_hit_objects(observed.replica) => Ok(()),
            What::TookBack { version, is_right: Some(false) } => Err(format!(
                "replica {} went back to batch {}, and its tree is not that of its objects",
                ReplicaId(observed.replica),
                version.number
            )),
            _ => Ok(()),
        }
    }
}
