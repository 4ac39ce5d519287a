//! An operator lets a group go on with what one replica has, after a majority of its verifiers has lost its memory.

use std::collections::BTreeMap;

use verify::{Executor, Layout, Slot, Verifier, VerifierEvent, Version, limits};

use crate::support::cluster::{Cluster, as_is};

const THREE: Layout = Layout::Crash { failures: 1 };
const FIVE: Layout = Layout::Crash { failures: 2 };

/// A group that has agreed on `ab`. Then these lose their memories, and are back without.
fn after_losses(layout: Layout, lost: &[Slot]) -> Cluster {
    let mut group = Cluster::founded(layout, as_is);
    let all: Vec<Slot> = (0..layout.executors()).collect();
    group.batch(&all, 'a');
    group.batch(&all, 'b');
    lost.iter().for_each(|slot| group.end(*slot));
    lost.iter().for_each(|slot| group.start(*slot, as_is));
    group.pass_ms(3_000);
    group.reported.clear();
    group
}

/// The operator's decision at `kept`, which knows of these processes that they are without memory.
fn keep(group: &mut Cluster, kept: Slot, blank: &[Slot]) -> Version {
    let blank: BTreeMap<Slot, u64> =
        blank.iter().map(|slot| (*slot, group.incarnations[usize::from(*slot)])).collect();
    let has = group.members[usize::from(kept)].executor.as_ref().map(Executor::newest).unwrap_or_default();
    group.verifier(kept, VerifierEvent::GoAlone { has, blank });
    has
}

fn has_memory(group: &Cluster, slot: Slot) -> bool {
    group.members[usize::from(slot)].verifier.as_ref().and_then(Verifier::record).is_some()
}

fn view_at(group: &Cluster, slot: Slot) -> u64 {
    group.copies_at(slot).1
}

/// Replicas without a state get one, as of the host's transfer.
fn fill(group: &mut Cluster) {
    group.pass_ms(200);
    group.install();
    group.pass_ms(200);
}

#[test]
fn one_of_three_refounds_the_group_with_two_that_are_without_memory() {
    let mut group = after_losses(THREE, &[0, 1]);
    assert!(!has_memory(&group, 0) && !has_memory(&group, 1));
    // A batch that it has run, and nobody has agreed on: its replies have not left, and it is kept.
    group.batch(&[2], 'c');
    assert_eq!(group.stable_at(2), "ab");
    keep(&mut group, 2, &[0, 1]);
    group.pass_ms(200);
    assert!((0..3).all(|slot| view_at(&group, slot) == limits::IDENTITY_VIEWS + 1));
    assert_eq!(group.stable_at(2), "abc");
    fill(&mut group);
    group.batch(&[0, 1, 2], 'd');
    assert!((0..3).all(|slot| group.stable_at(slot) == "abcd"), "{:?}", group.reported);
    assert!(group.is_one_chain());
    // From here on it tolerates a failure again: the kept one.
    group.end(2);
    group.pass_ms(500);
    group.batch(&[0, 1], 'e');
    assert_eq!((group.stable_at(0), group.stable_at(1)), ("abcde".to_owned(), "abcde".to_owned()));
    group.start(2, as_is);
    group.pass_ms(500);
    fill(&mut group);
    group.batch(&[0, 1, 2], 'f');
    assert_eq!(group.stable_at(2), "abcdef");
}

#[test]
fn one_of_five_needs_two_others_that_are_known_to_be_without_memory() {
    let mut group = after_losses(FIVE, &[0, 1, 2]);
    // Two of those that may have their memories could go on with one that this one does not know of.
    keep(&mut group, 4, &[0]);
    group.pass_ms(500);
    assert!(!has_memory(&group, 0) && view_at(&group, 4) == 0);
    group.tells("");
    keep(&mut group, 4, &[0, 1]);
    group.pass_ms(200);
    // The one that the decision did not name recovers from those that have a memory now.
    let first = view_at(&group, 4);
    assert!(first >= limits::IDENTITY_VIEWS && (0..5).all(|slot| view_at(&group, slot) == first));
    fill(&mut group);
    group.batch(&[0, 1, 2, 3, 4], 'c');
    assert!((0..5).all(|slot| group.stable_at(slot) == "abc"), "{:?}", group.reported);
}

/// One comes back that was cut off, with its memory, and with more than the kept one had.
#[test]
fn an_old_memory_neither_revives_the_group_before_nor_stops_the_new_one() {
    let mut group = Cluster::founded(THREE, as_is);
    group.batch(&[0, 1, 2], 'a');
    group.cut = vec![(2, 0), (2, 1)];
    group.batch(&[0, 1], 'b');
    assert_eq!((group.stable_at(0), group.stable_at(2)), ("ab".to_owned(), "a".to_owned()));
    group.cut = vec![(0, 1), (0, 2)];
    group.end(1);
    group.start(1, as_is);
    group.pass_ms(3_000);
    keep(&mut group, 2, &[1]);
    group.pass_ms(200);
    fill(&mut group);
    group.batch(&[1, 2], 'x');
    assert_eq!((group.stable_at(1), group.stable_at(2)), ("ax".to_owned(), "ax".to_owned()));
    group.batch(&[0], 'c');
    group.pass_ms(500);
    assert_eq!(group.stable_at(0), "ab", "it is alone");

    group.cut.clear();
    group.reported.clear();
    for slot in [1, 2] {
        group.verifier(slot, VerifierEvent::Connected(0));
        group.verifier(0, VerifierEvent::Connected(slot));
    }
    group.pass_ms(500);
    let reported = |group: &Cluster, line: &str| group.reported.iter().any(|reported| reported == line);
    assert!(reported(&group, "executor 0 hears what contradicts ab"), "{:?}", group.reported);
    assert!(view_at(&group, 0) >= limits::IDENTITY_VIEWS, "its verifier follows");
    assert_eq!(group.stable_at(0), "ab", "its executor does not");
    group.batch(&[1, 2], 'y');
    assert_eq!((group.stable_at(1), group.stable_at(2)), ("axy".to_owned(), "axy".to_owned()));
    // Its host ends it, and the next process joins.
    group.end(0);
    group.start(0, as_is);
    group.pass_ms(500);
    fill(&mut group);
    group.batch(&[0, 1, 2], 'z');
    assert!((0..3).all(|slot| group.stable_at(slot) == "axyz"), "{:?}", group.reported);
}

/// One that has less than the kept one, and another batch under a number that it has in common: it does not run on from
/// there.
#[test]
fn an_executor_with_less_gives_it_up_where_it_does_not_know_the_start() {
    let mut group = Cluster::founded(THREE, as_is);
    group.batch(&[0, 1, 2], 'a');
    group.cut = vec![(0, 1), (0, 2)];
    group.end(1);
    group.start(1, as_is);
    group.pass_ms(3_000);
    group.batch(&[2], 'b');
    keep(&mut group, 2, &[1]);
    fill(&mut group);
    group.batch(&[1, 2], 'c');
    group.cut.clear();
    group.reported.clear();
    for slot in [1, 2] {
        group.verifier(slot, VerifierEvent::Connected(0));
    }
    group.pass_ms(500);
    assert!(
        group.reported.iter().any(|reported| reported == "executor 0 hears what contradicts a"),
        "{:?}",
        group.reported
    );
}

/// What the kept one told of the decision was about an incarnation that has ended since: the next one has to be named
/// too.
#[test]
fn an_incarnation_after_the_decision_recovers_from_a_quorum_only() {
    let mut group = after_losses(THREE, &[0, 1]);
    keep(&mut group, 2, &[0, 1]);
    group.lose();
    for slot in [0, 1] {
        group.end(slot);
        group.start(slot, as_is);
    }
    group.pass_ms(3_000);
    assert!(!has_memory(&group, 0) && !has_memory(&group, 1));
    keep(&mut group, 2, &[0]);
    group.pass_ms(200);
    assert!((0..3).all(|slot| view_at(&group, slot) >= 2 * limits::IDENTITY_VIEWS));
    fill(&mut group);
    group.batch(&[0, 1, 2], 'c');
    assert!((0..3).all(|slot| group.stable_at(slot) == "abc"), "{:?}", group.reported);
    // The witness of what was recorded since is not the kept one: an incarnation that is named in the decision has
    // ended.
    group.cut = vec![(2, 1)];
    group.batch(&[0, 1], 'd');
    group.cut = vec![(0, 1), (0, 2)];
    group.end(0);
    group.start(0, as_is);
    group.cut = vec![(0, 1)];
    group.pass_ms(1_000);
    assert!(!has_memory(&group, 0), "the kept one alone does not know of d");
}

/// With a witness, which has lost its memory together with one of the two executors.
#[test]
fn one_of_two_executors_goes_on_with_a_witness_without_memory() {
    let mut group = after_losses(Layout::PairWithWitness, &[1, 2]);
    keep(&mut group, 0, &[1, 2]);
    group.pass_ms(200);
    assert!((0..3).all(|slot| view_at(&group, slot) >= limits::IDENTITY_VIEWS));
    group.batch(&[0], 'c');
    assert_eq!(group.stable_at(0), "abc");
    fill(&mut group);
    group.batch(&[0, 1], 'd');
    assert_eq!((group.stable_at(0), group.stable_at(1)), ("abcd".to_owned(), "abcd".to_owned()));
}
