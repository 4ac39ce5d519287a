//! First level: batch digests. In the steady state no lower level runs.

use smallvec::SmallVec;

use super::reply::OwedReplies;
use super::{Ballots, Case, Round, Voter};
use crate::command::{BeyondRepair, Command, Dropped, To};
use crate::config::{Replica, Set};
use crate::digest;
use crate::event::{Place, RequestResult, keeps_reply};
use crate::evidence::FaultStage;
use crate::gate::{Withheld, reply_may_leave};
use crate::limits::*;
use crate::message::{Ask, Message};
use crate::record::Record;

impl Voter {
    /// The own results of a batch: they are voted on, and their CHECK goes out with the round (Fig. 2 line 1).
    pub(super) fn on_executed(
        &mut self,
        batch: u64,
        mut requests: Vec<RequestResult>,
        round: &mut Round<'_>,
    ) {
        if !self.is_next(batch) {
            return round.commands.push(Command::ReplaceSelf(BeyondRepair::Miscounted));
        }
        self.newest = self.newest.max(batch);
        while batch + AHEAD_BATCHES >= self.ballots.window.base() + WINDOW_BATCHES {
            self.close_oldest(round);
        }
        let me = self.ballots.config.me();
        let Some(record) = self.ballots.window.open(batch) else {
            return executed_too_late(batch, &requests, round);
        };
        let digest = fold(batch, me, &requests, &mut self.ballots.scratch);
        record.set_digest(me, digest);
        record.owed = requests.iter().filter(|result| result.request_info.mine).count() as u16;
        record.executed_us = round.now_us;
        let kept = keep_short_replies(&mut requests);
        let owed = requests.iter().map(RequestResult::owed_bytes).sum::<usize>();
        let bytes = requests.iter().map(RequestResult::bytes).sum::<usize>() - owed;
        record.bytes += bytes;
        for (index, result) in requests.iter().enumerate() {
            if let Some(failure) = result.failure {
                let place = Place::new(batch, index as u16);
                round.send(To::All, Message::SelfBlame { place, failure });
            }
        }
        record.own = Some(requests);
        self.ballots.window.bytes += bytes;
        self.ballots.window.owe(batch, owed);
        self.ballots.window.keep_replies(batch, kept, self.ballots.config.kept_reply_bytes());
        self.checks.collect(batch, digest, round);
        self.evaluate(batch, round);
        self.advance(round);
    }

    /// Whether results of this batch can come now: not for the second time, not further ahead than any batch in
    /// execution, and not after a gap. A corrupted number would close open batches, or leave a batch without a vote,
    /// and no other replica could detect it.
    fn is_next(&self, batch: u64) -> bool {
        let has_results = |batch| self.ballots.window.get(batch).is_none_or(|record| record.own.is_some());
        let is_fresh = self.ballots.window.is_to_come(batch)
            && self.ballots.window.get(batch).is_none_or(|record| record.own.is_none());
        let oldest = batch.checked_sub(IN_EXECUTION_BATCHES);
        let is_within = batch <= self.newest + IN_EXECUTION_BATCHES;
        // No replica votes on a batch that none has executed: the window closes no further ahead than peers can have
        // filled it.
        let has_place = self.ballots.window.base() <= batch + WINDOW_BATCHES;
        is_fresh && is_within && has_place && oldest.is_none_or(has_results)
    }

    /// CHECK from a peer: the function that receives it (EDCC'16 Table II, Fig. 2 line 3).
    pub(super) fn on_check(&mut self, from: Replica, first: u64, digests: &[u128], round: &mut Round<'_>) {
        for (batch, digest) in (first..).zip(digests) {
            self.on_batch_digest(from, batch, *digest, round);
        }
        self.advance(round);
    }

    pub(super) fn on_batch_digest(&mut self, from: Replica, batch: u64, digest: u128, round: &mut Round<'_>) {
        let me = self.ballots.config.me();
        if from >= self.ballots.config.sizes.at(batch) {
            return;
        }
        if self.ballots.window.get(batch).is_none() && batch < self.ballots.window.base() {
            return self.late.on_digest(from, batch, digest, &mut self.ballots, round);
        }
        // A peer that is further ahead than the window gets a request for this when this replica reaches the batch.
        let Some(record) = self.ballots.window.open(batch) else { return };
        if !record.known.contains(from) {
            record.set_digest(from, digest);
            return self.evaluate(batch, round);
        }
        let (before, own) = (record.digests[from as usize], record.digests[me as usize]);
        if before == digest || (record.known.contains(me) && before == own) {
            return;
        }
        record.set_digest(from, digest);
        if record.known.contains(me) && digest == own && self.ballots.report_once(batch, from) {
            let case = Case { batch, request: None, kind: 0, stage: FaultStage::Digest };
            self.ballots.evidence(from, case, None, &[], round);
        }
        self.evaluate(batch, round);
    }

    /// Compares all votes on a batch and acts on the result; called after each change of the batch's data.
    pub(super) fn evaluate(&mut self, batch: u64, round: &mut Round<'_>) {
        let me = self.ballots.config.me();
        let Some(record) = self.ballots.window.get(batch) else { return };
        if record.own.is_none() {
            return;
        }
        let owes = record.owed > 0;
        let compared = self.ballots.config.protections.digest_comparison;
        let agreeing = if compared { record.agreeing_with(me) } else { record.known };
        let differs = !record.known.minus(agreeing).is_empty();
        let has_details = record.details.is_some();
        if compared {
            self.streaks.count_agreeing(batch, &mut self.ballots);
        }
        if owes {
            self.replies.release_batch(batch, agreeing, &mut self.ballots, round);
        }
        if differs
            || has_details
            || self.ballots.window.get(batch).is_some_and(|record| record.details.is_some())
        {
            self.exchange_details(batch, round);
        }
        self.ballots.finish(batch);
    }

    /// Moves the window forward: finished batches leave it, batches with a mismatch are parked, and its bounds are
    /// kept.
    pub(super) fn advance(&mut self, round: &mut Round<'_>) {
        while let Some(front) = self.ballots.window.front() {
            // Only batches executed here count: messages about batches far ahead, right or not, must not displace data
            // that peers may request. All bytes count, since all are held; details of a dispute from peers can reduce
            // the data that is kept.
            let kept = (self.newest + 1).saturating_sub(self.ballots.window.base());
            let full = kept > KEEP_FINISHED_BATCHES
                || self.ballots.window.bytes > self.ballots.config.finished_bytes();
            let done = front.finished || (front.details.is_some() && front.own.is_some());
            if !(full && done && kept > 1) {
                break;
            }
            self.ballots.pop_oldest();
            while self.ballots.window.parked.len() > MAX_PARKED_BATCHES {
                self.unpark_oldest(round);
            }
        }
        while self.ballots.is_overfull() && self.ballots.window.end() - self.ballots.window.base() > 1 {
            self.close_oldest(round);
        }
    }

    fn unpark_oldest(&mut self, round: &mut Round<'_>) {
        let Some((batch, record)) = self.ballots.window.parked.pop_first() else { return };
        self.ballots.window.on_gone(batch, &record);
        self.replies.drop_owed(batch, &record, round);
    }

    /// Closes the oldest batch, in any state, because the window is full.
    fn close_oldest(&mut self, round: &mut Round<'_>) {
        if !self.ballots.window.parked.is_empty() && self.ballots.is_overfull() {
            return self.unpark_oldest(round);
        }
        let quorum = self.ballots.config.sizes.quorum_at(self.ballots.window.base());
        let Some(front) = self.ballots.window.front() else {
            self.ballots.window.open_next();
            return;
        };
        let agreed = agreed_digest(front, quorum);
        let Some((batch, record)) = self.ballots.window.pop(agreed) else { return };
        self.ballots.window.on_gone(batch, &record);
        self.replies.drop_owed(batch, &record, round);
    }

    /// Closes executed batches, as happens over time.
    #[cfg(test)]
    pub(crate) fn close_executed(&mut self) {
        while self.ballots.window.front().is_some_and(|front| front.own.is_some()) {
            self.ballots.window.pop(None);
        }
    }

    /// Closes batches like a loop with a corrupted bound.
    #[cfg(test)]
    pub(crate) fn close_below(&mut self, batch: u64) {
        while self.ballots.window.base() < batch {
            self.ballots.window.open_next();
            self.ballots.window.pop(None);
        }
    }
}

impl OwedReplies {
    /// Passes every owed reply to the gate; when f others have the same batch digest as this replica, all of them may
    /// leave.
    fn release_batch(&mut self, batch: u64, agreeing: Set, ballots: &mut Ballots, round: &mut Round<'_>) {
        let mut corrupt: SmallVec<[u16; 4]> = SmallVec::new();
        let count = ballots.window.get(batch).map_or(0, |record| record.requests().len());
        for request in 0..count as u16 {
            let Some(result) = ballots.window.get(batch).and_then(|r| r.requests().get(request as usize))
            else {
                return;
            };
            let (mine, agreed) = (result.request_info.mine, result.digest);
            match self.release(Place::new(batch, request), agreed, agreeing, ballots, round) {
                Err(Withheld::Corrupt) => corrupt.push(request),
                Err(Withheld::NotYet) if mine => break,
                _ => {}
            }
        }
        for request in corrupt {
            // The own stored copy is not the agreed one: continue one level down, where peers can help.
            ballots.dispute_mut(Place::new(batch, request), round);
        }
    }

    /// Releases one own reply if the gate allows it.
    pub(super) fn release(
        &mut self,
        place: Place,
        agreed: u128,
        agreeing: Set,
        ballots: &mut Ballots,
        round: &mut Round<'_>,
    ) -> Result<(), Withheld> {
        let quorum = ballots.config.sizes.quorum_at(place.batch);
        self.release_with(place, agreed, agreeing, quorum, ballots, round)
    }

    pub(super) fn release_with(
        &mut self,
        place: Place,
        agreed: u128,
        agreeing: Set,
        quorum: u32,
        ballots: &mut Ballots,
        round: &mut Round<'_>,
    ) -> Result<(), Withheld> {
        let protections = ballots.config.protections;
        let Some(record) = ballots.window.get_mut(place.batch) else { return Ok(()) };
        let Some(result) = record.own.as_mut().and_then(|own| own.get_mut(place.request as usize)) else {
            return Ok(());
        };
        if !result.request_info.mine {
            return Ok(());
        }
        let digest = match reply_may_leave(result, agreed, agreeing, quorum, protections) {
            Ok(digest) => digest,
            Err(Withheld::NotKept) => {
                self.drop_reply(place, Dropped::NoRoom, ballots, round);
                return Ok(());
            }
            Err(why) => return Err(why),
        };
        result.request_info.mine = false;
        record.owed -= 1;
        // Only the owner of a reply requests it, and the owner is this replica.
        let Some(reply) = ballots.window.take_owed(place) else { return Ok(()) };
        round.commands.push(Command::Release { place, reply, digest });
        Ok(())
    }

    /// Drops a batch; replies still owed can never leave, and held requests are not held any more.
    pub(super) fn drop_owed(&mut self, batch: u64, record: &Record, round: &mut Round<'_>) {
        let disputes = record.details.iter().flat_map(|details| &details.disputes);
        let held = disputes
            .filter(|(_, dispute)| dispute.held.is_some())
            .map(|(request, _)| Place::new(batch, *request));
        round.commands.extend(held.map(|place| Command::Resumed { place }));
        for (index, _) in record.requests().iter().enumerate().filter(|(_, result)| result.request_info.mine)
        {
            let place = Place::new(batch, index as u16);
            self.remove(place);
            round.commands.push(Command::DropReply { place, why: Dropped::WindowClosed });
        }
    }
}

/// Digests of consecutive batches that wait for the end of the round.
#[derive(Debug, Default)]
pub(super) struct Checks {
    digests: SmallVec<[u128; 2]>,
    /// The batch of the first one.
    first: u64,
}

impl Checks {
    /// Stores a digest for the next CHECK; consecutive batches of one round share a message.
    fn collect(&mut self, batch: u64, digest: u128, round: &mut Round<'_>) {
        let next = self.first + self.digests.len() as u64;
        if !self.digests.is_empty() && (batch != next || self.digests.len() == MAX_DIGESTS_PER_CHECK) {
            self.send(round);
        }
        if self.digests.is_empty() {
            self.first = batch;
        }
        self.digests.push(digest);
    }

    /// Sends the collected digests.
    pub(super) fn send(&mut self, round: &mut Round<'_>) {
        if !self.digests.is_empty() {
            let digests = std::mem::take(&mut self.digests);
            round.send(To::All, Message::Check { first: self.first, digests });
        }
    }
}

/// By peer, a batch whose digest came too late and differed, and the time since when it is requested again, before any
/// replica is accused.
#[derive(Debug, Default)]
pub(super) struct LateVotes([Option<(u64, u64)>; MAX_REPLICAS]);

impl LateVotes {
    /// A peer was replaced.
    pub(super) fn forget(&mut self, peer: Replica) {
        self.0[peer as usize] = None;
    }

    /// A vote on a batch that left the window: from a replica that was paused, or replays its log.
    fn on_digest(
        &mut self,
        from: Replica,
        batch: u64,
        digest: u128,
        ballots: &mut Ballots,
        round: &mut Round<'_>,
    ) {
        let Some(agreed) = ballots.window.remembered(batch) else { return };
        if agreed == digest {
            if self.0[from as usize].is_some_and(|(requested, _)| requested == batch) {
                self.0[from as usize] = None;
            }
            return;
        }
        match self.0[from as usize] {
            Some((requested, _)) if requested == batch => {}
            // One batch at a time: the digests of two batches would be requested again alternately, for ever.
            Some((_, since_us)) if round.now_us.saturating_sub(since_us) < ASK_AFTER_US => return,
            _ => {
                // The message alone may have been wrong; its sender repeats it.
                self.0[from as usize] = Some((batch, round.now_us));
                return round.send_one(from, Message::Ask(Ask::Checks { first: batch, count: 1 }));
            }
        }
        self.0[from as usize] = None;
        let case = Case { batch, request: None, kind: 0, stage: FaultStage::InRequest };
        ballots.evidence(from, case, None, &[], round);
        round.commands.push(Command::PeerBeyondRepair { replica: from, why: BeyondRepair::TooLate });
    }
}

/// Results of a batch that was closed without them: none of its replies can leave.
fn executed_too_late(batch: u64, requests: &[RequestResult], round: &mut Round<'_>) {
    for (index, _) in requests.iter().enumerate().filter(|(_, result)| result.request_info.mine) {
        let place = Place::new(batch, index as u16);
        round.commands.push(Command::DropReply { place, why: Dropped::WindowClosed });
    }
}

impl Ballots {
    /// Marks that a digest fault of `replica` in this batch is reported; false when it was before.
    pub(super) fn report_once(&mut self, batch: u64, replica: Replica) -> bool {
        let Some(details) = self.window.get_mut(batch).and_then(|record| record.details.as_mut()) else {
            return false;
        };
        let first = !details.reported.contains(replica);
        details.reported.insert(replica);
        first
    }

    /// A batch is finished when no reply is owed and every live replica is classified (deferred validation, EDCC'16
    /// section IV-B).
    pub(super) fn finish(&mut self, batch: u64) {
        let (me, live) = (self.config.me(), self.live_at(batch));
        let compared = self.config.protections.digest_comparison;
        let Some(record) = self.window.get_mut(batch) else { return };
        let voters = live.minus(record.gone);
        let agreeing = if compared { record.agreeing_with(me) } else { record.known };
        let classified = match &record.details {
            None => voters.minus(agreeing).is_empty(),
            Some(details) => {
                let stated = |replica: Replica| {
                    agreeing.contains(replica) || replica == me || details.stated[replica as usize].is_some()
                };
                voters.iter().all(stated) && details.disputes.values().all(|dispute| dispute.done)
            }
        };
        record.finished = record.own.is_some() && record.owed == 0 && classified;
    }

    /// Whether the window holds more than it may.
    fn is_overfull(&self) -> bool {
        self.window.bytes > self.config.window_bytes()
            || self.window.owed_bytes > self.config.owed_reply_bytes()
    }

    /// Takes the oldest batch out of the window; one with a mismatch is parked.
    fn pop_oldest(&mut self) {
        let quorum = self.config.sizes.quorum_at(self.window.base());
        let Some(front) = self.window.front() else { return };
        let agreed = agreed_digest(front, quorum);
        let Some((batch, record)) = self.window.pop(agreed) else { return };
        if record.details.is_none() {
            return self.window.on_gone(batch, &record);
        }
        self.window.parked.insert(batch, record);
    }
}

/// Discards the long replies among those that this replica does not owe. Returns the bytes of the short ones,
/// which are kept in case the owner finds its own copy wrong.
fn keep_short_replies(requests: &mut [RequestResult]) -> usize {
    let of_others = requests.iter_mut().filter(|result| !result.request_info.mine);
    let kept = of_others.map(|result| {
        if !keeps_reply(false, result.reply_bytes()) {
            result.reply = None;
        }
        result.reply_bytes()
    });
    kept.sum()
}

/// The batch digest that f+1 replicas share.
pub(super) fn agreed_digest(record: &Record, quorum: u32) -> Option<u128> {
    let shared = |replica: &Replica| record.agreeing_with(*replica).len() >= quorum;
    record.known.iter().find(shared).map(|replica| record.digests[replica as usize])
}

/// The batch digest of `replica` with these results.
pub(super) fn fold(batch: u64, replica: Replica, requests: &[RequestResult], scratch: &mut Vec<u8>) -> u128 {
    let digests = requests.iter().enumerate().map(|(index, result)| match result.failure {
        None => result.digest,
        Some(_) => digest::abandoned(batch, index as u16, replica),
    });
    digest::batch(batch, digests, scratch)
}
