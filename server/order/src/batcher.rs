//! The origin's side: forms batches of requests, and keeps each batch until it is delivered, or until its delivery
//! cannot be rolled back any more.

use object::SealedQueue;
use wire::mix;

use crate::batch::{Batch, Encoded, Request};
use crate::engine::CorruptPart;
use crate::limits;
use crate::orderer::Config;

/// A queue is at its bound: stop reading from clients until deliveries free some space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Too many requests wait already.
    #[error("the order queue is full")]
    Full,
    /// The request alone is longer than any batch may carry.
    #[error("the request is longer than {} bytes", limits::REQUEST_BYTES)]
    TooLong,
}

/// How eagerly batches form. See `limits` for the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batching {
    /// Requests in a batch at most.
    pub requests: usize,
    /// Bytes at which a batch is full.
    pub bytes: usize,
    /// Batches in flight that leave at once, however small. With none in flight a request never waits.
    pub eager: usize,
    /// Batches in flight when each is full.
    pub in_flight: usize,
}

impl Default for Batching {
    fn default() -> Self {
        Batching {
            requests: limits::BATCH_REQUESTS,
            bytes: limits::BATCH_BYTES,
            eager: limits::OWN_EAGER,
            in_flight: limits::OWN_IN_FLIGHT,
        }
    }
}

/// Requests of this replica's clients, from submission to delivery.
#[derive(Debug)]
pub(crate) struct Batcher {
    batching: Batching,
    /// Numbered from 0: all replicas would agree to execute a request that is submitted twice, or to skip one.
    collected: SealedQueue<Collected>,
    collected_bytes: usize,
    /// Under the numbers of the batches, from 1.
    in_flight: SealedQueue<InFlight>,
    /// Batches at the front of `in_flight` that were delivered, and are kept in case that is rolled back.
    ///
    /// They count as in flight, and a full window of them does not stop the replica. Whether the first of them becomes
    /// stable depends on its execution and the others' word on it, and on no later batch.
    delivered: usize,
    /// Batches behind those that were handed to the current leader.
    sent: usize,
    /// The latest number that was handed to any leader.
    handed: u64,
    /// Whether deliveries may be rolled back: then a batch stays after its delivery until [`Batcher::forget_to`].
    keeps: bool,
    /// Whether batches have the streams of their requests.
    streams: bool,
    /// Whether a batch goes nowhere but to this replica's next delivery.
    stays: bool,
    /// Distinguishes this process's batches from those of another process of the same incarnation.
    mark: u32,
}

/// A request that is in no batch yet.
#[derive(Debug)]
struct Collected {
    request: Request,
    tag: u64,
    /// The memory that it takes while it is on its way, with the expected reply, in bytes.
    cost: usize,
}

#[derive(Debug)]
struct InFlight {
    encoded: Encoded,
    tags: Vec<u64>,
    /// Number of the primary's batch in which it was delivered last.
    within: u64,
}

impl Batcher {
    /// The batcher of an orderer with these settings, whose engine [hands entries on](crate::OrderEngine::hands_on).
    pub fn of(config: &Config, hands_on: bool) -> Self {
        let (keeps, streams, stays) = (config.rewinds, config.streams, !hands_on);
        Batcher { keeps, streams, stays, ..Batcher::new(config.batching, mix(config.seed) as u32) }
    }

    /// The requests of a process that was started with this mark; no two processes of a replica have the same.
    pub fn new(batching: Batching, mark: u32) -> Self {
        Batcher {
            batching,
            collected: SealedQueue::default(),
            collected_bytes: 0,
            in_flight: SealedQueue::starting_at(1),
            delivered: 0,
            sent: 0,
            handed: 0,
            keeps: false,
            streams: false,
            stays: false,
            mark,
        }
    }

    pub fn can_accept(&self) -> bool {
        self.collected.len() < limits::COLLECTED_REQUESTS
            && self.collected_bytes + limits::REQUEST_BYTES <= limits::COLLECTED_BYTES
    }

    pub fn submit(&mut self, request: Request, tag: u64, cost: usize) -> Result<(), Refused> {
        if request.bytes.len() > limits::REQUEST_BYTES {
            return Err(Refused::TooLong);
        }
        if !self.can_accept() {
            return Err(Refused::Full);
        }
        self.collected_bytes += request.bytes.len();
        self.collected.push(Collected { request, tag, cost });
        Ok(())
    }

    /// Whether a batch of this incarnation of this replica, with this mark, is of this process.
    pub fn is_ours(&self, mark: u32) -> bool {
        self.mark == mark
    }

    /// Whether this process has formed a batch of this number yet.
    pub fn has_formed(&self, number: u64) -> bool {
        number < self.in_flight.next_number()
    }

    /// Requests that wait and batches in flight.
    pub fn waiting(&self) -> (usize, usize) {
        (self.collected.len(), self.in_flight.len())
    }

    /// Batches in flight that were not delivered.
    pub fn undelivered(&self) -> usize {
        self.in_flight.len().saturating_sub(self.delivered)
    }

    /// Forms batches: at once with few in flight, and only full ones with more in flight. No timer is involved.
    ///
    /// # Errors
    /// When the waiting requests are not the submitted ones, or their bytes differ from the count: a wrong count might
    /// refuse all further requests for ever.
    pub fn form(&mut self, origin: u8, incarnation: u64) -> Result<(), CorruptPart> {
        let is_counted = !self.collected.is_empty() || self.collected_bytes == 0;
        if !self.collected.is_intact() || !is_counted {
            return Err(CorruptPart::Requests);
        }
        while !self.collected.is_empty() && self.in_flight.len() < self.batching.in_flight {
            if self.in_flight.len() >= self.batching.eager && !self.fills_a_batch() {
                break;
            }
            self.form_one(origin, incarnation)?;
        }
        Ok(())
    }

    /// The next batch to hand to the leader, once; see [`Batcher::send_again`]. It is of this incarnation of this
    /// replica, and the oldest one that is not delivered yet has number `next` (none when this incarnation is over).
    ///
    /// # Errors
    /// When it is not: all replicas would drop it for ever, and all later batches would wait; or they would take it for
    /// a later incarnation's, and drop all that this replica sends from then on.
    pub fn take_unsent(
        &mut self,
        origin: u8,
        incarnation: u64,
        next: Option<u64>,
    ) -> Result<Option<(Batch, Encoded)>, CorruptPart> {
        if self.sent >= self.undelivered() {
            return Ok(None);
        }
        let due = self.due() + self.sent as u64;
        let number = next.map_or(due, |next| next + self.sent as u64);
        let batch = self.in_flight.get(due).map_err(|_| CorruptPart::OwnBatch)?;
        let Some(InFlight { encoded, .. }) = batch else { return Err(CorruptPart::OwnBatch) };
        // One that was handed over before has been here for a while, and may have been lost because it is corrupt: then
        // it would be refused for ever. One that was formed a moment ago is summed by its receiver: the leader, or
        // the followers of this one (`check::check`), which then report its log entry to it. Where it stays here, its
        // requests are compared with their own checksums, next.
        let is_new = self.stays || due > self.handed;
        let batch = if is_new { Batch::decode_head(encoded) } else { Batch::decode(encoded) };
        let batch = batch.map_err(|_| CorruptPart::OwnBatch)?;
        let name = (batch.origin, batch.incarnation, batch.number, batch.mark);
        if name != (origin, incarnation, number, self.mark) {
            return Err(CorruptPart::OwnBatch);
        }
        self.sent += 1;
        self.handed = self.handed.max(due);
        Ok(Some((batch, encoded.clone())))
    }

    /// Everything in flight has to be handed over again, in order: the leader changed, or it took too long.
    pub fn send_again(&mut self) {
        self.sent = 0;
    }

    /// A batch of this replica was delivered, within this number of a primary; returns the tags of its requests.
    ///
    /// # Errors
    /// When another batch is in its place.
    pub fn delivered(&mut self, number: u64, within: u64) -> Result<Vec<u64>, CorruptPart> {
        // Numbers are delivered in order, so it can only be the oldest that was not.
        if self.undelivered() == 0 || self.due() != number {
            // Where deliveries are rolled back, the exactly-once rule and these counts go back together.
            return if self.keeps { Err(CorruptPart::OwnBatch) } else { Ok(Vec::new()) };
        }
        self.sent = self.sent.saturating_sub(1);
        if self.keeps {
            let batch = self.in_flight.get_mut(number).map_err(|_| CorruptPart::OwnBatch)?;
            let Some(batch) = batch else { return Err(CorruptPart::OwnBatch) };
            batch.within = within;
            self.delivered += 1;
            return Ok(batch.tags.clone());
        }
        let batch = self.in_flight.pop().map_err(|_| CorruptPart::OwnBatch)?;
        Ok(batch.map(|batch| batch.tags).unwrap_or_default())
    }

    /// Batches up to `number` are part of a state that was installed from elsewhere; returns the tags of
    /// their requests.
    ///
    /// # Errors
    /// When another batch is in the place of one of them.
    pub fn skip_to(&mut self, number: u64) -> Result<Vec<u64>, CorruptPart> {
        let mut tags = Vec::new();
        while self.in_flight.first_number() <= number {
            let Some(batch) = self.in_flight.pop().map_err(|_| CorruptPart::OwnBatch)? else { break };
            if self.delivered > 0 {
                self.delivered -= 1; // its tags were returned already
                continue;
            }
            self.sent = self.sent.saturating_sub(1);
            tags.extend(batch.tags);
        }
        Ok(tags)
    }

    /// Deliveries are rolled back, or replaced by others': the batches up to `number` count as delivered, and the later
    /// ones are to be handed over (again). Returns the tags of those that were not delivered here before and count as
    /// delivered now.
    ///
    /// # Errors
    /// When batches after `number` are not here any more.
    pub fn rewind_to(&mut self, number: u64) -> Result<Vec<u64>, CorruptPart> {
        let next = number.checked_add(1).ok_or(CorruptPart::OwnBatch)?;
        let counted = next.checked_sub(self.in_flight.first_number()).ok_or(CorruptPart::OwnBatch)?;
        // More than were formed are of another process with this replica's name, which is noticed elsewhere.
        let counted = self.in_flight.len().min(usize::try_from(counted).unwrap_or(usize::MAX));
        let mut tags = Vec::new();
        for batch in self.in_flight.iter().take(counted).skip(self.delivered) {
            tags.extend_from_slice(&batch.map_err(|_| CorruptPart::OwnBatch)?.tags);
        }
        (self.delivered, self.sent) = (counted, 0);
        Ok(tags)
    }

    /// The state after this number of a primary is not rolled back any more: forgets the batches delivered up to it.
    ///
    /// # Errors
    /// When another batch is in the place of one of them.
    pub fn forget_to(&mut self, within: u64) -> Result<(), CorruptPart> {
        while self.delivered > 0 {
            let popped = self.in_flight.pop_if(|batch| batch.within <= within);
            if popped.map_err(|_| CorruptPart::OwnBatch)?.is_none() {
                break;
            }
            self.delivered -= 1;
        }
        Ok(())
    }

    /// Injects a fault: flips a bit of this byte of the first batch's body.
    #[cfg(test)]
    pub fn corrupt_first(&mut self, at: usize) {
        let (_, batch) = &mut self.in_flight.entries_mut()[0];
        let mut body = batch.encoded.body.to_vec();
        body[at] ^= 1;
        batch.encoded.body = body.into();
    }

    /// Number of the oldest batch that was not delivered, or of the next one.
    fn due(&self) -> u64 {
        self.in_flight.first_number().wrapping_add(self.delivered as u64)
    }

    fn fills_a_batch(&self) -> bool {
        self.collected.len() >= self.batching.requests || self.collected_bytes >= self.batching.bytes
    }

    /// The next batch.
    fn form_one(&mut self, origin: u8, incarnation: u64) -> Result<(), CorruptPart> {
        let most = self.collected.len().min(self.batching.requests);
        let (mut requests, mut tags) = (Vec::with_capacity(most), Vec::with_capacity(most));
        let (mut bytes, mut cost) = (0, 0usize);
        let first = self.collected.first_number();
        while requests.len() < self.batching.requests {
            let fits = |next: &Collected| {
                let within = bytes + next.request.bytes.len() <= self.batching.bytes;
                requests.is_empty() || (within && cost.saturating_add(next.cost) <= limits::BATCH_COST)
            };
            let next = self.collected.pop_if(fits).map_err(|_| CorruptPart::Requests)?;
            let Some(next) = next else { break };
            bytes += next.request.bytes.len();
            cost = cost.saturating_add(next.cost);
            requests.push(next.request);
            tags.push(next.tag);
        }
        let number = self.in_flight.next_number();
        let left = self.collected_bytes.checked_sub(bytes).ok_or(CorruptPart::Requests)?;
        let batch =
            Batch::of(origin, incarnation, number, &requests, self.streams).ok_or(CorruptPart::Requests)?;
        // As many requests as have left the queue: none was lost between the two lists.
        if first + batch.len() as u64 != self.collected.first_number() {
            return Err(CorruptPart::Requests);
        }
        self.collected_bytes = left;
        let encoded = batch.marked(self.mark).encode();
        self.in_flight.push(InFlight { encoded, tags, within: 0 });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::checksum;
    use bytes::Bytes;

    fn submit(own: &mut Batcher, len: usize, tag: u64) {
        own.submit(request_of(Bytes::from(vec![7; len])), tag, len).unwrap();
    }

    fn take(own: &mut Batcher, next: u64) -> Option<Encoded> {
        own.take_unsent(0, 1, Some(next)).unwrap().map(|(_, encoded)| encoded)
    }

    fn form(own: &mut Batcher) {
        own.form(0, 1).unwrap();
    }

    fn sizes(own: &mut Batcher) -> Vec<usize> {
        let next = own.in_flight.first_number();
        std::iter::from_fn(|| take(own, next)).map(|b| Batch::decode(&b).unwrap().len()).collect()
    }

    #[test]
    fn nothing_in_flight_sends_at_once_and_then_requests_collect() {
        let mut own = Batcher::new(Batching { eager: 1, ..Batching::default() }, 0);
        submit(&mut own, 10, 1);
        form(&mut own);
        for tag in 2..7 {
            submit(&mut own, 10, tag);
            form(&mut own);
        }
        assert_eq!(sizes(&mut own), [1], "the first goes alone, the others wait for it");
        assert_eq!(own.delivered(1, 1).unwrap(), [1]);
        form(&mut own);
        assert_eq!(sizes(&mut own), [5], "what collected goes together");
        assert_eq!(own.delivered(2, 2).unwrap(), [2, 3, 4, 5, 6]);
    }

    #[test]
    fn full_batches_go_up_to_the_cap_and_a_large_request_goes_alone() {
        let mut own = Batcher::new(Batching::default(), 0);
        for tag in 0..128 * 20 {
            submit(&mut own, 1, tag);
        }
        form(&mut own);
        assert_eq!(sizes(&mut own), [128; 8]);
        let mut own = Batcher::new(Batching::default(), 0);
        [10, 1 << 20, 10].iter().for_each(|&len| submit(&mut own, len, 0));
        form(&mut own);
        assert_eq!(
            sizes(&mut own),
            [1, 1],
            "the large one is alone; the small one waits for the eager limit"
        );
    }

    #[test]
    fn requests_with_long_replies_travel_in_small_batches() {
        let mut own = Batcher::new(Batching { eager: 8, ..Batching::default() }, 0);
        let costs = [100, 100, 64 << 20, 100, 600 << 10, 600 << 10];
        for (tag, cost) in costs.into_iter().enumerate() {
            own.submit(request_of(Bytes::from_static(b"get")), tag as u64, cost).unwrap();
        }
        form(&mut own);
        let tags: Vec<Vec<u64>> = own.in_flight.as_is().map(|batch| batch.tags.clone()).collect();
        assert_eq!(tags, [vec![0, 1], vec![2], vec![3, 4], vec![5]]);
    }

    #[test]
    fn what_is_not_delivered_is_handed_over_again_in_order() {
        let mut own = Batcher::new(Batching { requests: 1, ..Batching::default() }, 0);
        (0..3).for_each(|tag| submit(&mut own, 1, tag));
        form(&mut own);
        assert_eq!(sizes(&mut own).len(), 3);
        assert_eq!(own.delivered(1, 1).unwrap(), [0]);
        own.send_again();
        let again: Vec<u64> =
            std::iter::from_fn(|| take(&mut own, 2)).map(|b| Batch::decode(&b).unwrap().number).collect();
        assert_eq!(again, [2, 3]);
    }

    /// A batcher that keeps, with three batches of one request each in flight, all handed over.
    fn keeping() -> Batcher {
        let batching = Batching { requests: 1, ..Batching::default() };
        let mut own = Batcher { keeps: true, ..Batcher::new(batching, 0) };
        (1..4).for_each(|tag| submit(&mut own, 1, tag));
        form(&mut own);
        assert_eq!(sizes(&mut own).len(), 3);
        own
    }

    /// The numbers of the batches that are handed over from here on, if the oldest due has this number.
    fn handed_over(own: &mut Batcher, next: u64) -> Vec<u64> {
        std::iter::from_fn(|| take(own, next)).map(|batch| Batch::decode(&batch).unwrap().number).collect()
    }

    #[test]
    fn what_was_delivered_is_kept_until_it_is_stable_and_delivered_again_after_a_rewind() {
        let mut own = keeping();
        assert_eq!((own.delivered(1, 10), own.delivered(2, 12)), (Ok(vec![1]), Ok(vec![2])));
        assert_eq!((own.waiting().1, own.undelivered()), (3, 1));
        own.forget_to(9).unwrap();
        assert_eq!(own.waiting().1, 3);
        own.forget_to(11).unwrap();
        assert_eq!(own.waiting().1, 2, "the second may still be taken back");
        assert_eq!(own.rewind_to(1), Ok(vec![]));
        assert_eq!(handed_over(&mut own, 2), [2, 3]);
        assert_eq!(own.delivered(2, 12), Ok(vec![2]), "with its tags");
        assert_eq!(own.rewind_to(0), Err(CorruptPart::OwnBatch), "the first is forgotten");
        let mut forgetful = Batcher { keeps: false, ..keeping() };
        forgetful.delivered(1, 10).unwrap();
        assert_eq!(forgetful.rewind_to(0), Err(CorruptPart::OwnBatch));
    }

    #[test]
    fn a_state_of_others_may_count_batches_that_were_not_delivered_here() {
        let mut own = keeping();
        own.delivered(1, 10).unwrap();
        assert_eq!(own.rewind_to(2), Ok(vec![2]), "the tags of the first were given before");
        assert_eq!(handed_over(&mut own, 3), [3]);
        assert_eq!(own.skip_to(3), Ok(vec![3]));
        assert_eq!((own.waiting().1, own.undelivered()), (0, 0));
        assert_eq!(own.rewind_to(u64::MAX), Err(CorruptPart::OwnBatch));
        assert_eq!(own.rewind_to(9), Ok(vec![]), "more than were formed");
    }

    #[test]
    fn a_full_queue_refuses() {
        let mut own = Batcher::new(Batching::default(), 0);
        for tag in 0..limits::COLLECTED_REQUESTS as u64 {
            submit(&mut own, 1, tag);
        }
        assert!(!own.can_accept());
        assert_eq!(own.submit(request(), 0, 0), Err(Refused::Full));
    }

    /// A batcher with so many requests that are in no batch.
    fn waiting(count: u64) -> Batcher {
        let mut own = Batcher::new(Batching::default(), 0);
        (0..count).for_each(|tag| submit(&mut own, 1, tag));
        own
    }

    /// A batcher with a batch in flight, which was handed over and is to be handed over again.
    fn in_flight() -> Batcher {
        let mut own = waiting(1);
        form(&mut own);
        assert!(take(&mut own, 1).is_some());
        own.send_again();
        own
    }

    #[test]
    fn a_wrong_count_of_delivered_batches_is_noticed() {
        for count in [0, 2, 3, 1 << 40] {
            let mut own = keeping();
            own.delivered(1, 10).unwrap();
            own.send_again();
            own.delivered = count;
            let taken = std::iter::from_fn(|| own.take_unsent(0, 1, Some(2)).transpose());
            let taken: Result<Vec<(Batch, Encoded)>, CorruptPart> = taken.collect();
            assert!(taken.is_err() || own.delivered(2, 10).is_err(), "{count}: {taken:?}");
        }
    }

    /// Faults in a batcher, and the checks that find them.
    type Row = (&'static str, fn() -> Batcher, fn(&mut Batcher), CorruptPart);

    fn encoded(own: &mut Batcher) -> &mut Encoded {
        &mut own.in_flight.entries_mut()[0].1.encoded
    }

    const CORRUPTIONS: [Row; 13] = [
        // V22 and V31 in docs/vulnerabilities.md: another head whose checksum fits, or another body.
        (
            "a batch of another process",
            in_flight,
            |own| *encoded(own) = Batch::new(0, 1, 1, &[request()]).marked(3).encode(),
            CorruptPart::OwnBatch,
        ),
        (
            "a batch that is not due",
            in_flight,
            |own| *encoded(own) = Batch::new(0, 1, 7, &[request()]).encode(),
            CorruptPart::OwnBatch,
        ),
        (
            "a batch of a later incarnation",
            in_flight,
            |own| *encoded(own) = Batch::new(0, 1 | 1 << 46, 1, &[request()]).encode(),
            CorruptPart::OwnBatch,
        ),
        (
            "a batch of another replica",
            in_flight,
            |own| *encoded(own) = Batch::new(1, 1, 1, &[request()]).encode(),
            CorruptPart::OwnBatch,
        ),
        (
            "another body",
            in_flight,
            |own| encoded(own).body = Bytes::from_static(b"others"),
            CorruptPart::OwnBatch,
        ),
        ("another number", in_flight, |own| own.in_flight.entries_mut()[0].0 ^= 4, CorruptPart::OwnBatch),
        ("a wrong end", in_flight, |own| *own.in_flight.ends_mut().1 ^= 1 << 9, CorruptPart::OwnBatch),
        // V25: the replica accepted no request any more, for ever, without noticing.
        ("a wrong count of bytes", empty, |own| own.collected_bytes |= 1 << 49, CorruptPart::Requests),
        ("too few bytes", one_waits, |own| own.collected_bytes = 0, CorruptPart::Requests),
        ("a wrong count", one_waits, |own| *own.collected.ends_mut().1 -= 1, CorruptPart::Requests),
        // V16: a corrupted queue returns a request twice, has lost one, or has changed the order.
        (
            "a request is given again",
            three_wait,
            |own| {
                let (number, Collected { request, tag, cost }) = &own.collected.entries_mut()[0];
                let again = (*number, Collected { request: request.clone(), tag: *tag, cost: *cost });
                own.collected.entries_mut().push_back(again);
            },
            CorruptPart::Requests,
        ),
        (
            "a request is lost",
            three_wait,
            |own| _ = own.collected.entries_mut().pop_front(),
            CorruptPart::Requests,
        ),
        (
            "two are exchanged",
            three_wait,
            |own| own.collected.entries_mut().swap(0, 1),
            CorruptPart::Requests,
        ),
    ];

    fn empty() -> Batcher {
        waiting(0)
    }

    fn one_waits() -> Batcher {
        waiting(1)
    }

    fn three_wait() -> Batcher {
        waiting(3)
    }

    /// The result of a round: the batches that leave, or the corruption that was found.
    fn round(own: &mut Batcher) -> Result<Vec<Encoded>, CorruptPart> {
        own.form(0, 1)?;
        let leaves = std::iter::from_fn(|| own.take_unsent(0, 1, Some(1)).transpose());
        leaves.map(|leaving| leaving.map(|(_, encoded)| encoded)).collect()
    }

    /// V16, V22, V25 and V31 in docs/vulnerabilities.md, each as the corrupted processor left it.
    #[test]
    fn nothing_leaves_a_corrupted_batcher() {
        for (what, made, corrupt, found_as) in CORRUPTIONS {
            let mut own = made();
            assert!(round(&mut made()).is_ok(), "{what}: nothing is wrong before it");
            corrupt(&mut own);
            assert_eq!(round(&mut own), Err(found_as), "{what}");
        }
    }

    /// The receiver of a batch sums it. One that comes back to be handed over again may have been refused for its sum.
    #[test]
    fn a_batch_is_summed_when_it_is_handed_over_again() {
        let mut own = waiting(2);
        form(&mut own);
        own.corrupt_first(9);
        assert!(take(&mut own, 1).is_some_and(|batch| Batch::decode(&batch).is_err()), "a moment ago");
        own.send_again();
        assert_eq!(own.take_unsent(0, 1, Some(1)), Err(CorruptPart::OwnBatch));
    }

    #[test]
    fn a_batch_that_is_not_the_one_delivered_gives_no_tags() {
        let mut own = in_flight();
        own.in_flight.entries_mut()[0].0 = 2;
        assert_eq!(
            (own.delivered(1, 1), own.skip_to(1)),
            (Err(CorruptPart::OwnBatch), Err(CorruptPart::OwnBatch))
        );
    }

    fn request() -> Request {
        request_of(Bytes::from_static(b"x"))
    }

    fn request_of(bytes: Bytes) -> Request {
        Request { checksum: checksum(&bytes), stream: 0, bytes }
    }
}
