//! One replica that fails while it is measured, and comes back: killed and started again, or stopped and continued.

use serde::{Deserialize, Serialize};

/// A failure at one second of the measured time, and its end at a later one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaFailure {
    /// What happens.
    pub kind: FailureKind,
    /// To which replica.
    pub replica: FailingReplica,
    /// When, in seconds of the measured time.
    pub at: f64,
    /// When the process is started again, or goes on, in seconds of the measured time.
    pub back: f64,
}

/// How a replica fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureKind {
    /// SIGKILL: its memory is lost. Later its supervisor starts a new process.
    Kill,
    /// SIGSTOP, and later SIGCONT.
    Pause,
}

/// The replica that fails, by its role when the load begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailingReplica {
    /// The leader; of two in mode R0GV the primary.
    Primary,
    /// Another one.
    Backup,
}

impl ReplicaFailure {
    /// In words, for readers of a report.
    pub fn in_words(self) -> String {
        let ReplicaFailure { at, back, .. } = self;
        let replica = match self.replica {
            FailingReplica::Primary => "the primary",
            FailingReplica::Backup => "the backup",
        };
        match self.kind {
            FailureKind::Kill => format!("{replica} is killed at {at} s and started again at {back} s"),
            FailureKind::Pause => format!("{replica} is stopped at {at} s and continued at {back} s"),
        }
    }
}
