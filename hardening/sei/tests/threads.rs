//! Several threads: deferred release, validated locking, the checking barrier, and handlers that begin again.

use crate::support::{Program, assert_detects, assert_prints};

#[test]
fn threads_share_state_under_a_lock() {
    let Some(program) = Program::build("threads", "-O2") else { return };
    assert_prints(&program, "four_threads", "80000 -80000");
    assert_prints(&program, "counters_count_once", "40000");
    assert_prints(&program, "racy_words_are_given_again", "1");
    assert_prints(&program, "replay_trylock", "1");
}

#[test]
fn unvalidated_values_are_not_read() {
    let Some(program) = Program::build("threads", "-O2") else { return };
    assert_detects(
        &program,
        "unvalidated_state_is_not_read",
        "the state after the second run",
        "seen wrong: 0\n",
    );
}

#[test]
fn a_section_without_its_lock_is_detected() {
    let Some(program) = Program::build("threads", "-O2") else { return };
    assert_detects(
        &program,
        "section_without_its_lock",
        "a lock was released that the handler had not taken",
        "",
    );
    assert_detects(&program, "section_without_its_lock_in_e2", "the two runs made different calls", "");
}

#[test]
fn a_reply_waits_for_the_check_of_the_other_thread() {
    let Some(program) = Program::build("threads", "-O2") else { return };
    assert_prints(&program, "message_before_the_other_checked", "0 1");
}

#[test]
fn locks_in_opposite_orders_end() {
    let Some(program) = Program::build("threads", "-O2") else { return };
    assert_prints(&program, "opposite_orders_meet", "2");
    assert_prints(&program, "multi_get_in_opposite_orders", "12000 12000 48000");
}

#[test]
fn threads_that_end_make_room() {
    let Some(program) = Program::build("threads", "-O2") else { return };
    assert_prints(&program, "a_thousand_threads_in_turn", "1000");
    assert_detects(&program, "too_many_threads", "the limit is 256 threads", "");
}
