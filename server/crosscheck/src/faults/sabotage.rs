//! Promises broken on purpose, to show that each checker of the simulation can fail.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use execute::KeptRequest;
use object::Kept;
use parking_lot::Mutex;
use verify::StateToken;
use vote::{Packed, Place, RequestResult};

use crate::admin::EvidenceRecord;
use crate::hooks::Rule;
use crate::ordered::summed;

/// One promise that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Own replies leave as soon as the request has run.
    ReleasesUnvoted,
    /// Every client request is ordered a second time.
    SubmitsTwice,
    /// Every request that the queue returns is ordered, even if the queue returned it before.
    BelievesQueue,
    /// From time to time a connection gets its last reply again, with the position that it had.
    ReleasesStale,
    /// One batch of another replica is left out.
    SkipsBatch,
    /// A worker counts one position too many, once.
    LosesCount,
    /// What some requests start themselves does not come into the schedule.
    LosesStarted,
    /// The bytes that overwrite objects are not those that f+1 replicas agree on.
    FlipsInstalled,
    /// Evidence names the next replica.
    BlamesNeighbour,
    /// The digest of a result differs from time to time although the result does not.
    DiffersAtTimes,
    /// From time to time a long request is executed with another last byte.
    Misplaces,
    /// No CHECK is sent, and none is received.
    MutesVotes,
    /// No RECOVER is ever proposed.
    NeverRepairs,
    /// Evidence names the object behind another lock.
    BlamesOtherObject,
    /// Replicas change what the group acts as although others cannot.
    ChangesAlone,
    /// A replica wants every other one moved that an operator names, and vouches for what any replica wants.
    VouchesUnseen,
    /// Notes on how batches were run are never removed.
    Hoards,
    /// Stamps are given by the own clock alone, and any stamp is accepted.
    BelievesClocks,
    /// The watchdog does not ask other replicas whether they are as slow.
    AsksNobody,
    /// The watchdog checks batches, and not the requests in them.
    CountsBatches,
    /// A checkpoint is written to the disk beside another one.
    WritesTogether,
    /// A replica that was just stopped itself, or whose own clock was wrong, says that a leader's is.
    AccusesInDoubt,
    /// No state is given that was not ordered as a CHECKPOINT.
    OrdersFirst,
    /// The operator is advised to go on with the first replica, whatever others have.
    AdvisesFirst,
    /// In verified mode: each batch is taken for stable when it has ended.
    BelievesItself,
    /// In verified mode: requests of batches that were rolled back count as executed.
    KeepsSessions,
    /// In verified mode: the mixer does not keep the order of a connection's requests.
    ForgetsStreams,
    /// A reply that a timer makes leaves without the word of another replica.
    BelievesTimers,
    /// In verified mode: a batch that is to run one request at a time runs as any other.
    IgnoresSequential,
    /// In verified mode: requests of a batch are rolled back in the order in which they ran.
    UndoesUnsorted,
    /// In verified mode: of some requests neither the tree nor a rollback knows.
    LosesKept,
    /// In verified mode: from time to time a second token is sent for a batch.
    SendsTwoTokens,
    /// In verified mode: the reply to a read that took no batch leaves before its version is stable.
    ReadsUnstable,
    /// The reply to a read that took no batch leaves although others have read another one.
    ReadsUncompared,
    /// A state is taken that one replica alone has offered.
    TakesFromOne,
    /// A copy of the state does not learn what requests change while it is made.
    ForgetsChanges,
    /// What is left of a copy of the state at its checkpoint is dropped.
    DropsRest,
}

/// The promises that one replica breaks. While there are none, each check costs one relaxed load.
#[derive(Debug, Default)]
pub(crate) struct Sabotaged {
    /// A bit for each promise.
    set: AtomicU64,
    released: Mutex<Option<(Place, Bytes)>>,
    count: AtomicU64,
}

impl Sabotaged {
    /// Breaks a promise from now on.
    pub fn begin(&self, one: Sabotage) {
        self.set.fetch_or(bit(one), Ordering::Relaxed);
    }

    pub fn has(&self, one: Sabotage) -> bool {
        self.set.load(Ordering::Relaxed) & bit(one) != 0
    }

    /// True at every `n`-th call.
    fn now_and_then(&self, one: Sabotage, n: u64) -> bool {
        self.has(one) && (self.count.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(n)
    }

    /// True the first time that `now` is true.
    fn once(&self, one: Sabotage, now: bool) -> bool {
        now && self.set.fetch_and(!bit(one), Ordering::Relaxed) & bit(one) != 0
    }

    pub fn skips(&self, delivered: &order::Delivered, batch: u64) -> bool {
        self.once(Sabotage::SkipsBatch, batch > 100 && delivered.tags.is_empty())
    }

    /// Whether the worker's count becomes wrong now.
    pub fn loses_count(&self, batch: u64) -> bool {
        self.once(Sabotage::LosesCount, batch > 100)
    }

    /// Whether what a request at this position has started is lost. Positions are the same at every replica.
    pub fn loses_started(&self, position: u64) -> bool {
        self.has(Sabotage::LosesStarted) && position.is_multiple_of(8)
    }

    /// Corrupts a request. The batches are the same at every replica.
    pub fn request(&self, batch: u64, request: &mut order::Request) {
        if !self.has(Sabotage::Misplaces) || !batch.is_multiple_of(8) || request.bytes.len() < 80 {
            return;
        }
        let mut bytes = request.bytes.to_vec();
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
        *request = summed(bytes.into());
    }

    pub fn installed(&self, objects: &mut [Packed]) {
        if !self.has(Sabotage::FlipsInstalled) {
            return;
        }
        for packed in objects {
            if let vote::Content::Present(bytes) = &packed.content {
                let mut bytes = bytes.to_vec();
                if let Some(last) = bytes.last_mut() {
                    *last ^= 1;
                }
                packed.content = vote::Content::Present(bytes.into());
            }
        }
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

    /// In verified mode: what is kept of a request. The batches are the same at every replica.
    pub fn kept(&self, place: Option<Place>, kept: &mut KeptRequest) {
        let is_lost = place.is_some_and(|place| place.request == 0 && place.batch.is_multiple_of(4));
        if is_lost && self.has(Sabotage::LosesKept) {
            kept.kept = Kept::new();
        }
    }

    /// In verified mode: the token that is sent after this one.
    pub fn second_token(&self, token: StateToken) -> Option<StateToken> {
        self.now_and_then(Sabotage::SendsTwoTokens, 20).then_some(StateToken(token.0 ^ 1))
    }

    /// Another reply is released instead of this one.
    pub fn released(&self, place: &mut Place, reply: &mut Bytes) {
        if self.now_and_then(Sabotage::ReleasesStale, 50)
            && let Some(stale) = self.released.lock().clone()
        {
            (*place, *reply) = stale;
            return;
        }
        // A reply that is kept here without need would count until the next one leaves: a long one takes all the room.
        if self.has(Sabotage::ReleasesStale) {
            *self.released.lock() = Some((*place, reply.clone()));
        }
    }

    /// A batch has its results. Adds the replies that `leave` without a vote.
    pub fn executed(&self, batch: u64, results: &mut [RequestResult], leave: &mut Vec<(Place, Bytes)>) {
        if self.now_and_then(Sabotage::DiffersAtTimes, 20) {
            results.iter_mut().for_each(|result| result.digest ^= 1);
        }
        if !self.has(Sabotage::ReleasesUnvoted) {
            return;
        }
        let mine = results.iter().enumerate().filter(|(_, result)| result.request_info.mine);
        leave.extend(mine.map(|(number, result)| {
            (Place::new(batch, number as u16), result.reply.clone().unwrap_or_default())
        }));
    }
}

/// The promise whose breach makes a replica break this rule.
pub(super) fn broken_by(rule: Rule) -> Sabotage {
    match rule {
        Rule::ComparesClocks => Sabotage::BelievesClocks,
        Rule::AccusesWhenSure => Sabotage::AccusesInDoubt,
        Rule::GivesUnordered => Sabotage::OrdersFirst,
        Rule::AdvisesMost => Sabotage::AdvisesFirst,
        Rule::SubmitsOnce => Sabotage::SubmitsTwice,
        Rule::NeedsTwoOffers => Sabotage::TakesFromOne,
        Rule::AllActAlike => Sabotage::ChangesAlone,
        Rule::SeesMoved => Sabotage::VouchesUnseen,
        Rule::ForgetsRuns => Sabotage::Hoards,
        Rule::WritesInTurn => Sabotage::WritesTogether,
        Rule::ReceivesVotes => Sabotage::MutesVotes,
        Rule::ProposesRepairs => Sabotage::NeverRepairs,
        Rule::AsksOthers => Sabotage::AsksNobody,
        Rule::NamesChanges => Sabotage::ForgetsChanges,
        Rule::KeepsRest => Sabotage::DropsRest,
        Rule::WaitsForVerifiers => Sabotage::BelievesItself,
        Rule::ReadsWaitUntilStable => Sabotage::ReadsUnstable,
        Rule::ComparesReads => Sabotage::ReadsUncompared,
        Rule::RewindsSessions => Sabotage::KeepsSessions,
        Rule::KeepsStreams => Sabotage::ForgetsStreams,
        Rule::ConfirmsStarted => Sabotage::BelievesTimers,
    }
}

fn bit(one: Sabotage) -> u64 {
    1 << one as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_has_left_is_kept_only_where_it_is_to_leave_again() {
        let released = |by: &Sabotaged| {
            let mut reply = Bytes::from(vec![7; 100]);
            by.released(&mut Place::new(1, 0), &mut reply);
            reply
        };
        assert!(released(&Sabotaged::default()).is_unique());
        let stale = Sabotaged::default();
        stale.begin(Sabotage::ReleasesStale);
        assert!(!released(&stale).is_unique());
    }
}
