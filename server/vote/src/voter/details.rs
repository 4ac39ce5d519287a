//! Second level: request digests of a batch whose batch digests differ.

use super::check::fold;
use super::outvoted::Streaks;
use super::reply::OwedReplies;
use super::{Ballots, Case, Round, Voter};
use crate::classify::{Status, Vote, Votes, classify};
use crate::command::{BeyondRepair, Command, To};
use crate::config::{Replica, Set};
use crate::event::{Place, RequestResult};
use crate::evidence::FaultStage;
use crate::limits::MAX_REPLICAS;
use crate::message::{Ask, Message};
use crate::record::Record;

impl Voter {
    /// A peer sent its request digests: it found a mismatch, whether or not this replica did.
    pub(super) fn on_digests(
        &mut self,
        from: Replica,
        batch: u64,
        digests: Vec<Option<u128>>,
        round: &mut Round<'_>,
    ) {
        let crowded = self.ballots.window.bytes > self.ballots.config.window_bytes() / 2;
        let Some(record) = self.ballots.window.open(batch) else { return };
        if record.own.is_none() && crowded {
            return;
        }
        let bytes = |digests: &Vec<Option<u128>>| size_of_val(digests.as_slice());
        let holds = bytes(&digests);
        let held = record.details_mut(round.now_us).stated[from as usize].replace(digests);
        self.ballots.window.account(batch, held.as_ref().map_or(0, bytes), holds);
        self.evaluate(batch, round);
        self.advance(round);
    }

    /// A peer has no details of a batch any more, because it found no error in it.
    pub(super) fn on_gone(&mut self, from: Replica, batch: u64, digest: Option<u128>, round: &mut Round<'_>) {
        let Some(record) = self.ballots.window.get_mut(batch) else { return };
        record.gone.insert(from);
        self.replies.fetch_elsewhere(from, batch, &mut self.ballots, round);
        if let Some(digest) = digest {
            self.on_batch_digest(from, batch, digest, round);
        }
        self.evaluate(batch, round);
        if self.replies.give_up_without_details(batch, &mut self.ballots, round) {
            self.advance(round);
        }
    }

    /// Compares every request of the batch; those about which replicas differ become disputes.
    pub(super) fn exchange_details(&mut self, batch: u64, round: &mut Round<'_>) {
        if !self.ballots.config.protections.digest_comparison {
            return;
        }
        self.ballots.examine_memory(batch, round);
        self.ballots.announce(batch, round);
        let count = self.ballots.window.get(batch).map_or(0, |record| record.requests().len());
        for request in 0..count as u16 {
            let Some(record) = self.ballots.window.get(batch) else { return };
            let disputed =
                record.details.as_ref().is_some_and(|details| details.disputes.contains_key(&request));
            let votes = self.ballots.votes(record, request);
            let verdict = classify(&votes, self.ballots.config.sizes.quorum_at(batch));
            if disputed || differ(&votes) {
                self.dispute(Place::new(batch, request), round);
            } else if let Some(agreed) = verdict.majority {
                let place = Place::new(batch, request);
                if self
                    .replies
                    .release(place, agreed, verdict.with(Status::Valid), &mut self.ballots, round)
                    .is_err()
                {
                    self.dispute(place, round);
                }
            }
        }
        self.streaks.report_wrong_batch_digests(batch, &mut self.ballots, round);
    }
}

impl OwedReplies {
    /// This replica differs from f+1 others about a batch whose details they all have dropped: it was absent for too
    /// long to be repaired object by object. Returns whether this is so; its replies can never leave.
    fn give_up_without_details(&mut self, batch: u64, ballots: &mut Ballots, round: &mut Round<'_>) -> bool {
        let (me, quorum) = (ballots.config.me(), ballots.config.sizes.quorum_at(batch));
        let Some(record) = ballots.window.get(batch) else { return false };
        if record.own.is_none() || record.finished || !ballots.is_without_details_elsewhere(batch) {
            return false;
        }
        let agreed = super::check::agreed_digest(record, quorum);
        if agreed.is_some_and(|digest| digest != record.digests[me as usize]) {
            let case = Case { batch, request: None, kind: 0, stage: FaultStage::InRequest };
            ballots.evidence(me, case, None, &[], round);
            if ballots.can_begin_anew(Set::EMPTY) {
                round.commands.push(Command::ReplaceSelf(BeyondRepair::TooLate));
            }
        }
        self.drop_replies(batch, ballots, round);
        if let Some(record) = ballots.window.get_mut(batch) {
            record.finished = true;
        }
        true
    }
}

impl Streaks {
    /// Reports peers whose request digests are all right, although their batch digest is not: a fault hit their vote.
    fn report_wrong_batch_digests(&mut self, batch: u64, ballots: &mut Ballots, round: &mut Round<'_>) {
        let me = ballots.config.me();
        let Some(record) = ballots.window.get(batch) else { return };
        let Some(details) = record.details.as_ref() else { return };
        let mut wrong = Set::EMPTY;
        for replica in record.known.minus(record.agreeing_with(me)).iter() {
            let Some(stated) = details.stated[replica as usize].as_ref() else { continue };
            let same = |(own, stated): (&RequestResult, &Option<u128>)| {
                own.failure.is_none() && *stated == Some(own.digest)
            };
            if stated.len() == record.requests().len() && record.requests().iter().zip(stated).all(same) {
                wrong.insert(replica);
            }
        }
        // With three replicas the own digest may be the deviating one; two peers that agree are not both wrong.
        let agreed = super::check::agreed_digest(record, ballots.config.sizes.quorum_at(batch));
        let own_is_odd = agreed.is_some_and(|digest| digest != record.digests[me as usize]);
        let blamed = if own_is_odd && !wrong.is_empty() { Set::EMPTY.with(me) } else { wrong };
        for replica in blamed.iter() {
            if ballots.report_once(batch, replica) {
                let case = Case { batch, request: None, kind: 0, stage: FaultStage::Digest };
                ballots.evidence(replica, case, None, &[], round);
            }
            self.count_wrong_vote(batch, replica, ballots, round);
        }
    }
}

impl Ballots {
    /// The votes of every replica on one request, from all its messages.
    pub(super) fn votes(&self, record: &Record, request: u16) -> Votes {
        let me = self.config.me();
        let mut votes = Votes::default();
        let Some(own) = record.requests().get(request as usize) else { return votes };
        let agreeing = record.agreeing_with(me);
        let dispute = record.details.as_ref().and_then(|details| details.disputes.get(&request));
        for replica in 0..MAX_REPLICAS as Replica {
            let vote = &mut votes[replica as usize];
            if replica == me {
                own_vote(vote, own, dispute.is_some());
            } else {
                if agreeing.contains(replica) {
                    vote.add_value(own.digest);
                }
                let stated =
                    record.details.as_ref().and_then(|details| details.stated[replica as usize].as_ref());
                match stated.map(|stated| stated.get(request as usize).copied().flatten()) {
                    Some(Some(digest)) => vote.add_value(digest),
                    Some(None) => vote.blame(),
                    None => {}
                }
            }
            let Some(dispute) = dispute else { continue };
            if let Some(digest) = dispute.deltas[replica as usize].as_ref().and_then(|delta| delta.digest()) {
                vote.add_value(digest);
            }
            if dispute.failures[replica as usize].is_some() {
                vote.blame();
            }
        }
        votes
    }

    /// Sends the own request digests to all peers, once, after a check that they are the ones voted on.
    fn announce(&mut self, batch: u64, round: &mut Round<'_>) {
        let Some(record) = self.window.get_mut(batch) else { return };
        let details = record.details_mut(round.now_us);
        if std::mem::replace(&mut details.announced, true) {
            return;
        }
        self.counters.mismatched_batches += 1;
        if let Some(message) = self.own_digests(batch) {
            round.send(To::All, message);
        }
    }

    pub(super) fn own_digests(&self, batch: u64) -> Option<Message> {
        let own = self.window.get(batch)?.own.as_ref()?;
        let digests = own.iter().map(|result| result.failure.is_none().then_some(result.digest)).collect();
        Some(Message::Digests { batch, digests })
    }

    /// Before any replica is accused, checks this replica's stored data on the batch: a fault may have hit it since the
    /// vote. Then the checker is reported, not an object and not a peer.
    fn examine_memory(&mut self, batch: u64, round: &mut Round<'_>) {
        let me = self.config.me();
        let Some(record) = self.window.get_mut(batch) else { return };
        record.details_mut(round.now_us);
        let Some(own) = record.own.as_mut() else { return };
        let stored = fold(batch, me, own, &mut self.scratch);
        let sealed = record.is_sealed();
        let voted = record.digests[me as usize];
        if !sealed {
            record.forget_digests();
            record.set_digest(me, stored);
            round.send(To::All, Message::Ask(Ask::Checks { first: batch, count: 1 }));
        } else if stored != voted {
            self.examine_own_digests(batch, stored, round);
        }
        if (!sealed || stored != voted) && self.report_once(batch, me) {
            let case = Case { batch, request: None, kind: 0, stage: FaultStage::Digest };
            self.evidence(me, case, None, &[], round);
        }
    }

    /// Stored request digests that do not fold into the batch digest any more are computed again.
    fn examine_own_digests(&mut self, batch: u64, stored: u128, round: &mut Round<'_>) {
        let me = self.config.me();
        let Some(record) = self.window.get_mut(batch) else { return };
        let voted = record.digests[me as usize];
        let Some(own) = record.own.as_mut() else { return };
        let before: Vec<u128> = own.iter().map(|result| result.digest).collect();
        own.iter_mut().for_each(|result| result.digest = result.recomputed());
        if fold(batch, me, own, &mut self.scratch) != voted {
            // The fault hit the vote, and not the request digests.
            own.iter_mut().zip(before).for_each(|(result, digest)| result.digest = digest);
            record.set_digest(me, stored);
            let digests = smallvec::smallvec![stored];
            round.send(To::All, Message::Check { first: batch, digests });
        }
    }
}

fn own_vote(vote: &mut Vote, own: &RequestResult, disputed: bool) {
    if own.failure.is_some() {
        return vote.blame();
    }
    vote.add_value(own.digest);
    if disputed {
        vote.add_value(own.recomputed());
    }
}

/// Whether any replica has a value that another one does not have.
fn differ(votes: &Votes) -> bool {
    let first = votes.iter().find(|vote| vote.is_cast());
    let Some(first) = first else { return false };
    let other = |vote: &Vote| vote.is_cast() && !vote.is_same(first);
    votes.iter().any(|vote| vote.is_blamed() || vote.is_torn() || other(vote))
}
