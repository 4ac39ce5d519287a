//! Where the engine's log rests: in memory alone, or in files that survive the process.
//!
//! The engine reads from memory only; a store is written in order and read once, when the process starts.

mod disk;
mod file;
mod memory;
mod record;
pub(crate) mod segment;

pub use disk::{Disk, DiskFile, System};
pub use file::{FileLog, FileOptions};
pub use memory::MemoryLog;
pub use record::Record;
pub(crate) use record::{Hard, Kind};

/// Why a log cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The operating system refused (operator: permissions, a broken disk).
    #[error("{what}: {source}")]
    Io {
        /// The file and what was done to it.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// No space is left for the log, on the disk or within its configured bound (operator: make room).
    #[error("no space left for the log ({0})")]
    Full(String),
    /// Bytes that had been synced are not what was written (state corrupted). The replica must lose this log and join anew.
    #[error("log file {file} is corrupt at byte {at}: {why}")]
    Corrupt {
        /// Path of the segment.
        file: String,
        /// Offset of the first bad record.
        at: u64,
        /// Which rule it breaks.
        why: &'static str,
    },
    /// Every record is what was written, but together they are no log (a bug of ours, or files from elsewhere).
    #[error("the log contradicts itself: {0}")]
    Contradiction(&'static str),
}

/// Keeps what a replica must not forget, as a sequence of records.
///
/// The engine acknowledges nothing before [`LogStore::sync`] returned. After any error the store is spent: the
/// replica stops (a failed fdatasync may have dropped dirty pages, so trying again proves nothing).
pub trait LogStore: Send {
    /// Appends a record; it may stay in a buffer until the next sync.
    ///
    /// # Errors
    /// [`LogError`] when it cannot be kept.
    fn append(&mut self, record: &Record) -> Result<(), LogError>;

    /// Whether a sync would do anything. Always false where nothing survives the process anyway.
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

    /// Entries up to `index` are superseded by a durable start of the log; their space may be used again.
    ///
    /// # Errors
    /// [`LogError`] when the space cannot be freed.
    fn release(&mut self, index: u64) -> Result<(), LogError>;

    /// Forgets everything; the replica is about to join anew.
    ///
    /// # Errors
    /// [`LogError`] when something would be left behind.
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
    fn release(&mut self, index: u64) -> Result<(), LogError> {
        (**self).release(index)
    }
    fn wipe(&mut self) -> Result<(), LogError> {
        (**self).wipe()
    }
}
