//! Transactions over several queries: nothing of them is in the database before they are committed.
//!
//! An open transaction is its queries so far, with what each has drawn and a digest of the reply that its client has.
//! With each further query all of them run again on the present database, and are rolled back: a reply that is another
//! one by now means that the transaction did not happen at one moment, and the client is told to begin again (40001).
//! COMMIT runs them once more, and commits. So there is no uncommitted change that repairs, transfers of state or
//! changes of views would have to know of, and each reply is voted on like any other.

use std::collections::BTreeMap;

use crosscheck::object::{Ref, Store, Summed, critical};

/// Microseconds of ordered time after which a transaction without a query is given up.
pub const IDLE_US: u64 = 60_000_000;
/// Queries of one transaction at most, and their bytes: each runs again with each later one.
pub const MAX_QUERIES: usize = 256;
const MAX_BYTES: usize = 256 << 10;
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

/// A query of an open transaction.
#[derive(Clone, Debug, PartialEq, Eq, Summed)]
pub struct Replayed {
    /// Its text.
    pub text: String,
    /// What it draws.
    pub drawn: Drawn,
    /// Of the reply that its client has.
    pub digest: u128,
}

/// An open transaction.
#[critical]
pub struct OpenTransaction {
    id: u64,
    /// Time of the last query.
    used_us: u64,
    /// A query has failed: nothing more is run.
    failed: bool,
    queries: Vec<Replayed>,
}

#[critical]
impl OpenTransaction {
    fn new(id: u64, now_us: u64) -> Self {
        Self { id, used_us: now_us, failed: false, queries: Vec::new() }
    }

    /// Its queries so far.
    pub fn queries(&self) -> &[Replayed] {
        &self.queries
    }

    /// Whether a query has failed.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Whether another query of so many bytes may join.
    pub fn has_room(&self, bytes: usize) -> bool {
        let held: usize = self.queries.iter().map(|query| query.text.len()).sum();
        self.queries.len() < MAX_QUERIES && held + bytes <= MAX_BYTES
    }

    /// A query was run, and its client has this reply.
    pub fn add(&mut self, query: Replayed) {
        self.used_us = query.drawn.now_us;
        self.queries.push(query);
    }

    /// A query has failed.
    pub fn fail(&mut self, now_us: u64) {
        (self.used_us, self.failed) = (now_us, true);
        self.queries.clear();
    }

    /// When it is given up, if no query comes before.
    pub fn ends_us(&self) -> u64 {
        self.used_us.saturating_add(IDLE_US)
    }
}

/// The open transactions behind one lock.
#[critical]
pub struct OpenTransactions {
    /// When a timer looks for idle ones; 0 for none.
    alarm_us: u64,
    by_id: BTreeMap<u64, Ref<OpenTransaction>>,
    open: Store<OpenTransaction>,
}

#[critical]
impl OpenTransactions {
    /// None, as the state of a region ([`crosscheck::object::genesis`]).
    #[allow(clippy::new_without_default, reason = "only the state of a region is made so")]
    pub fn new() -> Self {
        Self { alarm_us: 0, by_id: BTreeMap::new(), open: Store::new() }
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

    /// The time of a timer that is needed, unless there is one.
    pub fn alarm(&mut self, now_us: u64) -> Option<u64> {
        let is_needed = self.alarm_us == 0 && !self.by_id.is_empty();
        is_needed.then(|| {
            self.alarm_us = now_us.saturating_add(IDLE_US);
            self.alarm_us
        })
    }

    /// The timer has fired: gives up idle transactions. Returns when the next one is needed.
    pub fn ring(&mut self, now_us: u64) -> Option<u64> {
        let idle = self.by_id.iter().filter(|(_, session)| self.open.expect(**session).ends_us() <= now_us);
        let idle: Vec<u64> = idle.map(|(id, _)| *id).collect();
        idle.into_iter().for_each(|id| self.end(id));
        let next = self.by_id.values().map(|session| self.open.expect(*session).ends_us()).min();
        self.alarm_us = next.unwrap_or(0);
        next
    }

    /// Begins a transaction; one that was left open is given up. False if there are too many.
    pub fn begin(&mut self, id: u64, now_us: u64) -> bool {
        self.end(id);
        if self.by_id.len() >= MAX_OPEN {
            return false;
        }
        let session = self.open.insert(OpenTransaction::new(id, now_us));
        self.by_id.insert(id, session);
        true
    }

    /// Ends a transaction, if it is open.
    pub fn end(&mut self, id: u64) {
        if let Some(session) = self.by_id.remove(&id) {
            self.open.expect_remove(session);
        }
    }
}
