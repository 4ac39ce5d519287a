//! Each rule that an exploration does not take away is taken away here, and the loss is seen.

use verify::{
    Config, Layout, Rules, StateToken, Verifier, VerifierEvent, VerifyMessage, Version,
    limits::EXTRA_PATIENCE_US,
};

use crate::support::cluster::{Cluster, as_is};

const THREE: Layout = Layout::Crash { failures: 1 };
const ALL: [u8; 3] = [0, 1, 2];

/// Two of three executors run their first batch on another state than the group began with.
fn record_of_another_beginning(config: Config) -> u64 {
    let mut verifier = Verifier::founded(config, &[1, 2, 3]);
    let (version, parent) = (Version { number: 1, token: StateToken(7) }, StateToken(99));
    for from in [0, 1] {
        let message = VerifyMessage::Verify { view: 0, version, parent, life: 1 };
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

fn with_extra_protection(config: Config) -> Config {
    config.with_extra_protection(Some(4))
}

/// The fifth batch meets a bug that interleaves the requests of two of three executors in the same wrong way.
fn bug_in_two_of_three(with: fn(Config) -> Config) -> Cluster {
    let mut group = Cluster::founded(THREE, with);
    for letter in "abcde".chars() {
        group.batch(&ALL, letter);
    }
    group.told.clear();
    group.run(&[0, 1], 'x');
    group.run(&[2], 'f');
    group.deliver();
    group
}

#[test]
fn extra_protection_rolls_back_what_two_of_three_did_wrong() {
    let mut group = bug_in_two_of_three(with_extra_protection);
    group.tells(
        "verifier 1 is in view 1 from abcde, sequentially: primary 0 of 0 1 2
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
    group.told.clear();
    group.batch(&[0, 1], 'f');
    group.tells("");
    group.pass_ms(EXTRA_PATIENCE_US / 1_000 + 2);
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
    group.told.clear();
    group.run(&[0], 'x');
    group.run(&[1, 2], 'f');
    group.deliver();
    group.tells(
        "executor 0 has diverged, and needs abcdef
         executor 1 has abcdef stable
         executor 2 has abcdef stable",
    );
}
