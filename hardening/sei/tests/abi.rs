//! The interface of the compiler: which functions GCC 12 knows, and that the library has them and none that it must
//! not.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::{Program, compiler};

/// What must be missing, so that a program that needs it does not link: the code would run without protection.
const MUST_BE_MISSING: [&str; 6] = [
    "_ITM_getTMCloneOrIrrevocable",
    "_ITM_changeTransactionMode",
    "_ITM_abortTransaction",
    "_ITM_commitTransactionEH",
    "_ITM_addUserCommitAction",
    "_ITM_cxa_allocate_exception",
];

/// The functions that GCC 12.2 names in its compiler proper.
fn functions_of_the_compiler(gcc: &str) -> BTreeSet<String> {
    let path = Command::new(gcc).arg("-print-prog-name=cc1").output().expect("the compiler runs");
    let path = String::from_utf8_lossy(&path.stdout).trim().to_owned();
    // One that `.ci/compilers` has unpacked has a script in its place.
    let cc1 = std::fs::read(format!("{path}.real")).or_else(|_| std::fs::read(path));
    let cc1 = cc1.expect("its cc1 can be read");
    let mut found = BTreeSet::new();
    let mut at = 0;
    while let Some(begin) = cc1[at..].windows(4).position(|window| window == b"ITM_") {
        let name: Vec<u8> = cc1[at + begin..]
            .iter()
            .copied()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == b'_')
            .collect();
        at += begin + name.len();
        found.insert(format!("_{}", String::from_utf8_lossy(&name)));
    }
    found
}

#[test]
fn every_function_of_the_compiler_is_there_but_those_that_must_be_missing() {
    let Some(gcc) = compiler() else { return };
    let Some(program) = Program::build_whole_library() else { return };
    let defined = program.symbols();
    let wanted = functions_of_the_compiler(gcc);
    assert!(wanted.len() > 80, "{wanted:?}");
    for name in &wanted {
        let must_be_missing = MUST_BE_MISSING.contains(&name.as_str());
        assert_eq!(defined.contains(name), !must_be_missing, "{name}");
    }
}

#[test]
fn a_call_through_a_plain_pointer_does_not_link() {
    let Some(message) = Program::fails_to_link("plain_pointer") else { return };
    assert!(message.contains("_ITM_getTMCloneOrIrrevocable"), "{message}");
}
