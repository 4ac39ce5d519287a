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

/// `sei_add_u64` had added to the first copy alone, and the next handler that read the counter ended the process.
#[test]
fn a_counter_in_the_state_is_added_to_in_both_copies() {
    for level in ["-O0", "-O2"] {
        for build in [Program::build, Program::build_dup] {
            let Some(program) = build("copies", level) else { return };
            assert_prints(&program, "counted", "0 1 2 1 4 1 1");
        }
    }
}

/// Both runs of `snprintf` had read the text in the first copy, where the second one found what the first run wrote.
#[test]
fn a_text_that_is_printed_is_read_from_the_copy_of_each_run() {
    for level in ["-O0", "-O2"] {
        let Some(program) = Program::build_dup("copies", level) else { return };
        assert_prints(&program, "renamed", "alice, old alice 1");
        assert_detects(&program, "printed_at_rest", "", "");
    }
}

#[test]
fn every_argument_of_a_format_is_found() {
    let Some(native) = Program::build_native("copies", "-O2") else { return };
    let wanted = "1 abc   2.5 3.5 x %abc  |   5 abc 6 ab 7.5 abc 8.5 5 38 46\ndefg 1 defg 1.25 Defg 51\n";
    assert_eq!(native.run("all_arguments"), Outcome::Printed(wanted.to_owned()));
    for build in [Program::build, Program::build_dup] {
        for level in ["-O0", "-O2"] {
            let Some(program) = build("copies", level) else { return };
            assert_eq!(program.run("all_arguments"), native.run("all_arguments"), "{level}");
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

/// A write outside of a handler reaches one copy only, and is otherwise found where a handler reads it.
#[test]
fn a_write_outside_of_handlers_is_found_at_the_write() {
    for level in ["-O0", "-O2"] {
        let Some(program) = Program::build_dup("copies", level) else { return };
        for scenario in ["flip_at_rest", "head_at_rest", "text_at_rest", "registered_late"] {
            match program.run_with(scenario, "SEI_STATE_GUARD", "1") {
                Outcome::Died(err) => {
                    for words in
                        ["SEI_STATE_GUARD: code outside of handlers writes", "Move the write", "addr2line"]
                    {
                        assert!(err.contains(words), "{scenario} at {level}: {err}");
                    }
                    assert_names(&err, scenario);
                }
                other => panic!("{scenario} at {level} was not found at the write: {other:?}"),
            }
            let unguarded = program.run_with(scenario, "SEI_STATE_GUARD", "0");
            assert!(matches!(unguarded, Outcome::Detected(..)), "{scenario} at {level}: {unguarded:?}");
        }
    }
}

/// The command in the message names the function that wrote.
#[track_caller]
fn assert_names(message: &str, scenario: &str) {
    let words = message.trim().split("addr2line ").nth(1).expect("the command");
    let output = std::process::Command::new("addr2line").args(words.split_whitespace()).output();
    let text = String::from_utf8(output.expect("addr2line is part of binutils").stdout).expect("text");
    let writer = if scenario == "text_at_rest" { "flip" } else { scenario };
    assert_eq!(text.lines().next(), Some(writer), "{message}");
}

#[test]
fn the_guard_changes_nothing_in_handlers_and_beside_the_state() {
    let Some(program) = Program::build_dup("copies", "-O2") else { return };
    for (scenario, wanted) in [("works", "61 1\n190 1\n"), ("write_beside", "60 1\n189 1\n7\n")] {
        for set in ["0", "1"] {
            let outcome = program.run_with(scenario, "SEI_STATE_GUARD", set);
            assert_eq!(outcome, Outcome::Printed(wanted.to_owned()), "{scenario} with {set}");
        }
    }
}
