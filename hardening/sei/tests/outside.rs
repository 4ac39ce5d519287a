//! Stacks that are not a thread's own, and words that signal handlers write.

use crate::support::{Program, assert_detects, assert_prints};

const LEVELS: [&str; 3] = ["-O0", "-O2", "-O3"];

/// The library had undone words under its own feet: SIGSEGV.
#[test]
fn a_handler_on_another_stack_is_refused_with_a_remedy() {
    for level in LEVELS {
        let Some(program) = Program::build("outside", level) else { return };
        assert_detects(&program, "unknown_stack", "tell the library with sei_stack", "");
        assert_detects(&program, "forgotten_stack", "tell the library with sei_stack", "");
    }
}

#[test]
fn handlers_run_on_the_stacks_of_coroutines_and_threads() {
    for level in LEVELS {
        let Some(program) = Program::build("outside", level) else { return };
        assert_prints(&program, "known_stack", "3 opqr");
        assert_prints(&program, "threads_own_stacks", "6 rstu");
        assert_prints(&program, "raised_limit", "6 rstu");
    }
}

/// Volatile variables among them, as the C standard wants them: their addresses do not compile in a handler.
#[test]
fn a_word_that_a_signal_sets_is_the_same_in_both_runs() {
    for level in LEVELS {
        let Some(program) = Program::build("outside", level) else { return };
        assert_prints(&program, "words_of_a_signal", "0 0 0 0 6 before before");
        assert_detects(&program, "plain_word_of_a_signal", "", "");
    }
}
