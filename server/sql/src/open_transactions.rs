//! Transactions over several queries: nothing of them is in the database before they are committed.
//!
//! An open transaction is its runs so far, with what each has drawn and a digest of the reply that its client has. With
//! each further one all of them are executed again on the present database, and are rolled back: a reply that is
//! another one by now means that the transaction did not happen at one moment, and the client is told to begin again
//! (40001).
//! COMMIT runs them once more, and commits. So there is no uncommitted change that repairs, transfers of state or
//! changes of views would have to know of, and each reply is voted on like any other.

use std::collections::BTreeMap;

use crosscheck::object::{Ref, Store, Summed, critical};

use crate::request::ClientRun;

/// Microseconds of ordered time after which a transaction without a query is given up.
pub const IDLE_US: u64 = 60_000_000;
/// Microseconds after which one that was given up is forgotten: its client is not told any more.
const FORGOTTEN_US: u64 = 3_600_000_000;
/// Runs of one transaction at most, and their bytes: each is executed again with each later one.
pub const MAX_RUNS: usize = 256;
const MAX_BYTES: u64 = 16 << 20;
/// Bytes of all transactions behind one lock at most.
const MAX_LOCK_BYTES: u64 = 32 << 20;
/// Open transactions behind one lock at most.
const MAX_OPEN: usize = 64;

/// What a query draws from the ordered log, so that it draws the same again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Summed)]
pub struct Drawn {
    /// Time, in microseconds since 1970.
    pub now_us: u64,
    /// Seed of its random numbers.
    pub seed: u64,
}

/// A run of an open transaction.
#[derive(Clone, Debug, PartialEq, Eq, Summed)]
pub struct Replayed {
    /// What it does.
    pub run: ClientRun,
    /// What it draws.
    pub drawn: Drawn,
    /// Of the reply that its client has.
    pub digest: u128,
}

/// How a transaction was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Summed)]
pub enum Opening {
    /// By BEGIN: it ends with COMMIT or ROLLBACK.
    Explicit {
        /// It may change nothing.
        is_read_only: bool,
    },
    /// By messages in front of a Flush: it ends with the Sync behind them.
    Implicit,
}

/// An open transaction.
#[critical]
pub struct OpenTransaction {
    id: u64,
    /// Time of the last run.
    used_us: u64,
    opening: Opening,
    /// A run has failed: nothing more is executed.
    failed: bool,
    /// A message has failed: those up to the next Sync are skipped.
    skips: bool,
    /// It had no query for too long.
    given_up: bool,
    /// The client may send lines of a COPY.
    copies: bool,
    /// How many runs the client has sent.
    sent: u32,
    /// Of its runs.
    bytes: u64,
    runs: Vec<Replayed>,
}

#[critical]
impl OpenTransaction {
    fn new(id: u64, opening: Opening, now_us: u64) -> Self {
        Self {
            id,
            used_us: now_us,
            opening,
            failed: false,
            skips: false,
            given_up: false,
            copies: false,
            sent: 0,
            bytes: 0,
            runs: Vec::new(),
        }
    }

    /// Bytes of its runs.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its runs so far.
    pub fn runs(&self) -> &[Replayed] {
        &self.runs
    }

    /// How it was begun.
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// BEGIN stands behind messages that have begun one already.
    pub fn set_opening(&mut self, opening: Opening) {
        self.opening = opening;
    }

    /// Whether messages up to the next Sync are skipped.
    pub fn skips(&self) -> bool {
        self.skips
    }

    /// The client waits at a Sync, or not yet.
    pub fn set_skips(&mut self, skips: bool) {
        self.skips = skips;
    }

    /// Whether the client may send lines of a COPY.
    pub fn copies(&self) -> bool {
        self.copies
    }

    /// The client may send lines of a COPY, or not any more.
    pub fn set_copies(&mut self, copies: bool) {
        self.copies = copies;
    }

    /// How many runs the client has sent, with the one that began it.
    pub fn sent(&self) -> u32 {
        self.sent
    }

    /// The client has sent another one.
    pub fn count(&mut self, now_us: u64) {
        (self.sent, self.used_us) = (self.sent.saturating_add(1), now_us);
    }

    /// Whether a run has failed.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    fn add(&mut self, replayed: Replayed) {
        self.bytes += replayed.run.bytes() as u64;
        self.runs.push(replayed);
    }

    /// A run has failed.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// It has gone back to a savepoint in front of what has failed.
    pub fn recover(&mut self) {
        self.failed = false;
    }

    /// Whether it had no query for too long: it is only kept so that its client is told.
    pub fn is_given_up(&self) -> bool {
        self.given_up
    }

    fn give_up(&mut self) {
        (self.given_up, self.failed, self.bytes) = (true, true, 0);
        self.runs.clear();
    }

    /// When it is given up, if no query comes before, or forgotten if it was.
    pub fn ends_us(&self) -> u64 {
        let idle_us = if self.given_up { FORGOTTEN_US } else { IDLE_US };
        self.used_us.saturating_add(idle_us)
    }
}

/// The open transactions behind one lock.
#[critical]
pub struct OpenTransactions {
    /// Before this time none is idle for too long.
    next_us: u64,
    /// Of all their runs.
    bytes: u64,
    by_id: BTreeMap<u64, Ref<OpenTransaction>>,
    open: Store<OpenTransaction>,
}

#[critical]
impl OpenTransactions {
    /// None, as the state of a region ([`crosscheck::object::genesis`]).
    #[allow(clippy::new_without_default, reason = "only the state of a region is made so")]
    pub fn new() -> Self {
        Self { next_us: 0, bytes: 0, by_id: BTreeMap::new(), open: Store::new() }
    }

    /// The open transaction of this session.
    pub fn get(&self, id: u64) -> Option<&OpenTransaction> {
        self.by_id.get(&id).map(|session| self.open.expect(*session))
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut OpenTransaction> {
        let session = *self.by_id.get(&id)?;
        Some(self.open.expect_mut(session))
    }

    /// Whether another run of so many bytes may join a transaction.
    pub fn has_room(&self, id: u64, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let has_room =
            |open: &OpenTransaction| open.runs().len() < MAX_RUNS && open.bytes() + bytes <= MAX_BYTES;
        self.get(id).is_none_or(has_room) && self.bytes + bytes <= MAX_LOCK_BYTES
    }

    /// A run was executed, and its client has this reply.
    pub fn add(&mut self, id: u64, replayed: Replayed) {
        self.bytes += replayed.run.bytes() as u64;
        if let Some(open) = self.get_mut(id) {
            open.add(replayed);
        }
    }

    /// Gives up transactions that are idle at this time, and forgets those that were given up long ago. Whoever uses
    /// transactions behind this lock does this first: a timer would be a second thing to compare and to repair.
    pub fn expire(&mut self, now_us: u64) {
        if self.by_id.is_empty() || now_us < self.next_us {
            return;
        }
        let idle = self.by_id.iter().filter(|(_, session)| self.open.expect(**session).ends_us() <= now_us);
        for id in idle.map(|(id, _)| *id).collect::<Vec<u64>>() {
            let runs = self.get(id).map_or(0, OpenTransaction::bytes);
            match self.get_mut(id) {
                Some(open) if !open.is_given_up() => {
                    open.give_up();
                    self.bytes -= runs;
                }
                _ => self.end(id),
            }
        }
        let next = self.by_id.values().map(|session| self.open.expect(*session).ends_us()).min();
        self.next_us = next.unwrap_or(now_us);
    }

    /// Begins a transaction; one that was left open is given up. False if there are too many.
    pub fn begin(&mut self, id: u64, opening: Opening, now_us: u64) -> bool {
        self.end(id);
        if self.by_id.len() >= MAX_OPEN {
            // One that was given up needs its place no more than this one.
            let given_up = self.by_id.iter().find(|(_, session)| self.open.expect(**session).is_given_up());
            let Some(given_up) = given_up.map(|(id, _)| *id) else { return false };
            self.end(given_up);
        }
        let ends_us = now_us.saturating_add(IDLE_US);
        self.next_us = if self.by_id.is_empty() { ends_us } else { self.next_us.min(ends_us) };
        let session = self.open.insert(OpenTransaction::new(id, opening, now_us));
        self.by_id.insert(id, session);
        true
    }

    /// Ends a transaction, if it is open.
    pub fn end(&mut self, id: u64) {
        if let Some(session) = self.by_id.remove(&id) {
            self.bytes -= self.open.expect(session).bytes();
            self.open.expect_remove(session);
        }
    }
}
