//! What a replica knows of a fault in its objects while it repairs them, and which objects it asks for (`repair.rs`).

use object::{ObjectId, RegionId};
use verify::{Slots, Version};
use vote::{Failure, Packed, RequestResult};

use crate::limits;

/// What is wrong here, and what is done about it.
#[derive(Debug)]
pub(super) struct Repairing {
    /// An agreed version that this replica does not have; none if it has found the fault itself.
    pub(super) wanted: Option<Version>,
    /// The state of the order after the batch with that number, as it was run here: a batch of an earlier view is
    /// another one, and its result says nothing about this replica.
    pub(super) ran: Option<order::State>,
    /// The other one of two executors has asked for the same objects: both are wrong.
    pub(super) both_ask: bool,
    pub(super) since_us: u64,
    /// How often the batches up to it were run again because of corrupted objects.
    pub(super) runs: u32,
    /// All objects were checked.
    pub(super) scrubbed: bool,
    /// Corrupted objects were replaced.
    pub(super) replaced: bool,
    /// The objects fit their checksums, and not the tree.
    pub(super) fit: bool,
    /// Objects that were replaced by others than the right ones. They fit their checksums now, so that nothing finds
    /// them any more: this repair has to go on until they are right.
    pub(super) misplaced: Vec<(RegionId, ObjectId)>,
    pub(super) step: RepairStep,
}

/// What this replica does next.
#[derive(Debug)]
pub(super) enum RepairStep {
    /// It goes back and then replaces these objects; if there are none, it runs the batches.
    RollBack(Vec<(RegionId, ObjectId)>),
    /// It goes back, and then checks all objects.
    RollBackAndScrub,
    /// It goes back, and then checks all objects and the tree.
    RollBackAndCheck,
    /// It has asked a peer for objects.
    Asks {
        batch: u64,
        objects: Vec<(RegionId, ObjectId)>,
        /// Peers that were asked, and those of them that have not answered.
        asked: Slots,
        awaited: Slots,
        at_us: u64,
    },
    /// It runs the batches.
    Runs,
    /// No peer has the objects at this time: it asks again after a while.
    Pauses { objects: Vec<(RegionId, ObjectId)>, since_us: u64 },
    /// It cannot be repaired, and replaces itself when all others are there.
    Waits,
}

impl Repairing {
    pub(super) fn of(wanted: Option<Version>, since_us: u64) -> Repairing {
        let step = RepairStep::Runs;
        let misplaced = Vec::new();
        Repairing {
            wanted,
            ran: None,
            both_ask: false,
            since_us,
            runs: 0,
            scrubbed: false,
            replaced: false,
            fit: false,
            misplaced,
            step,
        }
    }

    /// At this step, of a replica that has found the fault itself.
    pub(super) fn at(step: RepairStep, since_us: u64) -> Repairing {
        Repairing { step, ..Repairing::of(None, since_us) }
    }

    /// What is left of it when a view begins.
    pub(super) fn in_next_view(self) -> Option<Repairing> {
        let Repairing { misplaced, since_us, .. } = self;
        (!misplaced.is_empty()).then(|| Repairing {
            misplaced: misplaced.clone(),
            ..Repairing::at(RepairStep::RollBack(misplaced), since_us)
        })
    }

    /// Whether the other one of two has asked for the same objects.
    pub(super) fn both_ask(&self) -> bool {
        self.both_ask
    }

    /// Whether the replica checks itself.
    pub(super) fn is_check(&self) -> bool {
        matches!(self.step, RepairStep::RollBackAndCheck)
    }

    /// Whether the batch after `newest` may run.
    pub(super) fn may_run(&self, newest: u64) -> bool {
        matches!(self.step, RepairStep::Runs) && self.wanted.is_some_and(|wanted| newest < wanted.number)
    }

    /// Whether batches run again one request at a time, to be compared with a version that was agreed on.
    pub(super) fn is_compared(&self) -> bool {
        self.wanted.is_some()
    }

    /// What it waits for, for an operator.
    pub(super) fn waits_for(&self) -> Option<&'static str> {
        match self.step {
            RepairStep::Asks { .. } | RepairStep::Pauses { .. } => {
                Some("for the right objects from another replica")
            }
            RepairStep::Waits => {
                Some("until all others serve: then it replaces itself, because its state is wrong")
            }
            _ => None,
        }
    }
}

impl RepairStep {
    /// Whether one of these objects is sought.
    pub(super) fn has_one_of(&self, others: &[(RegionId, ObjectId)]) -> bool {
        match self {
            RepairStep::RollBack(objects)
            | RepairStep::Asks { objects, .. }
            | RepairStep::Pauses { objects, .. } => objects.iter().any(|object| others.contains(object)),
            RepairStep::RollBackAndScrub
            | RepairStep::RollBackAndCheck
            | RepairStep::Runs
            | RepairStep::Waits => false,
        }
    }
}

/// The objects at which requests have failed.
pub(super) fn suspects<'r>(results: impl Iterator<Item = &'r RequestResult>) -> Vec<(RegionId, ObjectId)> {
    let mut objects: Vec<(RegionId, ObjectId)> = results
        .filter_map(|result| match result.failure {
            Some(Failure::Check { region_id, id } | Failure::Missing { region_id, id }) => {
                Some((region_id, id))
            }
            _ => None,
        })
        .collect();
    objects.sort_unstable();
    objects.dedup();
    objects.truncate(limits::ASKED_OBJECTS);
    objects
}

/// Whether an object is one of these, or its whole region is.
pub(super) fn is_among(object: &(RegionId, ObjectId), objects: &[(RegionId, ObjectId)]) -> bool {
    objects.contains(object) || objects.contains(&(object.0, ObjectId::NONE))
}

/// What to ask for in one message: these objects, or if they are too many, as many of their whole regions as fit.
pub(super) fn in_one_message(mut objects: Vec<(RegionId, ObjectId)>) -> Vec<(RegionId, ObjectId)> {
    if objects.len() > limits::ASKED_OBJECTS {
        objects.iter_mut().for_each(|(_, id)| *id = ObjectId::NONE);
        objects.sort_unstable();
        objects.dedup();
        objects.truncate(limits::ASKED_OBJECTS);
    }
    objects
}

/// Whether an answer has each object that was asked for, and others only of regions that were asked for as a whole.
pub(super) fn is_answer_to(asked_for: &[(RegionId, ObjectId)], objects: &[Packed]) -> bool {
    let has = |&(region_id, id): &(RegionId, ObjectId)| {
        objects.iter().any(|object| object.region_id == region_id && (object.id == id || id.is_none()))
    };
    let was_asked = |object: &Packed| is_among(&(object.region_id, object.id), asked_for);
    asked_for.iter().all(has) && objects.iter().all(was_asked)
}

/// These objects, with all of these regions instead of single objects of them; none if that changes nothing.
pub(super) fn whole_regions(
    objects: &[(RegionId, ObjectId)],
    region_ids: &[RegionId],
) -> Option<Vec<(RegionId, ObjectId)>> {
    let whole = region_ids.iter().map(|region_id| (*region_id, ObjectId::NONE));
    let new: Vec<(RegionId, ObjectId)> = whole.filter(|region| !objects.contains(region)).collect();
    let kept = objects.iter().copied().filter(|(region_id, _)| !region_ids.contains(region_id));
    (!new.is_empty()).then(|| new.iter().copied().chain(kept).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_with_a_wrong_id_is_asked_for_with_its_whole_region_once() {
        let id = ObjectId::from_bits;
        let asked = [(1, id(7)), (2, id(8)), (1, id(9))];
        let wider = whole_regions(&asked, &[1]).expect("region 1 was not asked for as a whole");
        assert_eq!(wider, [(1, ObjectId::NONE), (2, id(8))]);
        assert_eq!(whole_regions(&wider, &[1]), None, "that has changed nothing");
        assert_eq!(whole_regions(&asked, &[]), None);
    }

    #[test]
    fn objects_too_many_for_a_message_are_asked_for_with_their_regions() {
        let objects = |count: u64| -> Vec<(RegionId, ObjectId)> {
            (0..count).map(|number| ((number % 3) as RegionId, ObjectId::from_bits(number))).collect()
        };
        let few = objects(limits::ASKED_OBJECTS as u64);
        assert_eq!(in_one_message(few.clone()), few);
        let many = in_one_message(objects(limits::ASKED_OBJECTS as u64 + 1));
        assert_eq!(many, [(0, ObjectId::NONE), (1, ObjectId::NONE), (2, ObjectId::NONE)]);
        assert!(few.iter().all(|object| is_among(object, &many)));
        let elsewhere: Vec<_> = (0..100).map(|region_id| (region_id, ObjectId::from_bits(1))).collect();
        assert_eq!(in_one_message(elsewhere).len(), limits::ASKED_OBJECTS);
    }
}
