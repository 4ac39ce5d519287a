//! Whether one replica errs in every request of a kind. Faults of hardware do not choose: between two of them the same
//! replica answers many requests of that kind as the others do. A replica that differs in each of them runs another
//! program than they do, or has a defect that only it meets; to call its processor faulty would mislead an operator.

use object::ObjectId;
use vote::{FaultClass, FaultStage};

/// Requests of one kind, one after the other, that differed at one replica only, from which on it is its program.
pub(super) const IN_A_ROW: usize = 4;

/// The requests that differed last, by replica.
#[derive(Debug, Default)]
pub(super) struct Repeats(Vec<Option<ErrorsInARow>>);

/// Requests of one kind that differed, with none between them that did not.
#[derive(Debug)]
struct ErrorsInARow {
    kind: u16,
    /// The number of the last one among all requests of its kind.
    of_kind: u64,
    /// The first object that was wrong in it.
    object: Option<ObjectId>,
    /// The numbers of the records of the first ones.
    records: Vec<u64>,
}

/// A disagreement for [`Repeats::note`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeated<'a> {
    pub evidence: &'a vote::Evidence,
    /// The request's number among all of its kind that this replica has executed; none where that is not known.
    pub of_kind: Option<u64>,
    /// The number that the record will have.
    pub record: u64,
}

impl Repeats {
    /// Notes a disagreement. If it is one of [`IN_A_ROW`] or more, returns the records of the earlier ones, which are
    /// of the same class; those are named once.
    pub fn note(&mut self, repeated: Repeated<'_>) -> Option<Vec<u64>> {
        let Repeated { evidence, of_kind, record } = repeated;
        let is_result = matches!(evidence.stage, FaultStage::InRequest | FaultStage::Reply);
        if evidence.class != FaultClass::HardwareLike || !is_result || evidence.failure.is_some() {
            return None;
        }
        let replica = usize::from(evidence.replica);
        if self.0.len() <= replica {
            self.0.resize_with(replica + 1, || None);
        }
        let object = evidence.wrong.first().map(|wrong| wrong.id);
        let last = self.0[replica].take();
        let of_kind = of_kind?;
        let follows = |run: &ErrorsInARow| {
            // A wrong object is wrong in each request that reads it, until it is repaired.
            let is_another_error = object.is_none() || object != run.object;
            run.kind == evidence.kind && run.of_kind + 1 == of_kind && is_another_error
        };
        let mut records = last.filter(follows).map_or_else(Vec::new, |run| run.records);
        records.truncate(IN_A_ROW);
        let earlier = records.clone();
        records.push(record);
        self.0[replica] = Some(ErrorsInARow { kind: evidence.kind, of_kind, object, records });
        match earlier.len() + 1 {
            ..IN_A_ROW => None,
            IN_A_ROW => Some(earlier),
            _ => Some(Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vote::{Evidence, Failure, WrongObject};

    fn reply(replica: u8, kind: u16) -> Evidence {
        Evidence {
            replica,
            batch: 1,
            request: Some(0),
            kind,
            stage: FaultStage::Reply,
            class: FaultClass::HardwareLike,
            failure: None,
            wrong: Vec::new(),
            wrong_total: 0,
            settled_on: None,
            number: 1,
        }
    }

    fn with_object(slot: u32) -> Evidence {
        let id = ObjectId::from_bits(u64::from(slot));
        let wrong = vec![WrongObject { region_id: 1, id, theirs: None, majority: None }];
        Evidence { stage: FaultStage::InRequest, wrong, ..reply(2, 5) }
    }

    /// What is returned for the last of these, whose records are numbered from 1.
    fn last<'a>(all: impl IntoIterator<Item = (&'a Evidence, u64)>) -> Option<Vec<u64>> {
        let mut repeats = Repeats::default();
        let noted = (1..).zip(all).map(|(record, (evidence, of_kind))| {
            repeats.note(Repeated { evidence, of_kind: Some(of_kind), record })
        });
        noted.last().flatten()
    }

    #[test]
    fn four_in_a_row_at_one_replica_are_its_program_and_so_are_all_that_follow() {
        let touch = reply(2, 5);
        assert_eq!(last([(&touch, 7), (&touch, 8), (&touch, 9)]), None);
        assert_eq!(last([(&touch, 7), (&touch, 8), (&touch, 9), (&touch, 10)]), Some(vec![1, 2, 3]));
        assert_eq!(last((1..6).map(|number| (&touch, number))), Some(vec![]));
        assert_eq!(last((1..101).map(|number| (&touch, number))), Some(vec![]));
    }

    #[test]
    fn faults_of_hardware_leave_requests_of_the_kind_right() {
        let touch = reply(2, 5);
        assert_eq!(last([(&touch, 7), (&touch, 8), (&touch, 10), (&touch, 11)]), None, "the ninth was right");
        let get = reply(2, 4);
        assert_eq!(last([(&touch, 7), (&touch, 8), (&get, 100), (&touch, 9), (&touch, 10)]), None);
        let failed = Evidence { failure: Some(Failure::Unreproducible), ..reply(2, 5) };
        assert_eq!(last((1..9).map(|number| (&failed, number))), None, "the replica reports itself");
        let message = Evidence { stage: FaultStage::Message, ..reply(2, 5) };
        assert_eq!(last((1..9).map(|number| (&message, number))), None);
    }

    #[test]
    fn one_wrong_object_that_is_read_again_and_again_is_one_error() {
        let (one, other) = (with_object(1), with_object(2));
        assert_eq!(last((1..9).map(|number| (&one, number))), None);
        let turns = (1..5).map(|number| (if number % 2 == 0 { &one } else { &other }, number));
        assert_eq!(last(turns), Some(vec![1, 2, 3]));
    }

    #[test]
    fn the_row_of_another_replica_is_another_one() {
        let (one, two) = (reply(1, 5), reply(2, 5));
        let mut repeats = Repeats::default();
        let mut noted = Vec::new();
        for number in 1..5 {
            for evidence in [&one, &two] {
                noted.push(repeats.note(Repeated { evidence, of_kind: Some(number), record: number }));
            }
        }
        assert_eq!(noted[6..], [Some(vec![1, 2, 3]), Some(vec![1, 2, 3])]);
        let unknown = Repeated { evidence: &one, of_kind: None, record: 9 };
        assert_eq!(repeats.note(unknown), None);
    }
}
