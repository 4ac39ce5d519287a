//! How large a type may be: one with more members than a reader can hold in mind has parts that should be types.

use std::cmp::Reverse;

use super::text::{before_in_line, body, find_words, line_of, mask, name_after, without_tests};
use super::{Breach, TextFile};

/// Members of a struct at most.
pub const MAX_FIELDS: usize = 25;
/// Methods of a type at most: of all its `impl` blocks that are of no trait.
pub const MAX_METHODS: usize = 40;

/// A type that is larger, and why. It has just as many members and methods as listed: fewer is a smaller permit.
pub struct LargeType {
    /// Crate and name, with `::`.
    pub name: &'static str,
    /// Its members.
    pub fields: usize,
    /// Its methods.
    pub methods: usize,
    /// Why it is one type.
    pub reason: &'static str,
}

/// A type with what was counted of it.
#[derive(Debug)]
struct CountedType {
    /// The crate's folder.
    package: String,
    name: String,
    file: String,
    line: usize,
    fields: usize,
    methods: usize,
}

impl CountedType {
    fn is(&self, permit: &LargeType) -> bool {
        permit.name.rsplit_once("::")
            == Some((self.package.rsplit('/').next().unwrap_or(""), self.name.as_str()))
    }
}

/// Types that have too many members or methods, in what ships and in the tools, not in tests.
pub fn too_large(files: &[TextFile], permits: &[LargeType]) -> Vec<Breach> {
    let types = counted(files);
    let is_large = |one: &&CountedType| one.fields > MAX_FIELDS || one.methods > MAX_METHODS;
    let is_as_listed = |one: &CountedType| {
        let permit = permits.iter().find(|permit| one.is(permit));
        permit.is_some_and(|permit| (permit.fields, permit.methods) == (one.fields, one.methods))
    };
    let mut breaches: Vec<Breach> = types
        .iter()
        .filter(is_large)
        .filter(|one| !is_as_listed(one))
        .map(|one| Breach {
            file: one.file.clone(),
            line: one.line,
            what: format!(
                "{} has {} members and {} methods, more than {MAX_FIELDS} or {MAX_METHODS}",
                one.name, one.fields, one.methods
            ),
            remedy: "give what belongs together a type of its own; one that has to be large is listed with its \
                reason and its numbers in lab/house-rules/tests/house_rules.rs",
        })
        .collect();
    let is_stale = |permit: &&LargeType| !types.iter().filter(is_large).any(|one| one.is(permit));
    breaches.extend(permits.iter().filter(is_stale).map(|permit| Breach {
        file: "lab/house-rules/tests/house_rules.rs".to_owned(),
        line: 0,
        what: format!("{} may be large and is not", permit.name),
        remedy: "strike the permit from lab/house-rules/tests/house_rules.rs",
    }));
    breaches
}

/// Every struct with named members, and every other type that has methods where it is defined as a struct.
fn counted(files: &[TextFile]) -> Vec<CountedType> {
    let code: Vec<(&str, &str, String)> = files
        .iter()
        .filter_map(|file| Some((file.package()?, file.path.as_str(), without_tests(&mask(&file.text)))))
        .collect();
    let mut types: Vec<CountedType> = Vec::new();
    for (package, file, masked) in &code {
        for (name, at) in defined(masked) {
            let fields = body(masked, at).map_or(0, |(open, close)| fields(&masked[open + 1..close]));
            let (package, file, line) = (package.to_string(), file.to_string(), line_of(masked, at));
            types.push(CountedType { package, name, file, line, fields, methods: 0 });
        }
    }
    for (package, file, masked) in &code {
        for (name, count) in methods(masked) {
            // Several modules of a crate may have a type of that name: the nearest is meant.
            let of_name = types.iter_mut().filter(|one| one.package == *package && one.name == name);
            if let Some(nearest) =
                of_name.max_by_key(|one| (common(&one.file, file), Reverse(one.file.len())))
            {
                nearest.methods += count;
            }
        }
    }
    types
}

/// Names of structs and enums, with the places of their keywords.
fn defined(masked: &str) -> Vec<(String, usize)> {
    let words = ["struct", "enum"].into_iter();
    let found = words.flat_map(|word| find_words(masked, word).into_iter().map(move |at| (word, at)));
    let named = found.map(|(word, at)| (name_after(masked, at + word.len()), at));
    named.filter(|(name, _)| !name.is_empty()).collect()
}

/// Members in a struct's body: names before a single colon, outside of all brackets. An enum's variants have theirs
/// in brackets.
fn fields(inside: &str) -> usize {
    let bytes = inside.as_bytes();
    let mut nested = 0i32;
    let mut count = 0;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => nested += 1,
            b')' | b']' | b'}' => nested -= 1,
            b':' if nested == 0 => {
                let is_path = bytes.get(at + 1) == Some(&b':') || (at > 0 && bytes[at - 1] == b':');
                count += usize::from(!is_path);
            }
            _ => {}
        }
    }
    count
}

/// By `impl` block that is of no trait: the type's name, and how many functions it has, but for those of tests.
fn methods(masked: &str) -> Vec<(String, usize)> {
    let is_block = |at: &usize| matches!(before_in_line(masked, *at).trim(), "" | "unsafe");
    let blocks = find_words(masked, "impl").into_iter().filter(is_block);
    blocks
        .filter_map(|at| {
            let (open, close) = body(masked, at)?;
            let name = implemented(&masked[at + "impl".len()..open])?;
            Some((name, functions(&masked[open + 1..close])))
        })
        .collect()
}

/// The type whose `impl` block begins so; none if it is of a trait.
fn implemented(header: &str) -> Option<String> {
    let header = find_words(header, "where").first().map_or(header, |at| &header[..*at]);
    let header = header.trim();
    let named = if header.starts_with('<') { after_generics(header)? } else { header };
    if !find_words(named, "for").is_empty() {
        return None;
    }
    let path = named.split('<').next()?.trim();
    let name = path.rsplit("::").next()?.trim();
    (!name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')).then(|| name.to_owned())
}

/// What follows the parameters in angle brackets that `header` begins with.
fn after_generics(header: &str) -> Option<&str> {
    let mut nested = 0i32;
    let mut before = ' ';
    for (at, character) in header.char_indices() {
        nested += match character {
            '<' => 1,
            '>' if before != '-' => -1,
            _ => 0,
        };
        before = character;
        if nested == 0 {
            return Some(&header[at + 1..]);
        }
    }
    None
}

/// Functions right inside of a block, those for tests left out.
fn functions(inside: &str) -> usize {
    let bytes = inside.as_bytes();
    let words = find_words(inside, "fn");
    let mut nested = 0i32;
    // Where the last item ended.
    let mut ended = 0;
    let mut count = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if nested == 0 && words.binary_search(&at).is_ok() {
            let is_named = inside[at + 2..].trim_start().starts_with(|c: char| c.is_alphabetic() || c == '_');
            let is_of_tests = inside[ended..at].contains("#[cfg(test)]");
            count += usize::from(is_named && !is_of_tests);
        }
        match byte {
            b'{' => nested += 1,
            b'}' => {
                nested -= 1;
                ended = at;
            }
            _ => {}
        }
    }
    count
}

/// How far two paths are the same.
fn common(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
}
