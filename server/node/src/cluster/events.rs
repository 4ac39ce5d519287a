//! What happened to a cluster so far, for those who look for one event after the other: a process, its end, its words.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::supervisor::SupervisorEvent;

/// The events of a cluster; a clone is the same log.
#[derive(Clone, Debug, Default)]
pub struct EventLog(Arc<Mutex<Vec<SupervisorEvent>>>);

impl EventLog {
    /// Adds an event.
    pub fn push(&self, event: SupervisorEvent) {
        self.lock().push(event);
    }

    /// All events since the last [`EventLog::take`].
    pub fn all(&self) -> Vec<SupervisorEvent> {
        self.lock().clone()
    }

    /// The same, and forgets them.
    pub fn take(&self) -> Vec<SupervisorEvent> {
        std::mem::take(&mut *self.lock())
    }

    /// Processes of a replica, the present one last.
    pub fn pids(&self, replica: u8) -> Vec<u32> {
        self.collect(|event| match event {
            SupervisorEvent::Started { replica: of, pid } if *of == replica => Some(*pid),
            _ => None,
        })
    }

    /// Processes that ended by themselves: the replica, and how.
    pub fn deaths(&self) -> Vec<(u8, String)> {
        self.collect(|event| match event {
            SupervisorEvent::Died { replica, how, .. } => Some((*replica, how.clone())),
            SupervisorEvent::Drained { replica, why } | SupervisorEvent::Hopeless { replica, why, .. } => {
                Some((*replica, why.clone()))
            }
            _ => None,
        })
    }

    /// The lines that a replica wrote to its stderr, in all its processes.
    pub fn lines(&self, replica: u8) -> Vec<String> {
        self.collect(|event| match event {
            SupervisorEvent::Said { replica: of, line } if *of == replica => Some(line.clone()),
            _ => None,
        })
    }

    fn collect<T>(&self, of: impl FnMut(&SupervisorEvent) -> Option<T>) -> Vec<T> {
        self.lock().iter().filter_map(of).collect()
    }

    /// An event is added as a whole: after a panic elsewhere the log is still consistent.
    fn lock(&self) -> MutexGuard<'_, Vec<SupervisorEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
