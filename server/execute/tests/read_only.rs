//! A handler that only reads: it meets checked objects, and leaves nothing behind.

use execute::{End, ReadEnd};

use crate::support::{Bank, FULL, Request};

fn balance(bank: &mut Bank) -> String {
    let ran = bank.run(Request::Read, FULL, &());
    assert!(matches!(ran.end, End::Done(_)), "{:?}", ran.end);
    ran.reply
}

#[test]
fn what_only_reads_has_a_reply() {
    let mut bank = Bank::new();
    assert_eq!(bank.read_only(Request::Read), (ReadEnd::Done, "100".to_owned()));
    assert_eq!(balance(&mut bank), "100");
}

#[test]
fn a_change_is_undone_and_refused() {
    let mut bank = Bank::new();
    for request in [Request::PayIn(5), Request::PayInThenPanic(5), Request::PayInBoth(5)] {
        assert_eq!(bank.read_only(request), (ReadEnd::Refused, String::new()));
        assert_eq!(balance(&mut bank), "100", "and its object is sealed as before");
    }
}

#[test]
fn a_wrong_object_gives_no_reply_and_stays_wrong() {
    let mut bank = Bank::new();
    bank.damage();
    assert_eq!(bank.read_only(Request::Read), (ReadEnd::Refused, String::new()));
    let ran = bank.run(Request::Read, FULL, &());
    assert!(matches!(ran.end, End::Corrupted(..)), "a request that is ordered finds it: {:?}", ran.end);
}
