//! Two replicas, alone and with a witness, told as transcripts.

use std::collections::BTreeMap;

use verify::{Layout, Reason, VerifierEvent, limits};

use crate::support::cluster::{Cluster, as_is};

fn pair() -> Cluster {
    let mut pair = Cluster::founded(Layout::Pair, as_is);
    pair.batch(&[0, 1], 'a');
    pair.pass_ms(50);
    pair.reported.clear();
    pair
}

fn with_witness() -> Cluster {
    let mut pair = Cluster::founded(Layout::PairWithWitness, as_is);
    pair.batch(&[0, 1], 'a');
    pair.reported.clear();
    pair
}

#[test]
fn the_primary_releases_only_with_the_backups_token() {
    let mut pair = pair();
    pair.batch(&[0], 'b');
    pair.tells("");
    pair.batch(&[1], 'b');
    pair.tells(
        "executor 0 has ab stable
         executor 1 has ab stable",
    );
}

#[test]
fn tokens_of_a_pair_that_differ_sequentially_are_undecided() {
    let mut pair = pair();
    pair.run(&[0], 'x');
    pair.batch(&[1], 'y');
    pair.tells(
        "verifier 0 sees tokens differ after a
         verifier 0 is in view 2 from a, sequentially: primary 0 of 0 1
         executor 0 goes back to a for view 2
         verifier 1 is in view 2 from a, sequentially: primary 0 of 0 1
         executor 1 goes back to a for view 2",
    );
    pair.run(&[0], 'x');
    pair.batch(&[1], 'y');
    pair.tells("verifier 0 cannot tell who is wrong after a");
    pair.pass_ms(3_000);
    pair.tells("");
}

#[test]
fn the_backup_takes_over_and_keeps_what_it_sent() {
    let mut pair = pair();
    pair.batch(&[0, 1], 'b');
    // The primary releases c; the backup does not hear of it any more.
    pair.run(&[0, 1], 'c');
    pair.deliver();
    pair.reported.clear();
    pair.cut = vec![(0, 1)];
    pair.pass_ms(240);
    pair.tells("");
    pair.pass_ms(20);
    pair.batch(&[1], 'd');
    pair.tells(
        "verifier 1 is in view 3 from abc: primary 1 of 1
         executor 1 goes back to abc for view 3
         executor 1 has abcd stable",
    );
    // The link is back: the old primary follows, and counts again once it has caught up.
    pair.cut.clear();
    pair.verifier(0, VerifierEvent::Connected(1));
    pair.verifier(1, VerifierEvent::Connected(0));
    pair.pass_ms(60);
    pair.install();
    pair.pass_ms(60);
    pair.batch(&[0, 1], 'e');
    pair.tells(
        "verifier 0 is in view 3 from abcd: primary 1 of 1
         executor 0 goes back to abcd for view 3
         executor 0 is behind, and needs abcd
         executor 0 has abcd stable
         verifier 1 is in view 5 from abcd: primary 1 of 0 1
         verifier 0 is in view 5 from abcd: primary 1 of 0 1
         executor 0 goes back to abcd for view 5
         executor 1 goes back to abcd for view 5
         executor 0 has abcde stable
         executor 1 has abcde stable",
    );
    assert!(pair.is_one_chain());
}

#[test]
fn the_backup_ends_and_the_primary_has_its_proof_in_time() {
    let mut pair = pair();
    pair.batch(&[0], 'b');
    pair.end(1);
    pair.verifier(0, VerifierEvent::ProcessGone(1));
    pair.deliver();
    pair.batch(&[0], 'c');
    pair.tells(
        "verifier 0 is in view 2 from a: primary 0 of 0
         executor 0 goes back to a for view 2
         executor 0 has ac stable",
    );
    // The backup returns without memory.
    pair.start(1, as_is);
    pair.pass_ms(120);
    pair.install();
    pair.pass_ms(120);
    pair.batch(&[0, 1], 'd');
    pair.tells(
        "executor 1 goes back to ac for view 2
         verifier 1 has recovered
         executor 1 is behind, and needs ac
         executor 1 has ac stable
         verifier 0 is in view 4 from ac: primary 0 of 0 1
         executor 0 goes back to ac for view 4
         verifier 1 is in view 4 from ac: primary 0 of 0 1
         executor 1 goes back to ac for view 4
         executor 0 has acd stable
         executor 1 has acd stable",
    );
}

#[test]
fn a_late_proof_waits_for_the_operator() {
    let mut pair = pair();
    pair.cut = vec![(0, 1)];
    pair.pass_ms(260);
    pair.batch(&[1], 'b');
    pair.end(1);
    pair.reported.clear();
    pair.verifier(0, VerifierEvent::ProcessGone(1));
    pair.tells("verifier 0 waits for its peer after a");
    pair.pass_ms(5_000);
    pair.tells("");
    let has = pair.version_at(0);
    pair.verifier(0, VerifierEvent::GoAlone { has, blank: BTreeMap::new() });
    pair.deliver();
    pair.tells(
        "verifier 0 is in view 2 from a: primary 0 of 0
         executor 0 goes back to a for view 2",
    );
}

#[test]
fn a_primary_that_receives_nothing_waits_and_there_is_one_history() {
    let mut pair = Cluster::founded(Layout::Pair, as_is);
    pair.pass_ms(50);
    pair.cut = vec![(0, 1)];
    pair.pass_ms(260);
    pair.run(&[0], 'x');
    pair.batch(&[1], 'y');
    pair.pass_ms(5_000);
    pair.tells(
        "verifier 1 is in view 3 from the start: primary 1 of 1
         executor 1 goes back to the start for view 3
         executor 1 has y stable",
    );
    assert!(pair.is_one_chain());
}

#[test]
fn a_late_executor_is_left_out_and_taken_in_again() {
    let mut pair = with_witness();
    pair.batch(&[0], 'b');
    pair.pass_ms(160);
    pair.batch(&[0], 'b');
    pair.tells(
        "verifier 1 is in view 1 from a: primary 0 of 0
         verifier 0 is in view 1 from a: primary 0 of 0
         verifier 2 is in view 1 from a: primary 0 of 0
         executor 0 goes back to a for view 1
         executor 1 goes back to a for view 1
         executor 0 has ab stable",
    );
    // Executor 1 runs the batch after all, and reports that.
    pair.batch(&[1], 'b');
    pair.pass_ms(60);
    pair.batch(&[0, 1], 'c');
    pair.tells(
        "executor 1 has ab stable
         verifier 2 is in view 2 from ab: primary 0 of 0 1
         verifier 0 is in view 2 from ab: primary 0 of 0 1
         verifier 1 is in view 2 from ab: primary 0 of 0 1
         executor 0 goes back to ab for view 2
         executor 1 goes back to ab for view 2
         executor 0 has abc stable
         executor 1 has abc stable",
    );
}

#[test]
fn with_a_witness_one_replica_goes_on_when_the_other_ends() {
    let mut pair = with_witness();
    pair.end(0);
    pair.pass_ms(30);
    pair.batch(&[1], 'b');
    pair.tells(
        "verifier 1 is in view 1 from a: primary 1 of 1
         verifier 2 is in view 1 from a: primary 1 of 1
         executor 1 goes back to a for view 1
         executor 1 has ab stable",
    );
    pair.start(0, as_is);
    pair.pass_ms(120);
    pair.install();
    pair.pass_ms(120);
    pair.batch(&[0, 1], 'c');
    pair.tells(
        "executor 0 goes back to ab for view 1
         verifier 0 has recovered
         executor 0 is behind, and needs ab
         executor 0 has ab stable
         verifier 2 is in view 2 from ab: primary 1 of 0 1
         verifier 0 is in view 2 from ab: primary 1 of 0 1
         verifier 1 is in view 2 from ab: primary 1 of 0 1
         executor 0 goes back to ab for view 2
         executor 1 goes back to ab for view 2
         executor 0 has abc stable
         executor 1 has abc stable",
    );
}

#[test]
fn the_witness_ends_and_nothing_stops() {
    let mut pair = with_witness();
    pair.end(2);
    pair.batch(&[0, 1], 'b');
    pair.verifier(0, VerifierEvent::Suspect(Reason::Late));
    pair.deliver();
    pair.batch(&[0, 1], 'c');
    pair.tells(
        "executor 0 has ab stable
         executor 1 has ab stable
         verifier 1 is in view 1 from ab: primary 1 of 0 1
         verifier 0 is in view 1 from ab: primary 1 of 0 1
         executor 0 goes back to ab for view 1
         executor 1 goes back to ab for view 1
         executor 0 has abc stable
         executor 1 has abc stable",
    );
}

/// Executor 1 was left out after batch a, executor 0 went on to c, and 1 is taken in again when it has b.
fn one_joins_that_lags(layout: Layout) -> Cluster {
    let mut pair = Cluster::founded(layout, as_is);
    pair.batch(&[0, 1], 'a');
    pair.pass_ms(50);
    pair.batch(&[0], 'b');
    pair.pass_ms(160);
    if layout == Layout::Pair {
        pair.verifier(0, VerifierEvent::ProcessGone(1));
        pair.deliver();
    }
    pair.batch(&[0], 'b');
    pair.batch(&[0], 'c');
    pair.run(&[1], 'b');
    pair
}

#[test]
fn one_that_was_taken_in_before_it_was_level_is_no_copy() {
    let mut pair = one_joins_that_lags(Layout::PairWithWitness);
    pair.pass_ms(60);
    assert_eq!(pair.copies_at(0), (0b01, 2));
    pair.reported.clear();
    // The one that has c ends: no view begins from c at one that has it not.
    pair.end(0);
    pair.pass_ms(10_000);
    pair.tells("");
    // The same once it has c: it goes on.
    let mut pair = one_joins_that_lags(Layout::PairWithWitness);
    pair.pass_ms(60);
    pair.run(&[1], 'c');
    pair.pass_ms(60);
    assert_eq!(pair.copies_at(0), (0b11, 3));
    pair.reported.clear();
    pair.end(0);
    pair.pass_ms(30);
    pair.batch(&[1], 'd');
    pair.tells(
        "verifier 1 is in view 4 from abc: primary 1 of 1
         verifier 2 is in view 4 from abc: primary 1 of 1
         executor 1 goes back to abc for view 4
         executor 1 has abcd stable",
    );
}

/// The one that has c ends before the one that joins is level, and an operator lets that go on with what it has.
fn keeps_what_one_has(layout: Layout) -> Cluster {
    let mut pair = one_joins_that_lags(layout);
    pair.pass_ms(60);
    assert_eq!(pair.copies_at(0).0, 0b01);
    assert_eq!(pair.stable_at(1), "ab");
    pair.end(0);
    pair.verifier(1, VerifierEvent::ProcessGone(0));
    pair.pass_ms(3_000);
    let has = pair.version_at(1);
    pair.verifier(1, VerifierEvent::GoAlone { has, blank: BTreeMap::new() });
    pair.pass_ms(60);
    pair.batch(&[1], 'x');
    assert_eq!(pair.stable_at(1), "abx");
    pair.start(0, as_is);
    pair.pass_ms(200);
    pair.install();
    pair.pass_ms(200);
    pair.batch(&[0, 1], 'y');
    assert_eq!((pair.stable_at(0), pair.stable_at(1)), ("abxy".to_owned(), "abxy".to_owned()));
    pair
}

#[test]
fn an_operator_goes_on_with_what_one_of_two_has() {
    keeps_what_one_has(Layout::Pair);
    // With a witness its verifier has a later record, of the identity before: it is taken over.
    let pair = keeps_what_one_has(Layout::PairWithWitness);
    assert!(pair.copies_at(2).1 >= limits::IDENTITY_VIEWS);
}

/// The witness does not hear of the decision at first.
#[test]
fn a_decision_is_reported_until_the_others_know_it() {
    let mut pair = one_joins_that_lags(Layout::PairWithWitness);
    pair.pass_ms(60);
    pair.end(0);
    pair.pass_ms(500);
    pair.cut = vec![(1, 2)];
    let has = pair.version_at(1);
    pair.verifier(1, VerifierEvent::GoAlone { has, blank: BTreeMap::new() });
    pair.pass_ms(200);
    pair.batch(&[1], 'x');
    assert_eq!(pair.stable_at(1), "ab", "a majority is needed");
    pair.cut.clear();
    pair.pass_ms(200);
    pair.batch(&[1], 'x');
    pair.pass_ms(60);
    assert_eq!(pair.stable_at(1), "abx");
}
