//! The position of a checkpoint in the order.

/// The part of a checkpoint in addition to the objects.
#[derive(Clone, Debug)]
pub struct CheckpointHead {
    /// Log index of the checkpoint.
    pub index: u64,
    /// Number of its batch.
    pub batch: u64,
    /// The state that later deliveries depend on.
    pub order: order::State,
}
