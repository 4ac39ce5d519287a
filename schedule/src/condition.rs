//! Waiting for a condition without a thread that waits: the waiter is a request to be started later.

use std::any::Any;
use std::collections::VecDeque;

use crate::Cx;

/// Continuations that wait for a condition, in the order they came.
///
/// Keep it in the region whose lock guards the condition. To wait is to register a request here and to
/// return; to notify is to spawn it. The order is the order of turns, hence the same on all replicas. The
/// list belongs to the state: it must be undone, packed and summed with the region if requests that use it
/// may miss their forecast or panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiters<R> {
    waiting: VecDeque<R>,
}

impl<R: Any + Send + Sync> Waiters<R> {
    /// Nobody waits.
    pub const fn new() -> Self {
        Waiters { waiting: VecDeque::new() }
    }

    /// Registers what is to run when the condition is signalled.
    pub fn wait(&mut self, continuation: R) {
        self.waiting.push_back(continuation);
    }

    /// Starts the request that has waited longest; tells whether there was one.
    pub fn notify_one(&mut self, cx: &Cx<'_>) -> bool {
        let first = self.waiting.pop_front();
        let found = first.is_some();
        first.into_iter().for_each(|continuation| cx.spawn(continuation));
        found
    }

    /// Starts every waiting request, the longest waiting first; returns their number.
    pub fn notify_all(&mut self, cx: &Cx<'_>) -> usize {
        let waiting = self.waiting.len();
        self.waiting.drain(..).for_each(|continuation| cx.spawn(continuation));
        waiting
    }

    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The waiting requests, the longest waiting first.
    pub fn iter(&self) -> impl Iterator<Item = &R> {
        self.waiting.iter()
    }
}

impl<R: Any + Send + Sync> Default for Waiters<R> {
    fn default() -> Self {
        Self::new()
    }
}
