//! Bit-fields in handlers: however a program writes one, it is found before it can do harm.

use std::collections::BTreeSet;
use std::fs;

use harden::compile::Variant;

use crate::pipeline::{folder, refused};

const FORMS: &str = include_str!("c/bit_fields.c");

/// Each function of `bit_fields.c` uses one. A width in brackets, by a name or before an attribute was none for a
/// reader of the text, and one in a header of the system was not looked for.
#[test]
fn no_form_of_a_bit_field_is_missed() {
    let folder = folder("");
    fs::write(folder.path().join("src/small.c"), FORMS).expect("written");
    let forms: BTreeSet<usize> = FORMS
        .lines()
        .filter_map(|line| line.strip_prefix("FORM(")?.split(',').next()?.parse().ok())
        .collect();
    assert!(forms.len() >= 30, "{forms:?}");
    for variant in [Variant::Sei, Variant::Dup] {
        let Some(error) = refused(folder.path(), variant) else { return };
        let is_found = |form: &&usize| error.contains(&format!("`form_{form}` reads or writes a bit-field"));
        let missed: Vec<&usize> = forms.iter().filter(|form| !is_found(form)).collect();
        assert!(missed.is_empty(), "{variant} misses the forms {missed:?}: {error}");
    }
}

/// What a recipe adds to the options cannot hide them.
#[test]
fn options_that_leave_debug_information_out_change_nothing() {
    let folder = folder("");
    fs::write(folder.path().join("src/small.c"), FORMS).expect("written");
    let recipe = folder.path().join("recipe.toml");
    let text = fs::read_to_string(&recipe).expect("read");
    fs::write(&recipe, format!("{text}options = [\"-g0\", \"-gsplit-dwarf\", \"-gz\", \"-O1\"]\n"))
        .expect("written");
    let Some(error) = refused(folder.path(), Variant::Sei) else { return };
    assert!(error.contains("`form_41` reads or writes a bit-field"), "{error}");
}

/// The variants without protection are of no concern, nor are bit-fields that no handler uses.
#[test]
fn bit_fields_outside_of_handlers_are_left_alone() {
    let flags = "struct { unsigned first : 1, second : (1); } flags;";
    let folder = folder(&format!(
        "{flags}\nvoid outside(void) {{ flags.second = 1; }}\nstatic void mid(long by) {{ low(by); }}"
    ));
    let (app, places) = crate::pipeline::of(folder.path());
    match harden::pipeline::build(&app, Variant::Sei, &places) {
        Err(error) if harden::tool::is_lack(&error) => crate::support::skipped(&format!("{error:#}")),
        built => drop(built.expect("no handler uses one")),
    }
}
