//! House rules about what tracked text cites: a reader must be able to open it, at the section that is named.

use super::{Breach, TextFile};

/// Citations that no reader can follow. Written in halves, so that this file keeps the rule it states.
const UNREACHABLE: [&str; 2] = [concat!("design ", "section"), concat!("rese", "arch/")];

/// A cited document of a `docs` folder is tracked and has the named section; phrases of lost documents do not occur.
pub fn citations(file: &TextFile, tracked: &[TextFile]) -> Vec<Breach> {
    let flat = Flat::new(&file.text);
    let lower = flat.text.to_ascii_lowercase();
    let unreachable =
        UNREACHABLE.iter().flat_map(|phrase| lower.match_indices(phrase)).map(|(at, phrase)| {
            let what = format!("cites `{phrase}..`, which is not in the repository");
            (at, what, "cite a document under docs with its section, or a paper by its name")
        });
    let documents = cited(&flat.text).filter_map(|(at, path, rest)| {
        let Some(document) = tracked.iter().find(|document| document.path == path) else {
            return Some((
                at,
                format!("cites {path}, which does not exist"),
                "name a document that is there",
            ));
        };
        let section = sections(rest).into_iter().find(|section| !has_section(&document.text, section))?;
        let what = format!("cites section {section} of {path}, which has no such heading");
        Some((at, what, "name a section that is there; headings are `## N. Title`"))
    });
    let breach =
        |(at, what, remedy)| Breach { file: file.path.clone(), line: flat.line_of(at), what, remedy };
    unreachable.chain(documents).map(breach).collect()
}

/// Text without line breaks and comment marks: a citation may begin on one line and end on the next.
struct Flat {
    text: String,
    /// Where each line begins.
    starts: Vec<usize>,
}

impl Flat {
    fn new(text: &str) -> Self {
        let mut flat = Flat { text: String::with_capacity(text.len()), starts: Vec::new() };
        for line in text.lines() {
            flat.starts.push(flat.text.len());
            let words = line.trim_start_matches(|c: char| c.is_whitespace() || "/!#*".contains(c));
            flat.text.push_str(words.trim_end());
            flat.text.push(' ');
        }
        flat
    }

    /// Line, from 1, of byte `at`.
    fn line_of(&self, at: usize) -> usize {
        self.starts.partition_point(|&start| start <= at)
    }
}

/// The documents of `docs` folders that a text names: where, the path from the root, and the text behind it.
fn cited(text: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    text.match_indices(".md").filter_map(|(at, suffix)| {
        let end = at + suffix.len();
        let is_path = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let start = text[..at].trim_end_matches(is_path).len();
        let mut path = &text[start..end];
        while let Some(inner) = path.strip_prefix("../").or(path.strip_prefix("./")) {
            path = inner;
        }
        let is_whole = !text[end..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let is_document = path.starts_with("docs/") || path.contains("/docs/");
        // A path behind `https:` is a page of another site.
        (is_whole && is_document && !path.starts_with("//")).then(|| (start, path, &text[end..]))
    })
}

/// The numbers in `, section 5` or `, sections 6 to 8` at the beginning of the text behind a path.
fn sections(rest: &str) -> Vec<&str> {
    let rest = rest.trim_start_matches(['`', ',', ' ']);
    let Some(rest) = rest.strip_prefix("section") else { return Vec::new() };
    let mut words = rest.trim_start_matches('s').split(' ').filter(|word| !word.is_empty());
    let mut numbers = Vec::new();
    while let Some(word) = words.next() {
        let number = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            break;
        }
        numbers.push(number);
        if number.len() < word.len() || !matches!(words.next(), Some("to" | "and")) {
            break;
        }
    }
    numbers
}

fn has_section(document: &str, section: &str) -> bool {
    let heading = format!("## {section}. ");
    document.lines().any(|line| line.starts_with(&heading))
}
