//! No f+1 agree: no replica guesses. Every replica examines itself, and one that cannot reproduce its own result blames
//! itself.

use bytes::Bytes;
use object::{ObjectId, RegionId};

use super::dispute::{final_votes, find, find_mut};
use super::reply::OwedReplies;
use super::{Ballots, Case, Round, Voter};
use crate::classify::Votes;
use crate::command::{BeyondRepair, Command, Dropped, Held, To};
use crate::config::{Replica, Set};
use crate::digest;
use crate::event::{Failure, Place, Reexecution};
use crate::evidence::{FaultStage, Finding};
use crate::message::Message;
use crate::record::Examination;
use crate::repair::{Repairs, Settling};

impl Voter {
    /// The no-majority rules (docs/design.md, section 6): stored result, own objects, then re-execution; then hold.
    pub(super) fn no_majority(&mut self, place: Place, votes: &Votes, round: &mut Round<'_>) {
        let me = self.ballots.config.me();
        let Some(record) = self.ballots.window.get(place.batch) else { return };
        let others = self.ballots.live_at(place.batch).minus(record.gone).without(me);
        if final_votes(record, place.request, votes, others) != others {
            return;
        }
        let Some(dispute) = find(record, place.request) else { return };
        if dispute.done {
            // Decided while more replicas were up.
            return;
        }
        let blamed = |replica: Replica| votes[replica as usize].is_blamed();
        if others.with(me).iter().all(blamed)
            && others.with(me).len() >= self.ballots.config.sizes.quorum_at(place.batch)
        {
            return self.settling.nobody_has_a_result(place, &mut self.replies, &mut self.ballots, round);
        }
        match dispute.examination {
            Examination::NotNeeded => {
                if self.ballots.examine_self(place, round) {
                    self.evaluate(place.batch, round);
                }
            }
            Examination::Rechecking | Examination::Reexecuting => {}
            Examination::Done => {
                let stands = dispute.stands;
                if others.with(me).iter().all(|replica| blamed(replica) || stands.contains(replica)) {
                    let (repairs, replies) = (&self.repairs, &mut self.replies);
                    self.settling.hold(place, votes, repairs, replies, &mut self.ballots, round);
                }
            }
        }
    }
}

impl Settling {
    /// Last step: the reply waits for a replica that comes back. If all are up, the group settles in the end
    /// (`voter::settle`). All other requests continue.
    fn hold(
        &mut self,
        place: Place,
        votes: &Votes,
        repairs: &Repairs,
        replies: &mut OwedReplies,
        ballots: &mut Ballots,
        round: &mut Round<'_>,
    ) {
        let blaming =
            (0..ballots.config.sizes.at(place.batch)).filter(|replica| votes[*replica as usize].is_blamed());
        let blaming = blaming.fold(Set::EMPTY, Set::with);
        let blamed = blaming.len();
        let too_late = ballots.is_too_late(place.batch, votes) && ballots.can_begin_anew(blaming);
        let is_vote_lost = ballots.window.get(place.batch).is_some_and(|record| !record.gone.is_empty());
        // While one is away, it may be the others that are faulty: that accuses no handler.
        let voters = ballots.config.sizes.at(place.batch);
        let are_all_here = ballots.live_at(place.batch) == Set::first(voters);
        let Some(dispute) = ballots.window.get_mut(place.batch).and_then(|r| find_mut(r, place.request))
        else {
            return;
        };
        let why = match (are_all_here, is_vote_lost, blamed) {
            (true, false, 0) => Held::EverybodyStands,
            (true, true, _) => Held::VoteLost,
            _ => Held::TooFewLive,
        };
        let is_news = dispute.held.replace(why) != Some(why);
        let is_accused = (why == Held::EverybodyStands && !too_late)
            || blamed >= ballots.config.sizes.quorum_at(place.batch);
        if is_news && is_accused {
            ballots.report_held(place, blamed, why == Held::EverybodyStands, round);
        }
        if too_late {
            round.commands.push(Command::ReplaceSelf(BeyondRepair::TooLate));
        } else if is_news {
            round.commands.push(Command::Held { place, why });
        }
        if blamed == 0 && !too_late {
            self.note_undecided(place, repairs, replies, ballots, round);
        }
    }

    /// f+1 or more are up and all of them abandoned the request: a bug, not a fault, and no replica has a reply.
    fn nobody_has_a_result(
        &mut self,
        place: Place,
        replies: &mut OwedReplies,
        ballots: &mut Ballots,
        round: &mut Round<'_>,
    ) {
        let me = ballots.config.me();
        let Some(record) = ballots.window.get_mut(place.batch) else { return };
        let own = &record.requests()[place.request as usize];
        let (kind, failure, owed) = (own.request_info.kind, own.failure, own.request_info.mine);
        self.on_decided(place);
        let Some(dispute) = find_mut(record, place.request) else { return };
        dispute.done = true;
        ballots.resume(place, round);
        let case =
            Case { batch: place.batch, request: Some(place.request), kind, stage: FaultStage::InRequest };
        let finding = Finding {
            replica: me,
            kind,
            stage: case.stage,
            panicked: failure == Some(Failure::Panic),
            abandoned_by_quorum: true,
            everybody_stands: false,
        };
        ballots.evidence_of(&finding, case, failure, &[], round);
        if owed {
            replies.drop_reply(place, Dropped::NoResult, ballots, round);
        }
    }
}

impl Ballots {
    /// First step: is the stored result still consistent? This and the next steps return whether there is something new
    /// to evaluate.
    fn examine_self(&mut self, place: Place, round: &mut Round<'_>) -> bool {
        let Some(record) = self.window.get_mut(place.batch) else { return false };
        let own = &record.requests()[place.request as usize];
        let abandoned = own.failure.is_some();
        let is_intact = |reply: &Bytes| digest::reply(own.request_info.checksum, reply) == own.reply_digest;
        let intact = own.reply.as_ref().is_none_or(is_intact);
        let objects: Vec<_> = own.pairs.iter().map(|pair| (pair.region_id, pair.id)).collect();
        let Some(dispute) = find_mut(record, place.request) else { return false };
        dispute.examination = if abandoned { Examination::Done } else { Examination::Rechecking };
        if abandoned {
            return true;
        }
        if intact {
            round.commands.push(Command::RecheckObjects { place, objects });
            return false;
        }
        self.blame_self(place, Failure::Unreproducible, round)
    }

    /// Second step: this replica's own object checks.
    pub(super) fn on_rechecked(
        &mut self,
        place: Place,
        corrupt: &[(RegionId, ObjectId)],
        round: &mut Round<'_>,
    ) -> bool {
        let Some(dispute) = self.window.get_mut(place.batch).and_then(|r| find_mut(r, place.request)) else {
            return false;
        };
        if dispute.examination != Examination::Rechecking {
            return false;
        }
        dispute.examination = Examination::Reexecuting;
        match corrupt.first() {
            Some(&(region_id, id)) => self.blame_self(place, Failure::Check { region_id, id }, round),
            None => {
                round.commands.push(Command::Reexecute { place });
                false
            }
        }
    }

    /// Third step: the request was run again, on its before-images.
    pub(super) fn on_reexecuted(
        &mut self,
        place: Place,
        outcome: Reexecution,
        round: &mut Round<'_>,
    ) -> bool {
        let me = self.config.me();
        let Some(record) = self.window.get_mut(place.batch) else { return false };
        let Some(own) = record.requests().get(place.request as usize) else { return false };
        let same = match outcome {
            Reexecution::Digest(digest) => own.digest == digest || own.recomputed() == digest,
            Reexecution::Reproduced | Reexecution::NotKept => true,
        };
        let Some(dispute) = find_mut(record, place.request) else { return false };
        if dispute.examination != Examination::Reexecuting {
            return false;
        }
        if !same {
            return self.blame_self(place, Failure::Unreproducible, round);
        }
        dispute.examination = Examination::Done;
        dispute.stands.insert(me);
        round.send(To::All, Message::Confirm { place });
        true
    }

    pub(super) fn on_stand(&mut self, from: Replica, place: Place, round: &mut Round<'_>) -> bool {
        let Some(dispute) = self.dispute_mut(place, round) else { return false };
        dispute.stands.insert(from);
        true
    }

    fn blame_self(&mut self, place: Place, failure: Failure, round: &mut Round<'_>) -> bool {
        let me = self.config.me();
        let Some(dispute) = self.window.get_mut(place.batch).and_then(|r| find_mut(r, place.request)) else {
            return false;
        };
        dispute.examination = Examination::Done;
        dispute.failures[me as usize] = Some(failure);
        round.send(To::All, Message::SelfBlame { place, failure });
        true
    }

    fn report_held(&mut self, place: Place, blamed: u32, everybody_stands: bool, round: &mut Round<'_>) {
        let Some(record) = self.window.get(place.batch) else { return };
        let kind = record.requests()[place.request as usize].request_info.kind;
        let case =
            Case { batch: place.batch, request: Some(place.request), kind, stage: FaultStage::InRequest };
        let finding = Finding {
            replica: self.config.me(),
            kind,
            stage: case.stage,
            panicked: false,
            abandoned_by_quorum: blamed >= self.config.sizes.quorum_at(place.batch),
            everybody_stands,
        };
        self.evidence_of(&finding, case, None, &[], round);
    }

    /// Whether all others that are up have closed the batch and dropped its data, or were replaced after it.
    pub(super) fn is_without_details_elsewhere(&self, batch: u64) -> bool {
        let others = self.live_at(batch).without(self.config.me());
        self.window.get(batch).is_none_or(|record| others.minus(record.gone).is_empty())
    }

    /// Whether a held request can never be decided here: f+1 others have decided without this replica, or it is wrong
    /// itself, and no peer can send it the right result any more.
    fn is_too_late(&self, batch: u64, votes: &Votes) -> bool {
        let is_wrong = votes[self.config.me() as usize].is_blamed();
        let gone = self.window.get(batch).map_or(0, |record| record.gone.len());
        gone >= self.config.sizes.quorum_at(batch) || (is_wrong && self.is_without_details_elsewhere(batch))
    }

    /// Whether the others that are up, without those in `wrong`, are enough to send this replica a state.
    pub(super) fn can_begin_anew(&self, wrong: Set) -> bool {
        self.live.without(self.config.me()).minus(wrong).len() > u32::from(self.config.faults())
    }

    /// A vote came after all, or no vote is needed any more.
    pub(super) fn resume(&mut self, place: Place, round: &mut Round<'_>) {
        let Some(dispute) = self.window.get_mut(place.batch).and_then(|r| find_mut(r, place.request)) else {
            return;
        };
        if dispute.held.take().is_some() {
            round.commands.push(Command::Resumed { place });
        }
    }
}
