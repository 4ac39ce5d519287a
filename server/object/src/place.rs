//! The location of an object in a store during one request.

/// A slot of a store. Valid while the request holds the store's region, never summed, packed or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StorePlace {
    /// [`crate::hidden::AnyStore::place`] of the store.
    pub(crate) store: usize,
    /// The slot.
    pub(crate) slot: u32,
}
