//! The outcomes of a replica's run: in good order, or with an error for the operator.

use std::io;

use crate::replace::ReplaceReason;
use crate::snapshot;

/// Why a replica stopped in good order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It was asked to stop.
    Asked,
    /// It cannot be repaired in place: start it again, and its peers will fill it.
    Replace(ReplaceReason),
}

/// The reason why a replica could not start or continue. Each message is complete: the underlying error is not returned
/// as its source, which would be printed again.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The operating system refused a call.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The operator has to change something first: the text has the change and the way to make it. Starting again does
    /// not help before that.
    #[error("{0}")]
    Operator(String),
    /// The group has other replicas, and no key by which they know each other.
    #[error(
        "no group key is set: make one with `crosscheck key new`, and name its file in group_key on every replica"
    )]
    NoKey,
    /// To continue would break a promise; no acknowledged request is lost.
    #[error("stopped: {0}")]
    FailStop(order::FailStop),
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] order::LogError),
    /// The state on disk cannot be used.
    #[error(transparent)]
    Snapshot(#[from] snapshot::SnapshotError),
    /// The state that f+1 peers agree on cannot be loaded: they run another version.
    #[error(
        "the group's state cannot be loaded: {0}; do all replicas run the same version and configuration?"
    )]
    BadState(String),
}

impl ServeError {
    /// Whether only an operator can help (a wrong, foreign or damaged data directory, a full disk): to start again
    /// changes nothing, so a supervisor should not.
    pub fn is_operators(&self) -> bool {
        match self {
            ServeError::Log(order::LogError::Full(_)) | ServeError::FailStop(order::FailStop::LogFull(_)) => {
                true
            }
            ServeError::Log(error) => error.is_operators(),
            ServeError::Snapshot(error) => error.is_operators(),
            ServeError::Operator(_) | ServeError::NoKey => true,
            ServeError::Io(_) | ServeError::FailStop(_) | ServeError::BadState(_) => false,
        }
    }
}
