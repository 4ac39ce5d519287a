//! The data on each open batch, and the window and the ring that bound it.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use object::Pair;

use crate::command::Held;
use crate::config::{Replica, Set};
use crate::digest::{self, Answer};
use crate::event::{Failure, Place, RequestResult};
use crate::limits::*;

/// One batch, from the first message about it until every live replica is classified.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// This replica's results, once executed.
    pub own: Option<Vec<RequestResult>>,
    /// Batch digests by replica, including the own one; valid for replicas in `known`.
    pub digests: [u128; MAX_REPLICAS],
    pub known: Set,
    /// Sum over the known digests: a fault may hit the stored votes of others, and must not become an accusation.
    pub seal: u64,
    /// Peers that have no details of this batch any more.
    pub gone: Set,
    /// Details, once two digests differ.
    pub details: Option<Box<DetailExchange>>,
    /// Replicas for which the batch is counted already: because they agreed, or were outvoted.
    pub counted: Set,
    /// Every live replica is classified and no reply is owed.
    pub finished: bool,
    /// Replies owed to clients.
    pub owed: u16,
    pub executed_us: u64,
    pub requested_us: u64,
    /// When the first details were needed; they are kept for a while after that.
    pub details_us: u64,
    /// Bytes held, own and peers', without the long replies that are owed.
    pub bytes: usize,
    /// Bytes of long replies that are owed.
    pub owed_bytes: usize,
}

/// A batch whose digests differ, one level down.
#[derive(Debug, Default)]
pub(crate) struct DetailExchange {
    /// Request digests that the peers have sent.
    pub stated: [Option<Vec<Option<u128>>>; MAX_REPLICAS],
    /// Whether the own ones were sent.
    pub announced: bool,
    /// Requests about which replicas differ.
    pub disputes: BTreeMap<u16, Dispute>,
    /// Peers whose wrong batch digest was reported.
    pub reported: Set,
}

/// A request about which replicas differ, the lowest level.
#[derive(Debug, Default)]
pub(crate) struct Dispute {
    /// The peers' state deltas.
    pub deltas: [Option<Box<Delta>>; MAX_REPLICAS],
    /// Failures for which replicas blame themselves, including this one.
    pub failures: [Option<Failure>; MAX_REPLICAS],
    /// Whether the own pairs were sent.
    pub announced: bool,
    /// The progress of this replica's self-examination.
    pub examination: Examination,
    /// Replicas that examined themselves and stand by their result.
    pub stands: Set,
    /// Why the reply is held, as the operator was told.
    pub held: Option<Held>,
    /// Replicas whose case is closed: evidence given and objects handed to repair.
    pub closed: Set,
    /// Every live replica is classified, and the cases of the FAILED ones are closed.
    pub done: bool,
}

/// The self-examination of the no-majority rules, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Examination {
    #[default]
    NotNeeded,
    Rechecking,
    Reexecuting,
    Done,
}

/// A state delta from a peer, possibly incomplete.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delta {
    pub answer: Answer,
    pub total: u32,
    pub pairs: Vec<Pair>,
}

impl Delta {
    pub(crate) fn of(result: &RequestResult) -> Delta {
        Delta { answer: result.answer(), total: result.pairs.len() as u32, pairs: result.pairs.to_vec() }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.pairs.len() == self.total as usize
    }

    /// Whether it has all objects that the request touched, and not only [`MAX_PAIRS_PER_REQUEST`] of them.
    pub(crate) fn is_whole(&self) -> bool {
        (self.total as usize) < MAX_PAIRS_PER_REQUEST
    }

    /// The request digest it gives, once complete and in order.
    pub(crate) fn digest(&self) -> Option<u128> {
        (self.is_complete() && self.pairs.is_sorted()).then(|| digest::request(&self.pairs, &self.answer))
    }
}

impl Record {
    /// Stores the batch digest of `replica`.
    pub(crate) fn set_digest(&mut self, replica: Replica, digest: u128) {
        if self.known.contains(replica) {
            self.seal ^= seal_of(replica, self.digests[replica as usize]);
        }
        self.known.insert(replica);
        self.digests[replica as usize] = digest;
        self.seal ^= seal_of(replica, digest);
    }

    /// Whether the stored digests are still the ones that were set.
    pub(crate) fn is_sealed(&self) -> bool {
        let sum = |sum, replica: Replica| sum ^ seal_of(replica, self.digests[replica as usize]);
        self.known.iter().fold(0, sum) == self.seal
    }

    /// Forgets every digest.
    pub(crate) fn forget_digests(&mut self) {
        (self.known, self.seal) = (Set::EMPTY, 0);
    }

    /// Forgets what replicas from this one on have said: they have no vote on this batch.
    pub(crate) fn forget_from(&mut self, replicas: u8) {
        let voters = Set::first(replicas);
        for replica in self.known.minus(voters).iter() {
            self.seal ^= seal_of(replica, self.digests[replica as usize]);
        }
        self.known = self.known.and(voters);
        // The others say it again when they are asked.
        self.details = None;
    }

    /// Peers whose batch digest equals the one of `replica`, itself included.
    pub(crate) fn agreeing_with(&self, replica: Replica) -> Set {
        let mut agreeing = Set::EMPTY;
        if self.known.contains(replica) {
            let digest = self.digests[replica as usize];
            for other in self.known.iter().filter(|other| self.digests[*other as usize] == digest) {
                agreeing.insert(other);
            }
        }
        agreeing
    }

    /// The most replicas that have equal batch digests.
    pub(crate) fn largest_agreement(&self) -> Set {
        let agreements = self.known.iter().map(|replica| self.agreeing_with(replica));
        agreements.max_by_key(|agreeing| agreeing.len()).unwrap_or_default()
    }

    pub(crate) fn requests(&self) -> &[RequestResult] {
        self.own.as_deref().unwrap_or(&[])
    }

    pub(crate) fn details_mut(&mut self, now_us: u64) -> &mut DetailExchange {
        if self.details.is_none() {
            self.details_us = now_us;
        }
        self.details.get_or_insert_default()
    }
}

/// Mixes a digest and its replica into 64 bits. Multiplication by odd constants preserves the effect of every flipped
/// bit.
fn seal_of(replica: Replica, digest: u128) -> u64 {
    let (low, high) = (digest as u64, (digest >> 64) as u64);
    let mixed =
        low.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ high.rotate_left(32).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    mixed.rotate_left(8 * replica as u32 + 1)
}

/// The open batches, without gaps from `base` on, and the remaining data of older ones.
#[derive(Debug)]
pub(crate) struct Window {
    base: u64,
    open: VecDeque<Record>,
    /// Batches with a mismatch that left the window and may still be requested, or are held.
    pub parked: BTreeMap<u64, Record>,
    /// Digests of batches before `base` that f+1 replicas agreed on; 0 where there is none.
    ring: Vec<u128>,
    ring_low: u64,
    /// The last batch that left without results of this replica, which has not executed it yet.
    unexecuted: Option<u64>,
    /// Bytes held by open and parked batches, without the long replies that are owed.
    pub bytes: usize,
    /// Bytes of these replies. The workers bound them, and a reply that is longer than the window must not displace
    /// those that others wait for.
    pub owed_bytes: usize,
    /// Bytes of replies that are kept for other replicas, by batch: only the owner of a client ever asks for its reply.
    kept: BTreeMap<u64, usize>,
    /// The sum of them.
    pub kept_bytes: usize,
}

impl Window {
    pub(crate) fn new(first: u64) -> Self {
        Window {
            base: first,
            open: VecDeque::with_capacity(64),
            parked: BTreeMap::new(),
            ring: Vec::new(),
            ring_low: first,
            unexecuted: None,
            bytes: 0,
            owed_bytes: 0,
            kept: BTreeMap::new(),
            kept_bytes: 0,
        }
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Whether this replica may still have to execute the batch: it is open, or left before its results came.
    pub(crate) fn is_to_come(&self, batch: u64) -> bool {
        batch >= self.base || self.unexecuted >= Some(batch)
    }

    /// One past the newest known batch.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.open.len() as u64
    }

    /// An open or parked batch.
    pub(crate) fn get_mut(&mut self, batch: u64) -> Option<&mut Record> {
        match batch.checked_sub(self.base) {
            Some(index) => self.open.get_mut(usize::try_from(index).ok()?),
            None => self.parked.get_mut(&batch),
        }
    }

    pub(crate) fn get(&self, batch: u64) -> Option<&Record> {
        match batch.checked_sub(self.base) {
            Some(index) => self.open.get(usize::try_from(index).ok()?),
            None => self.parked.get(&batch),
        }
    }

    /// An open or parked batch, opened if it is within the window.
    pub(crate) fn open(&mut self, batch: u64) -> Option<&mut Record> {
        if batch >= self.base {
            let index = batch - self.base;
            if index >= WINDOW_BATCHES {
                return None;
            }
            while self.open.len() as u64 <= index {
                self.open.push_back(Record::default());
            }
        }
        self.get_mut(batch)
    }

    pub(crate) fn front(&self) -> Option<&Record> {
        self.open.front()
    }

    /// Opens the next batch.
    pub(crate) fn open_next(&mut self) {
        self.open.push_back(Record::default());
    }

    /// Takes the oldest batch out and remembers `agreed`, its digest if f+1 replicas agreed on it.
    pub(crate) fn pop(&mut self, agreed: Option<u128>) -> Option<(u64, Record)> {
        let record = self.open.pop_front()?;
        let batch = self.base;
        self.base += 1;
        if record.own.is_none() {
            self.unexecuted = Some(batch);
        }
        if self.ring.len() < RING_BATCHES {
            // The ring grows to its bound once; batches have no gaps, so index and mask agree from the first one on.
            self.ring.resize(RING_BATCHES, 0);
        }
        self.ring[batch as usize & (RING_BATCHES - 1)] = agreed.unwrap_or(0);
        self.ring_low = self.ring_low.max(self.base.saturating_sub(RING_BATCHES as u64));
        Some((batch, record))
    }

    /// A batch that was open or parked was dropped with all its data.
    pub(crate) fn on_gone(&mut self, batch: u64, record: &Record) {
        self.bytes -= record.bytes;
        self.owed_bytes -= record.owed_bytes;
        self.kept_bytes -= self.kept.remove(&batch).unwrap_or(0);
    }

    /// A part of a batch that `held` some bytes now `holds` others: a peer that sends the same repeatedly takes no more
    /// room.
    pub(crate) fn account(&mut self, batch: u64, held: usize, holds: usize) {
        let Some(record) = self.get_mut(batch) else { return };
        let before = record.bytes;
        // A corrupted length must not make the sum over all batches wrong.
        record.bytes = (before + holds).saturating_sub(held);
        let after = record.bytes;
        self.bytes = self.bytes + after - before;
    }

    /// This replica's results of a batch have come, with long replies to its clients of so many bytes.
    pub(crate) fn owe(&mut self, batch: u64, bytes: usize) {
        if let Some(record) = self.get_mut(batch) {
            record.owed_bytes += bytes;
            self.owed_bytes += bytes;
        }
    }

    /// Removes the bytes of a reply that was owed; its length and its digest stay.
    pub(crate) fn take_owed(&mut self, place: Place) -> Option<Bytes> {
        let record = self.get_mut(place.batch)?;
        let reply = record.own.as_mut()?.get_mut(usize::from(place.request))?.reply.take()?;
        if reply.len() < LONG_REPLY_BYTES {
            self.account(place.batch, reply.len(), 0);
            return Some(reply);
        }
        // A corrupted length must not make the sum over all batches wrong.
        let bytes = reply.len().min(record.owed_bytes);
        record.owed_bytes -= bytes;
        self.owed_bytes -= bytes;
        Some(reply)
    }

    /// The same for a reply that is kept for another replica.
    fn take_kept(&mut self, place: Place) -> Option<Bytes> {
        let own = self.get_mut(place.batch)?.own.as_mut()?;
        let reply = own.get_mut(usize::from(place.request))?.reply.take()?;
        self.account(place.batch, reply.len(), 0);
        Some(reply)
    }

    /// Counts the `bytes` of replies in this batch that are kept for other replicas. While all of them hold
    /// more than `bound` bytes, the oldest are discarded; their batches stay.
    pub(crate) fn keep_replies(&mut self, batch: u64, bytes: usize, bound: usize) {
        if bytes > 0 {
            self.kept.insert(batch, bytes);
            self.kept_bytes += bytes;
        }
        while self.kept_bytes > bound {
            let Some((oldest, held)) = self.kept.pop_first() else { return };
            let freed = self.discard_replies(oldest, self.kept_bytes - bound);
            // If bytes were counted and none is freed, a fault has corrupted the results.
            let left = if freed == 0 { 0 } else { held.saturating_sub(freed) };
            self.kept_bytes -= held - left;
            if left > 0 {
                self.kept.insert(oldest, left);
            }
        }
    }

    /// Discards replies of one batch that are kept for other replicas, until `excess` bytes are free or none
    /// is left. Returns the bytes it freed.
    fn discard_replies(&mut self, batch: u64, excess: usize) -> usize {
        let count = self.get(batch).map_or(0, |record| record.requests().len());
        let mut freed = 0;
        for request in 0..count as u16 {
            let is_kept = |result: &RequestResult| result.has_reply() && !result.request_info.mine;
            let result = self.get(batch).and_then(|record| record.requests().get(usize::from(request)));
            if freed < excess && result.is_some_and(is_kept) {
                freed += self.take_kept(Place::new(batch, request)).map_or(0, |reply| reply.len());
            }
        }
        freed
    }

    /// Digest of a batch that left the window, if it was agreed on and is still stored.
    pub(crate) fn remembered(&self, batch: u64) -> Option<u128> {
        if batch < self.ring_low || batch >= self.base {
            return None;
        }
        Some(self.ring[batch as usize & (RING_BATCHES - 1)]).filter(|digest| *digest != 0)
    }
}
