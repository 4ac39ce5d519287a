//! Waiting for a condition without a thread that waits: the waiter is a request to be started later.

use std::collections::VecDeque;

use object::{Malformed, Reader, Summed, Summer};

use crate::Spawn;

/// Continuations that wait for a condition, in the order they came.
///
/// Make it a member of the critical type whose lock guards the condition. A handler waits by registering a request here
/// and returning; to notify is to spawn that request. The order is the order of turns, hence the same on all replicas.
/// The list belongs to the state: with `R: Summed` it is summed, packed, repaired and undone with its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiters<R> {
    waiting: VecDeque<R>,
}

impl<R> Waiters<R> {
    /// An empty list.
    pub const fn new() -> Self {
        Waiters { waiting: VecDeque::new() }
    }

    /// Registers what is to run when the condition is signalled.
    pub fn wait(&mut self, continuation: R) {
        self.waiting.push_back(continuation);
    }

    /// Starts the request that has waited longest; returns whether there was one.
    pub fn notify_one(&mut self, cx: &impl Spawn<R>) -> bool {
        let first = self.waiting.pop_front();
        let found = first.is_some();
        first.into_iter().for_each(|continuation| cx.spawn(continuation));
        found
    }

    /// Starts every waiting request, the longest waiting first; returns their number.
    pub fn notify_all(&mut self, cx: &impl Spawn<R>) -> usize {
        let waiting = self.waiting.len();
        self.waiting.drain(..).for_each(|continuation| cx.spawn(continuation));
        waiting
    }

    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The waiting requests, the longest waiting first.
    pub fn iter(&self) -> impl Iterator<Item = &R> {
        self.waiting.iter()
    }
}

impl<R> Default for Waiters<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Summed> Summed for Waiters<R> {
    fn sum(&self, summer: &mut Summer) {
        self.waiting.sum(summer);
    }
    fn pack(&self, out: &mut Vec<u8>) {
        self.waiting.pack(out);
    }
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        VecDeque::unpack(from).map(|waiting| Waiters { waiting })
    }
    fn blank() -> Self {
        Waiters::new()
    }
    fn is_intact(&self) -> bool {
        self.waiting.is_intact()
    }
}
