//! Second runs on another core (`sei_rotate`): a core that is always wrong, and a thread that may run on one only.

use crate::support::{Program, assert_detects, assert_prints, skipped::skipped};

#[test]
fn a_core_that_is_always_wrong_is_found_within_n_handlers() {
    if !has_two_cores() {
        return;
    }
    for level in ["-O0", "-O2"] {
        let Some(program) = Program::build("cores", level) else { return };
        assert_detects(&program, "wrong_core", "second run", "49 of 49 wrong\n");
        assert_prints(&program, "wrong_core_without_rotation", "1000 of 1000 wrong");
    }
}

#[test]
fn right_cores_agree_and_the_thread_may_run_where_it_might() {
    if !has_two_cores() {
        return;
    }
    let Some(program) = Program::build("cores", "-O2") else { return };
    assert_prints(&program, "right_cores", "100 rotations, 2 cores, then 0; 0 wrong");
}

#[test]
fn one_permitted_core_is_reported_once() {
    let Some(program) = Program::build("cores", "-O2") else { return };
    assert_prints(&program, "one_core", "1 line, one core only 1, 100 handlers, 0 rotations");
}

fn has_two_cores() -> bool {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        skipped("this process may run on one core only, and rotation needs two: taskset");
    }
    cores >= 2
}
