//! House rules about what documents name: code and files in backticks exist, so that a reader finds them.

use std::collections::HashSet;

use super::text::{find_words, mask, name_after};
use super::{Breach, TextFile};

/// Words behind which Rust defines a name.
const KEYWORDS: [&str; 11] =
    ["as", "fn", "mod", "struct", "enum", "trait", "type", "union", "const", "static", "macro_rules!"];
/// Ends of names of files that must be there.
const FILES: [&str; 4] = [".rs", ".c", ".h", ".md"];
/// Where a path from the root begins.
const FOLDERS: [&str; 6] = ["server/", "hardening/", "lab/", "examples/", "docs/", ".ci/"];

/// What the tree has: its files, and the names in its code.
pub struct Symbols {
    paths: Vec<String>,
    rust: Vec<RustNames>,
    words: HashSet<String>,
}

struct RustNames {
    path: String,
    words: HashSet<String>,
    defined: HashSet<String>,
}

impl Symbols {
    /// Of all tracked text; `paths` has the tracked files that are no text as well.
    pub fn of(files: &[TextFile], paths: Vec<String>) -> Self {
        let code = files.iter().filter(|file| !file.path.ends_with(".md"));
        let words = code.flat_map(|file| words(&file.text)).map(str::to_owned).collect();
        let rust = files.iter().filter(|file| file.is_rust()).map(RustNames::of).collect();
        Symbols { paths, rust, words }
    }

    /// Whether some file defines `name` and mentions `owner`, or lies in a folder or file of that name. Only the latter
    /// counts if `owner` is a crate, which may have the name from another one.
    fn has_member(&self, owner: &str, name: &str) -> bool {
        let lies_in = |path: &str| path.split(['/', '.']).any(|part| part.replace('-', "_") == owner);
        let manifest = format!("/{owner}/Cargo.toml");
        let is_crate = self.paths.iter().any(|path| path.replace('-', "_").ends_with(&manifest));
        let has = |file: &RustNames| {
            let is_inside = lies_in(&file.path);
            let defines =
                file.defined.contains(name) && (is_inside || !is_crate && file.words.contains(owner));
            let passes_on = is_inside && file.path.ends_with("/lib.rs") && file.words.contains(name);
            defines || passes_on || is_inside && file.path.ends_with(&format!("/{name}.rs"))
        };
        self.rust.iter().any(has)
    }

    fn has_path(&self, name: &str) -> bool {
        let name = name.trim_end_matches('/');
        self.paths.iter().any(|path| {
            path == name || path.ends_with(&format!("/{name}")) || path.starts_with(&format!("{name}/"))
        })
    }

    /// What is wrong with a piece of code that a document names, if anything is.
    fn stale(&self, span: &str, external: &[&str]) -> Option<String> {
        let is_of =
            |name: &&str| span == *name || span.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        if external.iter().any(is_of) {
            return None;
        }
        let is_example = span.split('/').any(|part| part.chars().all(|c| c.is_ascii_uppercase()));
        let is_path = !is_example && span.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
        if is_path
            && (FILES.iter().any(|end| span.ends_with(end)) || FOLDERS.iter().any(|f| span.starts_with(f)))
        {
            return (!self.has_path(span)).then(|| format!("names the file `{span}`, which does not exist"));
        }
        let name = &span[..span.find(['(', '<', '!']).unwrap_or(span.len())];
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':') {
            return None;
        }
        let parts: Vec<&str> = name
            .split("::")
            .filter(|part| !["crate", "super", "self", "Self", "std", ""].contains(part))
            .collect();
        let lost = parts.windows(2).find(|pair| !self.has_member(pair[0], pair[1]));
        if let Some(pair) = lost {
            return Some(format!("names `{span}`; no code that mentions {} defines {}", pair[0], pair[1]));
        }
        let lost = parts.iter().find(|part| is_of_code(part) && !self.words.contains(**part));
        lost.map(|part| format!("names `{span}`; no code has {part}"))
    }
}

/// Names in a document's backticks that the tree lacks; `external` are those of other people's code.
pub fn stale(document: &TextFile, symbols: &Symbols, external: &[&str]) -> Vec<Breach> {
    let breach = |(line, span): (usize, &str)| {
        let what = symbols.stale(span, external)?;
        let remedy = "name what is there now, or say it without a name";
        Some(Breach { file: document.path.clone(), line, what, remedy })
    };
    spans(&without_listings(&document.text)).into_iter().filter_map(breach).collect()
}

/// Crates that the table of crates, in the text of ARCHITECTURE.md, does not have.
pub fn unmapped<'a>(map: &str, crates: impl Iterator<Item = &'a String>) -> Vec<Breach> {
    let table = map.split("\n## ").find(|section| section.starts_with("Crates\n")).unwrap_or("");
    let is_lost = |name: &&String| !table.contains(&format!("`{name}`"));
    let breach = |name: &String| Breach {
        file: "ARCHITECTURE.md".into(),
        line: 0,
        what: format!("the table of crates lacks `{name}`"),
        remedy: "add a line that says what it does, and take out the crates that it replaces",
    };
    crates.filter(is_lost).map(breach).collect()
}

impl RustNames {
    fn of(file: &TextFile) -> Self {
        let masked = mask(&file.text);
        let behind = |keyword: &'static str| {
            find_words(&masked, keyword).into_iter().map(move |at| at + keyword.len())
        };
        let named = KEYWORDS.into_iter().flat_map(behind).map(|end| name_after(&masked, end));
        let defined = named.chain(masked.lines().flat_map(members)).filter(|name| !name.is_empty()).collect();
        let words = words(&masked).map(str::to_owned).collect();
        RustNames { path: file.path.clone(), words, defined }
    }
}

/// Fields and variants that a line may define: names in front of `:`, `,`, `(`, `{` or `=`, or alone.
fn members(line: &str) -> Vec<String> {
    let inside =
        if line.contains("enum ") { line.split_once('{').map_or("", |(_, body)| body) } else { line };
    let parts = if inside.len() < line.len() { inside.split(',').collect() } else { vec![line] };
    let name_of = |part: &str| {
        let part = part.trim().trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        let name: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let rest = part[name.len()..].trim_start();
        let is_variant = name.starts_with(char::is_uppercase)
            && (rest.is_empty() || rest.starts_with([',', '(', '{', '=', '}']));
        let is_field = rest.starts_with(':') && !rest.starts_with("::");
        (is_variant || is_field).then_some(name)
    };
    parts.into_iter().filter_map(name_of).collect()
}

/// Whether a single word can only be a name of code: `snake_case`, `CamelCase` or `UPPER_CASE`.
fn is_of_code(word: &str) -> bool {
    let humps = word.as_bytes().windows(2).any(|w| w[0].is_ascii_lowercase() && w[1].is_ascii_uppercase());
    word.starts_with(|c: char| c.is_ascii_alphabetic()) && (humps || word.trim_matches('_').contains('_'))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// A document with its fenced listings blanked out: same lines.
fn without_listings(text: &str) -> String {
    let mut is_listing = false;
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_listing ^= is_fence;
        out.push_str(if is_listing || is_fence { "" } else { line });
        out.push('\n');
    }
    out
}

/// What stands between backticks, with its line, from 1.
fn spans(text: &str) -> Vec<(usize, &str)> {
    let mut line = 1;
    let piece = |(number, span): (usize, &'_ str)| -> (usize, bool) {
        let at = line;
        line += span.matches('\n').count();
        (at, number % 2 == 1)
    };
    let places: Vec<(usize, bool)> = text.split('`').enumerate().map(piece).collect();
    let pieces = places.into_iter().zip(text.split('`'));
    pieces.filter(|((_, is_code), _)| *is_code).map(|((line, _), span)| (line, span)).collect()
}
