//! Recoveries of three and more replicas, told as transcripts: what each machine decided, line by line.

use verify::{Layout, Reason, VerifierEvent};

use crate::support::cluster::{Cluster, as_is};

const THREE: Layout = Layout::Crash { failures: 1 };
const ALL: [u8; 3] = [0, 1, 2];

#[test]
fn three_replicas_agree_on_a_batch() {
    let mut group = Cluster::founded(THREE, as_is);
    group.batch(&ALL, 'a');
    group.tells(
        "executor 0 has a stable
         executor 1 has a stable
         executor 2 has a stable",
    );
}

#[test]
fn one_of_three_diverges_and_is_masked() {
    let mut group = Cluster::founded(THREE, as_is);
    group.run(&[0], 'x');
    group.run(&[1, 2], 'a');
    group.deliver();
    group.tells(
        "executor 0 has diverged, and needs a
         executor 1 has a stable
         executor 2 has a stable",
    );
    // The others go on, and the repaired one with them.
    group.install();
    group.batch(&ALL, 'b');
    group.tells(
        "executor 0 has a stable
         executor 0 has ab stable
         executor 1 has ab stable
         executor 2 has ab stable",
    );
}

#[test]
fn a_slow_executor_that_diverged_learns_it_when_it_has_run_the_batch() {
    let mut group = Cluster::founded(THREE, as_is);
    group.batch(&[1, 2], 'a');
    group.batch(&[1, 2], 'b');
    group.reported.clear();
    group.batch(&[0], 'x');
    group.tells("executor 0 has diverged, and needs ab");
    group.install();
    group.tells("executor 0 has ab stable");
}

/// It went back to what was stable here, behind batches that it could not roll back any more, and replaced itself: with
/// the primary two of three memories were gone.
#[test]
fn a_slow_executor_keeps_what_the_next_view_continues() {
    let mut group = Cluster::founded(THREE, as_is);
    group.cut = vec![(0, 2), (1, 2)];
    group.batch(&[0, 1], 'a');
    group.batch(&[0, 1], 'b');
    group.cut.clear();
    group.batch(&[0, 1], 'c');
    group.batch(&[2], 'a');
    group.batch(&[2], 'b');
    group.end(0);
    group.reported.clear();
    group.pass_ms(25);
    group.tells(
        "verifier 1 is in view 1 from abc: primary 1 of 0 1 2
         verifier 2 is in view 1 from abc: primary 1 of 0 1 2
         executor 1 goes back to abc for view 1
         executor 2 goes back to abc for view 1",
    );
    let newest = |group: &Cluster| group.members[2].executor.as_ref().map(|slow| slow.newest().number);
    assert_eq!(newest(&group), Some(2), "both were agreed on in the view before");
    group.batch(&[2], 'c');
    group.tells("executor 2 has abc stable");
}

/// A batch that was not agreed on may be another one in the next view.
#[test]
fn a_slow_executor_rolls_back_behind_what_it_does_not_know_to_be_agreed_on() {
    let mut group = Cluster::founded(THREE, as_is);
    group.cut = vec![(0, 2), (1, 2)];
    group.batch(&[0, 1], 'a');
    group.batch(&[0, 1], 'b');
    group.batch(&[2], 'a');
    group.cut.clear();
    group.end(0);
    group.pass_ms(200);
    let slow = group.members[2].executor.as_ref();
    assert_eq!(slow.map(|slow| (slow.view(), slow.newest().number)), Some((Some(1), 0)));
}

#[test]
fn all_three_differ_and_run_sequentially() {
    let mut group = Cluster::founded(THREE, as_is);
    group.batch(&ALL, 'a');
    group.reported.clear();
    for (slot, letter) in [(0, 'x'), (1, 'y'), (2, 'z')] {
        group.run(&[slot], letter);
    }
    group.deliver();
    group.tells(
        "verifier 0 sees tokens differ after a
         verifier 1 sees tokens differ after a
         verifier 2 sees tokens differ after a
         verifier 1 is in view 1 from a, sequentially: primary 0 of 0 1 2
         verifier 0 is in view 1 from a, sequentially: primary 0 of 0 1 2
         verifier 2 is in view 1 from a, sequentially: primary 0 of 0 1 2
         executor 0 goes back to a for view 1
         executor 1 goes back to a for view 1
         executor 2 goes back to a for view 1",
    );
    assert_eq!(group.now_us, 0, "no timer had to elapse");
    group.batch(&ALL, 'b');
    group.tells(
        "executor 0 has ab stable
         executor 1 has ab stable
         executor 2 has ab stable",
    );
}

#[test]
fn tokens_that_differ_sequentially_too_are_reported_once_and_tried_again_slowly() {
    let mut group = Cluster::founded(THREE, as_is);
    let differ = |group: &mut Cluster| {
        for (slot, letter) in [(0, 'x'), (1, 'y'), (2, 'z')] {
            group.run(&[slot], letter);
        }
        group.deliver();
    };
    differ(&mut group);
    group.reported.clear();
    differ(&mut group);
    group.tells(
        "verifier 0 cannot tell who is wrong after the start
         verifier 1 cannot tell who is wrong after the start
         verifier 2 cannot tell who is wrong after the start",
    );
    group.pass_ms(140);
    group.tells("");
    group.pass_ms(300);
    assert!(
        group.reported.iter().any(|line| line.starts_with("verifier 2 is in view 2")),
        "{:?}",
        group.reported
    );
}

#[test]
fn two_of_three_differ_while_the_third_is_away() {
    let mut group = Cluster::founded(THREE, as_is);
    group.end(2);
    group.batch(&[0], 'x');
    group.tells("");
    group.batch(&[1], 'y');
    group.tells(
        "verifier 0 sees tokens differ after the start
         verifier 1 sees tokens differ after the start
         verifier 1 is in view 1 from the start, sequentially: primary 0 of 0 1 2
         verifier 0 is in view 1 from the start, sequentially: primary 0 of 0 1 2
         executor 0 goes back to the start for view 1
         executor 1 goes back to the start for view 1",
    );
    group.batch(&[0, 1], 'a');
    group.tells(
        "executor 0 has a stable
         executor 1 has a stable",
    );
}

/// The third one is connected and has no state. In parallel the other two may differ in every view.
#[test]
fn two_of_three_differ_while_the_third_is_silent() {
    let mut group = Cluster::founded(THREE, as_is);
    group.batch(&[0], 'a');
    group.batch(&[1], 'x');
    group.pass_ms(140);
    group.tells("");
    group.pass_ms(20);
    group.tells(
        "verifier 0 sees tokens differ after the start
         verifier 1 sees tokens differ after the start
         verifier 2 sees tokens differ after the start
         verifier 1 is in view 1 from the start, sequentially: primary 0 of 0 1 2
         verifier 0 is in view 1 from the start, sequentially: primary 0 of 0 1 2
         verifier 2 is in view 1 from the start, sequentially: primary 0 of 0 1 2
         executor 0 goes back to the start for view 1
         executor 1 goes back to the start for view 1
         executor 2 goes back to the start for view 1",
    );
    group.batch(&[0, 1], 'b');
    group.tells(
        "executor 0 has b stable
         executor 1 has b stable",
    );
}

#[test]
fn the_primary_is_late() {
    let mut group = Cluster::founded(THREE, as_is);
    group.batch(&[1], 'a');
    group.pass_ms(149);
    group.tells("");
    group.pass_ms(2);
    group.tells(
        "verifier 1 is in view 1 from the start: primary 1 of 0 1 2
         verifier 0 is in view 1 from the start: primary 1 of 0 1 2
         verifier 2 is in view 1 from the start: primary 1 of 0 1 2
         executor 0 goes back to the start for view 1
         executor 1 goes back to the start for view 1
         executor 2 goes back to the start for view 1",
    );
}

#[test]
fn the_primary_is_gone() {
    let mut group = Cluster::founded(THREE, as_is);
    group.batch(&ALL, 'a');
    group.end(0);
    group.reported.clear();
    group.pass_ms(19);
    group.tells("");
    group.pass_ms(5);
    group.batch(&[1, 2], 'b');
    group.tells(
        "verifier 1 is in view 1 from a: primary 1 of 0 1 2
         verifier 2 is in view 1 from a: primary 1 of 0 1 2
         executor 1 goes back to a for view 1
         executor 2 goes back to a for view 1
         executor 1 has ab stable
         executor 2 has ab stable",
    );
}

#[test]
fn a_verifier_loses_its_memory_and_recovers() {
    let mut group = Cluster::founded(THREE, as_is);
    group.batch(&ALL, 'a');
    group.verifier(0, VerifierEvent::Suspect(Reason::Late));
    group.deliver();
    group.end(2);
    group.reported.clear();
    group.start(2, as_is);
    group.deliver();
    group.pass_ms(60);
    group.tells(
        "executor 2 goes back to a for view 1
         verifier 2 has recovered",
    );
    group.install();
    // Its executor abstains in this view: another one that is gone stops the group, until the next view begins.
    group.end(0);
    group.reported.clear();
    group.batch(&[1, 2], 'b');
    group.tells("");
    group.pass_ms(300);
    group.tells(
        "verifier 2 is in view 2 from a: primary 2 of 0 1 2
         verifier 1 is in view 2 from a: primary 2 of 0 1 2
         executor 1 goes back to a for view 2
         executor 2 goes back to a for view 2",
    );
    group.batch(&[1, 2], 'c');
    group.tells(
        "executor 1 has ac stable
         executor 2 has ac stable",
    );
}

#[test]
fn a_storm_of_view_changes_ends() {
    let mut group = Cluster::founded(THREE, as_is);
    group.run(&ALL, 'a');
    for round in 0..20 {
        group.verifier(round % 3, VerifierEvent::Suspect(Reason::Late));
        if round % 4 == 0 {
            group.lose();
        }
    }
    group.pass_ms(5_000);
    group.install();
    group.reported.clear();
    group.batch(&ALL, 'b');
    let stable = group.stable_at(0);
    assert!(stable.ends_with('b'), "{stable}");
    assert_eq!((group.stable_at(1), group.stable_at(2)), (stable.clone(), stable));
    assert!(group.is_one_chain());
}

#[test]
fn all_processes_end_and_their_verifiers_come_back_from_disk() {
    let mut group = Cluster::founded(THREE, as_is);
    group.batch(&ALL, 'a');
    let saved = ALL.map(|slot| group.members[slot as usize].saved.expect("it has recorded a version"));
    ALL.iter().for_each(|slot| group.end(*slot));
    group.lose();
    group.reported.clear();
    ALL.iter().for_each(|slot| group.start_from_disk(*slot, &saved[*slot as usize]));
    group.pass_ms(60);
    group.tells(
        "executor 2 goes back to a for view 0
         executor 0 goes back to a for view 0
         executor 1 goes back to a for view 0",
    );
    // No process has the batch any more: its state comes from outside.
    group.install();
    // All executors abstain in this view: they are stalled, and the next view begins.
    group.batch(&ALL, 'b');
    group.pass_ms(220);
    group.tells(
        "executor 0 is behind, and needs a
         executor 0 has a stable
         executor 1 is behind, and needs a
         executor 1 has a stable
         executor 2 is behind, and needs a
         executor 2 has a stable
         verifier 1 is in view 1 from a: primary 1 of 0 1 2
         verifier 0 is in view 1 from a: primary 1 of 0 1 2
         verifier 2 is in view 1 from a: primary 1 of 0 1 2
         executor 0 goes back to a for view 1
         executor 1 goes back to a for view 1
         executor 2 goes back to a for view 1",
    );
    group.batch(&ALL, 'c');
    group.tells(
        "executor 0 has ac stable
         executor 1 has ac stable
         executor 2 has ac stable",
    );
}

#[test]
fn a_verifier_catches_up_with_what_it_has_missed() {
    let mut group = Cluster::founded(THREE, as_is);
    group.cut = vec![(2, 0), (2, 1)];
    group.batch(&ALL, 'a');
    group.verifier(0, VerifierEvent::Suspect(Reason::Diverged));
    group.deliver();
    group.batch(&[0, 1], 'b');
    group.reported.clear();
    // Another link: the first token that arrives is of a view that it does not know.
    group.cut.clear();
    group.batch(&[0, 1], 'c');
    group.tells(
        "executor 0 has abc stable
         executor 1 has abc stable
         executor 2 goes back to abc for view 1
         verifier 2 is in view 1 from abc: primary 0 of 0 1 2",
    );
    let record = group.members[2].verifier.as_ref().and_then(verify::Verifier::record);
    assert_eq!(record.map(|record| record.version.number), Some(3));
}

/// One executor is gone, and every batch takes the others 400 ms. The first ones are rolled back; then patience
/// follows.
#[test]
fn patience_follows_the_time_that_batches_take() {
    let mut group = Cluster::founded(THREE, as_is);
    group.end(2);
    let mut views = Vec::new();
    for letter in "abcdefgh".chars() {
        let before = group.copies_at(0).1;
        while !group.stable_at(0).ends_with(letter) {
            let view = group.copies_at(0).1;
            group.batch(&[0], letter);
            for _ in 0..400 {
                // A view that begins takes the batch back.
                if group.copies_at(0).1 == view {
                    group.pass_ms(1);
                }
            }
            if group.copies_at(0).1 == view {
                group.batch(&[1], letter);
            }
        }
        views.push(group.copies_at(0).1 - before);
    }
    assert!(views[0] > 0 && views[1..] == [0; 7], "{views:?}");
    // One that has stopped is replaced within 2 s all the same.
    let before = group.copies_at(0).1;
    group.run(&[0], 'i');
    group.deliver();
    group.pass_ms(1_500);
    assert!(group.copies_at(0).1 > before);
}

/// Nobody is gone, the primary's token is there, and the others are slow: another view would only repeat the batch.
#[test]
fn no_view_begins_while_the_others_are_slower_than_the_primary() {
    let mut group = Cluster::founded(THREE, as_is);
    group.batch(&ALL, 'a');
    group.reported.clear();
    group.batch(&[0], 'b');
    group.pass_ms(1_900);
    group.tells("");
    group.batch(&[1, 2], 'b');
    assert_eq!((group.stable_at(1), group.copies_at(1).1), ("ab".to_owned(), 0));
    // One whose primary is silent, while another one has run the batch, is not slow.
    group.batch(&[1], 'c');
    group.pass_ms(1_300);
    assert!(group.copies_at(1).1 > 0);
}

/// A process that did not run for a while finds later what its peers have sent.
#[test]
fn time_in_which_a_verifier_did_not_run_is_not_waited() {
    let mut group = Cluster::founded(THREE, as_is);
    group.batch(&ALL, 'a');
    group.pass_ms(1);
    group.batch(&[1], 'b');
    for _ in 0..4 {
        group.now_us += 400_000;
        group.pass_ms(1);
    }
    group.batch(&[0], 'b');
    assert_eq!((group.stable_at(1), group.copies_at(1).1), ("ab".to_owned(), 0));
}
