//! Functions that are declared SEI_LOCAL, as the first remedy of every message says: what writes more than its own
//! locals is refused.

use std::fs;

use harden::compile::Variant;

use crate::pipeline::{folder, of, refused};
use crate::support::skipped;

const FUNCTIONS: &str = include_str!("c/local_functions.c");

/// `wrong_*` write what is not theirs, each in another way; the handler would have counted twice for each message.
#[test]
fn a_function_that_writes_more_than_its_frame_is_refused() {
    let folder = folder("");
    fs::write(folder.path().join("src/small.c"), format!("#define WRONG\n{FUNCTIONS}")).expect("written");
    let Some(error) = refused(folder.path(), Variant::Sei) else { return };
    let names = |prefix: &str| -> Vec<&str> {
        let lines = FUNCTIONS.lines().filter(|line| line.starts_with("LOCAL"));
        let names = lines.filter_map(|line| line.split('(').next()?.split([' ', '*']).next_back());
        names.filter(|name| name.starts_with(prefix)).collect()
    };
    assert!(names("wrong_").len() >= 12 && names("right_").len() >= 12);
    for wrong in names("wrong_") {
        assert!(
            error.contains(&format!("`{wrong}` is declared so and writes")),
            "{wrong} is missed: {error}"
        );
    }
    for right in names("right_") {
        assert!(!error.contains(right), "{right} writes its own locals only: {error}");
    }
    assert!(error.contains("take SEI_LOCAL away") && error.contains("`served`"), "{error}");
}

#[test]
fn functions_that_write_their_locals_are_left_as_they_are() {
    let folder = folder("");
    fs::write(folder.path().join("src/small.c"), FUNCTIONS).expect("written");
    for options in ["[]", "[\"-O0\"]", "[\"-O3\"]"] {
        let recipe = "program = \"small\"\nsummary = \"a test\"\n[source]\nfolder = \"src\"\n[unit]\n";
        let recipe = format!("{recipe}files = [\"small.c\"]\noptions = {options}\n");
        fs::write(folder.path().join("recipe.toml"), recipe).expect("written");
        let (app, places) = of(folder.path());
        match harden::pipeline::build(&app, Variant::Sei, &places) {
            Err(error) if harden::tool::is_lack(&error) => return skipped(&format!("{error:#}")),
            built => drop(built.expect("they may run twice")),
        }
    }
}
