//! Duplicated state: corruption at rest is detected, and what it costs to leave the second copy out.

use crate::support::{Outcome, Program, assert_detects, assert_prints};

#[test]
fn a_corrupted_copy_is_detected() {
    for level in ["-O0", "-O2", "-O3"] {
        let Some(program) = Program::build_dup("copies", level) else { return };
        assert_prints(&program, "works", "61 1\n190 1");
        for scenario in ["flip_at_rest", "pointer_at_rest", "head_at_rest", "text_at_rest", "registered_late"]
        {
            assert_detects(&program, scenario, "", "");
        }
    }
}

/// Without a second copy both runs read the same wrong word: that is what error-correcting memory is for.
#[test]
fn without_a_second_copy_state_that_is_wrong_at_rest_is_not_seen() {
    let Some(program) = Program::build("copies", "-O2") else { return };
    assert_prints(&program, "works", "61 1\n190 1");
    for scenario in ["flip_at_rest", "pointer_at_rest", "head_at_rest", "text_at_rest"] {
        assert!(matches!(program.run(scenario), Outcome::Printed(_)), "{scenario}");
    }
}
