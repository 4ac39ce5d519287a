//! The outcomes of a replica's run: in good order, or with an error for the operator.

use std::fmt;
use std::io;

use crate::backup::contents::BackupError;
use crate::replace::ReplaceReason;
use crate::snapshot;

/// Why a replica stopped in good order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It was asked to stop.
    Asked,
    /// It cannot be repaired in place: start it again, and its peers will fill it.
    Replace(ReplaceReason),
    /// Its hardware is broken: it must not be started again before that has been replaced.
    Broken(BrokenHardware),
}

/// The evidence that the hardware of a replica is broken: more faults than that of any healthy machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenHardware {
    /// Faults of this replica within 10 s.
    pub faults: u64,
    /// As many would have been accepted ([`crate::Settings::faults_per_10s`]).
    pub limit: u32,
    /// The last record of evidence.
    pub last: Option<String>,
}

impl fmt::Display for BrokenHardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BrokenHardware { faults, limit, last } = self;
        write!(
            f,
            "its hardware is broken: {faults} faults of its own were found within 10 s, and faults_per_10s is {limit}"
        )?;
        last.iter().try_for_each(|last| write!(f, ". The last record of evidence is: {last}"))
    }
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
    /// The backup that the group is to begin with cannot be used.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The state that f+1 peers agree on cannot be loaded: they run another version.
    #[error(
        "the group's state cannot be loaded: {0}; do all replicas run the same version and configuration?"
    )]
    BadState(String),
}

impl ServeError {
    /// Whether only an operator can help (a wrong address, a wrong, foreign or damaged data directory, a full disk): to
    /// start again changes nothing, so a supervisor should not.
    pub fn is_operators(&self) -> bool {
        match self {
            ServeError::Log(order::LogError::Full(_)) | ServeError::FailStop(order::FailStop::LogFull(_)) => {
                true
            }
            ServeError::Log(error) => error.is_operators(),
            ServeError::Snapshot(error) => error.is_operators(),
            ServeError::Operator(_) | ServeError::NoKey | ServeError::Backup(_) => true,
            // An address that this machine does not have, or a place that this user may not use.
            ServeError::Io(error) => matches!(
                error.kind(),
                io::ErrorKind::AddrNotAvailable
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::ReadOnlyFilesystem
            ),
            ServeError::FailStop(_) | ServeError::BadState(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_restart_cannot_mend_is_the_operators() {
        let io = |kind: io::ErrorKind| ServeError::Io(kind.into()).is_operators();
        assert!(io(io::ErrorKind::AddrNotAvailable) && io(io::ErrorKind::PermissionDenied));
        assert!(!io(io::ErrorKind::AddrInUse), "the other process may end");
        assert!(!io(io::ErrorKind::NotFound), "a name may resolve later");
        let full = || "no room".to_owned();
        assert!(ServeError::FailStop(order::FailStop::LogFull(full())).is_operators());
        assert!(!ServeError::FailStop(order::FailStop::LogWrite(full())).is_operators());
    }
}
