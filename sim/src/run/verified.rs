//! With V: how much a run executed first and verified afterwards, for its summary, and versions in the trace.

use serde::{Deserialize, Serialize};

use crate::world::What;

/// With V: what was executed first and verified afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Batches that became stable at some replica.
    pub stable: u64,
    /// Times a replica's state was not the agreed one.
    pub diverged: u64,
    /// Times a replica took batches back.
    pub rolled_back: u64,
    /// Times a replica followed another view than the one before.
    pub followed: u64,
    /// The last view.
    pub view: u64,
}

impl Verified {
    pub(super) fn note(&mut self, what: &What) {
        match what {
            What::Stable { version, .. } => self.stable = self.stable.max(version.number),
            What::Diverged(_) => self.diverged += 1,
            What::TookBack { .. } => self.rolled_back += 1,
            What::Followed { view, .. } => {
                self.followed += 1;
                self.view = self.view.max(*view);
            }
            _ => {}
        }
    }

    /// Adds another run; the views are added up.
    pub fn add(&mut self, other: &Verified) {
        self.stable += other.stable;
        self.diverged += other.diverged;
        self.rolled_back += other.rolled_back;
        self.followed += other.followed;
        self.view += other.view;
    }
}

/// A version in the trace.
pub(super) struct ShownVersion<'a>(pub(super) &'a verify::Version);

impl std::fmt::Display for ShownVersion<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{:04x}", self.0.number, self.0.token.0 as u16)
    }
}
