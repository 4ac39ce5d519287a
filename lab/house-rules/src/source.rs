//! House rules about Rust, C and tracked text: purpose, length, `unsafe`, sources of nondeterminism, private places.

use super::text;
use super::{Breach, TextFile};

/// Longest file, in lines.
pub const MAX_FILE_LINES: usize = 800;
/// Longest function, in lines, tests included. Aim at 70.
pub const MAX_FUNCTION_LINES: usize = 80;

/// An exception for one file, with its reason.
pub struct Permit {
    /// The file.
    pub file: &'static str,
    /// The word it may use.
    pub word: &'static str,
    /// Why there is no other way.
    pub reason: &'static str,
}

/// Words that make a result depend on the clock, the machine or chance.
pub const NONDETERMINISM: [&str; 14] = [
    "HashMap::new",
    "HashMap::with_capacity",
    "HashSet::new",
    "HashSet::with_capacity",
    "RandomState",
    "DefaultHasher",
    "SystemTime",
    "Instant",
    "thread::current",
    "ThreadId",
    "rand::",
    "thread_rng",
    "getrandom",
    "sched_getcpu",
];

/// Ways to panic.
const PANICS: [&str; 7] =
    ["assert!", "assert_eq!", "assert_ne!", "panic!", "unreachable!", ".expect(", ".unwrap("];

/// How often the code of a file may panic, with the reason.
pub struct Panics {
    /// The file.
    pub file: &'static str,
    /// How often.
    pub count: usize,
    /// Why that is no reaction to memory that a fault may have hit.
    pub reason: &'static str,
}

/// Every Rust and C file opens with one sentence on why it exists.
pub fn purpose(file: &TextFile) -> Vec<Breach> {
    let (opening, remedy) = if file.is_c() {
        ("/* ", "open the file with `/* ` and one sentence on why it exists")
    } else {
        ("//! ", "open the file with `//! ` and one sentence on why it exists")
    };
    let first = file.text.lines().next().unwrap_or("");
    let sentence = first.strip_prefix(opening).unwrap_or("").trim_end_matches("*/");
    if sentence.split_whitespace().count() >= 4 {
        return Vec::new();
    }
    breach(file, 1, "no purpose line".into(), remedy)
}

/// No file is too long to be read in one sitting.
pub fn file_length(file: &TextFile) -> Vec<Breach> {
    let lines = file.text.lines().count();
    if lines <= MAX_FILE_LINES {
        return Vec::new();
    }
    let what = format!("{lines} lines, more than {MAX_FILE_LINES}");
    breach(file, 0, what, "split it where it begins to talk about something else")
}

/// No function is longer than a screen.
pub fn function_length(file: &TextFile) -> Vec<Breach> {
    text::functions(&text::mask(&file.text))
        .into_iter()
        .filter(|function| function.length > MAX_FUNCTION_LINES)
        .map(|function| Breach {
            file: file.path.clone(),
            line: function.line,
            what: format!(
                "fn {} has {} lines, more than {MAX_FUNCTION_LINES}",
                function.name, function.length
            ),
            remedy: "give its steps names: one function per step, called in order",
        })
        .collect()
}

/// `unsafe` is only in files with a permit and its reason.
pub fn unsafe_code(file: &TextFile, permits: &[Permit]) -> Vec<Breach> {
    if permits.iter().any(|permit| permit.file == file.path) {
        return Vec::new();
    }
    let masked = text::mask(&file.text);
    words(
        file,
        &masked,
        &["unsafe"],
        "do without, or move it into the crate's one permitted file (list: lab/house-rules/tests/house_rules.rs)",
    )
}

/// Crates that decide read no clock, no chance, no thread's name, and no map whose order depends on them.
pub fn nondeterminism(file: &TextFile, permits: &[Permit]) -> Vec<Breach> {
    let code = text::without_tests(&text::mask(&file.text));
    let forbidden: Vec<&str> = NONDETERMINISM
        .into_iter()
        .filter(|&word| !permits.iter().any(|permit| permit.file == file.path && permit.word == word))
        .collect();
    words(
        file,
        &code,
        &forbidden,
        "take it from the ordered log, or use a BTreeMap or a hasher with a fixed seed; \
         bookkeeping that cannot reach state or reply is listed with its reason in tests/house_rules.rs",
    )
}

/// Memory that a fault may have hit is no reason to panic: corruption is a value. Tests may panic.
pub fn panics(file: &TextFile, permits: &[Panics]) -> Vec<Breach> {
    let code = text::without_tests(&text::mask(&file.text));
    let found = PANICS.iter().flat_map(|word| text::find_words(&code, word));
    let lines: Vec<usize> = found.map(|at| text::line_of(&code, at)).collect();
    let permitted = permits.iter().find(|permit| permit.file == file.path).map_or(0, |permit| permit.count);
    if lines.len() == permitted {
        return Vec::new();
    }
    breach(
        file,
        lines.iter().copied().min().unwrap_or(1),
        format!("has {} places that panic, and {permitted} are listed", lines.len()),
        "return a value that leads to ReplaceReason::Corrupted; what no fault can cause is listed with its \
         reason in lab/house-rules/tests/house_rules.rs",
    )
}

/// Nothing is left to be written later.
pub fn unfinished(file: &TextFile) -> Vec<Breach> {
    words(file, &text::mask(&file.text), &["todo!", "unimplemented!", "dbg!"], "write it now or leave it out")
}

/// Tracked text names no place that exists on one machine only.
pub fn private_places(file: &TextFile, hosts: &[&str]) -> Vec<Breach> {
    let mut found = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for place in MACHINE_PATHS {
            if line.match_indices(place).any(|(at, _)| begins_path(line, at)) {
                found.push(Breach {
                    file: file.path.clone(),
                    line: number + 1,
                    what: format!("names {place}, a path of one machine"),
                    remedy: "use a path relative to the workspace, or a temporary directory made at run time",
                });
            }
        }
        for host in url_hosts(line) {
            if !hosts.contains(&host) && !host.starts_with("127.0.0.") && host != "localhost" {
                found.push(Breach {
                    file: file.path.clone(),
                    line: number + 1,
                    what: format!("names the host {host}"),
                    remedy: "leave hosts of registries and mirrors to the tools' own settings; a documentation host \
                             goes on the list in lab/house-rules/tests/house_rules.rs",
                });
            }
        }
    }
    found
}

/// Written in halves, so that this file keeps the rule it states.
const MACHINE_PATHS: [&str; 6] = [
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/ho", "me/"),
    concat!("/tmp/", "target"),
    concat!("/opt/", "wheels"),
    concat!("/Us", "ers/"),
];

/// Whether a path may begin here: `src/work/x` is a folder of ours, not of the machine.
fn begins_path(line: &str, at: usize) -> bool {
    !line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '}' | ')'))
}

fn url_hosts(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("://")
        .map(|(at, _)| {
            let rest = &line[at + 3..];
            let end = rest
                .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-')))
                .unwrap_or(rest.len());
            rest[..end].trim_end_matches('.')
        })
        .filter(|host| host.contains('.') || *host == "localhost")
}

fn words(file: &TextFile, masked: &str, forbidden: &[&str], remedy: &'static str) -> Vec<Breach> {
    let mut found = Vec::new();
    for word in forbidden {
        for at in text::find_words(masked, word) {
            found.push(Breach {
                file: file.path.clone(),
                line: text::line_of(masked, at),
                what: format!("uses `{word}`"),
                remedy,
            });
        }
    }
    found
}

fn breach(file: &TextFile, line: usize, what: String, remedy: &'static str) -> Vec<Breach> {
    vec![Breach { file: file.path.clone(), line, what, remedy }]
}
