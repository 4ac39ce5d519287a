//! No f+1 agree although all replicas are up: after a while the group settles on the version of one replica.
//!
//! Only a service that is not deterministic, or more than f faults, lead here. It is unknown which result is right, so
//! the client gets none. But the objects that differ make every later request on them differ, for ever. So all replicas
//! take one version, by a RECOVER that has its position in the order like any other; the vote on it shows that they are
//! equal again.

use std::collections::BTreeMap;

use object::{ObjectId, Pair, RegionId};

use super::dispute::{find, find_mut};
use super::reply::OwedReplies;
use super::{Ballots, Case, Round, Voter};
use crate::command::{Command, Dropped};
use crate::config::{Replica, Set};
use crate::event::{Packed, Place};
use crate::evidence::{Evidence, FaultStage, Finding, WrongObject};
use crate::limits::*;
use crate::record::Record;
use crate::repair::{Recover, RecoverStatus, Repairs, Settling};

impl Voter {
    /// Closes requests that were held for long enough and have nothing to settle, and proposes to settle the rest.
    pub(super) fn tick_settling(&mut self, round: &mut Round<'_>) {
        if self.settling.is_idle() {
            return;
        }
        if self.settling.has_room_again() {
            self.evaluate_all(round);
        }
        if self.ballots.live != Set::first(self.ballots.config.replicas()) {
            return;
        }
        for place in self.settling.given_up(round.now_us) {
            if let Some((region_id, id)) = self.settling.take_unreported(place, round.now_us) {
                round.commands.push(Command::NotSettled { place, region_id, id });
            }
            self.settling.close_undecided(place, &mut self.replies, &mut self.ballots, round);
        }
        if let Some(recover) = self.settling.propose(self.ballots.config.me(), round.now_us) {
            round.commands.push(Command::ProposeRecover(recover));
        }
    }

    /// A RECOVER by which the group settles on the version of `source` has its turn.
    pub(super) fn on_settling_turn(
        &mut self,
        turn: Place,
        recover: &Recover,
        source: Replica,
        packed: Vec<Packed>,
        round: &mut Round<'_>,
    ) {
        let recover_status = self.settling.recover_status(turn, recover);
        let is_known = recover_status == RecoverStatus::Known;
        let takes_part = is_known || !self.ballots.config.protections.settle_check;
        self.repairs.on_settling(turn, recover, packed, takes_part, self.ballots.live, round);
        if is_known {
            self.ballots.counters.settled += 1;
            self.settling.report_settled(turn, recover, source, &mut self.ballots, round);
            for place in self.settling.on_turn(turn, recover, round.now_us) {
                self.settling.close_undecided(place, &mut self.replies, &mut self.ballots, round);
            }
            self.advance(round);
        } else if recover_status == RecoverStatus::Unknown {
            self.ballots.refuse(turn, recover, round);
        }
    }
}

impl Settling {
    /// A request is held, and every replica stands by its result. It is settled later, unless a replica is absent: that
    /// one may still decide it.
    pub(super) fn note_undecided(
        &mut self,
        place: Place,
        repairs: &Repairs,
        replies: &mut OwedReplies,
        ballots: &mut Ballots,
        round: &mut Round<'_>,
    ) {
        if self.knows(place) {
            return;
        }
        let Some((targets, source)) = differing(place, repairs, ballots) else { return };
        if !targets.is_empty() && self.is_settled(place, targets.iter().copied()) {
            return self.close_undecided(place, replies, ballots, round);
        }
        self.note(place, targets, source, round.now_us);
    }

    /// Records what was settled: the objects that differed, even if their whole region is overwritten, with their
    /// checksums in the request that was the cause.
    fn report_settled(
        &mut self,
        turn: Place,
        recover: &Recover,
        source: Replica,
        ballots: &mut Ballots,
        round: &mut Round<'_>,
    ) {
        let (me, cause) = (ballots.config.me(), recover.cause);
        let record = ballots.window.get(cause.batch);
        let sum = |(region_id, id): (RegionId, ObjectId), replica| {
            let pairs = ballots.pairs_of(record?, cause.request, replica)?;
            pairs.iter().find(|pair| (pair.region_id, pair.id) == (region_id, id)).map(|pair| pair.sum)
        };
        let wrong = |target: (RegionId, ObjectId)| WrongObject {
            region_id: target.0,
            id: target.1,
            theirs: sum(target, me),
            majority: sum(target, source),
        };
        let objects: Vec<WrongObject> = self.differing(turn, recover).into_iter().map(wrong).collect();
        let own = record.and_then(|record| record.requests().get(usize::from(cause.request)));
        let kind = own.map_or(0, |own| own.request_info.kind);
        let case =
            Case { batch: cause.batch, request: Some(cause.request), kind, stage: FaultStage::InRequest };
        let finding = Finding {
            replica: me,
            kind,
            stage: case.stage,
            panicked: false,
            abandoned_by_quorum: false,
            everybody_stands: true,
        };
        let evidence = ballots.new_evidence(&finding, case, None, &objects);
        let evidence = Evidence { settled_on: Some(source), ..evidence };
        round.commands.push(Command::Evidence(Box::new(evidence)));
    }

    /// The right result is unknown, and no replica waits for it any more: the client gets no reply.
    fn close_undecided(
        &mut self,
        place: Place,
        replies: &mut OwedReplies,
        ballots: &mut Ballots,
        round: &mut Round<'_>,
    ) {
        self.remove(place);
        let dispute = ballots.window.get_mut(place.batch).and_then(|record| find_mut(record, place.request));
        if let Some(dispute) = dispute {
            dispute.done = true;
        }
        replies.drop_reply(place, Dropped::NoMajority, ballots, round);
    }
}

impl Ballots {
    /// A RECOVER would make replicas take the version of one, and this voter knows no reason. The evidence names its
    /// proposer.
    fn refuse(&mut self, turn: Place, recover: &Recover, round: &mut Round<'_>) {
        self.counters.recovers_refused += 1;
        // A replica whose process began after the request cannot know a reason.
        let may_judge = recover.cause.batch >= self.config.first_batch();
        if may_judge && recover.proposer < self.config.sizes.most() {
            let (batch, request) = (turn.batch, Some(turn.request));
            let case = Case { batch, request, kind: 0, stage: FaultStage::Message };
            self.evidence(recover.proposer, case, None, &[], round);
        }
    }

    /// The objects that a replica touched in a request, if all of them are known.
    fn pairs_of<'a>(&self, record: &'a Record, request: u16, replica: Replica) -> Option<&'a [Pair]> {
        if replica == self.config.me() {
            let pairs = &record.requests().get(usize::from(request))?.pairs;
            return pairs.get(..pairs.len().min(MAX_PAIRS_PER_REQUEST));
        }
        let delta = find(record, request)?.deltas[usize::from(replica)].as_ref()?;
        delta.is_complete().then_some(&delta.pairs[..])
    }
}

/// The objects that differ in a request, and the replica whose version to take: the lowest-numbered one that stands by
/// its result. None unless all replicas are up, stand by their results, and have sent their pairs.
fn differing(
    place: Place,
    repairs: &Repairs,
    ballots: &Ballots,
) -> Option<(Vec<(RegionId, ObjectId)>, Replica)> {
    let all = Set::first(ballots.config.sizes.at(place.batch));
    let record = ballots.window.get(place.batch)?;
    let dispute = find(record, place.request)?;
    let own = record.requests().get(usize::from(place.request))?;
    if ballots.live_at(place.batch) != all
        || !record.gone.is_empty()
        || dispute.stands != all
        || own.failure.is_some()
    {
        return None;
    }
    let mut sums: BTreeMap<(RegionId, ObjectId), [Option<u64>; MAX_REPLICAS]> = BTreeMap::new();
    let mut is_whole = true;
    for replica in all.iter() {
        let pairs = ballots.pairs_of(record, place.request, replica)?;
        is_whole &= pairs.len() < MAX_PAIRS_PER_REQUEST;
        for pair in pairs {
            sums.entry((pair.region_id, pair.id)).or_default()[usize::from(replica)] = Some(pair.sum);
        }
    }
    let differ = |of: &[Option<u64>]| of.iter().any(|sum| *sum != of[0]);
    let differing = sums.iter().filter(|(_, sums)| differ(&sums[..all.len() as usize]));
    let mut targets: Vec<_> = differing.map(|(object, _)| *object).collect();
    targets.retain(|object| repairs.can_repair(&[*object]));
    // Of the pipeline's own requests, only SCRUBs compare anything, and they compare whole regions.
    if !is_whole || !own.request_info.of_client || targets.len() > MAX_OBJECTS_PER_RECOVER {
        targets.iter_mut().for_each(|(_, id)| *id = ObjectId::NONE);
        targets.dedup();
    }
    Some((targets, dispute.stands.lowest()?))
}
