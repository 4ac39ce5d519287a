//! The reasons for which a replica replaces itself: it ends, the next incarnation starts, and peers fill it. This is
//! the only list of the reasons and their texts.

use std::fmt;
use std::path::PathBuf;

use vote::{BeyondRepair, Failure, Place};

use crate::evidence;

/// A reason for which a replica ends so that it is started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplaceReason {
    /// State that is no object was corrupted. No repair of objects corrects it.
    Corrupted(Corrupted),
    /// The voter found that it cannot be repaired in place.
    Vote(BeyondRepair),
    /// A handler did not end in time, and f+1 replicas have executed the request.
    HandlerHangs {
        /// Position of the request.
        position: u64,
    },
    /// No ordered request was executed in time, and f+1 replicas have executed more.
    ExecutionStopped,
    /// The order thread made no progress in time, and f+1 replicas did.
    OrderThreadHangs,
    /// A worker thread ended before the replica stopped.
    WorkerEnded,
    /// Repairs were ordered, and no replica sent the right objects.
    RepairsMissing,
    /// The right objects arrived, and could not take the place of the wrong ones.
    RepairsFailed,
    /// A request failed in a mode without a vote, so its right changes are unknown.
    RequestFailed {
        /// The request.
        place: Place,
        /// How it failed.
        failure: Failure,
    },
    /// The log has a batch of this replica that this process did not send: its data is an older copy.
    OlderCopy {
        /// The log entry.
        entry: u64,
        /// Incarnation and start of the process that sent the batch.
        sender: (u32, u32),
        /// Number of the batch.
        batch: u64,
        /// The data directory; none with the log in memory.
        directory: Option<PathBuf>,
    },
    /// The group accepted a later incarnation of this replica.
    LaterIncarnation,
    /// The group's log begins later than this replica's state ends.
    TooFarBehind,
    /// In verified mode: its state after a batch is not the one that was agreed on, also when the batch ran again.
    Diverged {
        /// Number of the batch.
        batch: u64,
    },
    /// The others had received nothing from it for so long that they hold its clients' connections for ended.
    HeldForGone,
    /// An operator decided that the group continues with another replica's data.
    Operator(String),
}

/// State that is no object and was found corrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corrupted {
    /// Checksums of known bytes are wrong.
    Checksums,
    /// Digests of known bytes are wrong.
    Digests,
    /// Its own number, or its table of peers.
    Peers,
    /// The client side makes no progress, and reports no reason.
    ClientsStopped,
    /// The kernel refused a descriptor or a buffer that the client side holds as its own.
    ClientSockets,
    /// The settings of the service.
    ServiceSettings,
    /// Code or constants.
    Program,
    /// The queue of requests that wait to be ordered.
    RequestQueue,
    /// The main loop ended without a reason.
    MainLoop,
    /// The recipients of the replies to delivered requests.
    PendingReplies,
    /// The results of a batch in execution.
    Results,
    /// What the replica acts as.
    Behavior,
    /// A worker's place in the schedule.
    Schedule,
    /// A reply, after both runs of its request.
    Reply,
    /// Objects that a request had changed and that could not be rolled back.
    NotUndone,
    /// The verifiers contradict what was agreed on.
    Verification,
    /// A part of the orderer or of the consensus engine.
    Order(order::CorruptPart),
}

impl fmt::Display for ReplaceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplaceReason::Corrupted(what) => write!(f, "memory was corrupted: {what}"),
            ReplaceReason::Vote(why) => why.fmt(f),
            ReplaceReason::HandlerHangs { position } => write!(
                f,
                "the handler of the request at position {position} did not end within watchdog_ms, and f+1 \
                    replicas have executed it"
            ),
            ReplaceReason::ExecutionStopped => f.write_str(
                "no ordered request was executed within watchdog_ms, and f+1 replicas have executed more",
            ),
            ReplaceReason::OrderThreadHangs => f.write_str(
                "the order thread made no progress within watchdog_ms, and f+1 replicas have executed more",
            ),
            ReplaceReason::WorkerEnded => {
                f.write_str("a worker thread ended: a fault hit it outside of a handler")
            }
            ReplaceReason::RepairsMissing => f.write_str("no replica sent the right objects for its repairs"),
            ReplaceReason::RepairsFailed => f.write_str(
                "the right objects could not take the place of the wrong ones: `crosscheck evidence` says why",
            ),
            ReplaceReason::RequestFailed { place, failure } => {
                write!(
                    f,
                    "request {place} failed here ({}), and this mode has no vote",
                    evidence::reported(failure)
                )
            }
            ReplaceReason::OlderCopy { entry, sender: (incarnation, start), batch, directory } => {
                if let Some(directory) = directory {
                    write!(f, "{} is an older copy of this replica's data: ", directory.display())?;
                }
                write!(
                    f,
                    "entry {entry} of the group's log has batch {batch} of start {start} of incarnation \
                        {incarnation} of this replica, which this process did not send"
                )?;
                match directory {
                    Some(_) => {
                        f.write_str(". The log of the copy is deleted; what was acknowledged is at the peers")
                    }
                    None => Ok(()),
                }
            }
            ReplaceReason::LaterIncarnation => {
                f.write_str("a later incarnation of this replica took its place in the group")
            }
            ReplaceReason::TooFarBehind => {
                f.write_str("it is too far behind: the group's log no longer has the entries that come next")
            }
            ReplaceReason::Diverged { batch } => {
                write!(f, "its state after batch {batch} is not the one that the replicas have agreed on")
            }
            ReplaceReason::HeldForGone => write!(
                f,
                "the other replicas did not hear this one for {} s, and the connections of its clients have ended for \
                    the service; their clients connect again. If the machine was not stopped, look at the network \
                    between the replicas",
                crate::limits::GONE.as_secs()
            ),
            ReplaceReason::Operator(what) => write!(f, "an operator decided: {what}"),
        }
    }
}

impl fmt::Display for Corrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Corrupted::Order(part) => return write!(f, "{part}"),
            Corrupted::Checksums => "checksums of known bytes come out wrong",
            Corrupted::Digests => "digests of known bytes come out wrong",
            Corrupted::Peers => "its own number or its table of peers changed",
            Corrupted::ClientsStopped => "its client side makes no progress",
            Corrupted::ClientSockets => "the kernel refused a socket or a buffer of its client side",
            Corrupted::ServiceSettings => "the settings of its service changed",
            Corrupted::Program => "its code or its constants changed",
            Corrupted::RequestQueue => {
                "a request of its clients would be ordered twice, or not at all: its queue lost count"
            }
            Corrupted::MainLoop => "its main loop ended without a reason",
            Corrupted::PendingReplies => {
                "it cannot know any more which client waits for what: its queue of pending replies lost count"
            }
            Corrupted::Results => "a request of a batch has two results, or none",
            Corrupted::Behavior => "it acts as another behavior of its service than the order says",
            Corrupted::Schedule => "a worker lost its place in the schedule",
            Corrupted::NotUndone => "the effects of a request could not be undone",
            Corrupted::Verification => "the verifiers contradict what was agreed on",
            Corrupted::Reply => "a reply is not what both runs of its request left",
        };
        f.write_str(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_copy_is_named_with_its_directory_and_what_becomes_of_it() {
        let reason = |directory: Option<&str>| {
            let directory = directory.map(PathBuf::from);
            ReplaceReason::OlderCopy { entry: 9, sender: (2, 3), batch: 4, directory }.to_string()
        };
        let batch = "entry 9 of the group's log has batch 4 of start 3 of incarnation 2 of this replica, \
            which this process did not send";
        assert_eq!(reason(None), batch);
        let reported = reason(Some("/data/r2"));
        assert!(reported.starts_with("/data/r2 is an older copy") && reported.contains(batch), "{reported}");
        assert!(reported.ends_with("is deleted; what was acknowledged is at the peers"), "{reported}");
    }
}
