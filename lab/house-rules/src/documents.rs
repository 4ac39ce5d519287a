//! Rules on tracked text: what it cites and names exists, no path of one machine, lines and files of limited size.

use super::code::word;
use super::{Breaches, TextFile, Workspace, add};
use std::collections::HashSet;

/// Characters of a line at most: it fits on half a screen, next to its other version in a comparison.
pub const COLUMNS: usize = 120;
/// Data, whose lines are records: the beginning and the end of the path.
#[rustfmt::skip]
const DATA: [(&str, &str); 7] = [
    ("lab/bench/results/", ""), ("lab/bench/definitions/", ".toml"), ("lab/trial/plans/", ".toml"),
    ("server/memcached/tests/conformance/cases.rs", ""), ("", ".lock"), ("", ".txt"), ("", ".stderr"),
];
/// Bytes of a tracked file at most.
pub const LARGEST_FILE: usize = 256 * 1024;
/// Where results are, and their bytes at most.
const RESULTS: (&str, usize) = ("lab/bench/results/", 1_000_000);

/// Names of other people's code, of what is made by a run, and of examples, which documents use all the same.
#[rustfmt::skip]
pub const FOREIGN: [&str; 9] = [
    "SystemTime::now", "do_it", "healSessionInterval", "lab/bench/results/raw", "maxconns_fast", "query.c",
    "sess_number_of_replicas", "setSaslAuthData", "stat/2020Mar.md",
];
/// Words and marks behind which Rust defines a name.
#[rustfmt::skip]
const KEYWORDS: [&str; 11] = ["as", "fn", "mod", "struct", "enum", "trait", "type", "union", "const", "static", "!"];
/// What follows a variant's name.
const VARIANT_ENDS: [&str; 5] = [",", "(", "{", "=", "}"];
/// Ends of names of files that must be there.
const FILES: [&str; 4] = [".rs", ".c", ".h", ".md"];
/// Where a path from the root begins.
const FOLDERS: [&str; 6] = ["server/", "hardening/", "lab/", "examples/", "docs/", ".ci/"];

/// Hosts that tracked text may name: documentation, the lock file's own notation, the name of SVG.
#[rustfmt::skip]
const HOSTS: [&str; 6] = [
    "www.apache.org", "github.com", "doc.rust-lang.org", "keepachangelog.com", "semver.org", "www.w3.org",
];
/// Paths of one machine, and citations that no reader can follow; in halves, so that this file keeps its own rule.
#[rustfmt::skip]
const MACHINE_PATHS: [&str; 6] = [
    concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/tmp/", "target"),
    concat!("/opt/", "wheels"), concat!("/Us", "ers/"),
];
const UNREACHABLE: [&str; 2] = [concat!("des", "ign"), concat!("rese", "arch/")];

/// Tracked text names no place that exists on one machine only.
pub fn private_places(tree: &Workspace, out: &mut Breaches) {
    let lines = tree.files.iter().flat_map(|file| file.lines().map(move |line| (file, line)));
    for (file, (line, text)) in lines {
        // `src/work/x` is a folder of ours, not of the machine.
        let inside = |c: char| c.is_alphanumeric() || "._-/})".contains(c);
        let is_path = |(at, _): (usize, &str)| !text[..at].ends_with(inside);
        for path in MACHINE_PATHS.iter().filter(|path| text.match_indices(**path).any(is_path)) {
            add(out, file, line, format!("names {path}: use a path relative to the workspace"));
        }
        for url in text.split("://").skip(1) {
            let host = url.split(|c: char| !(c.is_ascii_alphanumeric() || ".-".contains(c))).next();
            let host = host.unwrap_or("").trim_end_matches('.');
            if host.contains('.') && !HOSTS.contains(&host) && !host.starts_with("127.0.0.") {
                add(out, file, line, format!("names {host}: leave mirrors to the tools' settings"));
            }
        }
    }
}

/// A cited document of a `docs` folder is tracked and has the named section; phrases of lost documents do not occur.
pub fn citations(tree: &Workspace, out: &mut Breaches) {
    for file in &tree.files {
        // A citation may go over two lines, with the mark of a comment between.
        let lines = file.lines().flat_map(|(line, text)| text.split(' ').map(move |word| (line, word)));
        let is_word = |word: &str| word.contains(|c: char| !"/!#*".contains(c));
        let words: Vec<(usize, &str)> = lines.filter(|(_, word)| is_word(word)).collect();
        for (at, (line, word)) in words.iter().enumerate() {
            let rest = &words[at + 1..];
            let is_next = rest.first().is_some_and(|(_, next)| next.starts_with("section"));
            if word.contains(UNREACHABLE[1]) || is_next && word.to_lowercase().ends_with(UNREACHABLE[0]) {
                add(out, file, *line, "cites what is not here: cite a document below docs, or a paper");
            }
            let paths = word.split(|c: char| !(c.is_ascii_alphanumeric() || "._-/".contains(c)));
            let paths = paths.map(|path| path.trim_start_matches("../").trim_end_matches('.'));
            // A path behind `https:` is a page of another site.
            let paths = paths.filter(|path| path.ends_with(".md") && !path.starts_with("//"));
            for path in paths.filter(|path| format!("/{path}").contains("/docs/")) {
                let document = tree.file(path).map_or("", |document| &document.text);
                let has = |number: &str| document.contains(&format!("\n## {number}. "));
                // `section 5`, `sections 6 to 8`, `sections 6 and 7`.
                let numbers = rest.iter().map(|(_, word)| word).filter(|word| !["to", "and"].contains(word));
                let numbers = numbers.skip(1).filter_map(|word| word.split(|c| !char::is_numeric(c)).next());
                if document.is_empty() || is_next && !numbers.take_while(|one| !one.is_empty()).all(has) {
                    add(out, file, *line, format!("cites {path}, which is not there or lacks that section"));
                }
            }
        }
    }
}

/// What the tree has: its paths between slashes, the words of its code, and those of each Rust file.
struct Symbols<'a> {
    paths: Vec<String>,
    words: HashSet<&'a str>,
    rust: Vec<RustNames<'a>>,
}

struct RustNames<'a> {
    /// With `_` for `-`, as crates are called in code.
    path: String,
    words: HashSet<&'a str>,
    defined: HashSet<&'a str>,
}

/// Code and files that a document has in backticks exist.
pub fn names(tree: &Workspace, out: &mut Breaches) {
    let (documents, code): (Vec<_>, Vec<_>) = tree.files.iter().partition(|file| file.path.ends_with(".md"));
    let is_mark = |c: char| !(c.is_alphanumeric() || c == '_');
    let symbols = Symbols {
        paths: tree.sizes.iter().map(|(path, _)| format!("/{path}/")).collect(),
        words: code.iter().flat_map(|file| file.text.split(is_mark)).collect(),
        rust: tree.rust().map(RustNames::of).collect(),
    };
    for file in documents.into_iter().filter(|file| file.path != "CHANGELOG.md") {
        let mut line = 1;
        // Every second piece is in backticks. A listing is, too, but no name or path has more than a line.
        for (number, span) in file.text.split('`').enumerate() {
            if let Some(lost) = symbols.lack(span).filter(|_| number % 2 == 1) {
                add(out, file, line, format!("names `{span}`, but {lost}"));
            }
            line += span.matches('\n').count();
        }
    }
}

impl<'a> RustNames<'a> {
    fn of(file: &'a TextFile) -> Self {
        let text = |at: usize| file.code.get(at).map_or("", |token| token.text.as_str());
        let passes_on = file.path.ends_with("/lib.rs");
        let is_defined = |(at, name): &(usize, &str)| {
            let is_field = text(at + 1) == ":" && text(at + 2) != ":";
            let is_variant = name.starts_with(char::is_uppercase) && VARIANT_ENDS.contains(&text(at + 1));
            passes_on || is_field || is_variant || *at > 0 && KEYWORDS.contains(&text(at - 1))
        };
        let words = (0..file.code.len()).filter_map(|at| Some((at, word(&file.code, at)?)));
        let defined = words.clone().filter(is_defined).map(|(_, name)| name).collect();
        RustNames { path: file.path.replace('-', "_"), words: words.map(|(_, name)| name).collect(), defined }
    }
}

impl Symbols<'_> {
    /// Whether some file defines `name` and mentions `owner`, or lies in a folder or file of that name. Only the latter
    /// counts if `owner` is a crate, which may have the name from another one.
    fn has_member(&self, owner: &str, name: &str) -> bool {
        let manifest = format!("/{owner}/Cargo.toml/");
        let is_crate = self.paths.iter().any(|path| path.replace('-', "_").ends_with(&manifest));
        self.rust.iter().filter(|file| file.defined.contains(name)).any(|file| {
            let is_inside = file.path.split(['/', '.']).any(|part| part == owner);
            is_inside || !is_crate && file.words.contains(owner)
        })
    }

    /// Why a piece of code that a document names is not there.
    fn lack(&self, span: &str) -> Option<String> {
        let of_foreign = FOREIGN.iter().find_map(|name| span.strip_prefix(name));
        if of_foreign.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            return None;
        }
        let is_example = span.split('/').any(|part| part.chars().all(|c| c.is_ascii_uppercase()));
        let is_text = span.contains(|c: char| !(c.is_ascii_alphanumeric() || "._-/".contains(c)));
        let is_path = FILES.iter().any(|f| span.ends_with(f)) || FOLDERS.iter().any(|f| span.starts_with(f));
        if is_path && !is_example && !is_text {
            let inner = format!("/{}/", span.trim_end_matches('/'));
            let is_there = self.paths.iter().any(|path| path.contains(&inner));
            return (!is_there).then(|| "no such file exists".to_owned());
        }
        let name = &span[..span.find(['(', '<', '!']).unwrap_or(span.len())];
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':') {
            return None;
        }
        let is_own = |part: &&str| !["crate", "super", "self", "Self", "std", ""].contains(part);
        let parts: Vec<&str> = name.split("::").filter(is_own).collect();
        if let Some(pair) = parts.windows(2).find(|pair| !self.has_member(pair[0], pair[1])) {
            return Some(format!("no code that mentions {} defines {}", pair[0], pair[1]));
        }
        let lost = parts.iter().find(|part| is_of_code(part) && !self.words.contains(**part));
        lost.map(|part| format!("no code has {part}"))
    }
}

/// Whether a single word can only be a name of code: `snake_case`, `CamelCase` or `UPPER_CASE`.
fn is_of_code(word: &str) -> bool {
    let humps = word.as_bytes().windows(2).any(|w| w[0].is_ascii_lowercase() && w[1].is_ascii_uppercase());
    word.starts_with(|c: char| c.is_ascii_alphabetic()) && (humps || word.trim_matches('_').contains('_'))
}

/// Lines are short; files are small: a repository keeps summaries, with the commands that make their raw data again.
pub fn sizes(tree: &Workspace, out: &mut Breaches) {
    let is_data = |path: &str| DATA.iter().any(|(begin, end)| path.starts_with(begin) && path.ends_with(end));
    for file in tree.files.iter().filter(|file| !is_data(&file.path)) {
        let columns = file.lines().map(|(line, text)| (line, text.chars().count()));
        for (line, columns) in columns.filter(|(_, columns)| *columns > COLUMNS) {
            add(out, file, line, format!("{columns} columns: break the line, make the table a list"));
        }
    }
    let results = tree.sizes.iter().filter(|(path, _)| path.starts_with(RESULTS.0)).map(|(_, bytes)| bytes);
    let mut limits = vec![(RESULTS.0, results.sum(), RESULTS.1)];
    limits.extend(tree.sizes.iter().map(|(path, bytes)| (path.as_str(), *bytes, LARGEST_FILE)));
    for (path, bytes, limit) in limits.into_iter().filter(|(_, bytes, limit)| bytes > limit) {
        out.push((path.to_owned(), 0, format!("{bytes} bytes, more than {limit}: keep summaries only")));
    }
}
