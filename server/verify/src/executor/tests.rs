//! An executor whose state was replaced in place: what it remembers, what it sends, and which views it follows.

use super::*;

const PRIMARY: Slot = 0;

fn version(number: u64, token: u128) -> Version {
    Version { number, token: StateToken(token) }
}

/// The third of three executors, in the first view.
fn executor() -> Executor {
    let config = Config::new(Layout::Crash { failures: 1 }, 2, 9, StateToken(0));
    let mut executor = Executor::founded(config);
    recorded(&mut executor, 0, version(0, 0));
    assert_eq!(executor.view(), Some(0));
    executor
}

/// Two verifiers have recorded this version in this view. Returns the commands.
fn recorded(executor: &mut Executor, view: u64, version: Version) -> Vec<ExecutorCommand> {
    let lineup = Lineup {
        primary: PRIMARY,
        executors: Slots::first(3),
        joining: Slots::EMPTY,
        sequential: false,
        extra: false,
    };
    let record = TokenRecord { view, version, lineup };
    let mut commands = Vec::new();
    for from in 0..2 {
        let message = VerifyMessage::Recorded { record, crashes: CrashVector::new(3) };
        executor.handle(ExecutorEvent::Message { from, message }, 0, &mut commands);
    }
    commands
}

/// It runs a batch. Returns the tokens that it sends.
fn runs(executor: &mut Executor, version: Version, parent: u128) -> Vec<StateToken> {
    let view = executor.view().unwrap();
    let mut commands = Vec::new();
    let event = ExecutorEvent::Executed { view, version, parent: StateToken(parent) };
    executor.handle(event, 0, &mut commands);
    sent(&commands)
}

fn sent(commands: &[ExecutorCommand]) -> Vec<StateToken> {
    let tokens = commands.iter().filter_map(|command| match command {
        ExecutorCommand::Send { message: VerifyMessage::Verify { version, .. }, .. } => Some(version.token),
        _ => None,
    });
    tokens.collect()
}

fn installs(executor: &mut Executor, version: Version) {
    executor.handle(ExecutorEvent::Installed(version), 0, &mut Vec::new());
    assert_eq!((executor.stable(), executor.newest(), executor.wanted()), (version, version, None));
}

#[test]
fn with_another_state_it_still_has_one_word_for_each_batch_and_parent() {
    let mut executor = executor();
    assert_eq!(runs(&mut executor, version(1, 11), 0), [StateToken(11)]);
    assert_eq!(runs(&mut executor, version(2, 12), 11), [StateToken(12)]);
    // Its state is found wrong at rest, and it takes that after batch 1.
    installs(&mut executor, version(1, 11));
    assert_eq!(runs(&mut executor, version(2, 13), 11), [], "it has sent another token there");
    installs(&mut executor, version(1, 11));
    assert_eq!(runs(&mut executor, version(2, 12), 11), [StateToken(12)], "the same one again");
    assert_eq!(runs(&mut executor, version(3, 14), 12), [StateToken(14)], "a batch that it had not come to");
}

/// What a replica with a new process would do, if it did not abstain.
#[test]
fn one_that_forgets_what_it_has_sent_has_two() {
    let mut before = executor();
    assert_eq!(runs(&mut before, version(1, 11), 0), [StateToken(11)]);
    assert_eq!(runs(&mut before, version(2, 12), 11), [StateToken(12)]);
    let mut forgot = executor();
    installs(&mut forgot, version(1, 11));
    assert_eq!(runs(&mut forgot, version(2, 13), 11), [StateToken(13)], "a second one in the same view");
}

#[test]
fn a_view_that_began_before_the_state_is_no_contradiction() {
    let mut executor = executor();
    // The others go on in view 1, after batch 4, and this replica gets their state after batch 6 before it hears of
    // that.
    installs(&mut executor, version(6, 16));
    assert_eq!(recorded(&mut executor, 1, version(4, 14)), [], "a record that it is beyond");
    assert_eq!(executor.view(), Some(0));
    let mut commands = Vec::new();
    executor.handle(ExecutorEvent::Elapsed(Timer::Resend), 0, &mut commands);
    let asks = |command: &ExecutorCommand| {
        matches!(command, ExecutorCommand::Send { message: VerifyMessage::Where { .. }, .. })
    };
    assert!(commands.iter().any(asks), "it asks where the verifiers are");
    let commands = recorded(&mut executor, 1, version(6, 16));
    let follows =
        |command: &ExecutorCommand| matches!(command, ExecutorCommand::Rewind { to, .. } if to.number == 6);
    assert!(commands.iter().any(follows), "{commands:?}");
    assert_eq!(executor.view(), Some(1));
}

#[test]
fn a_view_that_began_before_its_own_stable_batch_is_a_contradiction() {
    let mut executor = executor();
    runs(&mut executor, version(1, 11), 0);
    recorded(&mut executor, 0, version(1, 11));
    assert_eq!(executor.stable(), version(1, 11));
    let commands = recorded(&mut executor, 1, version(0, 0));
    assert!(matches!(commands[..], [ExecutorCommand::Contradiction { .. }]), "{commands:?}");
    // A state of a version that was agreed on in the view that it follows is no excuse either.
    let mut other = self::executor();
    recorded(&mut other, 0, version(3, 13));
    installs(&mut other, version(3, 13));
    let commands = recorded(&mut other, 1, version(2, 12));
    assert!(matches!(commands[..], [ExecutorCommand::Contradiction { .. }]), "{commands:?}");
}

#[test]
fn one_that_lags_has_stable_batches_long_before_it_is_level() {
    let mut executor = executor();
    let of = |number: u64| version(number, 10 + u128::from(number));
    (30..=130).for_each(|number| drop(recorded(&mut executor, 0, of(number))));
    assert_eq!(executor.agreed().number, 130);
    for number in 1..=100 {
        let parent = executor.newest().token.0;
        runs(&mut executor, of(number), parent);
    }
    assert_eq!((executor.stable(), executor.newest()), (of(30), of(100)), "the first that it has heard of");
    // Meanwhile the others go on.
    (131..=200).for_each(|number| drop(recorded(&mut executor, 0, of(number))));
    (101..=120).for_each(|number| drop(runs(&mut executor, of(number), 9 + u128::from(number))));
    assert_eq!(executor.stable(), of(116), "the next one, of those that it has room for");
}
