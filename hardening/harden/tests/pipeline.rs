//! The pipeline on small programs of our own: what it builds, and what it says about what it cannot build.

use std::fs;
use std::path::Path;
use std::process::Command;

use harden::check::targets;
use harden::compile::Variant;
use harden::pipeline::{self, Places};
use harden::recipe::App;

use crate::support::{places, skipped};

const RECIPE: &str =
    "program = \"small\"\nsummary = \"a test\"\n[source]\nfolder = \"src\"\n[unit]\nfiles = [\"small.c\"]\n";

/// Adds two to a counter in a handler, by way of three functions; the text between is that of `mid`.
fn program(mid: &str) -> String {
    format!(
        "#include \"sei.h\"
long counter;
static void low(long by) {{ counter += by; }}
{mid}
static void handler(long by) {{ mid(by); mid(by); }}
int main(void)
{{
    char message[] = \"m\";
    if (SEI_BEGIN(message, 1, sei_crc(0, message, 1))) {{
        handler(1);
        sei_output_append(&counter, sizeof counter);
        sei_output_done();
        SEI_END();
    }}
    sei_crc_pop();
    return (int)counter;
}}
"
    )
}

pub fn folder(mid: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("src")).expect("made");
    fs::write(folder.path().join("recipe.toml"), RECIPE).expect("written");
    fs::write(folder.path().join("src/small.c"), program(mid)).expect("written");
    folder
}

pub fn of(folder: &Path) -> (App, Places) {
    let app = App::find(&folder.display().to_string()).expect("a recipe");
    (app, Places { out: folder.join("out"), ..places() })
}

/// The error of a build; `None` where this machine lacks what it takes.
pub fn refused(folder: &Path, variant: Variant) -> Option<String> {
    let (app, places) = of(folder);
    match pipeline::build(&app, variant, &places) {
        Ok(_) => panic!("it was built"),
        Err(error) if harden::tool::is_lack(&error) => {
            skipped(&format!("{error:#}"));
            None
        }
        Err(error) => Some(format!("{error:#}")),
    }
}

#[test]
fn a_program_of_ones_own() {
    let folder = folder("__attribute__((noinline)) static void mid(long by) { low(by); }");
    let (app, places) = of(folder.path());
    for variant in Variant::ALL {
        let built = match pipeline::build(&app, variant, &places) {
            Err(error) if harden::tool::is_lack(&error) => return skipped(&format!("{error:#}")),
            built => built.expect("it can be hardened"),
        };
        let status = Command::new(&built.program).status().expect("it starts");
        assert_eq!(status.code(), Some(2), "{variant}: a handler counts once");
        assert_eq!(built.clones > 0, variant.is_hardened(), "{variant}");
    }
    assert_eq!(targets::app(&app, &places).expect("it can be hardened").causes, []);
}

/// A handler that reads a word of each type, some of them unaligned. Functions of other files might change them all.
const READS: &str = "
struct { char pad; unsigned char a; unsigned short b; unsigned c; } __attribute__((packed)) words =
    { 0, 250, 65000, 4000000000u };
long d = -7, pair[2] = { 5, 6 };
float e = 1.5f;
double f = -2.5;
long double g = 0.25L;
__attribute__((noinline)) static void mid(long by)
{
    if (words.a + d == 243 && words.b == 65000 && words.c == 4000000000u && e == 1.5f && f == -2.5 && g == 0.25L
        && pair[0] + pair[1] == 11)
        low(by);
}";

#[test]
fn reads_are_in_line_where_the_state_has_one_copy() {
    let folder = folder(READS);
    let (app, places) = of(folder.path());
    for variant in [Variant::Native, Variant::Sei, Variant::Dup] {
        let built = match pipeline::build(&app, variant, &places) {
            Err(error) if harden::tool::is_lack(&error) => return skipped(&format!("{error:#}")),
            built => built.expect("it can be hardened"),
        };
        let status = Command::new(&built.program).status().expect("it starts");
        assert_eq!(status.code(), Some(2), "{variant}: each word was read");
        let object = fs::read(built.program.with_file_name("unit.o")).expect("an object beside the program");
        let calls = harden::inspect::object(&object).expect("an object").undefined;
        for of in ["RU1", "RU2", "RU4", "RU8", "RF", "RD"] {
            let is_called = calls.contains(&format!("_ITM_{of}"));
            assert_eq!(is_called, variant == Variant::Dup, "{variant} {of}: {calls:?}");
        }
        // The one type whose load takes another register, and writes.
        for kept in ["_ITM_RE", "_ITM_WaWU8"] {
            assert_eq!(calls.contains(kept), variant.is_hardened(), "{variant} {kept}: {calls:?}");
        }
    }
}

/// GCC accepts such a call without a word; what shows it is the symbol that the library leaves undefined.
#[test]
fn plain_pointer_fails_the_link() {
    let folder = folder(
        "void (*behind)(long) = low;\n__attribute__((noinline)) static void mid(long by) { behind(by); }",
    );
    let Some(error) = refused(folder.path(), Variant::Sei) else { return };
    assert!(error.contains("pointer") && error.contains("SEI_LOCAL"), "{error}");
    assert!(error.contains("`handler`") || error.contains("`mid`") || error.contains("`main`"), "{error}");
}

/// GCC 12 passes the address of the whole byte, without a word: the fields beside it would be overwritten.
#[test]
fn bit_fields_in_a_handler_are_refused() {
    let flags = "struct { unsigned first : 1, second : 1; } flags;";
    let folder = folder(&format!("{flags}\nstatic void mid(long by) {{ flags.second = 1; low(by); }}"));
    let Some(error) = refused(folder.path(), Variant::Sei) else { return };
    assert!(error.contains("bit-field second") && error.contains("plain member"), "{error}");
}

/// The first thing to try is the program as it is.
#[test]
fn a_program_without_handlers_is_refused_with_what_it_lacks() {
    let folder = folder("");
    fs::write(folder.path().join("src/small.c"), "int main(void) { return 0; }\n").expect("written");
    let Some(error) = refused(folder.path(), Variant::Sei) else { return };
    assert!(error.contains("no handler") && error.contains("SEI_BEGIN"), "{error}");
}

#[test]
fn a_patch_that_does_not_fit_stops_the_build() {
    let folder = folder("__attribute__((noinline)) static void mid(long by) { low(by); }");
    fs::create_dir(folder.path().join("patches")).expect("made");
    let patch = "--- a/small.c\n+++ b/small.c\n@@ -1,2 +1,2 @@\n #include \"other.h\"\n-int x;\n+int y;\n";
    fs::write(folder.path().join("patches/1.patch"), patch).expect("written");
    let Some(error) = refused(folder.path(), Variant::Native) else { return };
    assert!(error.contains("1.patch does not fit this source"), "{error}");
}

#[test]
fn a_compiler_error_is_shown_as_it_is() {
    let folder = folder("__attribute__((noinline)) static void mid(long by) { low(by) }");
    let Some(error) = refused(folder.path(), Variant::Native) else { return };
    assert!(error.contains("small.c") && error.contains("error:"), "{error}");
}
