//! What an operator wants of the group, and what this replica has submitted and seen for that: for machines that are
//! replaced (`moving.rs`), and for the size of the group (`sizing.rs`).

use std::collections::BTreeMap;

use crate::limits;

/// Wishes that take f+1 replicas in the order, as far as they are this replica's own.
#[derive(Debug)]
pub(super) struct OwnWishes<T> {
    /// What an operator has asked for, and until when that counts.
    asked: Option<(T, u64)>,
    /// The last wish that was submitted, and when: it may be on its way, or lost.
    submitted: Option<(T, u64)>,
    /// Per number: where a process said that it is this replica, and when.
    seen: BTreeMap<u8, (String, u64)>,
}

impl<T> Default for OwnWishes<T> {
    fn default() -> Self {
        OwnWishes { asked: None, submitted: None, seen: BTreeMap::new() }
    }
}

impl<T: PartialEq> OwnWishes<T> {
    /// An operator asks for this now.
    pub(super) fn ask(&mut self, wish: T, now_us: u64) {
        self.asked = Some((wish, now_us + order::limits::WISH.as_micros() as u64));
    }

    /// What an operator asks for.
    pub(super) fn asked(&self) -> Option<&T> {
        self.asked.as_ref().map(|(wish, _)| wish)
    }

    /// Forgets what an operator has asked for, once it is late or `is_over`.
    pub(super) fn end_asked(&mut self, now_us: u64, is_over: impl Fn(&T) -> bool) {
        self.asked.take_if(|(wish, until_us)| now_us >= *until_us || is_over(wish));
    }

    /// A wish was submitted now.
    pub(super) fn submit(&mut self, wish: T, now_us: u64) {
        self.submitted = Some((wish, now_us));
    }

    /// Whether this wish was submitted a moment ago.
    pub(super) fn is_submitted(&self, wish: &T, now_us: u64) -> bool {
        let patience_us = limits::TIMER_PATIENCE.as_micros() as u64;
        self.submitted.as_ref().is_some_and(|(last, at_us)| last == wish && now_us < at_us + patience_us)
    }

    /// A process at this address says now that it is this replica.
    pub(super) fn see(&mut self, replica: u8, at: String, now_us: u64) {
        self.seen.insert(replica, (at, now_us));
    }

    /// Whether a process at this address has said lately that it is this replica.
    pub(super) fn has_seen(&self, replica: u8, address: &str, now_us: u64) -> bool {
        let recent_us = limits::SEEN_ELSEWHERE.as_micros() as u64;
        self.seen.get(&replica).is_some_and(|(at, at_us)| at == address && now_us < at_us + recent_us)
    }
}
