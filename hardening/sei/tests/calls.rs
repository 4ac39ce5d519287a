//! Calls of the C library in handlers: results, errors and effects are those of the program without protection.

use crate::support::{Outcome, Program, assert_detects};

const SCENARIOS: [&str; 12] = [
    "files",
    "names",
    "streams",
    "prints",
    "system_log",
    "scans",
    "sorts",
    "addresses",
    "sockets",
    "times",
    "texts",
    "locks",
];

#[test]
fn calls_do_in_a_handler_what_they_do_outside() {
    let Some(native) = Program::build_native("calls", "-O2") else { return };
    for level in ["-O0", "-O2", "-O3"] {
        let Some(hardened) = Program::build("calls", level) else { return };
        compare(&native, &hardened, level);
    }
}

#[test]
fn the_same_with_two_copies_of_the_state() {
    let Some(native) = Program::build_native("calls", "-O2") else { return };
    let Some(hardened) = Program::build_dup("calls", "-O2") else { return };
    compare(&native, &hardened, "two copies");
}

fn compare(native: &Program, hardened: &Program, how: &str) {
    for scenario in SCENARIOS {
        let wanted = native.run(scenario);
        assert!(matches!(wanted, Outcome::Printed(_)), "{scenario}: {wanted:?}");
        assert_eq!(hardened.run(scenario), wanted, "{scenario}, {how}");
    }
}

/// docs/sei.md has the shim, and the declaration.
#[test]
fn a_program_can_have_a_shim_of_its_own() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let guide = read("../../docs/sei.md");
    let shim = read("tests/c/own_shim.c");
    let body = shim.split_once("#include").unwrap().1;
    assert!(guide.contains(body), "docs/sei.md does not have tests/c/own_shim.c");
    let program = read("tests/c/missing.c");
    let declaration = program.lines().find(|line| line.contains("transaction_wrap")).unwrap();
    assert!(guide.contains(declaration), "docs/sei.md does not have the declaration of tests/c/missing.c");
    let Some(program) = Program::build_with_shim("missing", "own_shim") else { return };
    assert_eq!(program.run("load"), Outcome::Printed("3 1\n".to_owned()));
}

/// A file is not changed before both runs agree, and a reply that relies on a change which fails does not leave.
#[test]
fn files_change_when_both_runs_agree_or_the_process_ends() {
    let Some(program) = Program::build("calls", "-O2") else { return };
    assert_detects(
        &program,
        "nothing_changes_before_v",
        "wrote different words",
        "there 1, moved 0, 5 bytes\n",
    );
    assert_detects(&program, "reads_what_it_writes", "cannot run twice", "");
    let Outcome::Died(said) = program.run("full_file") else { panic!("the file is full") };
    assert!(said.contains("write failed") && said.contains("File too large"), "{said}");
    assert!(said.contains("status 74"), "{said}");
}
