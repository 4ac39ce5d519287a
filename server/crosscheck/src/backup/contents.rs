//! What a backup says of itself, and what can be wrong with one.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::admin::BackupGroup;

/// Version of the file's format.
pub(super) const VERSION: u32 = 1;

/// What a backup is of: the beginning of its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupHeader {
    /// When it was begun, by the clock of the machine that took it; microseconds since 1970.
    pub made_us: u64,
    /// How many replicas had to agree on each piece.
    pub agreed_by: u8,
    /// The group.
    pub group: BackupGroup,
}

/// Where a backup ends: what is known only once all of it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupEnd {
    /// The state is that after this entry of the log.
    pub index: u64,
    /// Number of the batch.
    pub batch: u64,
    /// Ordered time of that batch, in microseconds since 1970.
    pub time_us: u64,
    /// Pieces of the state.
    pub pieces: u32,
    /// Their bytes.
    pub bytes: u64,
}

/// A backup whose file was read from its first to its last byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// What it is of.
    pub header: BackupHeader,
    /// The state that it holds.
    pub end: BackupEnd,
    /// SHA-256 of the file's content, as its last bytes have it.
    pub digest: [u8; 32],
}

impl Backup {
    /// The digest as text.
    pub fn sha256(&self) -> String {
        crate::hexadecimal::digits_of(&self.digest)
    }

    /// The beginning of that text: two files with the same one are the same backup.
    pub fn name(&self) -> String {
        self.sha256().chars().take(16).collect()
    }
}

/// Why there is no backup, or none that can be used. Each text is complete.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The operating system refused.
    #[error("{}: {error}{}", path.display(), remedy(error))]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file has this name.
    #[error("{} is there already, and nothing was written: name another file, or allow it to be replaced (--force)",
        path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It does not begin as a backup does.
    #[error("{} is no backup: it does not begin as one does", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Another release made it.
    #[error(
        "{} has format {version} of backups, and this program reads format {}: use the release that made it. If this \
            one did, the file is corrupt",
        path.display(), VERSION
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        version: u32,
    },
    /// The bytes are not those that were written.
    #[error("{} is corrupt at byte {at}: {why}. Use another copy of it, or another backup", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where that shows.
        at: u64,
        /// The rule that is broken.
        why: String,
    },
    /// The file is intact, and not for this service or configuration.
    #[error("{} is no backup for this replica: {why}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What differs, and what to do.
        why: String,
    },
    /// Too few replicas vouch for a state.
    #[error("no backup was taken: {0}")]
    Untaken(String),
}

impl BackupError {
    pub(super) fn io(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |error| BackupError::Io { path: path.clone(), error }
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; the disk is full, and what was written is removed again: free space, or name a file elsewhere"
        }
        _ => "",
    }
}
