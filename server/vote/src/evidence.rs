//! Evidence that a replica was wrong: the record ensures that repair does not hide a bug.

use object::{ObjectId, RegionId};

use crate::config::Replica;
use crate::event::Failure;

/// One disagreement, decided. Plain members: the pipeline adds core, wall-clock time and member-level difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The replica that was wrong, or that is accused by [`FaultClass::Nondeterminism`].
    pub replica: Replica,
    /// The batch.
    pub batch: u64,
    /// The request, if the disagreement is about one.
    pub request: Option<u16>,
    /// Kind of the request, as numbered by the service.
    pub kind: u16,
    /// The location of the error when it was detected.
    pub stage: FaultStage,
    /// The probable kind of cause.
    pub class: FaultClass,
    /// The failure that the replica itself reported, if any.
    pub failure: Option<Failure>,
    /// Objects that differ, at most [`Evidence::MAX_OBJECTS`].
    pub wrong: Vec<WrongObject>,
    /// The number of all objects that differ.
    pub wrong_total: u32,
    /// No f+1 replicas agreed, and the group settled on the version of this replica; `wrong` has it as the majority's.
    pub settled_on: Option<Replica>,
    /// The number of this disagreement at the reporting replica, from 1.
    pub number: u64,
}

impl Evidence {
    /// Objects listed in one record.
    pub const MAX_OBJECTS: usize = 64;

    /// The wrong part, as text: an object, `digest/vote`, `schedule`, `reply` or `message`.
    pub fn subject(&self) -> String {
        match (self.stage, self.wrong.first()) {
            (FaultStage::Digest, _) => "digest/vote".to_string(),
            (FaultStage::Schedule, _) => "schedule".to_string(),
            (FaultStage::Message, None) => "message".to_string(),
            (_, Some(first)) => format!("object {}:{}", first.region_id, first.id),
            (FaultStage::Reply, None) => "reply".to_string(),
            (_, None) => "request".to_string(),
        }
    }
}

/// An object two sides disagree about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongObject {
    /// Its region.
    pub region_id: RegionId,
    /// The object.
    pub id: ObjectId,
    /// Checksum at the wrong replica; `None` when it did not touch the object, or reported no pairs.
    pub theirs: Option<u64>,
    /// Checksum at the majority; `None` when the majority did not touch the object.
    pub majority: Option<u64>,
}

/// The location of an error when it was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultStage {
    /// In an object at rest: its own check failed.
    Passive,
    /// In the effects of a request: its pairs differ.
    InRequest,
    /// In the reply only.
    Reply,
    /// In a digest or vote; the results are equal.
    Digest,
    /// In a message between replicas.
    Message,
    /// In the schedule: the request ran at another position, or ordered time, than at the others, or it started other
    /// requests or timers.
    Schedule,
}

/// The probable kind of cause of a disagreement. The rule is [`Classifier::classify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultClass {
    /// One replica differs once: a bit flip, a broken core, a corrupted message.
    HardwareLike,
    /// All replicas differ and stand by their results, or the same kind of request differs at one replica after the
    /// other.
    Nondeterminism,
    /// f+1 replicas abandon the same request, or the same kind panics at one replica after the other. A replica also
    /// gives it to another one that errs in every request of a kind, which the voter cannot know.
    SoftwareBug,
}

/// Keeps recent disagreements, because one record alone cannot distinguish a bit flip from a bug.
#[derive(Clone, Debug, Default)]
pub struct Classifier {
    recent: std::collections::VecDeque<(u16, Replica, bool)>,
}

/// The facts about a disagreement when it is classified.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// The wrong replica.
    pub replica: Replica,
    /// Kind of the request.
    pub kind: u16,
    /// The location of the error.
    pub stage: FaultStage,
    /// Whether the service's code panicked there.
    pub panicked: bool,
    /// Whether f+1 replicas or more abandoned the request.
    pub abandoned_by_quorum: bool,
    /// Whether every live replica stands by a different result.
    pub everybody_stands: bool,
}

impl Classifier {
    /// The number of recent disagreements that are compared.
    pub const MEMORY: usize = 64;
    /// The number of disagreements of one kind, at two replicas or more, from which on they are not classified as
    /// hardware-like.
    pub const REPEATED: usize = 4;

    /// The rule, in this order:
    /// 1. f+1 abandoned the request: software bug (whatever was corrupt was corrupt everywhere);
    /// 2. every replica stands by a different result: nondeterminism;
    /// 3. the last [`Self::MEMORY`] disagreements hold [`Self::REPEATED`] or more about results of this kind of
    ///    request, at two replicas or more: a software bug if they were panics, nondeterminism otherwise (bit flips do
    ///    not depend on the kind of request);
    /// 4. otherwise hardware-like. Corrupt messages, digests and objects at rest are always of this class.
    pub fn classify(&mut self, finding: &Finding) -> FaultClass {
        if finding.abandoned_by_quorum {
            return FaultClass::SoftwareBug;
        }
        if finding.everybody_stands {
            return FaultClass::Nondeterminism;
        }
        if !matches!(finding.stage, FaultStage::InRequest | FaultStage::Reply) {
            return FaultClass::HardwareLike;
        }
        if self.recent.len() == Self::MEMORY {
            self.recent.pop_front();
        }
        self.recent.push_back((finding.kind, finding.replica, finding.panicked));
        let same = || {
            self.recent
                .iter()
                .filter(|(kind, _, panicked)| (*kind, *panicked) == (finding.kind, finding.panicked))
        };
        let others = same().any(|(_, replica, _)| *replica != finding.replica);
        match (same().count() >= Self::REPEATED && others, finding.panicked) {
            (true, true) => FaultClass::SoftwareBug,
            (true, false) => FaultClass::Nondeterminism,
            (false, _) => FaultClass::HardwareLike,
        }
    }
}

/// Running totals of one voter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VoteCounters {
    /// Batches on which at least two replicas' digests differed.
    pub mismatched_batches: u64,
    /// Replies replaced by a peer's bytes.
    pub replies_repaired: u64,
    /// Evidence records about each replica.
    pub blamed: [u64; crate::limits::MAX_REPLICAS],
    /// RECOVERs that had their turn.
    pub recovers_done: u64,
    /// RECOVERs that would have settled on a version, for a request about which this replica knows of no disagreement.
    pub recovers_refused: u64,
    /// RECOVERs by which the group settled on one version.
    pub settled: u64,
    /// Objects and regions installed at this replica.
    pub objects_installed: u64,
    /// Messages requested again.
    pub asks_sent: u64,
}
