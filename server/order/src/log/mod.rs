//! The storage of the engine's log: in memory alone, or in files that survive the process.
//!
//! The engine reads from memory only; a store is written in order and read once, when the process starts.

mod disk;
mod error;
mod file;
mod memory;
mod open;
pub(crate) mod owner;
mod record;
pub(crate) mod segment;
pub(crate) mod synced;

pub use disk::{Disk, DiskFile, System};
pub use error::{LogError, operators_remedy};
pub use file::{FileLog, FileOptions};
pub use memory::MemoryLog;
pub use open::NAMES;
pub use record::Record;
pub(crate) use record::{Hard, RecordKind};

/// Keeps the state that a replica must not forget, as a sequence of records.
///
/// The engine acknowledges nothing before [`LogStore::sync`] returned. After any error the store is spent: the
/// replica stops (a failed fdatasync may have dropped dirty pages, so trying again proves nothing).
pub trait LogStore: Send {
    /// Appends a record; it may stay in a buffer until the next sync.
    ///
    /// # Errors
    /// [`LogError`] when it cannot be kept.
    fn append(&mut self, record: &Record) -> Result<(), LogError>;

    /// Whether a sync would have an effect. Always false where nothing survives the process.
    fn needs_sync(&self) -> bool;

    /// Whether nothing survives the process, so that an appended entry is as safe as it will ever be.
    fn is_volatile(&self) -> bool {
        false
    }

    /// Returns when everything appended is durable.
    ///
    /// # Errors
    /// [`LogError`] when that is not certain.
    fn sync(&mut self) -> Result<(), LogError>;

    /// Some time has passed ([`limits::CLAIM_TICKS`](crate::limits::CLAIM_TICKS)): an occasion to write state that need
    /// not be written at every sync.
    ///
    /// # Errors
    /// [`LogError`] when that cannot be written.
    fn tick(&mut self) -> Result<(), LogError> {
        Ok(())
    }

    /// Entries up to `index` are superseded by a durable start of the log; their space may be used again.
    ///
    /// # Errors
    /// [`LogError`] when the space cannot be freed.
    fn release(&mut self, index: u64) -> Result<(), LogError>;

    /// Deletes everything; the replica is about to join as a new incarnation.
    ///
    /// # Errors
    /// [`LogError`] when a file would be left behind.
    fn wipe(&mut self) -> Result<(), LogError>;
}

impl<L: LogStore + ?Sized> LogStore for Box<L> {
    fn append(&mut self, record: &Record) -> Result<(), LogError> {
        (**self).append(record)
    }
    fn needs_sync(&self) -> bool {
        (**self).needs_sync()
    }
    fn is_volatile(&self) -> bool {
        (**self).is_volatile()
    }
    fn sync(&mut self) -> Result<(), LogError> {
        (**self).sync()
    }
    fn tick(&mut self) -> Result<(), LogError> {
        (**self).tick()
    }
    fn release(&mut self, index: u64) -> Result<(), LogError> {
        (**self).release(index)
    }
    fn wipe(&mut self) -> Result<(), LogError> {
        (**self).wipe()
    }
}
