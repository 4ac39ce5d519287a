//! Input, output, and calls that leave memory.

use crate::support::{Outcome, Program, assert_detects, assert_prints};

#[test]
fn input_is_compared_with_its_crc() {
    let Some(program) = Program::build("rules", "-O2") else { return };
    assert_prints(&program, "corrupt_input_is_discarded", "discarded 1");
    assert_detects(&program, "input_changes_in_e2", "the message changed while its handler ran", "");
    assert_prints(&program, "rw_input_is_edited", "counter=3");
    assert_detects(&program, "rw_input", "the message changed while its handler ran", "");
}

#[test]
fn replies_have_the_crc_of_the_second_run() {
    let Some(program) = Program::build("rules", "-O2") else { return };
    assert_prints(&program, "a_reply", "aaaaaaaaaa answers the request");
    assert_detects(&program, "last_mile_output", "the reply is not the one that the second run made", "");
    assert_prints(&program, "replies_without_binding", "aaaaaaaaaa answers another request");
    assert_prints(&program, "two_replies", "1 1");
    assert_prints(&program, "stored_crc", "1");
    assert_detects(&program, "other_reply_in_e2", "the two runs made different replies", "");
    assert_detects(&program, "append_without_done", "without sei_output_done", "");
    assert_detects(&program, "done_without_append", "sei_output_done without", "");
    assert_detects(&program, "reply_on_dead_stack", "copy it first", "");
    assert_detects(&program, "jump_out_of_e1", "no handler made", "");
}

#[test]
fn calls_are_made_once_and_their_results_given_again() {
    let Some(program) = Program::build("rules", "-O2") else { return };
    assert_prints(&program, "replay_malloc", "5");
    assert_prints(&program, "replay_calloc_and_realloc", "text!");
    assert_prints(&program, "allocation_changes_errno", "counter=1");
    assert_prints(&program, "replay_time", "1");
    assert_prints(&program, "replay_random", "1");
    assert_prints(&program, "replay_recv", "3 one 4 two!");
    assert_prints(&program, "use_after_undo", "77");
    assert_prints(&program, "deferred_calls_happen_once", "printed 5\nbytes left: 6");
    assert_prints(&program, "ignored_words", "counter=1");
    assert_detects(&program, "refused_call", "cannot run twice", "");
    assert_detects(&program, "own_check", "a check of the program's own failed", "");
}

#[test]
fn nothing_leaves_before_both_runs_agree() {
    let Some(program) = Program::build("rules", "-O2") else { return };
    assert_detects(
        &program,
        "nothing_leaves_before_v",
        "the two runs sent different bytes",
        "bytes left: 0\n",
    );
}

#[test]
fn detection_flushes_no_output_and_runs_no_exit_handler() {
    let Some(program) = Program::build("rules", "-O2") else { return };
    let Outcome::Detected(printed, _) = program.run("detection_flushes_nothing") else { panic!("detected") };
    assert_eq!(printed, "");
}
