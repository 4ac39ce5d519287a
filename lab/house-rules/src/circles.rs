//! The rule on circles of imports: the files that can only be understood together are few.

use super::imports::{Import, Modules};
use super::{Breaches, TextFile, Workspace, add};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Files that reach each other by imports, at most.
pub const MAX_CIRCLE: usize = 6;

/// Circles that are larger, with the folder of the crate and the size found. They may only fall.
#[rustfmt::skip] // a line for each crate
pub const LARGE_CIRCLES: [(&str, usize); 5] = [
    ("server/object", 22),
    ("server/sql", 13), ("server/sql", 10), ("server/sql", 7),
    ("server/vote", 8),
];

type Imports = BTreeMap<(usize, usize), Import>;

/// In each crate that ships, the files that reach each other by imports are few: a reader has to know all of them to
/// know one. A path in an expression is an import as a `use` is; a `mod`, and a re-export that its own file does not
/// use, are none.
pub fn circles(tree: &Workspace, out: &mut Breaches) {
    circles_but(&LARGE_CIRCLES, tree, out);
}

/// The same with another table of circles that are larger.
pub(super) fn circles_but(large: &[(&str, usize)], tree: &Workspace, out: &mut Breaches) {
    let mut crates: BTreeMap<&str, Vec<&TextFile>> = BTreeMap::new();
    for file in tree.rust().filter(|file| file.path.starts_with("server/")) {
        file.package().into_iter().for_each(|package| crates.entry(package).or_default().push(file));
    }
    for (folder, _) in large.iter().filter(|(folder, _)| !crates.contains_key(folder)) {
        in_table(out, format!("has {folder}, which is no crate that ships: take its line out"));
    }
    for (folder, files) in &crates {
        let imports = Modules::read(folder, files).imports();
        let mut found = circles_of(files.len(), &imports);
        found.retain(|circle| circle.len() > MAX_CIRCLE);
        found.sort_by_key(BTreeSet::len);
        let of_crate = large.iter().filter(|(of, _)| of == folder);
        let mut listed: Vec<usize> = of_crate.map(|(_, size)| *size).collect();
        listed.sort_unstable();
        // The largest one is compared with the largest line, and so on.
        while !found.is_empty() || !listed.is_empty() {
            match (found.pop().unwrap_or_default(), listed.pop().unwrap_or(0)) {
                (circle, line) if circle.len() > line => {
                    let (size, edges) = (circle.len(), held_in(folder, files, &circle, &imports));
                    let what = format!("is in a circle of {size} files: move what makes arrows point up;");
                    let file = files[*circle.first().unwrap_or(&0)];
                    add(out, file, 0, format!("{what} what holds each in:{edges}"));
                }
                (circle, line) if circle.is_empty() => in_table(
                    out,
                    format!("has {line} files for {folder}, which has no such circle: take the line out"),
                ),
                (circle, line) if circle.len() < line => {
                    in_table(out, format!("has {line} files for {folder}: write {}", circle.len()))
                }
                _ => {}
            }
        }
    }
}

fn in_table(out: &mut Breaches, what: String) {
    out.push(("lab/house-rules/src/circles.rs".to_owned(), 0, format!("LARGE_CIRCLES {what}")));
}

/// Sets of files that reach each other, of two or more.
fn circles_of(files: usize, imports: &Imports) -> Vec<BTreeSet<usize>> {
    let reached = |from: usize| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(at) = next.pop() {
            let direct = imports.range((at, 0)..(at + 1, 0)).map(|((_, to), _)| *to);
            next.extend(direct.filter(|to| seen.insert(*to)));
        }
        seen
    };
    let reached: Vec<BTreeSet<usize>> = (0..files).map(reached).collect();
    let circle =
        |from: usize| reached[from].iter().copied().filter(|to| reached[*to].contains(&from)).collect();
    let circles: BTreeSet<BTreeSet<usize>> = (0..files).map(circle).collect();
    circles.into_iter().filter(|circle| circle.len() > 1).collect()
}

/// A line for each file of a circle: one of its imports in the circle, or one of it where those are fewer.
fn held_in(folder: &str, files: &[&TextFile], circle: &BTreeSet<usize>, imports: &Imports) -> String {
    let name = |file: usize| files[file].path.trim_start_matches(folder).trim_start_matches("/src/");
    let inner = || imports.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
    let mut text = String::new();
    for file in circle {
        let out: Vec<_> = inner().filter(|((from, _), _)| from == file).collect();
        let back: Vec<_> = inner().filter(|((_, to), _)| to == file).collect();
        let fewer = if out.len() <= back.len() { &out } else { &back };
        if let Some(((from, to), (line, path))) = fewer.first() {
            let (from, to, count) = (name(*from), name(*to), fewer.len());
            let _ =
                write!(text, "\n    {}: {from}:{line} imports {path} of {to} ({count} such)", name(*file));
        }
    }
    text
}
