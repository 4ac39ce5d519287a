//! A follower's own batches. It hands them to the leader, and the leader's log entries bring them back: a third of all
//! bytes between replicas. So the leader leaves out the requests of such an entry and sends its head, and the follower
//! puts in the requests that it has kept.
//!
//! *Nothing depends on it.* Where the follower does not have the requests, it takes the message as far as the entry
//! before, as if the rest had been lost on the way. The next message does not fit the end of its log, so it refuses
//! it, and the leader sends everything it has so far with the requests ([`Peer::whole_to`](super::Peer)): each refusal
//! moves the follower on, and one that is lost is repeated after the next heartbeat, as with any lost entry.
//!
//! *When the leader leaves them out.* Only in entries of its own term, for which the follower handed it the batch in
//! this term, and only after the last refusal, connection or membership change. So entries of an earlier leader, of a
//! recovered log, and for a process that started later travel whole. A process of another incarnation, or an older
//! copy of a disk, does not take another's batch for its own: incarnation, number, length, checksum and mark have to
//! fit.
//!
//! *Damage.* The requests are compared with the checksum in the entry's head, like those of any entry
//! (`check::check`), and not before: one pass. If they do not fit it, this replica has damaged them, and not the
//! sender: the message is dropped, the kept batches are forgotten, and the entry comes whole.

use std::collections::VecDeque;

use ::raft::eraftpb::{Entry, EntryType, Message};

use super::Node;
use crate::batch::{Batch, Encoded};
use crate::limits;
use crate::log::LogStore;
use crate::raft::members::slot_of;

/// Batches that this replica has handed to the leader and that are not final yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct OwnBatches {
    kept: VecDeque<Encoded>,
}

impl OwnBatches {
    /// Keeps a batch that is handed over, and as many of those before as the bounds allow.
    pub fn keep(&mut self, encoded: Encoded) {
        let identity = Encoded::claimed_identity(&encoded.head);
        self.kept.retain(|kept| Encoded::claimed_identity(&kept.head) != identity);
        self.kept.push_back(encoded);
        // The bytes are counted each time: a count could be wrong.
        let mut bytes: usize = self.kept.iter().map(Encoded::len).sum();
        while self.kept.len() > limits::OWN_KEPT || bytes > limits::OWN_KEPT_BYTES {
            let Some(oldest) = self.kept.pop_front() else { break };
            bytes = bytes.saturating_sub(oldest.len());
        }
    }

    /// Puts the kept requests into the entries that came without them. The entries from the first one on whose requests
    /// are not here are taken out of the message.
    pub fn complete(&self, slot: u8, message: &mut Message) {
        let known = message.entries.iter_mut().position(|entry| {
            let lacks_requests = is_of(slot, entry) && entry.data.is_empty();
            if !lacks_requests {
                return false;
            }
            let found = self.find(entry);
            if let Some(kept) = found {
                entry.data = kept.body.clone();
            }
            found.is_none()
        });
        if let Some(known) = known {
            message.entries.truncate(known);
        }
    }

    /// Whether the entry at `index`, which does not fit its checksums, has requests that were kept here, below a head
    /// that is intact.
    pub fn is_at_fault(&self, index: u64, message: &Message) -> bool {
        let entry = message.entries.iter().find(|entry| entry.index == index);
        entry.is_some_and(|entry| {
            let encoded = Encoded { head: entry.context.clone(), body: entry.data.clone() };
            let kept = self.find(entry).is_some_and(|kept| kept.body == entry.data);
            kept && Batch::decode_head(&encoded).is_ok()
        })
    }

    /// The entry with this head is final: it and those before are in the log.
    pub fn forget_to(&mut self, slot: u8, head: &[u8]) {
        if Encoded::claimed_origin(head) == Some(slot) {
            let last = Encoded::claimed_number(head);
            self.kept.retain(|kept| Encoded::claimed_number(&kept.head) > last);
        }
    }

    pub fn forget(&mut self) {
        self.kept.clear();
    }

    fn find(&self, entry: &Entry) -> Option<&Encoded> {
        let identity = Encoded::claimed_identity(&entry.context)?;
        self.kept.iter().find(|kept| Encoded::claimed_identity(&kept.head) == Some(identity))
    }

    /// Changes a byte of each, for tests and fault injection.
    #[cfg(feature = "inject")]
    pub fn corrupt(&mut self, at: usize) -> bool {
        for kept in &mut self.kept {
            let mut bytes = kept.body.to_vec();
            let at = at % bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1;
            }
            kept.body = bytes.into();
        }
        !self.kept.is_empty()
    }
}

/// Whether it is the entry of a batch of the replica in `slot`.
fn is_of(slot: u8, entry: &Entry) -> bool {
    entry.get_entry_type() == EntryType::EntryNormal && Encoded::claimed_origin(&entry.context) == Some(slot)
}

impl<L: LogStore> Node<L> {
    /// The receiver of this message has the requests of this entry: it handed them over itself, in this term.
    pub(super) fn has_requests(&self, message: &Message, entry: &Entry) -> bool {
        let Some(to) = slot_of(message.to) else { return false };
        self.config.own_entries.left_out
            && entry.term == message.term
            && entry.index > self.peers[usize::from(to)].whole_to
            && is_of(to, entry)
    }

    /// All that is in the log, or proposed, is sent to this replica with the requests.
    pub(super) fn send_whole(&mut self, slot: u8) {
        if self.config.own_entries.fall_back {
            self.peers[usize::from(slot)].whole_to = self.last_index();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Request, checksum};
    use bytes::Bytes;

    const ME: u8 = 2;

    fn batch(number: u64, bytes: usize) -> Encoded {
        batch_of((1 << 32, 5), number, bytes)
    }

    /// Of the process with this incarnation and mark.
    fn batch_of((incarnation, mark): (u64, u32), number: u64, bytes: usize) -> Encoded {
        let bytes = Bytes::from(vec![number as u8; bytes]);
        let request = Request { checksum: checksum(&bytes), stream: 0, bytes };
        Batch::new(ME, incarnation, number, &[request]).marked(mark).encode()
    }

    fn kept(batches: &[Encoded]) -> OwnBatches {
        let mut own = OwnBatches::default();
        batches.iter().for_each(|batch| own.keep(batch.clone()));
        own
    }

    /// The entries of these batches as the leader has stamped them, from index 1 on, without their requests.
    fn append(batches: &[Encoded]) -> Message {
        let entries = batches.iter().zip(1..).map(|(batch, index)| {
            let context = batch.stamped(9, 9, true).unwrap().head;
            Entry { index, term: 1, context, ..Entry::default() }
        });
        let mut message = Message::default();
        message.set_entries(entries.collect::<Vec<_>>().into());
        message
    }

    fn completed(own: &OwnBatches, batches: &[Encoded]) -> usize {
        let mut message = append(batches);
        own.complete(ME, &mut message);
        for (entry, batch) in message.entries.iter().zip(batches) {
            assert_eq!(entry.data, batch.body);
            assert!(crate::raft::check::is_intact(entry));
        }
        message.entries.len()
    }

    #[test]
    fn what_is_not_here_is_left_out_with_all_behind_it() {
        let batches = [1, 2, 3].map(|number| batch(number, 10));
        assert_eq!(completed(&kept(&batches), &batches), 3);
        assert_eq!(completed(&kept(&[batches[0].clone(), batches[2].clone()]), &batches), 1);
        assert_eq!(completed(&OwnBatches::default(), &batches), 0);
    }

    #[test]
    fn another_process_of_this_slot_has_other_batches() {
        let ours = batch(1, 10);
        let of = |incarnation, mark| batch_of((incarnation, mark), 1, 10);
        for other in [of(2 << 32, 5), of(1 << 32 | 1, 5), of(1 << 32, 6), batch(1, 11), batch(2, 10)] {
            assert_eq!(completed(&kept(&[other]), std::slice::from_ref(&ours)), 0);
        }
        assert_eq!(completed(&kept(&[of(1 << 32, 5)]), &[ours]), 1);
    }

    #[test]
    fn entries_of_others_and_without_a_batch_stay_as_they_are() {
        let own = OwnBatches::default();
        for context in [Bytes::new(), Bytes::from_static(b"short"), batch(1, 3).head] {
            let mut message = Message::default();
            message.set_entries(vec![Entry { context, ..Entry::default() }].into());
            own.complete(ME + 1, &mut message);
            assert_eq!(message.entries.len(), 1);
        }
    }

    #[test]
    fn they_are_bounded_in_number_and_in_bytes_and_the_oldest_goes_first() {
        let numbers = |own: &OwnBatches| -> Vec<u64> {
            own.kept.iter().map(|kept| Encoded::claimed_number(&kept.head).unwrap().1).collect()
        };
        let many = limits::OWN_KEPT as u64 + 3;
        let own = kept(&(1..=many).map(|number| batch(number, 10)).collect::<Vec<_>>());
        assert_eq!(numbers(&own), (4..=many).collect::<Vec<_>>());
        let large = limits::REQUEST_BYTES - 100;
        let own = kept(&(1..=10).map(|number| batch(number, large)).collect::<Vec<_>>());
        assert_eq!(numbers(&own), (3..=10).collect::<Vec<_>>(), "as many as may be in flight");
        // Handed over again: once, and as the latest.
        let own = kept(&[batch(1, 10), batch(2, 10), batch(1, 10)]);
        assert_eq!(numbers(&own), [2, 1]);
    }

    #[test]
    fn what_is_final_is_forgotten() {
        let batches = [1, 2, 3].map(|number| batch(number, 10));
        let mut own = kept(&batches);
        own.forget_to(ME + 1, &batches[2].head);
        assert_eq!(own.kept.len(), 3);
        own.forget_to(ME, &batches[1].head);
        assert_eq!(own.kept, [batches[2].clone()]);
    }

    #[test]
    fn a_fault_of_the_sender_is_not_taken_for_ours() {
        let ours = [batch(1, 10)];
        let mut own = kept(&ours);
        let mut message = append(&ours);
        own.complete(ME, &mut message);
        assert!(own.corrupt(12) && !own.is_at_fault(1, &message), "these are the requests from before");
        let mut message = append(&ours);
        own.complete(ME, &mut message);
        assert!(own.is_at_fault(1, &message) && !own.is_at_fault(2, &message));
        // A stamp that does not fit the head's checksum: the leader's.
        let mut head = message.entries[0].context.to_vec();
        head[24] ^= 1;
        message.entries[0].context = head.into();
        assert!(!own.is_at_fault(1, &message));
    }
}
