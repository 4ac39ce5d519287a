//! Promises broken on purpose: so that each checker of the simulation is seen to fail. Only in builds with
//! the injector.

use bytes::Bytes;
use order::OrderEngine;
use vote::{Packed, Place, RequestResult};

use super::Replica;
use super::pending::Recipient;
use crate::admin::EvidenceRecord;
use crate::ordered::summed;
use crate::service::Service;
use crate::world::{Observation, World};

/// One promise that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Own replies leave as soon as the request has run.
    ReleasesUnvoted,
    /// Every client request is ordered a second time.
    SubmitsTwice,
    /// What the queue of requests gives is ordered, however often it gave it before.
    BelievesQueue,
    /// Now and then a connection is given its last reply again, with the position that it had.
    ReleasesStale,
    /// One batch of another replica is left out.
    SkipsBatch,
    /// A worker counts one position too many, once.
    LosesCount,
    /// What f+1 replicas agree on is not what overwrites the objects.
    FlipsInstalled,
    /// Evidence names the next replica.
    BlamesNeighbour,
    /// The digest of a result differs now and then although the result does not.
    DiffersAtTimes,
    /// A long request is executed with another last byte now and then.
    Misplaces,
    /// No CHECK is sent, and none is heard.
    MutesVotes,
    /// No RECOVER is ever proposed.
    NeverRepairs,
    /// Evidence names the object behind another lock.
    BlamesOtherObject,
    /// How batches were run is never forgotten.
    Hoards,
    /// Stamps are given by the own clock alone, and any is believed.
    BelievesClocks,
    /// The watchdog asks nobody whether what takes long here takes long elsewhere, too.
    AsksNobody,
    /// The watchdog looks at batches, and not at the requests in them.
    CountsBatches,
}

/// What is sabotaged at one replica.
#[derive(Debug, Default)]
pub(crate) struct Sabotaged {
    pub list: Vec<Sabotage>,
    released: Option<(Place, Bytes)>,
    count: u64,
}

impl Sabotaged {
    pub fn has(&self, one: Sabotage) -> bool {
        self.list.contains(&one)
    }

    /// Every `n`-th time it is asked.
    fn now_and_then(&mut self, one: Sabotage, n: u64) -> bool {
        if !self.has(one) {
            return false;
        }
        self.count += 1;
        self.count.is_multiple_of(n)
    }

    /// The first time that `now` holds.
    fn once(&mut self, one: Sabotage, now: bool) -> bool {
        let strikes = now && self.has(one);
        if strikes {
            self.list.retain(|other| *other != one);
        }
        strikes
    }

    pub fn skips(&mut self, delivered: &order::Delivered, batch: u64) -> bool {
        self.once(Sabotage::SkipsBatch, batch > 100 && delivered.tags.is_empty())
    }

    /// Whether the worker loses count now.
    pub fn loses_count(&mut self, batch: u64) -> bool {
        self.once(Sabotage::LosesCount, batch > 100)
    }

    /// The same batches at every replica.
    pub fn request(&self, batch: u64, request: order::Request) -> order::Request {
        if !self.has(Sabotage::Misplaces) || !batch.is_multiple_of(8) || request.bytes.len() < 80 {
            return request;
        }
        let mut bytes = request.bytes.to_vec();
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
        summed(bytes.into())
    }

    pub fn installed(&self, objects: Vec<Packed>) -> Vec<Packed> {
        let flip = |packed: Packed| match packed.content {
            vote::Content::Present(bytes) if self.has(Sabotage::FlipsInstalled) => {
                let mut bytes = bytes.to_vec();
                if let Some(last) = bytes.last_mut() {
                    *last ^= 1;
                }
                Packed { content: vote::Content::Present(bytes.into()), ..packed }
            }
            _ => packed,
        };
        objects.into_iter().map(flip).collect()
    }

    pub fn evidence(&self, record: &mut EvidenceRecord, replicas: usize) {
        if self.has(Sabotage::BlamesNeighbour) {
            record.replica = record.replica.map(|blamed| blamed % replicas as u8 + 1);
        }
        if self.has(Sabotage::BlamesOtherObject) {
            let other = |text: &str| text.replace("object ", "object 1");
            record.outcome = other(&record.outcome);
            record.objects.iter_mut().for_each(|object| *object = other(object));
        }
    }

    /// What is released instead of a reply.
    pub fn released(&mut self, place: Place, reply: Bytes) -> (Place, Bytes) {
        if self.now_and_then(Sabotage::ReleasesStale, 50)
            && let Some(stale) = self.released.clone()
        {
            return stale;
        }
        // One that was kept here for nothing would count as long as nothing else leaves: a long one takes all
        // the room there is.
        self.released = self.has(Sabotage::ReleasesStale).then(|| (place, reply.clone()));
        (place, reply)
    }
}

impl<S: Service, E: OrderEngine, W: World> Replica<S, E, W> {
    pub(super) fn sabotage_results(&mut self, batch: u64, results: &mut [RequestResult]) {
        if self.sabotaged.now_and_then(Sabotage::DiffersAtTimes, 20) {
            results.iter_mut().for_each(|result| result.digest ^= 1);
        }
        if !self.sabotaged.has(Sabotage::ReleasesUnvoted) {
            return;
        }
        for (number, result) in results.iter().enumerate().filter(|(_, result)| result.asked.mine) {
            let place = Place::new(batch, number as u16);
            let (owed, reply) = (self.owed_at(place), result.reply.clone().unwrap_or_default());
            self.world.see(Observation::Released { place, to: owed.owner.client(), reply: &reply });
            self.externalize(owed, reply, None);
        }
    }

    pub(super) fn sabotage_submission(&mut self, request: &order::Request) {
        if self.sabotaged.has(Sabotage::SubmitsTwice) {
            self.submit(request.clone(), Recipient::Nobody);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_has_left_is_kept_only_where_it_is_to_leave_again() {
        let reply = || Bytes::from(vec![7; 100]);
        let mut healthy = Sabotaged::default();
        assert!(healthy.released(Place::new(1, 0), reply()).1.is_unique());
        let mut stale = Sabotaged { list: vec![Sabotage::ReleasesStale], ..Sabotaged::default() };
        assert!(!stale.released(Place::new(1, 0), reply()).1.is_unique());
    }
}
