//! A handler that is run more than once: the effect of a fault in one run, between the runs, or after them, with and
//! without the protection against it (SEI, NSDI'15, section 4.2).

use std::cell::Cell;

use execute::{End, Reproduced, SealHook};
use schedule::{Access, Cx, DetMutex};
use vote::{RunDigests, Withheld, twice_may_leave};

use crate::support::{Account, Bank, FULL, FaultIn, Repeated, Request, Sent, handle, healthy, sum_of};

#[test]
fn a_request_that_is_run_twice_takes_effect_once() {
    let (mut once, mut twice) = (Bank::new(), Bank::new());
    let right = once.run(Request::PayIn(5), FULL, &());
    let repeated = twice.reproduce(Request::PayIn(5), &());
    let ran = &repeated.ran;
    assert_eq!((repeated.how, repeated.times), (Reproduced::Same, (2, 1)));
    assert_eq!(repeated.leaves(), Some("105"));
    assert_eq!((ran.reply.as_str(), sum_of(ran)), ("105", sum_of(&right)));
    assert_eq!(twice.run(Request::Read, FULL, &()).reply, "105");
}

#[test]
fn a_masked_run() {
    for faulty in [&[0][..], &[1], &[2]] {
        let (mut healthy, mut bank) = (Bank::new(), Bank::new());
        let right = healthy.run(Request::PayIn(5), FULL, &());
        let repeated = bank.reproduce(Request::PayIn(5), &FaultIn(faulty, Cell::new(0)));
        let expected = if faulty == [2] { Reproduced::Same } else { Reproduced::Masked };
        assert_eq!(repeated.how, expected, "a fault in run {faulty:?}");
        assert_eq!((repeated.leaves(), sum_of(&repeated.ran)), (Some("105"), sum_of(&right)));
        assert_eq!(bank.run(Request::Read, FULL, &()).reply, "105");
    }
}

#[test]
fn without_two_runs_that_agree_nothing_is_kept() {
    let mut bank = Bank::new();
    let before = sum_of(&bank.run(Request::Read, FULL, &()));
    let Repeated { ran, how, runs, .. } = bank.reproduce(Request::PayIn(5), &FaultIn(&[0, 1], Cell::new(0)));
    assert_eq!(runs, RunDigests::default());
    assert_eq!((how, ran.reply.as_str()), (Reproduced::Never, ""));
    assert!(matches!(ran.end, End::Unreproducible), "{:?}", ran.end);
    let after = bank.run(Request::Read, FULL, &());
    assert_eq!((after.reply.as_str(), sum_of(&after)), ("100", before));
}

#[test]
fn panics_and_misses_are_reproduced_too() {
    let mut bank = Bank::new();
    let Repeated { ran, how, times: (runs, _), .. } = bank.reproduce(Request::PayInThenPanic(7), &());
    assert!(matches!(ran.end, End::Panicked), "{:?}", ran.end);
    assert_eq!((how, runs), (Reproduced::Same, 2));
    let Repeated { ran, how, .. } = bank.reproduce(Request::PayInThenOther(7), &());
    assert!(matches!(ran.end, End::Retry(retry) if retry.lock() == 1), "{:?}", ran.end);
    assert_eq!(how, Reproduced::Same);
    bank.damage();
    let Repeated { ran, how, times: (runs, _), .. } = bank.reproduce(Request::Read, &());
    assert!(matches!(ran.end, End::Corrupted(..) | End::Retry(_)), "{:?}", ran.end);
    assert_eq!((how, runs), (Reproduced::Stopped, 1));
}

/// The bytes by which the started requests of the tests are compared.
fn ordered(sent: &Sent) -> &[u8] {
    &sent.ordered
}

/// A bit of the decoded request flips, before or during its first run. Both runs would do the same wrong thing if the
/// second one did not decode the ordered bytes again.
#[test]
fn a_request_corrupted_after_decoding() {
    let corrupted = Sent { decoded: Request::PayIn(5 ^ 8), ..Sent::new(Request::PayIn(5)) };
    let mut bank = Bank::new();
    let repeated = bank.repeat(corrupted, &(), &healthy, ordered);
    assert_eq!((repeated.how, repeated.leaves()), (Reproduced::Masked, Some("105")));
    assert_eq!(bank.run(Request::Read, FULL, &()).reply, "105");

    let once_decoded =
        |_: u8, accounts: &[DetMutex<Account>; 2], cx: &Cx<'_, Sent>, sent: &Sent, reply: &mut Vec<u8>| {
            Ok(handle(accounts, cx, sent.decoded, reply)?)
        };
    let mut without = Bank::new();
    let repeated = without.repeat(corrupted, &(), &once_decoded, ordered);
    assert_eq!(
        (repeated.how, repeated.leaves()),
        (Reproduced::Same, Some("113")),
        "what decoding again prevents"
    );
}

/// The ordered bytes change after the first run: nothing can be compared, and the request has no effect.
#[test]
fn a_request_whose_bytes_changed_has_no_effect() {
    let mut corrupted = Sent::new(Request::PayIn(5));
    corrupted.ordered[3] ^= 4;
    let mut bank = Bank::new();
    let Repeated { ran, how, .. } = bank.repeat(corrupted, &(), &healthy, ordered);
    assert!(matches!(ran.end, End::Undecodable), "{:?}", ran.end);
    assert_eq!((how, ran.reply.as_str()), (Reproduced::Masked, ""));
    assert_eq!(bank.run(Request::Read, FULL, &()).reply, "100");
}

#[test]
fn a_reply_corrupted_between_runs() {
    for faulty in [1, 2] {
        let seal_hook = |run: u8,
                         accounts: &[DetMutex<Account>; 2],
                         cx: &Cx<'_, Sent>,
                         sent: &Sent,
                         reply: &mut Vec<u8>| {
            healthy(run, accounts, cx, sent, reply)?;
            reply[0] ^= u8::from(run == faulty);
            Ok(())
        };
        let repeated = Bank::new().repeat(Sent::new(Request::PayIn(5)), &(), &seal_hook, ordered);
        assert_eq!((repeated.how, repeated.leaves()), (Reproduced::Masked, Some("105")), "in run {faulty}");
    }
    // After the runs have agreed, only the gate is left.
    let mut repeated = Bank::new().reproduce(Request::PayIn(5), &());
    repeated.ran.reply = "104".into();
    assert_eq!(twice_may_leave(&repeated.result()), Err(Withheld::Corrupt));
}

/// A fault jumps over a handler, or over a whole run.
#[test]
fn a_skipped_run() {
    for skipped in [1, 2] {
        let skips = |run: u8,
                     accounts: &[DetMutex<Account>; 2],
                     cx: &Cx<'_, Sent>,
                     sent: &Sent,
                     reply: &mut Vec<u8>| {
            if run == skipped { Ok(()) } else { healthy(run, accounts, cx, sent, reply) }
        };
        let mut bank = Bank::new();
        let repeated = bank.repeat(Sent::new(Request::PayIn(5)), &(), &skips, ordered);
        assert_eq!((repeated.how, repeated.leaves()), (Reproduced::Masked, Some("105")), "run {skipped}");
        assert_eq!(bank.run(Request::Read, FULL, &()).reply, "105");
    }
    // A whole run is not there: the other one's reply looks right, and does not leave.
    let mut repeated = Bank::new().reproduce(Request::PayIn(5), &());
    let whole = repeated.runs;
    for left in [
        RunDigests { second: 0, ..whole },
        RunDigests { first: 0, ..whole },
        RunDigests { second: whole.first, ..whole },
    ] {
        repeated.runs = left;
        assert_eq!(repeated.leaves(), None, "{left:?}");
    }
}

/// A step of the undo log is lost in the first run, so that it is not undone.
struct LoseUndo(Cell<bool>);

impl SealHook for LoseUndo {
    fn before_seal(&self, _lock: u32, _access: &mut Access<'_>) {
        if !self.0.replace(true) {
            assert!(object::request::lose_undo_step(), "the handler has changed the account");
        }
    }
}

/// Native faults showed it: an undo that fails leaves a state on which all later runs agree.
#[test]
fn a_run_that_was_not_undone() {
    let mut bank = Bank::new();
    let repeated = bank.reproduce(Request::PayIn(5), &LoseUndo(Cell::new(false)));
    assert!(matches!(repeated.ran.end, End::NotUndone), "{:?}", repeated.ran.end);
    assert_eq!((repeated.how, repeated.ran.reply.as_str()), (Reproduced::Stopped, ""));
    assert_eq!(repeated.runs, RunDigests::default());
}

/// A bit of a before-image flips: the object is wrong from then on, and each request that enters it finds that.
#[test]
fn a_before_image_corrupted_in_the_first_run() {
    struct CorruptImage(Cell<bool>);
    impl SealHook for CorruptImage {
        fn before_seal(&self, _lock: u32, _access: &mut Access<'_>) {
            if !self.0.replace(true) {
                assert!(object::request::damage_images(3));
            }
        }
    }
    let mut bank = Bank::new();
    let repeated = bank.reproduce(Request::PayIn(5), &CorruptImage(Cell::new(false)));
    assert!(matches!(repeated.ran.end, End::Corrupted(..)), "{:?}", repeated.ran.end);
    assert_eq!((repeated.how, repeated.ran.reply.as_str()), (Reproduced::Stopped, ""));
    assert!(matches!(bank.run(Request::Read, FULL, &()).end, End::Corrupted(..)));
}

/// A handler that runs twice in one run has changed more than the other run.
#[test]
fn a_doubled_run() {
    let doubles =
        |run: u8, accounts: &[DetMutex<Account>; 2], cx: &Cx<'_, Sent>, sent: &Sent, reply: &mut Vec<u8>| {
            healthy(run, accounts, cx, sent, reply)?;
            if run == 2 {
                reply.clear();
                healthy(run, accounts, cx, sent, reply)?;
            }
            Ok(())
        };
    let mut bank = Bank::new();
    let repeated = bank.repeat(Sent::new(Request::PayIn(5)), &(), &doubles, ordered);
    assert_eq!((repeated.how, repeated.leaves()), (Reproduced::Masked, Some("105")));
    assert_eq!(bank.run(Request::Read, FULL, &()).reply, "105");
}

/// Requests that a request starts are in the comparison. Nobody waits for their replies: nothing else would show a
/// fault.
#[test]
fn a_started_request_corrupted_in_one_run() {
    let starts_another =
        |run: u8, accounts: &[DetMutex<Account>; 2], cx: &Cx<'_, Sent>, sent: &Sent, reply: &mut Vec<u8>| {
            if run != 2 {
                return healthy(run, accounts, cx, sent, reply);
            }
            handle(accounts, cx, Request::PayIn(5), reply)?;
            cx.spawn(Sent::new(Request::PayIn(5 ^ 8)));
            Ok(())
        };
    let sent = Sent::new(Request::PayInTwice(5));
    let mut bank = Bank::new();
    assert_eq!(bank.repeat(sent, &(), &starts_another, ordered).how, Reproduced::Masked);
    let without = Bank::new().repeat(sent, &(), &starts_another, |_| &[]);
    assert_eq!(without.how, Reproduced::Same, "what the comparison of started requests prevents");
    assert_eq!(bank.reproduce(Request::PayInTwice(5), &()).how, Reproduced::Same);
}
