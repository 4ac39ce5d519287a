//! Where in the order a checkpoint stands.

/// What belongs to a checkpoint besides the objects.
#[derive(Clone, Debug)]
pub struct CheckpointHead {
    /// Log index of the checkpoint.
    pub index: u64,
    /// Number of its batch.
    pub batch: u64,
    /// What delivery depends on from here on.
    pub order: order::State,
}
