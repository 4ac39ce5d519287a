//! What a program that runs a cluster adds to its supervision: where processes are started, and who else learns of
//! what happens.

use std::fmt::Debug;
use std::io;
use std::process::{Command, Stdio};
use std::time::Instant;

use crosscheck::admin::Status;

use super::child::Process;
use super::supervisor::SupervisorEvent;

/// Additions to the supervision of a cluster; each has a default.
pub trait ClusterHooks: Debug + Send + Sync + 'static {
    /// Starts the process of a replica: for example on a thread that has a network of its own.
    ///
    /// # Errors
    /// The operating system cannot start one more process.
    fn spawn(&self, replica: u8, command: Command) -> io::Result<Process> {
        let _ = replica;
        Process::spawn(command, Stdio::null(), Stdio::piped())
    }

    /// Learns of an event; the cluster's supervisor is locked meanwhile.
    fn event(&self, event: &SupervisorEvent) {
        let _ = event;
    }

    /// Learns of a replica's status, which was asked for at `asked`.
    fn status(&self, replica: u8, asked: Instant, status: &Status) {
        let _ = (replica, asked, status);
    }
}

/// The defaults.
impl ClusterHooks for () {}
