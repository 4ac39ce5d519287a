//! Machines under messages that no correct sender sends: nothing grows without bound, nothing panics, and what is on
//! disk is there before it is told.

use proptest::prelude::*;
use verify::limits::{TALLY_BATCHES, TOKENS_PER_BATCH, WINDOW};
use verify::{
    Config, CrashVector, Executor, ExecutorEvent, Layout, Reason, Slots, StateToken, TokenRecord, Verifier,
    VerifierCommand, VerifierEvent, VerifyMessage, Version,
};

use crate::support::cluster::{Cluster, as_is};

const THREE: Layout = Layout::Crash { failures: 1 };

fn config(slot: u8) -> Config {
    Config::new(THREE, slot, u64::from(slot) + 1, StateToken(0))
}

fn verify(view: u64, number: u64, token: u128, parent: u128) -> VerifyMessage {
    let version = Version { number, token: StateToken(token) };
    VerifyMessage::Verify { view, version, parent: StateToken(parent), incarnation: 1 }
}

#[test]
fn tokens_have_a_bound() {
    let mut verifier = Verifier::founded(config(2), &[1, 2, 3]);
    let mut receive = |message| {
        verifier.handle(VerifierEvent::Message { from: 0, message }, 0, &mut Vec::new());
        verifier.tokens()
    };
    let mut most = 0;
    for number in 1..200 {
        for parent in 0..10 {
            most = most.max(receive(verify(0, number, 1, parent)));
            most = most.max(receive(verify(1 + number, number, 1, parent)));
        }
    }
    // Those of the present view and of one later view, of one executor.
    assert!(most <= 2 * TALLY_BATCHES as usize * TOKENS_PER_BATCH, "{most} tokens");
    assert!(most > TALLY_BATCHES as usize, "{most} tokens");
}

#[test]
fn what_verifiers_tell_has_a_bound() {
    let mut executor = Executor::founded(config(0));
    let lineup = verify::Lineup {
        primary: 0,
        executors: Slots::first(3),
        joining: Slots::EMPTY,
        sequential: false,
        extra: false,
    };
    for number in 0..1_000 {
        let version = Version { number, token: StateToken(u128::from(number)) };
        let record = TokenRecord { view: number % 7, version, lineup };
        let message = VerifyMessage::Recorded { record, crashes: CrashVector::new(3) };
        executor.handle(ExecutorEvent::Message { from: (number % 5) as u8, message }, 0, &mut Vec::new());
        assert!(executor.remembered() <= 3 * TALLY_BATCHES as usize);
    }
}

#[test]
fn an_executor_waits_at_its_window() {
    let mut group = Cluster::founded(THREE, as_is);
    group.run(&[0], 'a');
    let may_begin = |executor: &Executor| executor.may_begin_after(executor.newest().number);
    for _ in 1..WINDOW {
        assert!(group.members[0].executor.as_ref().is_some_and(may_begin));
        group.run(&[0], 'a');
    }
    assert!(!group.members[0].executor.as_ref().is_some_and(may_begin));
}

#[test]
fn an_executor_far_behind_gets_the_newest_version() {
    let mut group = Cluster::founded(THREE, as_is);
    group.cut = vec![(0, 1), (0, 2)];
    for letter in "abcdefgh".chars() {
        group.batch(&[1, 2], letter);
    }
    group.cut.clear();
    group.reported.clear();
    group.batch(&[1, 2], 'i');
    group.executor(0, ExecutorEvent::BatchGone);
    group.install();
    group.tells(
        "executor 1 has abcdefghi stable
         executor 2 has abcdefghi stable
         executor 0 is behind, and needs abcdefghi
         executor 0 has abcdefghi stable",
    );
}

#[test]
fn a_verifier_persists_before_it_speaks() {
    let mut verifier = Verifier::founded(config(2), &[1, 2, 3]);
    let mut durable = None;
    let events = [
        VerifierEvent::Message { from: 0, message: verify(0, 1, 5, 0) },
        VerifierEvent::Message { from: 1, message: verify(0, 1, 5, 0) },
        VerifierEvent::Suspect(Reason::Late),
    ];
    for event in events {
        let mut commands = Vec::new();
        verifier.handle(event, 0, &mut commands);
        for command in commands {
            match command {
                VerifierCommand::Persist(saved) => durable = Some(saved),
                VerifierCommand::Send { message: VerifyMessage::Recorded { record, .. }, .. } => {
                    assert_eq!(durable.map(|saved| saved.record), Some(record));
                }
                VerifierCommand::Send { message: VerifyMessage::ViewChange { view, .. }, .. } => {
                    assert_eq!(durable.map(|saved| saved.promised), Some(view));
                }
                _ => {}
            }
        }
    }
    let saved = durable.expect("it recorded a version and promised a view");
    assert_eq!((saved.record.version.number, saved.promised), (1, 1));
    // It comes back as itself: it takes part in no earlier view.
    let restored = Verifier::restored(config(2), &saved);
    assert_eq!(restored.record(), Some(saved.record));
    assert!(restored.is_changing());
}

fn any_event() -> impl Strategy<Value = (u8, VerifyMessage, u64)> {
    let few = 0..4u64;
    let record = (few.clone(), few.clone(), 0..3u128, 0..3u8, 1..8u16).prop_map(
        |(view, number, token, primary, executors)| {
            let version = Version { number, token: StateToken(token) };
            let executors = Slots(executors).with(primary);
            let lineup = verify::Lineup {
                primary,
                executors,
                joining: Slots::EMPTY,
                sequential: false,
                extra: token == 1,
            };
            TokenRecord { view, version, lineup }
        },
    );
    let crashes = proptest::collection::vec(0..3u16, 2..5)
        .prop_map(|counts| CrashVector::of(&counts).unwrap_or(CrashVector::new(3)));
    let message = prop_oneof![
        (few.clone(), few.clone(), 0..3u128, 0..3u128)
            .prop_map(|(view, n, token, parent)| verify(view, n, token, parent)),
        (record.clone(), crashes.clone())
            .prop_map(|(record, crashes)| VerifyMessage::Recorded { record, crashes }),
        (few.clone(), record.clone(), crashes.clone()).prop_map(|(view, record, crashes)| {
            VerifyMessage::ViewChange { view, reason: Reason::Late, record, crashes }
        }),
        (record, crashes).prop_map(|(record, crashes)| VerifyMessage::NewView { record, crashes }),
    ];
    (0..18u8, message, 0..400_000u64)
}

proptest! {
    #[test]
    fn no_messages_make_a_machine_panic(
        events in proptest::collection::vec(any_event(), 0..60), layout in 0..3,
    ) {
        let layout = [Layout::Pair, Layout::PairWithWitness, THREE][layout as usize];
        let config = Config::new(layout, 1, 2, StateToken(0)).with_extra_protection(Some(1));
        let mut verifier = Verifier::founded(config.clone(), &[1, 2, 3]);
        let mut executor = Executor::founded(config);
        let (mut now_us, mut first, mut second) = (0, Vec::new(), Vec::new());
        for (from, message, later_us) in events {
            now_us += later_us;
            verifier.handle(VerifierEvent::Message { from, message: message.clone() }, now_us, &mut first);
            executor.handle(ExecutorEvent::Message { from, message }, now_us, &mut second);
            verifier.handle(VerifierEvent::Tick, now_us, &mut first);
            executor.handle(ExecutorEvent::Tick, now_us, &mut second);
        }
    }
}
