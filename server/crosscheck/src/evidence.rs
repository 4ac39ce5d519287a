//! Evidence in readable form: every disagreement ends in one record, so that repair does not hide a bug.

use vote::{Evidence, Failure, FaultClass, FaultStage, Place, WrongObject};

use crate::admin::EvidenceRecord;

/// A decided disagreement.
pub fn record(evidence: &Evidence, kind: Option<String>) -> EvidenceRecord {
    let outcome = match (&evidence.failure, evidence.settled_on) {
        (Some(failure), _) => format!("self-reported: {}", reported(failure)),
        (None, Some(source)) => {
            format!("no f+1 replicas agreed; the group settled on the version of replica {}", source + 1)
        }
        (None, None) => "decided".into(),
    };
    let place = evidence.request.map(|request| Place::new(evidence.batch, request));
    EvidenceRecord {
        class: class(evidence.class).into(),
        kind,
        ..hardware_like(evidence.replica, place, objects(evidence), stage(evidence.stage), &outcome)
    }
}

/// This replica, or the program that it runs, errs in every request of a kind: no fault of hardware does so.
pub fn repeats(record: &mut EvidenceRecord) {
    record.class = class(FaultClass::SoftwareBug).into();
    record.outcome = format!(
        "{}; every request of this kind differs at this replica, and only there: it is another build of the program, \
            or fails in it each time",
        record.outcome
    );
}

/// The errors, object by object.
fn objects(evidence: &Evidence) -> Vec<String> {
    // The replica abandoned the request at this object: that its digest lacks the others is no evidence against them.
    if let Some(Failure::Check { region_id, id } | Failure::Missing { region_id, id }) = evidence.failure {
        return vec![format!("object {region_id}:{id}")];
    }
    if evidence.wrong.is_empty() {
        return vec![evidence.subject()];
    }
    let describe = if evidence.settled_on.is_some() { describe_settled } else { describe };
    let mut objects: Vec<String> = evidence.wrong.iter().map(describe).collect();
    let more = (evidence.wrong_total as usize).saturating_sub(evidence.wrong.len());
    if more > 0 {
        objects.push(format!("and {more} more"));
    }
    objects
}

/// A peer's bytes did not match their checksum.
pub fn message(peer: u8) -> EvidenceRecord {
    let outcome = "dropped; the connection is reset";
    hardware_like(peer, None, vec!["message".into()], stage(FaultStage::Message), outcome)
}

/// A request that failed at this replica in a mode without a vote.
pub fn unchecked(
    me: u8,
    place: Place,
    failure: &Failure,
    kind: Option<String>,
    outcome: &str,
) -> EvidenceRecord {
    let stage_of_failure = match failure {
        Failure::Unreproducible => FaultStage::InRequest,
        Failure::Request => FaultStage::Message,
        _ => FaultStage::Passive,
    };
    let reported = vec![reported(failure)];
    EvidenceRecord { kind, ..hardware_like(me, Some(place), reported, stage(stage_of_failure), outcome) }
}

/// A request that two decodings gave different locks.
pub fn decoded_wrong(me: u8, place: Place) -> EvidenceRecord {
    let objects = vec!["the decoded request".into()];
    hardware_like(me, Some(place), objects, stage(FaultStage::Message), "masked: it was decoded once more")
}

/// A reply that is not what both runs of its request left: it changed since, or a run did not take place.
pub fn changed_after_runs(me: u8, place: Place, kind: Option<String>) -> EvidenceRecord {
    withheld(me, place, kind, "the reply, or the digest of a run")
}

/// In verified mode: a reply that is not the one whose digest was agreed on.
pub fn changed_after_agreement(me: u8, place: Place, kind: Option<String>) -> EvidenceRecord {
    withheld(me, place, kind, "the reply")
}

fn withheld(me: u8, place: Place, kind: Option<String>, what: &str) -> EvidenceRecord {
    let outcome = "reply withheld; its connection is closed";
    let stage = stage(FaultStage::Reply);
    EvidenceRecord { kind, ..hardware_like(me, Some(place), vec![what.into()], stage, outcome) }
}

/// In verified mode: this replica's state after a batch is not the one that was agreed on.
pub fn diverged(me: u8, batch: u64, outcome: &str) -> EvidenceRecord {
    let objects = vec![format!("the state or a reply after batch {batch}")];
    hardware_like(me, None, objects, stage(FaultStage::InRequest), outcome)
}

/// In verified mode: tokens of a batch differed, and all replicas run it again. Where most agree, `replica` is one that
/// does not.
pub fn differed(replica: Option<u8>, batch: u64) -> EvidenceRecord {
    let outcome = "masked: all replicas take it back, and run the next batch one request at a time";
    let what = if replica.is_some() { "unlike that of most replicas" } else { "another one at each replica" };
    let objects = vec![format!("the state or a reply after batch {batch}, {what}")];
    let class = if replica.is_some() { FaultClass::HardwareLike } else { FaultClass::Nondeterminism };
    let record = hardware_like(replica, None, objects, stage(FaultStage::InRequest), outcome);
    EvidenceRecord { class: self::class(class).into(), ..record }
}

/// In verified mode: what is known of two executors that differed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Run again, both came to the same.
    Agreed,
    /// One went on without the other.
    OneWentOn,
    /// The same, and the one that went on had found nothing wrong with itself.
    OtherIsWrong,
    /// Neither has found anything wrong with itself, and they differ one request at a time.
    BothAreIntact,
}

/// In verified mode: the tokens of two executors differed after so many runs of a batch. Which of them was wrong is not
/// always known: then nobody is accused, and neither is the service.
pub fn of_two(me: u8, batch: u64, runs: u64, outcome: Outcome) -> EvidenceRecord {
    let other = 1 - me.min(1);
    let (class, replica, reported) = match outcome {
        Outcome::Agreed => ("unattributed", None, "masked: run again, both came to the same"),
        Outcome::OneWentOn => ("unattributed", None, "masked: one of the two goes on without the other"),
        Outcome::OtherIsWrong => {
            let reported = "masked: the other replica has found nothing wrong with itself, and goes on";
            (self::class(FaultClass::HardwareLike), Some(other), reported)
        }
        Outcome::BothAreIntact => {
            let reported =
                "no reply leaves: one request at a time they differ too, and both have checked themselves";
            (self::class(FaultClass::Nondeterminism), None, reported)
        }
    };
    let times = if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
    let objects =
        vec![format!("the state or a reply after batch {batch}, unlike at both replicas in {times}")];
    let record = hardware_like(replica, None, objects, stage(FaultStage::InRequest), reported);
    EvidenceRecord { class: class.into(), ..record }
}

/// A request from `origin` whose ordered bytes no replica can run. If the origin is not known any more, no replica is
/// blamed.
pub fn void(origin: Option<u8>, place: Place) -> EvidenceRecord {
    let outcome = "not executed on any replica; reply withheld";
    hardware_like(origin, Some(place), vec![reported(&Failure::Invalid)], stage(FaultStage::Message), outcome)
}

/// Errors that a scrub found in objects at rest.
pub fn scrubbed(
    me: u8,
    place: Place,
    region_id: object::RegionId,
    findings: &[object::ScrubFinding],
) -> EvidenceRecord {
    use object::ScrubFinding;
    let reported = |finding: &ScrubFinding| match finding {
        ScrubFinding::Damaged(id) => format!("object {region_id}:{id} does not fit its checksum"),
        ScrubFinding::Lost(id) => format!("object {region_id}:{id} is missing"),
        ScrubFinding::Extra(id) => format!("object {region_id}:{id} is there and should not be, or twice"),
        ScrubFinding::Population(id) => {
            format!("the objects of {region_id}:{id} are not those it should have")
        }
    };
    hardware_like(me, Some(place), findings.iter().map(reported).collect(), "scrub", "repair ordered")
}

/// The whole state after entry `index` of the log was taken from replica `donor` alone, from 0: no other replica could
/// vouch for it. Nobody is accused.
pub fn believed(donor: u8, index: u64) -> EvidenceRecord {
    let what = format!("the whole state after log entry {index}");
    let class = "unvouched".into();
    let outcome = &format!("taken on the word of replica {} alone", donor + 1);
    EvidenceRecord { class, ..hardware_like(None, None, vec![what], "state-transfer", outcome) }
}

/// Takes the place of a record that does not fit its checksum any more: nothing in that record is trusted.
pub fn damaged(number: u64) -> EvidenceRecord {
    let outcome = "damaged since it was kept: it does not fit its checksum";
    EvidenceRecord { number, ..hardware_like(None, None, vec!["this record".into()], "evidence", outcome) }
}

/// A request of which one run at this replica differed from two others.
pub fn masked(me: u8, place: Place, core: u32, kind: Option<String>) -> EvidenceRecord {
    let objects = vec!["a run of the request".into()];
    let outcome = "masked: two other runs of it agree";
    EvidenceRecord {
        core: Some(core),
        kind,
        ..hardware_like(me, Some(place), objects, stage(FaultStage::InRequest), outcome)
    }
}

/// A clock, or the stamps of a leader, that f+1 clocks contradict.
pub fn clock(replica: u8, what: &str) -> EvidenceRecord {
    hardware_like(replica, None, vec![what.into()], "clock", "not followed")
}

/// Objects that were overwritten with versions that f+1 replicas agree on; `notes` have class, member and bits of each.
/// The repair took `took_us` from the verdict.
pub fn repaired(me: u8, turn: Place, notes: Vec<String>, took_us: Option<u64>) -> EvidenceRecord {
    EvidenceRecord { took_us, ..hardware_like(me, Some(turn), notes, "repair", "repaired") }
}

/// Objects whose right versions arrived, and could not take their place; `notes` say why.
pub fn not_repaired(me: u8, turn: Place, notes: Vec<String>) -> EvidenceRecord {
    let outcome = "not repaired: the objects are still wrong";
    hardware_like(me, Some(turn), notes, "repair", outcome)
}

/// In verified mode: objects at rest were corrupted at this replica, and those of another one replaced them. `fitted`
/// if they had the right checksums, and only the tree told that they were wrong.
pub fn replaced(me: u8, notes: Vec<String>, fitted: bool, took_us: u64) -> EvidenceRecord {
    let outcome = if fitted {
        "repaired: it fitted its checksum, and was another one than the batches had left; that of another replica fits \
            the state that was agreed on"
    } else {
        "repaired: the objects of another replica fit the state that was agreed on"
    };
    EvidenceRecord { took_us: Some(took_us), ..hardware_like(me, None, notes, "repair", outcome) }
}

/// A record in one line.
pub fn line(record: &EvidenceRecord) -> String {
    let who = record.replica.map_or("nobody".into(), |replica| format!("replica {replica}"));
    let kind = record.kind.as_ref().map_or(String::new(), |kind| format!(" ({kind})"));
    let place =
        record.request.map_or(String::new(), |(batch, request)| format!(" at {batch}/{request}{kind}"));
    format!(
        "{who}{place}: {} [{}, {}] {}",
        record.objects.join("; "),
        record.class,
        record.stage,
        record.outcome
    )
}

/// One member that was wrong: its values, and the wrong bits.
pub fn difference(member: &object::MemberDifference) -> String {
    let name = member.member;
    match (member.bits, member.first_bit, member.last_bit) {
        _ if member.left_length != member.right_length => {
            format!("field {name}: {} bytes instead of {}", member.left_length, member.right_length)
        }
        (1, Some(bit), _) => format!("field {name}: bit {bit} wrong"),
        (bits, Some(first), Some(last)) => {
            format!(
                "field {name}: {bits} bits wrong, from bit {first} to bit {last} (xor {:x})",
                member.pattern
            )
        }
        (bits, ..) => format!("field {name}: {bits} bits wrong"),
    }
}

/// A record of a probable hardware fault of `replica`, where that is known. It gets its number and time when it is
/// kept.
fn hardware_like(
    replica: impl Into<Option<u8>>,
    place: Option<Place>,
    objects: Vec<String>,
    stage: &str,
    outcome: &str,
) -> EvidenceRecord {
    EvidenceRecord {
        number: 0,
        time_us: 0,
        replica: replica.into().map(|replica| replica + 1),
        request: place.map(|place| (place.batch, u32::from(place.request))),
        objects,
        class: class(FaultClass::HardwareLike).into(),
        stage: stage.into(),
        outcome: outcome.into(),
        core: None,
        took_us: None,
        kind: None,
    }
}

fn describe(wrong: &WrongObject) -> String {
    let name = format!("object {}:{}", wrong.region_id, wrong.id);
    match (wrong.theirs, wrong.majority) {
        (Some(theirs), Some(right)) => format!("{name}: checksum {theirs:016x} instead of {right:016x}"),
        (Some(_), None) => format!("{name}: touched, and not by the other replicas"),
        (None, Some(right)) => format!("{name}: no checksum reported instead of {right:016x}"),
        (None, None) => name,
    }
}

/// An object on which no f+1 replicas agreed: the other checksum is the one that it has now.
fn describe_settled(wrong: &WrongObject) -> String {
    if wrong.id.is_none() {
        return format!("region {}", wrong.region_id);
    }
    let sum = |sum: Option<u64>| sum.map_or("none".into(), |sum| format!("{sum:016x}"));
    let (had, has) = (sum(wrong.theirs), sum(wrong.majority));
    format!("object {}:{}: checksum {had} here before, {has} now", wrong.region_id, wrong.id)
}

/// The failure of a request, as text for an operator.
pub fn reported(failure: &Failure) -> String {
    match failure {
        Failure::Check { region_id, id } => format!("object {region_id}:{id} does not fit its checksum"),
        Failure::Missing { region_id, id } => format!("object {region_id}:{id} is missing"),
        Failure::Panic => "the handler panicked".into(),
        Failure::Request => "the request's bytes do not fit their checksum".into(),
        Failure::Invalid => "the ordered bytes were already invalid when they were proposed".into(),
        Failure::Hang => "the handler did not end in time".into(),
        Failure::Unreproducible => "executing it again gave a different result".into(),
    }
}

fn class(class: FaultClass) -> &'static str {
    match class {
        FaultClass::HardwareLike => "hardware-like",
        FaultClass::Nondeterminism => "nondeterminism",
        FaultClass::SoftwareBug => "software-bug",
    }
}

fn stage(stage: FaultStage) -> &'static str {
    match stage {
        FaultStage::Passive => "entry-check",
        FaultStage::InRequest => "in-request",
        FaultStage::Reply => "reply",
        FaultStage::Digest => "digest",
        FaultStage::Message => "message",
        FaultStage::Schedule => "schedule",
    }
}

#[cfg(test)]
mod tests {
    use object::ObjectId;

    use super::*;

    fn evidence(failure: Option<Failure>) -> Evidence {
        let id = ObjectId::from_bits(9);
        Evidence {
            replica: 1,
            batch: 5,
            request: Some(0),
            kind: 0,
            stage: FaultStage::InRequest,
            class: FaultClass::HardwareLike,
            failure,
            wrong: vec![WrongObject { region_id: 7, id, theirs: None, majority: Some(0xAB) }],
            wrong_total: 3,
            settled_on: None,
            number: 1,
        }
    }

    #[test]
    fn a_failed_check_names_its_object_and_anything_else_what_differs_and_how_many_more() {
        let id = ObjectId::from_bits(4);
        let checked = record(&evidence(Some(Failure::Check { region_id: 2, id })), None);
        assert_eq!(checked.objects, [format!("object 2:{id}")]);
        for failure in [None, Some(Failure::Panic)] {
            let objects = record(&evidence(failure), None).objects;
            let differs = format!(
                "object 7:{}: no checksum reported instead of 00000000000000ab",
                ObjectId::from_bits(9)
            );
            assert_eq!(objects, [differs, "and 2 more".to_owned()]);
        }
        let nothing = Evidence { wrong: Vec::new(), wrong_total: 0, ..evidence(None) };
        assert_eq!(record(&nothing, None).objects, [nothing.subject()]);
    }
}
