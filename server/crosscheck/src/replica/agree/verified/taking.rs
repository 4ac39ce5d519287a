//! How far the whole state of the others is on its way to the place of the own one (`whole_state.rs`).

use std::collections::VecDeque;

use order::PrimaryView;
use verify::Version;

use crate::checkpoint::CheckpointHead;
use crate::limits;
use crate::packed_state::PackedState;

/// The state of the others, on its way to the place of this replica's.
#[derive(Debug)]
pub(super) struct TakingState {
    pub(super) step: TakingStep,
    /// The own state is wrong. Else it is a former one, which this replica cannot go on from.
    pub(super) is_wrong: bool,
    /// The view that has begun meanwhile.
    pub(super) view: Option<PrimaryView>,
}

#[derive(Debug)]
pub(super) enum TakingStep {
    /// The others were not asked yet.
    Wanted,
    /// They were.
    Asked,
    /// It is there, and a boundary has the batches.
    Arrived(PackedState),
    /// A boundary puts it in place.
    Installs(Box<CheckpointHead>),
}

impl TakingState {
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.step, TakingStep::Asked)
    }
}

/// States that were taken one after the other, and did not help.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TakenStates {
    /// The batch of the last one.
    pub(super) batch: u64,
    pub(super) in_a_row: u32,
}

/// The last versions that verifiers have recorded while this replica has received a state, which may be of any of them:
/// the group goes on meanwhile.
#[derive(Debug, Default)]
pub(super) struct RecordedVersions(pub(super) VecDeque<Version>);

impl RecordedVersions {
    /// This one was recorded.
    pub(super) fn add(&mut self, version: Version) {
        if self.0.back() == Some(&version) {
            return;
        }
        if self.0.len() >= limits::VERSIONS_REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(version);
    }
}
