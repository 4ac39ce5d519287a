//! Who is connected with whom in groups whose sizes have changed, decided from two hellos.

use super::hello::{Hello, KnownSize};
use super::identity::Identity;
use super::refusal::{Outsider, Refusal};
use super::secure::Secret;
use super::whereabouts::{ConnectionEnd, Whereabouts};

/// A replica that knows so many, after so many changes; `has_state` if it has one of the group.
fn replica(number: u8, replicas: u8, changes: u32, has_state: bool) -> Identity {
    let hello = Hello {
        replicas,
        size: KnownSize { changes, voting: replicas },
        acts_as: u16::from(has_state),
        ..Hello::sample(number)
    };
    Identity { hello, secret: Secret { key: [7; 32], seed: None }, places: Whereabouts::default() }
}

/// What each of the two finds.
fn meet(one: &Identity, other: &Identity) -> [Option<Refusal>; 2] {
    let finds =
        |of: &Identity, theirs: &Identity| of.refusal_of(&theirs.hello, None, ConnectionEnd::Accepted);
    [finds(one, other), finds(other, one)]
}

fn outside(replica: u8, is_own: bool, was_in: bool, replicas: u8) -> Option<Refusal> {
    let outsider = Outsider { replica, at: String::new(), is_own, was_in, replicas };
    Some(Refusal::Outside(Box::new(outsider)))
}

#[test]
fn who_is_to_be_added_waits_until_the_group_knows_it() {
    let new = replica(3, 5, 0, false);
    let expected = [outside(3, true, false, 3), outside(3, false, false, 3)];
    assert_eq!(meet(&new, &replica(0, 3, 0, true)), expected, "before the growth has begun");
    assert_eq!(meet(&new, &replica(0, 5, 1, true)), [None, None]);
    assert_eq!(meet(&new, &replica(4, 5, 0, false)), [None, None], "the two that are added");
    assert_eq!(meet(&new, &replica(0, 3, 4, true)), expected, "also in a group that was larger once");
}

#[test]
fn an_old_configuration_keeps_no_replica_out_of_a_group_that_has_grown() {
    for has_state in [false, true] {
        let old = replica(1, 3, 0, has_state);
        assert_eq!(meet(&old, &replica(0, 5, 2, true)), [None, None]);
        let added = replica(3, 5, 2, true);
        assert_eq!(meet(&old, &added), [Some(Refusal::KnowsMore), None]);
        assert_eq!(old.learns_from(&added.hello), Some((2, 5, 5)), "at the next attempt it knows");
        assert_eq!(added.learns_from(&old.hello), None);
    }
    assert_eq!(
        meet(&replica(1, 5, 0, false), &replica(0, 3, 4, true)),
        [None, None],
        "nor one that has shrunk"
    );
}

#[test]
fn who_was_let_go_is_refused_at_both_ends_and_a_restart_of_it_waits() {
    let staying = replica(0, 3, 4, true);
    for (has_state, changes) in [(true, 2), (false, 0)] {
        let expected = [outside(4, true, has_state, 3), outside(4, false, has_state, 3)];
        assert_eq!(meet(&replica(4, 5, changes, has_state), &staying), expected);
    }
}

/// Where nothing has changed a size, configurations that differ in it are an operator's mistake, as ever.
#[test]
fn other_numbers_of_replicas_are_refused_where_no_change_explains_them() {
    let field = |one: &Option<Refusal>| match one {
        Some(Refusal::Differs(difference)) => difference.field.clone(),
        _ => String::new(),
    };
    let differs = |found: [Option<Refusal>; 2]| found.iter().all(|one| field(one) == "number of replicas");
    assert!(differs(meet(&replica(0, 3, 0, false), &replica(1, 5, 0, false))));
    assert!(differs(meet(&replica(0, 3, 0, false), &replica(4, 5, 0, false))), "neither is in a group");
    assert!(differs(meet(&replica(0, 3, 0, true), &replica(1, 5, 0, false))), "a file that lists too many");
    assert!(differs(meet(&replica(0, 5, 0, true), &replica(1, 3, 0, true))));
}

#[test]
fn a_size_that_no_group_has_is_not_learned() {
    let old = replica(1, 3, 0, true);
    for size in [KnownSize { changes: 9, voting: 0 }, KnownSize { changes: 9, voting: 6 }] {
        let mut other = replica(0, 5, 0, true);
        other.hello.size = size;
        assert_eq!(old.learns_from(&other.hello), None);
    }
    assert_eq!(old.learns_from(&replica(0, 9, 9, true).hello), None);
}
