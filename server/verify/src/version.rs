//! What the replicas agree on: the state after a batch, named by its number and a hash.

/// A hash of the state and of all outputs after a batch, of its number, and of the token before: equal on two replicas
/// exactly if both are (Eve, section 6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateToken(pub u128);

/// The state after a batch. A token contains the one before it, so a version stands for all batches up to its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The batch's number; 0 is the state before the first one.
    pub number: u64,
    /// Its token.
    pub token: StateToken,
}
