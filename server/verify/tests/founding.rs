//! How a group begins, and how a verifier that lost its memory is kept from beginning another one.

use verify::{
    AskRound, Config, CrashVector, Executor, ExecutorCommand, ExecutorEvent, Here, Layout, Lineup, Rules,
    Slots, StateToken, TokenRecord, VerifyMessage, Version,
};

use crate::support::cluster::{Cluster, as_is};

const THREE: Layout = Layout::Crash { failures: 1 };

fn begins(config: Config) -> Config {
    config.that_begins()
}

#[test]
fn one_with_permission_begins_a_group_of_three() {
    let mut group = Cluster::down(THREE, as_is);
    group.start(0, begins);
    group.deliver();
    group.start(1, as_is);
    group.deliver();
    group.pass_ms(100);
    group.tells("");
    group.start(2, as_is);
    group.pass_ms(100);
    group.tells(
        "verifier 0 takes part from the beginning
         verifier 0 is in view 0 from the start: primary 0 of 0 1 2
         verifier 1 takes part from the beginning
         verifier 1 is in view 0 from the start: primary 0 of 0 1 2
         verifier 2 takes part from the beginning
         verifier 2 is in view 0 from the start: primary 0 of 0 1 2
         executor 0 goes back to the start for view 0
         executor 1 goes back to the start for view 0
         executor 2 goes back to the start for view 0",
    );
    group.batch(&[0, 1, 2], 'a');
    group.tells(
        "executor 0 has a stable
         executor 1 has a stable
         executor 2 has a stable",
    );
}

#[test]
fn nobody_begins_without_permission() {
    let mut group = Cluster::down(THREE, as_is);
    (0..3).for_each(|slot| group.start(slot, as_is));
    group.pass_ms(1_000);
    group.tells("");
}

#[test]
fn a_verifier_with_permission_recovers_where_a_group_lives() {
    let mut group = Cluster::founded(THREE, as_is);
    group.batch(&[0, 1, 2], 'a');
    group.end(1);
    group.start(1, begins);
    group.reported.clear();
    group.pass_ms(100);
    group.tells(
        "executor 1 goes back to a for view 0
         verifier 1 has recovered",
    );
}

/// Five verifiers lose their memories one after the other and recover, at most two at a time. The first one asks each
/// while it has none.
fn rolling_losses(with: fn(Config) -> Config) -> Cluster {
    let mut group = Cluster::founded(Layout::Crash { failures: 2 }, as_is);
    group.batch(&[0, 1, 2, 3, 4], 'a');
    group.end(0);
    group.cut = (1..5).map(|other| (0, other)).collect();
    group.start(0, with);
    group.deliver();
    for slot in 1..5 {
        // The answers of the others are lost, but not that of the one without memory.
        group.end(slot);
        group.cut.retain(|(_, other)| *other != slot);
        let recovering: Vec<(u8, u8)> =
            (1..5).filter(|other| *other != slot).map(|other| (slot, other)).collect();
        group.cut.extend(&recovering);
        group.start(slot, as_is);
        group.pass_ms(60);
        group.cut.push((0, slot));
        group.cut.retain(|link| !recovering.contains(link));
        group.pass_ms(60);
    }
    group
}

#[test]
fn losses_one_after_the_other_begin_no_second_group() {
    let mut group = rolling_losses(begins);
    let of_first: Vec<&String> =
        group.reported.iter().filter(|line| line.starts_with("verifier 0")).collect();
    assert_eq!(of_first, Vec::<&String>::new());
    let recovered = group.reported.iter().filter(|line| line.ends_with("has recovered")).count();
    assert_eq!(recovered, 4, "{:?}", group.reported);
    // With its links it recovers like the others.
    group.cut.clear();
    group.reported.clear();
    group.pass_ms(100);
    assert!(group.reported.iter().any(|line| line == "verifier 0 has recovered"), "{:?}", group.reported);
}

#[test]
fn with_one_round_they_would() {
    let one_round = |config: Config| begins(config).with_rules(Rules { found_twice: false, ..Rules::ALL });
    let group = rolling_losses(one_round);
    let founded = group.reported.iter().any(|line| line == "verifier 0 takes part from the beginning");
    assert!(founded, "{:?}", group.reported);
}

/// A verifier that has learned from another one that the group began does not know the asker's incarnation. Its answer
/// may come first, and is not the last word.
#[test]
fn one_that_took_part_in_the_beginning_sends_tokens_whatever_answer_comes_first() {
    let config = Config::new(Layout::Pair, 0, 70, StateToken(0));
    let mut executor = Executor::new(config);
    let lineup =
        Lineup { primary: 0, executors: Slots(0b11), joining: Slots::EMPTY, sequential: false, extra: false };
    let record = TokenRecord { view: 0, version: Version { number: 0, token: StateToken(0) }, lineup };
    let crashes = CrashVector::new(2);
    let mut tokens = |event: ExecutorEvent| {
        let mut commands = Vec::new();
        executor.handle(event, 1_000, &mut commands);
        let is_token = |command: &&ExecutorCommand| {
            matches!(command, ExecutorCommand::Send { message: VerifyMessage::Verify { .. }, .. })
        };
        commands.iter().filter(is_token).count()
    };
    let mut receive = |from, message| tokens(ExecutorEvent::Message { from, message });
    let here = |own_incarnation, founding| {
        let memory = Some((0, record));
        VerifyMessage::Here(Here {
            incarnation: 70,
            round: AskRound::CatchUp,
            own_incarnation,
            founding,
            memory,
            crashes,
        })
    };
    assert_eq!(receive(0, VerifyMessage::Recorded { record, crashes }), 0);
    assert_eq!(receive(1, here(71, 0)), 0);
    let version = Version { number: 1, token: StateToken(7) };
    assert_eq!(tokens(ExecutorEvent::Executed { view: 0, version, parent: StateToken(0) }), 0);
    let mut receive = |from, message| tokens(ExecutorEvent::Message { from, message });
    assert_eq!(receive(0, here(70, 70)), 1);
}
