//! Names of types: a name with another meaning in every crate makes a reader look it up each time.

use std::collections::{BTreeMap, BTreeSet};

use super::text::{before_in_line, find_words, line_of, mask, name_after, without_tests};
use super::{Breach, TextFile};

/// Crates that may call a type of theirs the same.
pub const CRATES_PER_NAME: usize = 2;
/// Names that mean the same everywhere.
pub const SHARED_NAMES: [&str; 3] = ["Args", "Config", "Error"];

/// Names of top-level types that too many crates define, counted in what ships and in the tools, not in tests.
pub fn shared_too_widely(files: &[TextFile]) -> Vec<Breach> {
    let mut found: BTreeMap<String, Vec<(&str, &str, usize)>> = BTreeMap::new();
    for (file, package) in files.iter().filter_map(|file| Some((file, file.package()?))) {
        for (name, line) in types(&without_tests(&mask(&file.text))) {
            found.entry(name).or_default().push((package, &file.path, line));
        }
    }
    let mut breaches = Vec::new();
    for (name, places) in found.iter().filter(|(name, _)| !SHARED_NAMES.contains(&name.as_str())) {
        let crates: BTreeSet<&str> = places.iter().map(|(package, ..)| *package).collect();
        if crates.len() > CRATES_PER_NAME {
            let &(_, file, line) = places.last().expect("a name was found somewhere");
            let crates = crates.into_iter().collect::<Vec<_>>().join(", ");
            breaches.push(Breach {
                file: file.to_owned(),
                line,
                what: format!("a type called {name}, as in several crates ({crates})"),
                remedy: "say in the name which one it is, or use the one that there is",
            });
        }
    }
    breaches
}

/// Names of the types that are defined at the start of a line, with their lines.
fn types(masked: &str) -> Vec<(String, usize)> {
    let is_top = |at: usize| {
        let before = before_in_line(masked, at);
        before.is_empty() || (before.starts_with("pub") && !before.contains(['{', ';']))
    };
    let words = ["struct", "enum", "trait", "type", "union"];
    let starts = words.iter().flat_map(|word| {
        find_words(masked, word).into_iter().map(|at| (at, at + word.len())).collect::<Vec<_>>()
    });
    starts
        .filter(|(at, _)| is_top(*at))
        .map(|(at, end)| (name_after(masked, end), line_of(masked, at)))
        .collect()
}
