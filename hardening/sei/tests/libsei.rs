//! What is wrong in the public fork of libsei: each scenario must print what the program without protection prints.

use crate::support::{Outcome, Program, assert_detects};

const LEVELS: [&str; 5] = ["-O0", "-O1", "-O2", "-O3", "-Os"];

const SAME_AS_NATIVE: [&str; 12] = [
    "memset_then_word",
    "overlapping_sizes",
    "memcpy_of_nothing",
    "overlapping_memmove",
    "zeroed_calloc",
    "local_arrays",
    "lock_again",
    "floating_point",
    "function_pointer",
    "empty_handlers",
    "text_functions",
    "long_format",
];

#[test]
fn a_hardened_program_prints_what_the_native_one_prints() {
    for level in LEVELS {
        let Some(program) = Program::build("libsei", level) else { return };
        let Some(native) = Program::build_native("libsei", level) else { return };
        for scenario in SAME_AS_NATIVE {
            assert_eq!(program.run(scenario), native.run(scenario), "{scenario} at {level}");
            assert!(matches!(program.run(scenario), Outcome::Printed(_)));
        }
    }
}

#[test]
fn the_unlock_of_a_lock_that_is_not_held_is_detected() {
    let Some(program) = Program::build("libsei", "-O2") else { return };
    assert_detects(
        &program,
        "unlock_of_a_free_lock",
        "a lock was released that the handler had not taken",
        "",
    );
}
