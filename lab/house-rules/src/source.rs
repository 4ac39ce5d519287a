//! Rules on Rust and C files: purpose, lengths, `unsafe`, determinism, panics, and the size and names of types.

use super::code::{SourceToken, body, find, word};
use super::{Breaches, TextFile, Workspace, add};
use std::collections::BTreeMap;

/// Lines of a file at most.
pub const MAX_FILE_LINES: usize = 800;
/// Lines of a function at most, tests included. Aim at 70.
pub const MAX_FUNCTION_LINES: usize = 80;
/// Members of a struct, and methods of a type, at most: those of a trait, or of all `impl` blocks that are of no trait.
pub const MAX_MEMBERS: (usize, usize) = (25, 40);
/// Methods of types that grow by one wherever somebody needs something, at most.
pub const FEW_METHODS: [(&str, usize); 1] = [("Hooks", 15)];
/// Keywords of types.
const TYPES: [&str; 5] = ["struct", "enum", "trait", "type", "union"];
/// Names of types that mean the same in every crate.
const SHARED_NAMES: [&str; 3] = ["Args", "Config", "Error"];

/// The only files with `unsafe`, each with the reason at its head: one per crate, but for `sei`, whose interface is C.
#[rustfmt::skip] // a line for each folder
pub const UNSAFE: [&str; 10] = [
    "hardening/sei/src/abi.rs", "hardening/sei/src/api.rs", "hardening/sei/src/shims.rs",
    "lab/bench/src/executor/shipper/sys.rs", "lab/tracer/src/sys.rs", "server/object-macros/src/impls.rs",
    "server/object/src/crc.rs", "server/schedule/src/cell.rs", "server/sql/src/vfs.rs",
    "server/wire/src/sum.rs",
];

/// Words that some crates do not use, but where `// KEYWORD: reason` stands above; tests may.
pub struct Forbidden {
    crates: &'static [&'static str],
    pub(super) words: &'static [&'static str],
    pub(super) keyword: &'static str,
    remedy: &'static str,
}

/// All of them.
#[rustfmt::skip] // lists of many short words
pub const FORBIDDEN: [Forbidden; 2] = [
    // Crates whose results reach state or replies read no clock, no chance, no thread's name, and no map whose order
    // depends on them.
    Forbidden {
        crates: &[
            "server/wire", "server/object", "server/tree", "server/schedule", "server/verify", "server/vote",
            "server/order", "server/execute", "server/memcached", "server/sql", "examples/bank",
            "examples/queue",
        ],
        words: &[
            "HashMap : : new", "HashMap : : with_capacity", "HashSet : : new", "HashSet : : with_capacity",
            "RandomState", "DefaultHasher", "SystemTime", "Instant", "thread : : current", "ThreadId", "rand : :",
            "thread_rng", "getrandom", "sched_getcpu",
        ],
        keyword: "bookkeeping",
        remedy: "order it, or use a BTreeMap; what reaches no state or reply has `// bookkeeping: reason` above",
    },
    // Crates whose memory native faults hit find corruption as a value.
    Forbidden {
        crates: &["server/order", "server/crosscheck", "server/schedule", "server/vote"],
        words: &["assert !", "assert_eq !", "assert_ne !", "panic !", "unreachable !", ". expect (", ". unwrap ("],
        keyword: "panics",
        remedy: "make it a ReplaceReason::Corrupted; what no fault can cause has `// panics: reason` above",
    },
];
/// Where code for tests is: what loom runs, and what tests of services run.
const OF_TESTS: [&str; 5] = ["tests", "testing/", "fuzzing.rs", "model.rs", "server/schedule/src/sync.rs"];

/// Every Rust and C file opens with one sentence on why it exists, and is not too long to be read in one sitting.
pub fn files(tree: &Workspace, out: &mut Breaches) {
    for file in tree.files.iter().filter(|file| file.is_c() || file.path.ends_with(".rs")) {
        let first = file.text.lines().next().unwrap_or("");
        let sentence = first.strip_prefix(if file.is_c() { "/* " } else { "//! " }).unwrap_or("");
        if sentence.trim_end_matches("*/").split_whitespace().count() < 4 {
            add(out, file, 1, "open it with `//! ` (in C, `/* `) and one sentence on why it exists");
        }
        let lines = file.text.lines().count();
        if lines > MAX_FILE_LINES {
            add(out, file, 0, format!("{lines} lines: split it where it changes its subject"));
        }
    }
}

/// No function is longer than a screen.
pub fn functions(tree: &Workspace, out: &mut Breaches) {
    for (file, at) in places(tree, "fn") {
        let code = &file.code;
        let lines = body(code, at).map_or(0, |(_, close)| code[close].line - code[at].line + 1);
        if let Some(name) = word(code, at + 1).filter(|_| lines > MAX_FUNCTION_LINES) {
            add(out, file, code[at].line, format!("fn {name} has {lines} lines: give its steps names"));
        }
    }
}

fn places<'a>(tree: &'a Workspace, pattern: &'a str) -> impl Iterator<Item = (&'a TextFile, usize)> {
    tree.rust().flat_map(move |file| find(&file.code, pattern).into_iter().map(move |at| (file, at)))
}

/// `unsafe` is in the files that are listed, and in no other one.
pub fn unsafe_code(tree: &Workspace, out: &mut Breaches) {
    for file in tree.rust() {
        let first = find(&file.code, "unsafe").first().map(|at| file.code[*at].line);
        if first.is_some() != UNSAFE.contains(&file.path.as_str()) {
            let what = "do without, or move it into the crate's one file of UNSAFE; list no file without it";
            add(out, file, first.unwrap_or(0), what);
        }
    }
}

/// No crate uses a word that it must not use.
pub fn words(tree: &Workspace, out: &mut Breaches) {
    for Forbidden { crates, words, keyword, remedy } in &FORBIDDEN {
        let uses = words.iter().flat_map(|word| places(tree, word).map(move |place| (word, place)));
        for (word, (file, at)) in uses.filter(|(_, (file, at))| !file.code[*at].is_exempt) {
            let line = file.code[at].line;
            let is_in = crates.iter().any(|name| file.path.starts_with(&format!("{name}/src/")));
            let is_test = OF_TESTS.iter().any(|name| file.path.contains(name));
            if is_in && !is_test && !file.has_reason(line, keyword) {
                add(out, file, line, format!("uses `{word}`: {remedy}"));
            }
        }
    }
}

/// All types of one name at the top of files of one crate, in what ships and in the tools.
#[derive(Default)]
struct CountedType<'a> {
    /// Where they are defined: file and line.
    definitions: Vec<(&'a TextFile, usize)>,
    fields: usize,
    methods: usize,
}

/// By name, and folder of the crate.
fn types(tree: &Workspace) -> BTreeMap<(&str, &str), CountedType<'_>> {
    let mut types: BTreeMap<_, CountedType<'_>> = BTreeMap::new();
    let files = || tree.rust().filter_map(|file| Some((file, &file.code, file.package()?)));
    for (file, code, package) in files() {
        for at in (0..code.len()).filter(|at| code[*at].depth == 0 && !code[*at].is_exempt) {
            let keyword = code[at].text.as_str();
            let name = word(code, at + 1).filter(|_| TYPES.contains(&keyword));
            let Some(counted) = name.map(|name| types.entry((name, package)).or_default()) else { continue };
            counted.definitions.push((file, code[at].line));
            let body = body(code, at);
            let fields = body.filter(|_| keyword == "struct");
            counted.fields = counted.fields.max(fields.map_or(0, |body| inside(code, body, ":")));
            counted.methods += body.filter(|_| keyword == "trait").map_or(0, |body| inside(code, body, "fn"));
        }
    }
    for (_, code, package) in files() {
        for (name, body) in find(code, "impl").into_iter().filter_map(|at| implemented(code, at)) {
            let methods = inside(code, body, "fn");
            types.entry((name, package)).and_modify(|counted| counted.methods += methods);
        }
    }
    types
}

/// How often a word or a single colon is right inside of a pair of brackets, outside of tests.
fn inside(code: &[SourceToken], (open, close): (usize, usize), text: &str) -> usize {
    let depth = code[open].depth + 1;
    let is_path = |at: usize| text == ":" && (code[at - 1].text == ":" || code[at + 1].text == ":");
    let is_one = |at: &usize| code[*at].depth == depth && code[*at].text == text && !code[*at].is_exempt;
    (open + 1..close).filter(|at| is_one(at) && !is_path(*at)).count()
}

/// The type whose `impl` block begins at index `at`, and the block's braces; none if it is of a trait.
fn implemented(code: &[SourceToken], at: usize) -> Option<(&str, (usize, usize))> {
    let before = at.checked_sub(1).map_or("", |before| &code[before].text);
    let (open, close) = body(code, at).filter(|_| ["", "unsafe", ";", "{", "}", "]"].contains(&before))?;
    let (mut angles, mut name) = (0, "");
    for at in at + 1..open {
        match code[at].text.as_str() {
            "<" => angles += 1,
            ">" if code[at - 1].text != "-" => angles -= 1,
            "for" if angles == 0 => return None,
            "where" => break,
            _ if angles == 0 => name = word(code, at).unwrap_or(name),
            _ => {}
        }
    }
    Some((name, (open, close)))
}

/// A type that is larger than a reader can hold in mind has parts that should be types. At most two crates have a type
/// of the same name: a reader would look up each time which one is meant.
pub fn type_limits(tree: &Workspace, out: &mut Breaches) {
    let types = types(tree);
    for ((name, _), CountedType { definitions, fields, methods }) in &types {
        let (file, line) = definitions[0];
        let few = FEW_METHODS.iter().find(|(of, _)| of == name);
        let is_large = *fields > MAX_MEMBERS.0 || *methods > few.map_or(MAX_MEMBERS.1, |(_, most)| *most);
        if is_large != definitions.iter().any(|(file, line)| file.has_reason(*line, "large")) {
            let remedy = "give parts types of their own; what has to be large has `// large: reason` above";
            add(out, file, line, format!("{name} has {fields} members and {methods} methods: {remedy}"));
        }
        let crates = types.keys().filter(|(other, _)| other == name).count();
        if crates > 2 && !SHARED_NAMES.contains(name) {
            add(out, file, line, format!("{crates} crates have a type {name}: say which one it is"));
        }
    }
}
