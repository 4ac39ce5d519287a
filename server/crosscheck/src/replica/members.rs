//! How many replicas there are, as far as this one knows, and what it wants to change of that (`sizing.rs`).

use std::collections::BTreeMap;

use order::SizeWish;

use crate::limits;

/// What this replica wants to change of the group's size, and what it has seen of processes that are to be added.
#[derive(Debug, Default)]
pub(super) struct Sizing {
    /// What an operator has asked for, and until when that counts.
    pub(super) asked: Option<(SizeWish, u64)>,
    /// The last wish that was submitted, and when: it may be on its way, or lost.
    pub(super) submitted: Option<(SizeWish, u64)>,
    /// Per number that the group does not have: where a process said that it is this replica, and when.
    pub(super) seen: BTreeMap<u8, (String, u64)>,
}

impl Sizing {
    pub(super) fn is_submitted(&self, wish: &SizeWish, now_us: u64) -> bool {
        let patience_us = limits::TIMER_PATIENCE.as_micros() as u64;
        self.submitted.as_ref().is_some_and(|(last, at_us)| last == wish && now_us < at_us + patience_us)
    }
}

/// How many replicas there are, as far as this one knows; their addresses are in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Members {
    /// How many the group had when its data began here, if its size has not changed.
    pub(super) configured: u8,
    /// Those that vote: the first ones. The others of the settings are being added.
    pub(super) voting: u8,
    /// A change that has ended just now, until the agreement has taken it.
    pub(super) resized: Option<Resized>,
    /// The last batch that this replica has a vote on, since the group has let it go; and since when, in microseconds.
    pub(super) let_go: Option<(u64, u64)>,
    /// A peer knows of so many changes, and so many replicas: they are accepted, until the order says it here too.
    pub(super) heard: Option<(u32, u8)>,
}

/// The size has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resized {
    /// Behind this batch.
    pub(super) after: u64,
    /// How many replicas voted before.
    pub(super) before: u8,
}

impl Members {
    pub(super) fn new(configured: u8) -> Self {
        Members { configured, voting: configured, resized: None, let_go: None, heard: None }
    }

    /// How many replicas vote, the first ones.
    pub(super) fn voting(&self) -> u8 {
        self.voting
    }

    /// Whether the group has let this replica go: it executes no further batch.
    pub(super) fn is_let_go(&self) -> bool {
        self.let_go.is_some()
    }

    /// A change that has ended since the last call.
    pub(super) fn take_resized(&mut self) -> Option<Resized> {
        self.resized.take()
    }
}
