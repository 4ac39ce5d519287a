//! Faults that NSDI'15 describes in the handler's own code, each against the check that finds it.

use crate::support::{Program, assert_detects, assert_prints};

const LEVELS: [&str; 5] = ["-O0", "-O1", "-O2", "-O3", "-Os"];

#[test]
fn without_a_fault_the_state_changes_once() {
    for level in LEVELS {
        let Some(program) = Program::build("paper", level) else { return };
        assert_prints(&program, "fault_free", "x=1");
        assert_prints(&program, "a_write_is_undone", "x=102");
    }
}

#[test]
fn faults_in_a_run_are_detected() {
    for level in LEVELS {
        let Some(program) = Program::build("paper", level) else { return };
        for (scenario, words) in [
            ("fig1_fault_in_e1", "the state after the second run is not that after the first"),
            ("fig1_fault_in_e2", "the state after the second run is not that after the first"),
            ("extra_write_in_e1", "the two runs wrote different words"),
            ("extra_write_in_e2", "the two runs wrote different words"),
            ("wrong_address", "the two runs wrote different words"),
            ("a_wrong_snapshot_is_seen", "the two runs wrote different words"),
            ("last_mile_of_e2", "the state after the second run"),
            ("big_range", "the state after the second run"),
        ] {
            assert_detects(&program, scenario, words, "");
        }
    }
}

#[test]
fn a_value_that_the_next_write_hides_is_seen() {
    // At higher levels the compiler leaves the hidden write out.
    let Some(program) = Program::build("paper", "-O0") else { return };
    assert_detects(&program, "intermediate_value", "the two runs wrote different words", "");
}
