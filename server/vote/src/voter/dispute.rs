//! Third level: the pairs of a request about which replicas differ, and the decision from them.

use object::Pair;

use super::{Ballots, Case, Round, Voter};
use crate::classify::{Status, Verdict, Votes, by_elimination, classify, verdict};
use crate::command::{BeyondRepair, Command, Dropped, To};
use crate::config::{Protections, Replica, Set};
use crate::digest::Answer;
use crate::event::{Failure, Pairs, Place};
use crate::evidence::{FaultStage, WrongObject};
use crate::gate::Withheld;
use crate::limits::*;
use crate::message::Message;
use crate::record::{Delta, Dispute, Record};

/// A part of a peer's state delta.
pub(crate) struct DeltaPart {
    pub answer: Answer,
    pub total: u32,
    pub first: u32,
    pub pairs: Pairs,
}

impl Voter {
    pub(super) fn on_pairs(&mut self, from: Replica, place: Place, part: DeltaPart, round: &mut Round<'_>) {
        let Some(dispute) = self.ballots.dispute_mut(place, round) else { return };
        let delta = dispute.deltas[from as usize].get_or_insert_default();
        let held = size_of_val(&delta.pairs[..]);
        if part.first == 0 {
            **delta =
                Delta { answer: part.answer, total: part.total, pairs: Vec::with_capacity(part.pairs.len()) };
        } else if delta.pairs.len() != part.first as usize || delta.total != part.total {
            // Out of order or duplicated; missing parts are requested.
            return;
        }
        delta.pairs.extend_from_slice(&part.pairs);
        let holds = size_of_val(&delta.pairs[..]);
        self.ballots.window.account(place.batch, held, holds);
        self.evaluate(place.batch, round);
        self.advance(round);
    }

    /// Evaluates one disputed request as far as its votes allow.
    pub(super) fn dispute(&mut self, place: Place, round: &mut Round<'_>) {
        self.ballots.announce_pairs(place, round);
        let Some(record) = self.ballots.window.get(place.batch) else { return };
        let Some(dispute) = find(record, place.request) else { return };
        let votes = self.ballots.votes(record, place.request);
        let quorum = self.ballots.config.sizes.quorum_at(place.batch);
        let by_quorum = classify(&votes, quorum);
        if by_quorum.majority.is_some() {
            return self.decide(place, &votes, by_quorum, quorum, round);
        }
        // If a peer has closed the batch, f+1 have agreed. If a peer that is absent now voted differently, f+1 may have
        // agreed. A replica that is left over must not decide on its own.
        let has_value = |replica: Replica, value| {
            votes[replica as usize].is_blamed() || votes[replica as usize].has_value(value)
        };
        let may_decide = |value: &u128| {
            record.gone.is_empty()
                && record.known.minus(self.ballots.live).iter().all(|replica| has_value(replica, *value))
        };
        let faults = self.ballots.config.sizes.faults_at(place.batch);
        let left_over = by_elimination(&votes, self.ballots.live_at(place.batch), dispute.stands, faults);
        match left_over.filter(may_decide) {
            Some(value) => {
                let verdict = verdict(&votes, Some(value));
                let agreeing = verdict.with(Status::Valid).len();
                self.decide(place, &votes, verdict, agreeing, round);
            }
            None => self.no_majority(place, &votes, round),
        }
    }

    /// The right value is known: the reply leaves or is fetched, and the FAILED replicas' objects are named.
    fn decide(&mut self, place: Place, votes: &Votes, verdict: Verdict, quorum: u32, round: &mut Round<'_>) {
        let me = self.ballots.config.me();
        let Some(agreed) = verdict.majority else { return };
        self.ballots.resume(place, round);
        self.settling.on_decided(place);
        let valid = verdict.with(Status::Valid);
        let Some(record) = self.ballots.window.get(place.batch) else { return };
        let right = right_delta(record, place.request, agreed);
        let failed_here = !valid.contains(me);
        let is_part_owed = failed_here && self.ballots.owe_parts(place, right.as_ref());
        let Some(record) = self.ballots.window.get(place.batch) else { return };
        let own = &record.requests()[place.request as usize];
        let owed = own.request_info.mine || is_part_owed;
        if owed && own.failure.is_none() && !own.has_reply() {
            // A reply for which there was no room is not fetched either.
            self.replies.drop_reply(place, Dropped::NoRoom, &mut self.ballots, round);
        } else if owed && failed_here {
            self.replies.fetch(place, right.as_ref(), valid, &mut self.ballots, round);
        } else if owed
            && self.replies.release_with(place, agreed, valid, quorum, &mut self.ballots, round)
                == Err(Withheld::Corrupt)
        {
            self.ballots.report_own_copy(place, agreed, round);
            self.replies.fetch(place, right.as_ref(), valid, &mut self.ballots, round);
        }
        for replica in (0..self.ballots.config.sizes.at(place.batch))
            .filter(|replica| votes[*replica as usize].is_cast())
        {
            match verdict.of(replica) {
                Status::Failed => self.close_failed(place, replica, right.as_ref(), &verdict, round),
                Status::Valid if votes[replica as usize].is_torn() => {
                    let is_news = self.ballots.close_torn(place, replica, round);
                    if is_news {
                        self.streaks.count_wrong_vote(place.batch, replica, &mut self.ballots, round);
                    }
                }
                _ => {}
            }
        }
        self.ballots.mark_done(place, &verdict);
    }

    /// Closes the case of a FAILED replica: evidence is recorded, and its wrong objects go to repair. Waits until both
    /// sides' pairs are known, unless the faulty side has none.
    fn close_failed(
        &mut self,
        place: Place,
        replica: Replica,
        right: Option<&Delta>,
        verdict: &Verdict,
        round: &mut Round<'_>,
    ) {
        let me = self.ballots.config.me();
        let Some(record) = self.ballots.window.get(place.batch) else { return };
        let Some(dispute) = find(record, place.request) else { return };
        let own = &record.requests()[place.request as usize];
        let failure = if replica == me && own.failure.is_some() {
            own.failure
        } else {
            dispute.failures[replica as usize]
        };
        let Some(right) = right else { return };
        if dispute.closed.contains(replica) {
            return;
        }
        let own_delta = (replica == me && own.failure.is_none()).then(|| Delta::of(own));
        let theirs =
            own_delta.as_ref().or(dispute.deltas[replica as usize].as_deref()).filter(|d| d.is_complete());
        let abandoned = failure.is_some() || stated_abandoned(record, replica, place.request);
        if theirs.is_none() && !abandoned && !record.gone.contains(replica) {
            return;
        }
        let mut wrong = difference(theirs, right);
        if let Some((region_id, id)) = failure.and_then(|failure| failure.object()) {
            name_object(&mut wrong, theirs, right, (region_id, id));
        }
        let stage = stage_of(failure, theirs, right, &wrong);
        let beyond = beyond_repair(failure, theirs, right, self.ballots.config.protections);
        let case =
            Case { batch: place.batch, request: Some(place.request), kind: own.request_info.kind, stage };
        let objects: Vec<_> = wrong.iter().map(|wrong| (wrong.region_id, wrong.id)).collect();
        let proposers = self.ballots.live_at(place.batch).minus(verdict.with(Status::Failed));
        self.ballots.evidence(replica, case, failure, &wrong, round);
        if verdict.with(Status::Valid).len() >= self.ballots.config.sizes.quorum_at(place.batch) {
            let names_objects = self.repairs.can_repair(&objects);
            self.streaks.count_outvoted(place.batch, replica, names_objects, &mut self.ballots, round);
        }
        self.repairs.add(replica, place, &objects, proposers, round.now_us);
        if let (Some(why), true) = (beyond, replica == me) {
            round.commands.push(Command::ReplaceSelf(why));
        }
        if let Some(dispute) =
            self.ballots.window.get_mut(place.batch).and_then(|r| find_mut(r, place.request))
        {
            dispute.closed.insert(replica);
        }
    }
}

impl Ballots {
    /// A peer blames itself and has no result to stand by. Returns whether this is new and has to be evaluated.
    pub(super) fn on_self_blame(
        &mut self,
        from: Replica,
        place: Place,
        failure: Failure,
        round: &mut Round<'_>,
    ) -> bool {
        let Some(dispute) = self.dispute_mut(place, round) else { return false };
        dispute.failures[from as usize] = Some(failure);
        true
    }

    /// The dispute about a request; opened when a peer begins it, perhaps before this replica has a result.
    pub(super) fn dispute_mut(&mut self, place: Place, round: &Round<'_>) -> Option<&mut Dispute> {
        let crowded = self.window.bytes > self.config.window_bytes() / 2;
        let record = self.window.open(place.batch)?;
        let bound = record.own.as_ref().map_or(MAX_REQUESTS_PER_BATCH, Vec::len);
        if place.request as usize >= bound {
            return None;
        }
        if record.own.is_none() && crowded {
            // Peers' messages about batches not executed here must not displace executed ones; they are requested
            // later.
            return None;
        }
        let disputes = &mut record.details_mut(round.now_us).disputes;
        if !disputes.contains_key(&place.request) {
            self.window.account(place.batch, 0, size_of::<Dispute>());
        }
        let details = self.window.get_mut(place.batch)?.details_mut(round.now_us);
        Some(details.disputes.entry(place.request).or_default())
    }

    fn mark_done(&mut self, place: Place, verdict: &Verdict) {
        let live = self.live_at(place.batch);
        let Some(record) = self.window.get_mut(place.batch) else { return };
        let voters = live.minus(record.gone);
        let Some(dispute) = record.details.as_mut().and_then(|d| d.disputes.get_mut(&place.request)) else {
            return;
        };
        let settled = dispute.closed.or(verdict.with(Status::Valid));
        dispute.done = voters.minus(settled).is_empty();
    }

    /// Reports a replica whose result is right but whose digest or pairs are not: a fault hit its checker. False if
    /// this was reported before.
    fn close_torn(&mut self, place: Place, replica: Replica, round: &mut Round<'_>) -> bool {
        let Some(record) = self.window.get_mut(place.batch) else { return false };
        let kind = record.requests()[place.request as usize].request_info.kind;
        let Some(dispute) = find_mut(record, place.request) else { return false };
        if dispute.closed.contains(replica) {
            return false;
        }
        dispute.closed.insert(replica);
        let case = Case { batch: place.batch, request: Some(place.request), kind, stage: FaultStage::Digest };
        self.evidence(replica, case, None, &[], round);
        true
    }

    /// The own result was agreed on, but its stored copy has changed since.
    fn report_own_copy(&mut self, place: Place, agreed: u128, round: &mut Round<'_>) {
        let me = self.config.me();
        let Some(record) = self.window.get_mut(place.batch) else { return };
        let own = &record.requests()[place.request as usize];
        let stage = if own.recomputed() == agreed { FaultStage::Reply } else { FaultStage::Digest };
        let kind = own.request_info.kind;
        let Some(dispute) = find_mut(record, place.request) else { return };
        if !dispute.closed.contains(me) {
            dispute.closed.insert(me);
            let case = Case { batch: place.batch, request: Some(place.request), kind, stage };
            self.evidence(me, case, None, &[], round);
        }
    }

    /// Sends the own pairs to all peers, once.
    fn announce_pairs(&mut self, place: Place, round: &mut Round<'_>) {
        let Some(dispute) = self.dispute_mut(place, round) else { return };
        if !std::mem::replace(&mut dispute.announced, true) {
            self.send_pairs(To::All, place, 0, round);
        }
    }

    /// Sends the own pairs from `first` on.
    pub(super) fn send_pairs(&self, to: To, place: Place, first: u32, round: &mut Round<'_>) {
        let Some(own) = self.window.get(place.batch).and_then(|r| r.requests().get(place.request as usize))
        else {
            return;
        };
        if own.failure.is_some() {
            return;
        }
        // A request that touched more than this is repaired by whole regions; the first pairs determine which.
        let total = own.pairs.len().min(MAX_PAIRS_PER_REQUEST);
        let mut first = first as usize;
        while first < total || (total == 0 && first == 0) {
            let end = total.min(first + MAX_PAIRS_PER_MESSAGE);
            let message = Message::Pairs {
                place,
                answer: own.answer(),
                total: total as u32,
                first: first as u32,
                pairs: Pairs::from_slice(&own.pairs[first..end]),
            };
            round.send(to, message);
            first = end.max(first + 1);
        }
    }
}

pub(super) fn find(record: &Record, request: u16) -> Option<&Dispute> {
    record.details.as_ref()?.disputes.get(&request)
}

pub(super) fn find_mut(record: &mut Record, request: u16) -> Option<&mut Dispute> {
    record.details.as_mut()?.disputes.get_mut(&request)
}

/// A state delta that gives the agreed digest: the own one, or any peer's. It is right, whichever replica sent it.
pub(super) fn right_delta(record: &Record, request: u16, agreed: u128) -> Option<Delta> {
    let own = record.requests().get(request as usize)?;
    if own.failure.is_none() && own.recomputed() == agreed {
        return Some(Delta::of(own));
    }
    let deltas = find(record, request)?.deltas.iter().flatten();
    deltas.filter(|delta| delta.digest() == Some(agreed)).map(|delta| (**delta).clone()).next()
}

fn stated_abandoned(record: &Record, replica: Replica, request: u16) -> bool {
    let stated = record.details.as_ref().and_then(|details| details.stated[replica as usize].as_ref());
    stated.is_some_and(|stated| stated.get(request as usize).copied().flatten().is_none())
}

/// Pairs that only one side has, or that differ, in both directions. A side without pairs differs in everything.
fn difference(theirs: Option<&Delta>, right: &Delta) -> Vec<WrongObject> {
    let key = |pair: &Pair| (pair.region_id, pair.id);
    let mut mine: Vec<Pair> = theirs.map_or(Vec::new(), |delta| delta.pairs.clone());
    mine.sort_unstable();
    let mut wrong = Vec::new();
    let (mut mine, mut right) = (mine.iter().peekable(), right.pairs.iter().peekable());
    loop {
        let (theirs, majority) = match (mine.peek(), right.peek()) {
            (None, None) => return wrong,
            (Some(_), None) => (mine.next(), None),
            (None, Some(_)) => (None, right.next()),
            (Some(a), Some(b)) if key(a) < key(b) => (mine.next(), None),
            (Some(a), Some(b)) if key(a) > key(b) => (None, right.next()),
            (Some(_), Some(_)) => (mine.next(), right.next()),
        };
        let Some(pair) = theirs.or(majority) else { return wrong };
        let (theirs, majority) = (theirs.map(|pair| pair.sum), majority.map(|pair| pair.sum));
        if theirs != majority {
            wrong.push(WrongObject { region_id: pair.region_id, id: pair.id, theirs, majority });
        }
    }
}

/// Puts the object that the faulty replica itself named in front; it may not be among those that the request touches.
fn name_object(
    wrong: &mut Vec<WrongObject>,
    theirs: Option<&Delta>,
    right: &Delta,
    object: (u32, object::ObjectId),
) {
    let sum = |delta: &Delta| {
        delta.pairs.iter().find(|pair| (pair.region_id, pair.id) == object).map(|pair| pair.sum)
    };
    wrong.retain(|wrong| (wrong.region_id, wrong.id) != object);
    let (theirs, majority) = (theirs.and_then(sum), sum(right));
    wrong.insert(0, WrongObject { region_id: object.0, id: object.1, theirs, majority });
}

fn stage_of(
    failure: Option<Failure>,
    theirs: Option<&Delta>,
    right: &Delta,
    wrong: &[WrongObject],
) -> FaultStage {
    let scheduled = |delta: &Delta| (turn(delta), delta.answer.started);
    match failure {
        Some(Failure::Check { .. } | Failure::Missing { .. }) => FaultStage::Passive,
        Some(Failure::Request | Failure::Invalid) => FaultStage::Message,
        None if theirs.is_some_and(|theirs| scheduled(theirs) != scheduled(right)) => FaultStage::Schedule,
        None if wrong.is_empty() && theirs.is_some_and(|theirs| theirs.answer != right.answer) => {
            FaultStage::Reply
        }
        _ => FaultStage::InRequest,
    }
}

/// Position and time at which a request ran.
fn turn(delta: &Delta) -> (u64, u64) {
    (delta.answer.position, delta.answer.time_us)
}

/// What is wrong at a FAILED replica beside its objects. Repairing objects does not correct a counter: the next object
/// that it creates has a wrong id again. Neither does it start a timer: later this replica would execute one request
/// fewer than the others.
fn beyond_repair(
    failure: Option<Failure>,
    theirs: Option<&Delta>,
    right: &Delta,
    protections: Protections,
) -> Option<BeyondRepair> {
    let ran = theirs.filter(|_| failure.is_none());
    if ran.is_some_and(|ran| turn(ran) != turn(right)) {
        return Some(BeyondRepair::OutOfStep);
    }
    // Who has abandoned the request has started nothing.
    let started = ran.map_or(0, |ran| ran.answer.started);
    (protections.started_check && started != right.answer.started).then_some(BeyondRepair::StartedOthers)
}

/// Replicas of `set` that have sent all their votes on a request.
pub(super) fn final_votes(record: &Record, request: u16, votes: &Votes, set: Set) -> Set {
    let mut finals = Set::EMPTY;
    for replica in set.iter() {
        let delta = find(record, request).and_then(|dispute| dispute.deltas[replica as usize].as_ref());
        let reported = delta.is_some_and(|delta| delta.is_complete()) || record.gone.contains(replica);
        let vote = &votes[replica as usize];
        if vote.is_blamed() || (vote.is_cast() && reported) {
            finals.insert(replica);
        }
    }
    finals
}
