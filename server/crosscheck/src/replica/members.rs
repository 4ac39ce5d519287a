//! How many replicas there are, as far as this one knows; `sizing.rs` changes that.

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
    pub(super) learned: Option<(u32, u8)>,
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
        Members { configured, voting: configured, resized: None, let_go: None, learned: None }
    }

    /// Whether the group has let this replica go: it executes no further batch.
    pub(super) fn is_let_go(&self) -> bool {
        self.let_go.is_some()
    }
}
