//! Each rule that an exploration does not take away is taken away here, and the loss is seen.

use std::ops::RangeInclusive;

use verify::{
    AskRound, Config, CrashVector, Executor, ExecutorCommand, ExecutorEvent, Here, Layout, Lineup, Rules,
    Slots, StateToken, TokenRecord, Verifier, VerifierEvent, VerifyMessage, Version, limits,
};

use crate::support::cluster::{Cluster, as_is};

const THREE: Layout = Layout::Crash { failures: 1 };
const ALL: [u8; 3] = [0, 1, 2];

/// Two of three executors run their first batch on another state than the group began with.
fn record_of_another_beginning(config: Config) -> u64 {
    let mut verifier = Verifier::founded(config, &[1, 2, 3]);
    let (version, parent) = (Version { number: 1, token: StateToken(7) }, StateToken(99));
    for from in [0, 1] {
        let message = VerifyMessage::Verify { view: 0, version, parent, incarnation: 1 };
        verifier.handle(VerifierEvent::Message { from, message }, 0, &mut Vec::new());
    }
    verifier.record().map_or(0, |record| record.version.number)
}

#[test]
fn a_token_that_continues_another_version_does_not_count() {
    let config = Config::new(THREE, 2, 3, StateToken(0));
    assert_eq!(record_of_another_beginning(config.clone()), 0);
    let unprotected = config.with_rules(Rules { parents: false, ..Rules::ALL });
    assert_eq!(record_of_another_beginning(unprotected), 1);
}

/// Two verifiers that have promised view 1 answer with a record of view 0, as one does that recovers and adopts both.
/// With five replicas one record and two that were adopted made a batch stable, and the promises of earlier
/// incarnations, which did not have it, began the next view without it.
fn adopted_records(config: Config) -> u64 {
    let lineup = Lineup {
        primary: 0,
        executors: Slots::first(3),
        joining: Slots::EMPTY,
        sequential: false,
        extra: false,
    };
    let record = TokenRecord { view: 0, version: Version { number: 1, token: StateToken(7) }, lineup };
    let mut executor = Executor::founded(config);
    let mut receive = |from, message| {
        executor.handle(ExecutorEvent::Message { from, message }, 0, &mut Vec::new());
    };
    let crashes = CrashVector::new(3);
    let start = TokenRecord { version: Version { number: 0, token: StateToken(0) }, ..record };
    (1..3).for_each(|from| receive(from, VerifyMessage::Recorded { record: start, crashes }));
    for from in 1..3 {
        let memory = Some((1, record));
        let round = AskRound::CatchUp;
        receive(
            from,
            VerifyMessage::Here(Here {
                incarnation: 1,
                round,
                own_incarnation: 2,
                founding: 0,
                memory,
                crashes,
            }),
        );
    }
    let version = record.version;
    executor.handle(ExecutorEvent::Executed { view: 0, version, parent: StateToken(0) }, 0, &mut Vec::new());
    executor.stable().number
}

#[test]
fn a_record_that_was_adopted_with_a_later_promise_does_not_count_in_its_view() {
    let config = Config::new(THREE, 0, 1, StateToken(0));
    assert_eq!(adopted_records(config.clone()), 0);
    let unprotected = config.with_rules(Rules { adopted_apart: false, ..Rules::ALL });
    assert_eq!(adopted_records(unprotected), 1);
}

fn with_extra_protection(config: Config) -> Config {
    config.with_extra_protection(Some(4))
}

/// The fifth batch meets a bug that interleaves the requests of two of three executors in the same wrong way.
fn bug_in_two_of_three(with: fn(Config) -> Config) -> Cluster {
    let mut group = Cluster::founded(THREE, with);
    for letter in "abcde".chars() {
        group.batch(&ALL, letter);
    }
    group.reported.clear();
    group.run(&[0, 1], 'x');
    group.run(&[2], 'f');
    group.deliver();
    group
}

#[test]
fn extra_protection_rolls_back_what_two_of_three_did_wrong() {
    let mut group = bug_in_two_of_three(with_extra_protection);
    group.tells(
        "verifier 0 sees 2 differ after abcde
         verifier 1 sees 2 differ after abcde
         verifier 2 sees 2 differ after abcde
         verifier 1 is in view 1 from abcde, sequentially: primary 0 of 0 1 2
         verifier 0 is in view 1 from abcde, sequentially: primary 0 of 0 1 2
         verifier 2 is in view 1 from abcde, sequentially: primary 0 of 0 1 2
         executor 0 goes back to abcde for view 1
         executor 1 goes back to abcde for view 1
         executor 2 goes back to abcde for view 1",
    );
    group.batch(&ALL, 'f');
    group.tells(
        "executor 0 has abcdef stable
         executor 1 has abcdef stable
         executor 2 has abcdef stable",
    );
}

#[test]
fn without_extra_protection_the_wrong_version_is_stable() {
    let group = bug_in_two_of_three(as_is);
    assert_eq!(group.stable_at(0), "abcdex");
}

#[test]
fn extra_protection_forgives_silence_and_ends() {
    let mut group = Cluster::founded(THREE, with_extra_protection);
    for letter in "abcde".chars() {
        group.batch(&ALL, letter);
    }
    group.reported.clear();
    group.batch(&[0, 1], 'f');
    group.tells("");
    group.pass_ms(limits::EXTRA_PATIENCE_US / 1_000 + 2);
    group.tells(
        "executor 0 has abcdef stable
         executor 1 has abcdef stable",
    );
    // The mode has ended: the next batch does not wait.
    group.batch(&[0, 1], 'g');
    group.tells(
        "executor 0 has abcdefg stable
         executor 1 has abcdefg stable",
    );
}

#[test]
fn one_that_differs_in_the_sequential_run_is_outvoted() {
    let mut group = bug_in_two_of_three(with_extra_protection);
    group.reported.clear();
    group.run(&[0], 'x');
    group.run(&[1, 2], 'f');
    group.deliver();
    group.tells(
        "executor 0 has diverged, and needs abcdef
         executor 1 has abcdef stable
         executor 2 has abcdef stable",
    );
}

/// An executor that was left out reports batch 3, which the group has not recorded, and ends. Its new process has
/// nothing yet when the group comes to batch 3.
fn taken_in_after_its_end(config: Config) -> Slots {
    let mut primary = Verifier::founded(config, &[1, 2]);
    let mut handle = |event| {
        primary.handle(event, 0, &mut Vec::new());
        primary.record().map_or(Slots::EMPTY, |record| record.lineup.executors)
    };
    let token = |from, number: u64| {
        let (version, parent) = (version(number), version(number - 1).token);
        let message = VerifyMessage::Verify { view: 2, version, parent, incarnation: 1 };
        VerifierEvent::Message { from, message }
    };
    assert_eq!(handle(VerifierEvent::ProcessGone(1)), Slots::one(0));
    handle(token(1, 3));
    handle(VerifierEvent::Disconnected(1));
    handle(VerifierEvent::Connected(1));
    (1..=3).map(|number| handle(token(0, number))).last().unwrap_or_default()
}

#[test]
fn what_an_executor_has_reached_ends_with_its_connection() {
    let config = Config::new(Layout::Pair, 0, 1, StateToken(0)).with_extra_protection(None);
    assert_eq!(taken_in_after_its_end(config.clone()), Slots::one(0));
    let unprotected = config.with_rules(Rules { reports_end: false, ..Rules::ALL });
    assert_eq!(taken_in_after_its_end(unprotected), Slots::first(2), "one that has nothing counts");
}

/// The version after so many batches that all went well.
fn version(number: u64) -> Version {
    Version { number, token: StateToken(u128::from(number)) }
}

/// An executor that lags: it has run batch 1 to 100 of view 0, and knows that batch `agreed` was agreed on there.
fn that_lags(agreed: u64) -> Executor {
    let mut executor = Executor::founded(Config::new(THREE, 2, 3, StateToken(0)));
    receives(&mut executor, 0, version(0));
    receives(&mut executor, 0, version(agreed));
    runs(&mut executor, 0, 1..=100);
    executor
}

/// It runs these batches in this view.
fn runs(executor: &mut Executor, view: u64, batches: RangeInclusive<u64>) {
    for number in batches {
        let parent = version(number - 1).token;
        let event = ExecutorEvent::Executed { view, version: version(number), parent };
        executor.handle(event, 0, &mut Vec::new());
    }
}

/// Two verifiers tell what they have recorded.
fn receives(executor: &mut Executor, view: u64, version: Version) -> Vec<ExecutorCommand> {
    let mut commands = Vec::new();
    let lineup = Lineup {
        primary: 0,
        executors: Slots::first(3),
        joining: Slots::EMPTY,
        sequential: false,
        extra: false,
    };
    let record = TokenRecord { view, version, lineup };
    for from in [0, 1] {
        let message = VerifyMessage::Recorded { record, crashes: CrashVector::new(3) };
        executor.handle(ExecutorEvent::Message { from, message }, 0, &mut commands);
    }
    commands
}

/// Its host has no room for what takes all of them back.
#[test]
fn one_that_lags_keeps_the_batches_that_the_next_view_continues() {
    let mut executor = that_lags(3_000);
    let commands = receives(&mut executor, 1, version(3_010));
    assert!(matches!(commands[..], [ExecutorCommand::Rewind { view: 1, .. }]), "{commands:?}");
    assert_eq!(executor.newest(), version(100));
    // It goes on from there, and the token after batch 3,010 stands for all before.
    assert!(executor.may_begin_after(3_009) && !executor.may_begin_after(3_010));
    runs(&mut executor, 1, 101..=3_010);
    assert_eq!(executor.stable(), version(3_010));
}

#[test]
fn one_that_lags_keeps_no_batch_that_another_view_may_have_replaced() {
    // Batch 61 to 100 of view 0 may not be those that view 1 numbered so: nothing tells that they were agreed on.
    let mut executor = that_lags(200);
    receives(&mut executor, 1, version(60));
    assert_eq!(executor.newest(), version(60));
    let mut executor = Executor::founded(Config::new(THREE, 2, 3, StateToken(0)));
    receives(&mut executor, 0, version(0));
    runs(&mut executor, 0, 1..=8);
    receives(&mut executor, 2, version(60));
    assert_eq!(executor.newest(), version(0));
}

/// Its host handles its messages to itself, and its peers have other things to do.
#[test]
fn one_that_lags_repeats_the_newest_tokens_only() {
    let mut executor = that_lags(3_000);
    let mut commands = Vec::new();
    executor.handle(ExecutorEvent::Tick, 10 * limits::RESEND_US, &mut commands);
    let repeated = commands.iter().filter_map(|command| match command {
        ExecutorCommand::Send { message: VerifyMessage::Verify { version, parent, .. }, .. } => {
            Some((version.number, parent.0))
        }
        _ => None,
    });
    let newest = 101 - limits::WINDOW..101;
    assert_eq!(
        repeated.collect::<Vec<_>>(),
        newest.map(|number| (number, u128::from(number) - 1)).collect::<Vec<_>>()
    );
}
