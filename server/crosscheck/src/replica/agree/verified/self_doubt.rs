//! What one of two executors knows of its doubt about its own state (`undecided.rs`).

/// What a replica does about states of two executors that differ.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SelfDoubt {
    /// The oldest batch that ran one request at a time and is not stable, and since when.
    pub(super) waits: Option<(u64, u64)>,
    /// The view and the batch for which this replica has checked itself.
    pub(super) checked: Option<(u64, u64)>,
    /// Both lack the same right objects. Neither yields any more, until a batch is stable again.
    pub(super) both_are_wrong: bool,
}

impl SelfDoubt {
    /// Both have found the same objects corrupted: a check would tell them nothing.
    pub(super) fn note_both_wrong(&mut self, both_ask: bool) {
        self.both_are_wrong |= both_ask;
    }

    /// Whether both lack the same right objects.
    pub(super) fn both_are_wrong(&self) -> bool {
        self.both_are_wrong
    }

    /// A batch has become stable.
    pub(super) fn is_over(&mut self) {
        self.both_are_wrong = false;
    }
}
