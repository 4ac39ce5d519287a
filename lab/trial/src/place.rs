//! Where a client is: its replica, the next one after a failure, and the times that a report needs of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::announce::{Gap, SHORT, Unanswered};
use crate::client::SharedRun;

/// The most failures that are kept.
const MOST_FAILURES: usize = 1 << 20;

/// The place of one client. Every client has one, whatever it asks for.
#[derive(Debug)]
pub struct ClientPlace {
    /// The client, from 0.
    pub number: u16,
    /// The run.
    pub shared: Arc<SharedRun>,
    /// The replica it is connected to, or tries next, from 0.
    pub at: usize,
    last_answer: u64,
    /// The replica that gave it, from 1.
    answered_by: u8,
}

impl ClientPlace {
    /// Client `number`; its home is the replica of the same number, of so many in turn.
    pub fn new(number: u16, shared: Arc<SharedRun>) -> Self {
        let at = usize::from(number) % shared.replicas.len();
        ClientPlace { number, at, answered_by: at as u8 + 1, last_answer: shared.announcer.now(), shared }
    }

    /// The address of its replica.
    pub fn address(&self) -> SocketAddr {
        self.shared.replicas[self.at]
    }

    /// Its replica, from 1.
    pub fn replica(&self) -> u8 {
        self.at as u8 + 1
    }

    /// The time, in nanoseconds of the run.
    pub fn now(&self) -> u64 {
        self.shared.announcer.now()
    }

    /// Takes the next replica.
    pub fn move_on(&mut self) {
        self.at = (self.at + 1) % self.shared.replicas.len();
    }

    /// Whether it was elsewhere and goes home, unless its home is in trouble.
    pub fn move_home(&mut self) -> bool {
        let home = usize::from(self.number) % self.shared.replicas.len();
        let moves = self.at != home && !self.shared.announcer.is_troubled(home as u8 + 1);
        if moves {
            self.at = home;
        }
        moves
    }

    /// Records an answer.
    pub fn answered(&mut self, at: u64) {
        self.shared.answered.fetch_add(1, Ordering::Relaxed);
        self.shared.answered_at[usize::from(self.number)].store(at, Ordering::Relaxed);
        self.shared.answered_by[self.at].store(at, Ordering::Relaxed);
        self.record_gap(at);
    }

    /// Records a request without an answer.
    pub fn failed(&mut self, sent: u64, ended: u64, what: String) {
        let mut failures = self.shared.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < MOST_FAILURES {
            failures.push(Unanswered { client: self.number, replica: self.at as u8 + 1, sent, ended, what });
        }
    }

    /// Records the time since the last answer, if it was not short.
    pub fn record_gap(&mut self, now: u64) {
        let from = std::mem::replace(&mut self.last_answer, now);
        let before = std::mem::replace(&mut self.answered_by, self.at as u8 + 1);
        if now.saturating_sub(from) >= SHORT.as_nanos() as u64 {
            let gap = Gap { client: self.number, before, replica: self.at as u8 + 1, from, to: now };
            self.shared.gaps.lock().unwrap_or_else(PoisonError::into_inner).push(gap);
        }
    }
}
