//! The checker rejects histories that no correct server gives, and accepts those that one could give.

use super::*;

const KEY: Key = Key { generation: 0, number: 0 };

fn bytes(text: &str) -> Bytes {
    Arc::from(text.as_bytes())
}

fn did(client: u16, sent: u64, answered: u64, event: Operation) -> OperationRecord {
    OperationRecord { client, replica: 1, key: KEY, sent, answered, event, unique: None }
}

fn set(client: u16, sent: u64, answered: u64, value: &str) -> OperationRecord {
    did(client, sent, answered, Operation::Set(bytes(value)))
}

fn read(client: u16, sent: u64, answered: u64, value: &str) -> OperationRecord {
    let value = (!value.is_empty()).then(|| bytes(value));
    did(client, sent, answered, Operation::Read(value))
}

fn is_wrong(records: &[OperationRecord]) -> bool {
    matches!(judge(records), KeyVerdict::Wrong(_))
}

#[track_caller]
fn assert_right(records: &[OperationRecord]) {
    assert_eq!(judge(records), KeyVerdict::Linearizable);
}

#[test]
fn a_stale_read_is_wrong() {
    let mut history = vec![set(0, 0, 10, "a"), set(0, 20, 30, "b"), read(1, 40, 50, "a")];
    assert!(is_wrong(&history));
    // While the second write is in progress, both values may be read, the older one first.
    history[1].answered = 100;
    history.push(read(1, 60, 70, "b"));
    assert_right(&history);
    history.push(read(1, 80, 90, "a"));
    assert!(is_wrong(&history), "it went back");
}

#[test]
fn a_lost_update_is_wrong() {
    let counter = |reported| did(1, 20, 30, Operation::Incr(1, Some(Some(reported))));
    let other = |reported| did(2, 22, 32, Operation::Incr(1, Some(Some(reported))));
    assert_right(&[set(0, 0, 10, "5"), counter(6), other(7), read(0, 40, 50, "7")]);
    assert_right(&[set(0, 0, 10, "5"), counter(7), other(6), read(0, 40, 50, "7")]);
    assert!(is_wrong(&[set(0, 0, 10, "5"), counter(6), other(6)]), "both got 6");
    assert!(is_wrong(&[set(0, 0, 10, "5"), counter(6), other(7), read(0, 40, 50, "6")]), "one has gone");
    assert!(is_wrong(&[set(0, 0, 10, "a"), read(1, 20, 30, "")]), "an acknowledged write has gone");
}

#[test]
fn an_increment_that_counts_twice_is_wrong() {
    let once = did(1, 20, 30, Operation::Incr(1, Some(Some(6))));
    assert!(is_wrong(&[set(0, 0, 10, "5"), once, read(0, 40, 50, "7")]));
    let unknown = did(1, 20, NEVER, Operation::Incr(1, None));
    assert_right(&[set(0, 0, 10, "5"), unknown.clone(), read(0, 40, 50, "5"), read(0, 60, 70, "6")]);
    assert!(is_wrong(&[set(0, 0, 10, "5"), unknown, read(0, 40, 50, "7")]), "sent once, done twice");
}

#[test]
fn what_never_answered_happened_at_any_time_or_never() {
    let lost = set(1, 20, NEVER, "b");
    let before = [set(0, 0, 10, "a"), lost];
    let with = |rest: &[OperationRecord]| [&before[..], rest].concat();
    assert_right(&with(&[read(0, 30, 40, "a"), read(0, 500, 600, "a")]));
    assert_right(&with(&[read(0, 30, 40, "a"), read(0, 500, 600, "b")]));
    assert!(is_wrong(&with(&[read(0, 30, 40, "b"), read(0, 500, 600, "a")])));
    assert!(
        is_wrong(&[set(0, 0, 10, "a"), read(0, 12, 15, "b"), set(1, 20, NEVER, "b")]),
        "before it was asked"
    );
}

#[test]
fn every_operation_is_held_to_its_answer() {
    let there = set(0, 0, 10, "a");
    let on = |event| did(1, 20, 30, event);
    let cases = [
        (Operation::Add(bytes("b"), Some(false)), Operation::Add(bytes("b"), Some(true))),
        (Operation::Replace(bytes("b"), Some(true)), Operation::Replace(bytes("b"), Some(false))),
        (Operation::Append(bytes("b"), Some(true)), Operation::Append(bytes("b"), Some(false))),
        (Operation::Delete(Some(true)), Operation::Delete(Some(false))),
        (
            Operation::Cas(bytes("a"), bytes("b"), Some(CasReply::Stored)),
            Operation::Cas(bytes("a"), bytes("b"), Some(CasReply::Exists)),
        ),
        (
            Operation::Cas(bytes("x"), bytes("b"), Some(CasReply::Exists)),
            Operation::Cas(bytes("x"), bytes("b"), Some(CasReply::Stored)),
        ),
    ];
    for (right, wrong) in cases {
        assert_right(&[there.clone(), on(right)]);
        assert!(is_wrong(&[there.clone(), on(wrong.clone())]), "{wrong:?}");
    }
    assert_right(&[on(Operation::Cas(bytes("a"), bytes("b"), Some(CasReply::Missing)))]);
    assert_right(&[there.clone(), on(Operation::Append(bytes("b"), Some(true))), read(0, 40, 50, "ab")]);
    assert!(is_wrong(&[there, on(Operation::Append(bytes("b"), Some(true))), read(0, 40, 50, "abb")]));
}

#[test]
fn one_number_for_two_values_is_wrong() {
    let reported = |sent, value: &str| OperationRecord { unique: Some(7), ..read(0, sent, sent + 5, value) };
    let both = [set(0, 0, 10, "a"), reported(20, "a"), set(0, 30, 40, "b"), reported(50, "b")];
    assert_eq!(judge(&both), KeyVerdict::Wrong("number 7 was given for two values".to_owned()));
    assert_right(&[set(0, 0, 10, "a"), reported(20, "a"), reported(30, "a")]);
}

#[test]
fn a_search_without_end_is_reported_and_not_called_right() {
    // Many writes that were never answered, and a value that none of them wrote: every subset of them is tried.
    let lost = |number: u64| set(number as u16, number, NEVER, &format!("v{number}"));
    let mut history: Vec<OperationRecord> = (0..40).map(lost).collect();
    history.push(read(99, 100, 110, "nobody wrote this"));
    history.push(read(99, 120, 130, "nor this"));
    assert_ne!(judge(&history), KeyVerdict::Linearizable);
    let mut orders: Vec<OperationRecord> = (0..40).map(lost).collect();
    for number in 0..20 {
        orders.push(read(99, 100 + 20 * number, 110 + 20 * number, &format!("v{}", number % 2)));
    }
    assert_eq!(judge(&orders), KeyVerdict::Undecided);
}

#[test]
fn a_generation_is_judged_when_all_clients_have_left_it() {
    let mut checker = Checker::new(2, 1);
    checker.take(HistoryEvent::Did(set(0, 0, 10, "a")));
    checker.take(HistoryEvent::Did(read(1, 20, 30, "b")));
    checker.take(HistoryEvent::Left { client: 0, before: 9 });
    checker.take(HistoryEvent::Left { client: 1, before: 1 });
    checker.judge_complete(|_| None);
    assert_eq!(checker.checked.keys, 0, "it lingers");
    checker.take(HistoryEvent::Left { client: 1, before: 2 });
    checker.judge_complete(|_| None);
    assert_eq!((checker.checked.keys, checker.checked.wrong_keys), (1, 1));
    assert_eq!(checker.findings[0].history.len(), 2);
}

#[test]
fn a_late_read_belongs_to_the_history() {
    let mut checker = Checker::new(1, 0);
    checker.take(HistoryEvent::Did(set(0, 0, 10, "a")));
    checker.finish(|_| Some(read(1, 100, 110, "")));
    assert_eq!((checker.checked.late_reads, checker.checked.wrong_keys), (1, 1));
}
