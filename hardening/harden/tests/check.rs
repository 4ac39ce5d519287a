//! The list of everything that keeps handlers from being hardened: each kind of cause, with its place and its way, in a
//! file, in a program with a Makefile, and none in the programs that come with recipes.

use std::fs;

use harden::check::{CheckReport, targets};
use harden::recipe::App;

use crate::support::{places, skipped};

/// A program of two files whose handler does everything that cannot be instrumented, beside what can.
const SERVER: &str = include_str!("c/causes.c");
const STORE: &str = include_str!("c/causes_store.c");

fn report(result: anyhow::Result<CheckReport>) -> Option<CheckReport> {
    match result {
        Err(error) if harden::tool::is_lack(&error) => {
            skipped(&format!("{error:#}"));
            None
        }
        result => Some(result.expect("it can be checked")),
    }
}

fn of_file(text: &str) -> Option<CheckReport> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file.c");
    fs::write(&file, text).expect("written");
    report(targets::path(&file, &[]))
}

const HANDLER: &str = "int main(void) {\n    char m[] = \"m\";\n    if (SEI_BEGIN(m, 1, sei_crc(0, m, 1))) {\n\
                       handle(m);\n        SEI_END();\n    }\n    return 0;\n}\n";

#[test]
fn a_file_of_its_own() {
    let handle = "#include \"sei.h\"\nlong served;\nstatic void handle(char *m) { served += *m; }\n";
    let Some(right) = of_file(&format!("{handle}{HANDLER}")) else { return };
    assert_eq!((right.causes, right.notes, right.handlers, right.reached), (vec![], vec![], 1, 1));
    let inline = "__attribute__((always_inline)) static inline long add(long a) { return served += a; }\n";
    let inlined = handle
        .replace("served += *m;", "add(*m); add(2);")
        .replace("static void", &format!("{inline}static void"));
    let report = of_file(&format!("{inlined}{HANDLER}")).expect("the compiler is there");
    assert!(report.causes.iter().all(|cause| cause.what.contains("always_inline")), "{report:?}");
    let none = of_file("int main(void) { return 0; }\n").expect("the compiler is there");
    assert_eq!(none.causes.len(), 1);
    assert!(none.causes[0].remedy.contains("SEI_BEGIN"), "{none:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file.c");
    fs::write(&file, "int main(void) { return x; __transaction_atomic { } }\n").expect("written");
    let error = targets::path(&file, &[]).expect_err("x is not declared").to_string();
    assert!(error.contains("file.c:1:") && error.contains("not about handlers"), "{error}");
    let error = targets::path(&folder.path().join("none"), &[]).expect_err("there is none");
    assert!(format!("{error:#}").contains("none"), "{error:#}");
    let error = targets::path(folder.path(), &[]).expect_err("no Makefile").to_string();
    assert!(error.contains("no Makefile") && error.contains("compile_commands.json"), "{error}");
}

#[test]
fn no_form_of_a_bit_field_is_missed() {
    let forms = include_str!("c/bit_fields.c").replace("__attribute__((noinline)) ", "");
    let Some(report) = of_file(&forms) else { return };
    let fields = report.causes.iter().filter(|cause| cause.what.starts_with("bit-field "));
    let places: usize = fields.map(|cause| cause.places.len()).sum();
    let written = forms.lines().filter(|line| line.starts_with("FORM(")).count();
    assert!(written >= 30 && places >= written, "{places} of {written}: {:#?}", report.causes);
}

/// Every line of a file that has `WANT what` in a comment, with its number.
fn wanted(file: &str, text: &str) -> Vec<(String, String)> {
    let lines = text.lines().enumerate().filter_map(|(at, line)| {
        let what = line.split_once("WANT ")?.1.trim_end_matches("*/").trim();
        Some((format!("{file}:{}:", at + 1), what.to_owned()))
    });
    lines.collect()
}

#[test]
fn all_causes_of_a_program_with_a_makefile() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    fs::create_dir(folder.path().join("src")).expect("made");
    write("src/causes.c", SERVER);
    write("src/causes_store.c", STORE);
    write("Makefile", "all:\n\t@$(MAKE) -C src\n");
    let rules = "CFLAGS = -O2 -Wall\nserver: causes.o causes_store.o $(TOOL)\n\t$(CC) $^ -o $@\n\
                 %.o: %.c\n\t@echo $<; \\\n\t$(CC) $(CFLAGS) -DLIMIT='\"a b\"' -c -o $@ $<\n";
    write("src/Makefile", rules);
    write("src/tool.c", "#include <no/such/header.h>\n");
    write("src/wrong.c", "#include \"sei.h\"\nSEI_LOCAL int a(void) { return undeclared; }\n");
    let Some(report) = report(targets::path(folder.path(), &["TOOL=tool.o wrong.o".to_owned()])) else {
        return;
    };
    let all = format!("{:#?}", report.causes);
    let mut wanted = [wanted("src/causes.c", SERVER), wanted("src/causes_store.c", STORE)].concat();
    wanted.push(("src/wrong.c:2:".to_owned(), "does not compile".to_owned()));
    assert!(wanted.len() >= 15, "{wanted:?}");
    for (place, what) in &wanted {
        let is_reported = report
            .causes
            .iter()
            .any(|cause| cause.what.contains(what) && cause.places.iter().any(|at| at.starts_with(place)));
        assert!(is_reported, "{place} {what} is missed: {all}");
    }
    let places: usize = report.causes.iter().map(|cause| cause.places.len()).sum();
    assert_eq!(places, wanted.len(), "nothing else is told: {all}");
    assert!(
        all.contains("the handler in main (src/causes.c:") && all.contains("main > work > deeper"),
        "{all}"
    );
    assert!(all.contains("SEI_SAFE in its header"), "{all}");
    assert_eq!(report.notes.len(), 2, "{:?}", report.notes);
    assert!(
        report.notes[0].contains("src/tool.c cannot be read") && report.notes[0].contains("no/such/header.h")
    );
    assert!(report.notes[1].contains("crawl (src/causes.c:") && report.notes[1].contains("plain"));
    assert!(!folder.path().join("src/causes.o").exists(), "nothing is made in the operator's folder");
}

#[test]
fn programs_with_recipes_have_nothing_to_do() {
    for name in ["memcached", "dnscache"] {
        let app = App::find(name).expect("a program with a recipe");
        let Some(report) = report(targets::app(&app, &places())) else { return };
        assert_eq!(report.causes, [], "{name}");
        assert!(report.handlers >= 3 && report.reached > 40, "{name}: {report:?}");
    }
}
