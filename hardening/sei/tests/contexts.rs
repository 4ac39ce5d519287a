//! Replies of one handler to several connections (`sei_output_to`).

use crate::support::{Program, assert_detects, assert_prints};

#[test]
fn each_connection_has_the_crcs_of_its_own_replies() {
    for level in ["-O0", "-O2"] {
        let Some(program) = Program::build("contexts", level) else { return };
        assert_prints(&program, "several_replies", "15 of 15 right");
        assert_prints(&program, "to_another_thread", "20000 right");
        assert_detects(&program, "other_connection_in_e2", "the two runs made different replies", "");
        assert_detects(&program, "unfinished_reply", "without sei_output_done", "");
    }
}

/// All CRCs had gone to one queue: after 65,536 connections that closed too early the process had ended.
#[test]
fn a_connection_that_closes_before_its_reply_leaves_keeps_nothing() {
    let Some(program) = Program::build("contexts", "-O2") else { return };
    assert_prints(&program, "closed_before_the_reply", "grown by 0 kB");
    assert_prints(&program, "closed_by_itself", "1");
}
