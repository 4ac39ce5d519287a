//! The origin's side: requests become batches by themselves, and a batch is kept until its delivery was seen.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::batch::{Batch, Encoded, Request};
use crate::limits;

/// A queue is at its bound: stop reading from clients until deliveries make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Too much waits already.
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
    /// Batches in flight that go at once, however small. With none in flight a request never waits.
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
    collected: VecDeque<Collected>,
    collected_bytes: usize,
    in_flight: VecDeque<InFlight>,
    /// Batches at the front of `in_flight` that were handed to the current leader.
    sent: usize,
    next_number: u64,
    /// Tells this process's batches from those of another process of the same incarnation.
    mark: u32,
    /// Requests that were ever collected, and that were ever put into a batch.
    submitted: u64,
    formed: u64,
}

/// A request that is in no batch yet.
#[derive(Debug)]
struct Collected {
    request: Request,
    tag: u64,
    /// How many were collected before it.
    number: u64,
    /// What it takes while it is on its way, with the reply that is expected, in bytes.
    cost: usize,
}

#[derive(Debug)]
struct InFlight {
    number: u64,
    encoded: Encoded,
    tags: Vec<u64>,
}

impl Batcher {
    /// The requests of a process that was started with this mark; no two of one replica are.
    pub fn new(batching: Batching, mark: u32) -> Self {
        Batcher {
            batching,
            collected: VecDeque::new(),
            collected_bytes: 0,
            in_flight: VecDeque::new(),
            sent: 0,
            next_number: 1,
            mark,
            submitted: 0,
            formed: 0,
        }
    }

    pub fn can_accept(&self) -> bool {
        self.collected.len() < limits::COLLECTED_REQUESTS
            && self.collected_bytes + limits::REQUEST_BYTES <= limits::COLLECTED_BYTES
    }

    pub fn submit(&mut self, bytes: Bytes, checksum: u32, tag: u64, cost: usize) -> Result<(), Refused> {
        if bytes.len() > limits::REQUEST_BYTES {
            return Err(Refused::TooLong);
        }
        if !self.can_accept() {
            return Err(Refused::Full);
        }
        self.collected_bytes += bytes.len();
        self.collected.push_back(Collected {
            request: Request { checksum, bytes },
            tag,
            number: self.submitted,
            cost,
        });
        self.submitted += 1;
        Ok(())
    }

    /// Whether a batch of this incarnation of this replica, with this mark, is of this process.
    pub fn is_ours(&self, mark: u32) -> bool {
        self.mark == mark
    }

    /// Whether this process has formed a batch of this number yet.
    pub fn has_formed(&self, number: u64) -> bool {
        number < self.next_number
    }

    /// Requests that wait and batches in flight.
    pub fn waiting(&self) -> (usize, usize) {
        (self.collected.len(), self.in_flight.len())
    }

    /// Forms batches: with little in flight at once, with more in flight only full ones. No timer decides anything.
    ///
    /// # Panics
    /// When the counts of what waits cannot be right: with a wrong one nothing more may be let in, for ever.
    pub fn form(&mut self, origin: u8, incarnation: u64) {
        let waiting = self.collected.len() as u64;
        assert_eq!(
            self.submitted,
            self.formed + waiting,
            "what waits is what was submitted and is in no batch"
        );
        assert!(waiting > 0 || self.collected_bytes == 0, "what does not wait has no bytes");
        while !self.collected.is_empty() && self.in_flight.len() < self.batching.in_flight {
            if self.in_flight.len() >= self.batching.eager && !self.fills_a_batch() {
                break;
            }
            self.form_one(origin, incarnation);
        }
    }

    /// The next batch to hand to the leader, once; see [`Batcher::send_again`]. It is of this life of this
    /// replica, and the oldest one that is not delivered yet has number `next` (none when this life is over).
    ///
    /// # Panics
    /// When it is not: everybody would drop it for ever, and all that comes after it would wait; or take it
    /// for a later life's, and drop whatever this replica sends from then on.
    pub fn take_unsent(&mut self, origin: u8, incarnation: u64, next: Option<u64>) -> Option<Encoded> {
        let batch = self.in_flight.get(self.sent)?;
        let name = |batch: Batch| (batch.origin, batch.incarnation, batch.number, batch.mark);
        let says = Batch::decode(&batch.encoded).map(name);
        let number = next.map_or(batch.number, |next| next + self.sent as u64);
        let right = (origin, incarnation, number, self.mark);
        assert_eq!(says, Ok(right), "a batch of its own clients is not what it was");
        self.sent += 1;
        Some(batch.encoded.clone())
    }

    /// Everything in flight has to be handed over again, in order: the leader changed, or it took too long.
    pub fn send_again(&mut self) {
        self.sent = 0;
    }

    /// A batch of ours was delivered; returns the tags of its requests.
    pub fn delivered(&mut self, number: u64) -> Vec<u64> {
        // Numbers are delivered in order, so it can only be the oldest in flight.
        match self.in_flight.front() {
            Some(batch) if batch.number == number => {
                self.sent = self.sent.saturating_sub(1);
                self.in_flight.pop_front().map(|batch| batch.tags).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// Batches up to `number` are part of a state that was installed from elsewhere; returns the tags of
    /// their requests.
    pub fn skip_to(&mut self, number: u64) -> Vec<u64> {
        let mut tags = Vec::new();
        while let Some(batch) = self.in_flight.pop_front_if(|batch| batch.number <= number) {
            self.sent = self.sent.saturating_sub(1);
            tags.extend(batch.tags);
        }
        tags
    }

    fn fills_a_batch(&self) -> bool {
        self.collected.len() >= self.batching.requests || self.collected_bytes >= self.batching.bytes
    }

    /// The next batch. A queue that was corrupted may give a request again, or pass one over; every replica
    /// would agree on that, so it must not be ordered.
    fn form_one(&mut self, origin: u8, incarnation: u64) {
        let mut requests = Vec::new();
        let mut tags = Vec::new();
        let (mut bytes, mut cost) = (0, 0usize);
        let first = self.formed;
        while let Some(next) = self.collected.pop_front() {
            let len = next.request.bytes.len();
            let is_full =
                bytes + len > self.batching.bytes || cost.saturating_add(next.cost) > limits::BATCH_COST;
            if !requests.is_empty() && is_full {
                self.collected.push_front(next);
                break;
            }
            assert_eq!(
                next.number, self.formed,
                "requests are ordered once each, in the order in which they came"
            );
            self.formed += 1;
            bytes += len;
            cost = cost.saturating_add(next.cost);
            requests.push(next.request);
            tags.push(next.tag);
            if requests.len() == self.batching.requests {
                break;
            }
        }
        self.collected_bytes -= bytes;
        let batch = Batch::new(origin, incarnation, self.next_number, &requests).marked(self.mark);
        assert_eq!(first + batch.len() as u64, self.formed, "a batch has the requests that it was formed of");
        let (number, encoded) = (self.next_number, batch.encode());
        self.in_flight.push_back(InFlight { number, encoded, tags });
        self.next_number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::checksum;

    fn submit(own: &mut Batcher, len: usize, tag: u64) {
        let bytes = Bytes::from(vec![7; len]);
        own.submit(bytes.clone(), checksum(&bytes), tag, len).unwrap();
    }

    fn take(own: &mut Batcher, next: u64) -> Option<Encoded> {
        own.take_unsent(0, 1, Some(next))
    }

    fn sizes(own: &mut Batcher) -> Vec<usize> {
        let next = own.in_flight.front().map_or(1, |batch| batch.number);
        std::iter::from_fn(|| take(own, next)).map(|b| Batch::decode(&b).unwrap().len()).collect()
    }

    #[test]
    fn nothing_in_flight_sends_at_once_and_then_requests_collect() {
        let mut own = Batcher::new(Batching { eager: 1, ..Batching::default() }, 0);
        submit(&mut own, 10, 1);
        own.form(0, 1);
        for tag in 2..7 {
            submit(&mut own, 10, tag);
            own.form(0, 1);
        }
        assert_eq!(sizes(&mut own), [1], "the first goes alone, the others wait for it");
        assert_eq!(own.delivered(1), [1]);
        own.form(0, 1);
        assert_eq!(sizes(&mut own), [5], "what collected goes together");
        assert_eq!(own.delivered(2), [2, 3, 4, 5, 6]);
    }

    #[test]
    fn full_batches_go_up_to_the_cap_and_a_large_request_goes_alone() {
        let mut own = Batcher::new(Batching::default(), 0);
        for tag in 0..128 * 20 {
            submit(&mut own, 1, tag);
        }
        own.form(0, 1);
        assert_eq!(sizes(&mut own), [128; 8]);
        let mut own = Batcher::new(Batching::default(), 0);
        [10, 1 << 20, 10].iter().for_each(|&len| submit(&mut own, len, 0));
        own.form(0, 1);
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
            own.submit(Bytes::from_static(b"get"), 0, tag as u64, cost).unwrap();
        }
        own.form(0, 1);
        let tags: Vec<Vec<u64>> = own.in_flight.iter().map(|batch| batch.tags.clone()).collect();
        assert_eq!(tags, [vec![0, 1], vec![2], vec![3, 4], vec![5]]);
    }

    #[test]
    fn what_is_not_delivered_is_handed_over_again_in_order() {
        let mut own = Batcher::new(Batching { requests: 1, ..Batching::default() }, 0);
        (0..3).for_each(|tag| submit(&mut own, 1, tag));
        own.form(0, 1);
        assert_eq!(sizes(&mut own).len(), 3);
        assert_eq!(own.delivered(1), [0]);
        own.send_again();
        let again: Vec<u64> =
            std::iter::from_fn(|| take(&mut own, 2)).map(|b| Batch::decode(&b).unwrap().number).collect();
        assert_eq!(again, [2, 3]);
    }

    #[test]
    fn a_full_queue_refuses() {
        let mut own = Batcher::new(Batching::default(), 0);
        for tag in 0..limits::COLLECTED_REQUESTS as u64 {
            submit(&mut own, 1, tag);
        }
        assert!(!own.can_accept());
        assert_eq!(own.submit(Bytes::new(), 0, 0, 0), Err(Refused::Full));
    }

    /// V22 and V31 in docs/vulnerabilities.md: a corrupted batch has another head whose checksum fits, or another body.
    #[test]
    fn a_batch_that_all_would_drop_is_not_sent() {
        let strikes: [fn(&mut InFlight); 5] = [
            |batch| batch.encoded = Batch::new(0, 1, 1, &[request()]).marked(3).encode(),
            |batch| batch.encoded = Batch::new(0, 1, 7, &[request()]).encode(),
            |batch| batch.encoded = Batch::new(0, 1 | 1 << 46, 1, &[request()]).encode(),
            |batch| batch.encoded = Batch::new(1, 1, 1, &[request()]).encode(),
            |batch| batch.encoded.body = Bytes::from_static(b"others"),
        ];
        for strike in strikes {
            let mut own = Batcher::new(Batching::default(), 0);
            submit(&mut own, 1, 1);
            own.form(0, 1);
            assert!(take(&mut own, 1).is_some());
            own.send_again();
            strike(&mut own.in_flight[0]);
            let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| take(&mut own, 1)));
            assert!(taken.is_err());
        }
    }

    /// V25 in docs/vulnerabilities.md: the replica accepted no request any more, for ever, and noticed nothing.
    #[test]
    fn counts_that_would_keep_everything_out_end_the_replica() {
        let strikes: [fn(&mut Batcher); 2] = [|own| own.collected_bytes |= 1 << 49, |own| own.submitted -= 1];
        for strike in strikes {
            let mut own = Batcher::new(Batching::default(), 0);
            submit(&mut own, 1, 1);
            own.form(0, 1);
            strike(&mut own);
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| own.form(0, 1))).is_err());
        }
    }

    fn request() -> Request {
        Request { checksum: checksum(b"x"), bytes: Bytes::from_static(b"x") }
    }

    /// V16 in docs/vulnerabilities.md: a corrupted queue gives a request again, has lost one, or has changed the order.
    #[test]
    fn a_request_is_never_ordered_again_or_passed_over() {
        let strikes: [fn(&mut Batcher); 3] = [
            |own| {
                let Some(Collected { request, tag, number, cost }) = own.collected.front() else { return };
                let again = Collected { request: request.clone(), tag: *tag, number: *number, cost: *cost };
                own.collected.push_back(again);
            },
            |own| _ = own.collected.pop_front(),
            |own| own.collected.swap(0, 1),
        ];
        for (number, strike) in strikes.into_iter().enumerate() {
            let mut own = Batcher::new(Batching::default(), 0);
            (0..3).for_each(|tag| submit(&mut own, 1, tag));
            strike(&mut own);
            let formed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| own.form(0, 1)));
            assert!(formed.is_err() && take(&mut own, 1).is_none(), "{number}");
        }
    }
}
