//! What other threads pass to the order thread.

use crate::admin_server::Call;
use crate::clients::Submission;
use crate::state_writer::WriteEnd;
use crate::worker::Report;

/// Input that other threads pass to the order thread.
pub(crate) enum Input {
    /// Requests of this replica's clients.
    Submissions(Vec<Submission>),
    /// A worker's report.
    Report(Report),
    /// An admin command.
    Call(Call),
    /// The write of a state has ended.
    Kept {
        /// Number of the write.
        write: u64,
        /// How it ended.
        end: WriteEnd,
    },
    /// Stop cleanly.
    Stop,
}
