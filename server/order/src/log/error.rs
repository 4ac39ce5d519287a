//! Why a log cannot be used. Each message gives the operator the error, the evidence and the remedy.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Why a log cannot be written or read.
///
/// The text of each is complete: none has a source, which would be printed a second time.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The operating system refused (operator: permissions, a broken disk).
    #[error("{}: {error}{}", path.display(), with_remedy(error.kind()))]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// No space is left for the log, on the disk or within its configured bound (operator: free some space).
    #[error("no space left for the log ({0}); free some space there, then start this replica again")]
    Full(String),
    /// Another process has the directory. It may be about to end, so starting again can help.
    #[error("another process uses {}: stop it, or give each replica its own data directory", directory.display())]
    InUse {
        /// The data directory.
        directory: PathBuf,
    },
    /// The directory is another replica's (operator: a wrong path, or swapped disks). With it this replica would act in
    /// the other's name.
    #[error(
        "{} holds the log of replica {}, and this is replica {}: give each replica its own directory",
        directory.display(), holds + 1, this + 1
    )]
    OtherReplica {
        /// The data directory.
        directory: PathBuf,
        /// Slot of the replica that it belongs to.
        holds: u8,
        /// Slot of this replica.
        this: u8,
    },
    /// A file has the name of a log file, and this program did not write it. It is left unchanged.
    #[error(
        "{} is not a file of this program ({why}), and it is left as it is: move that file away and start again",
        file.display()
    )]
    Foreign {
        /// The file.
        file: PathBuf,
        /// The evidence.
        why: String,
    },
    /// A file is another log's, although it is intact: files of several directories were mixed.
    #[error("{} belongs to another log ({why}); {}", file.display(), refill(directory))]
    OtherLog {
        /// The file.
        file: PathBuf,
        /// The evidence.
        why: String,
        /// The data directory.
        directory: PathBuf,
    },
    /// Synced bytes differ from those that were written (state corrupted). The replica must drop this log and join as a
    /// new incarnation.
    #[error("{} is corrupt at byte {at}: {why}; {}", file.display(), refill(directory))]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// Offset of the first bad byte, or of the record that it is in.
        at: u64,
        /// Which rule it breaks.
        why: &'static str,
        /// The data directory.
        directory: PathBuf,
    },
    /// A file is shorter than when it was made, so its end was lost (state corrupted: a damaged file system, or the
    /// file was truncated).
    #[error(
        "{} was truncated: it has {length} bytes and was made with {made}; {}",
        file.display(), refill(directory)
    )]
    Truncated {
        /// The file.
        file: PathBuf,
        /// Its length in bytes.
        length: u64,
        /// The length that it was made with.
        made: u64,
        /// The data directory.
        directory: PathBuf,
    },
    /// The log ends before its last synced record (state corrupted). Its last records may have been acknowledged.
    #[error(
        "{} has lost its end: it ends at byte {at} with record {last}, and record {synced} (entry {entry}) \
            had been synced; {}",
        file.display(), refill(directory)
    )]
    EndLost {
        /// The last file of the log, or their directory when there is no file.
        file: PathBuf,
        /// Where it ends.
        at: u64,
        /// Number of its last record, 0 for none.
        last: u64,
        /// Number of the last record that is known to have been durable.
        synced: u64,
        /// Index of the last entry up to there.
        entry: u64,
        /// The data directory.
        directory: PathBuf,
    },
    /// Every record is intact, but together they are no log (a bug of ours, or files from elsewhere).
    #[error(
        "the log contradicts itself: {0}; move the data directory away (keep it until all replicas serve) \
            and start again: the peers fill this replica"
    )]
    Contradiction(&'static str),
}

impl LogError {
    /// Whether only an operator can help: to start again changes nothing, so a supervisor should not.
    pub fn is_operators(&self) -> bool {
        match self {
            LogError::Io { error, .. } => operators_remedy(error.kind()).is_some(),
            LogError::Full(_) | LogError::InUse { .. } => false,
            LogError::OtherReplica { .. }
            | LogError::Foreign { .. }
            | LogError::OtherLog { .. }
            | LogError::Corrupt { .. }
            | LogError::Truncated { .. }
            | LogError::EndLost { .. }
            | LogError::Contradiction(_) => true,
        }
    }

    /// Makes an error of the system's error about `path`.
    pub(crate) fn of(path: &Path) -> impl Fn(io::Error) -> LogError + use<> {
        let path = path.to_owned();
        move |error| match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                LogError::Full(format!("{}: {error}", path.display()))
            }
            _ => LogError::Io { path: path.clone(), error },
        }
    }
}

/// The remedy for data that cannot be used.
fn refill(directory: &Path) -> String {
    format!(
        "move {} away (keep it until all replicas serve) and start again: the peers fill this replica",
        directory.display()
    )
}

/// The operator's remedy for a file or directory that the system refuses; `None` where starting again may
/// help as well.
pub fn operators_remedy(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::PermissionDenied => Some("let the user of this process own it, read it and write it"),
        ErrorKind::ReadOnlyFilesystem => Some("mount it writable, or use another data directory"),
        ErrorKind::NotFound => Some("use a data directory that is there, or can be made"),
        ErrorKind::InvalidData => Some("move it away"),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some("free some space there"),
        ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
            Some("use another data directory, or move it away")
        }
        _ => None,
    }
}

fn with_remedy(kind: ErrorKind) -> String {
    operators_remedy(kind).map_or_else(String::new, |remedy| format!("; {remedy}"))
}
