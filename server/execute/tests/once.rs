//! One handler from its scope to its seal: the effects of each end, and of each protection.

use execute::{End, SealHook};
use object::{Injection, ObjectId};
use schedule::Access;

use crate::support::{BARE, Bank, FULL, Request, sum_of};

#[test]
fn the_state_delta_holds_the_sum_after_the_change() {
    let mut bank = Bank::new();
    let before = sum_of(&bank.run(Request::Read, FULL, &()));
    let paid = bank.run(Request::PayIn(5), FULL, &());
    assert_eq!(paid.reply, "105");
    let after = sum_of(&bank.run(Request::Read, FULL, &()));
    assert_ne!(before, sum_of(&paid), "the seal renews the sum");
    assert_eq!(sum_of(&paid), after, "and the next request finds it so");
}

#[test]
fn a_flip_in_a_resting_object_stops_the_request_and_names_the_object() {
    let mut bank = Bank::new();
    bank.damage();
    let ran = bank.run(Request::PayIn(1), FULL, &());
    let End::Corrupted(corrupted, wrong) = ran.end else { panic!("{:?}", ran.end) };
    assert_eq!(wrong, [(0, corrupted.object)]);
    assert_eq!(ran.reply, "", "nothing of the reply is left");
}

/// Found by the simulation's checker of blamed objects: a lock that was searched before the right one was named as
/// well.
#[test]
fn a_damaged_object_is_named_behind_its_own_lock_only() {
    let mut bank = Bank::new();
    bank.damage_behind(1);
    let ran = bank.run(Request::PayInBoth(1), FULL, &());
    let End::Corrupted(corrupted, wrong) = ran.end else { panic!("{:?}", ran.end) };
    assert_eq!(wrong, [(1, corrupted.object)]);
}

#[test]
fn without_the_entry_check_the_same_flip_reaches_the_reply() {
    let mut bank = Bank::new();
    bank.damage();
    assert_eq!(bank.run(Request::Read, BARE, &()).reply, (100 ^ 8).to_string());
}

/// Flips a bit of the account after the handler and before the seal.
struct FlipBeforeSeal;

impl SealHook for FlipBeforeSeal {
    fn before_seal(&self, _lock: u32, access: &mut Access<'_>) {
        if let Access::Exclusive(region) = access {
            let id: ObjectId = region.root();
            region
                .inject(id, &Injection::Flip { member: Some(0), bit: Some(1), seed: 0 })
                .expect("the flip fits");
        }
    }
}

#[test]
fn a_flip_before_the_seal_is_in_the_delta_so_that_replicas_disagree() {
    let (mut healthy, mut corrupted) = (Bank::new(), Bank::new());
    let right = healthy.run(Request::PayIn(5), FULL, &());
    let wrong = corrupted.run(Request::PayIn(5), FULL, &FlipBeforeSeal);
    assert_eq!(right.reply, wrong.reply, "the reply was rendered before");
    assert_ne!(sum_of(&right), sum_of(&wrong));
}

#[test]
fn a_panic_is_undone() {
    let mut bank = Bank::new();
    let before = sum_of(&bank.run(Request::Read, FULL, &()));
    let ran = bank.run(Request::PayInThenPanic(7), FULL, &());
    assert!(matches!(ran.end, End::Panicked), "{:?}", ran.end);
    assert_eq!(ran.reply, "");
    let after = bank.run(Request::Read, FULL, &());
    assert_eq!((after.reply.as_str(), sum_of(&after)), ("100", before));
}

#[test]
fn a_lock_outside_the_footprint_is_undone_and_asked_for() {
    let mut bank = Bank::new();
    let ran = bank.run(Request::PayInThenOther(7), FULL, &());
    assert!(matches!(ran.end, End::Retry(retry) if retry.lock() == 1), "{:?}", ran.end);
    assert_eq!(bank.accounts[0].get_mut().balance(), 100);
}
