//! Problems of a configuration, displayed as `FILE:LINE: field: what. Remedy: do this`, with a guess at the intended
//! word.

use std::fmt;

/// One problem of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line from 1; none if the whole file lacks something.
    pub line: Option<usize>,
    /// The field, as the operator wrote it or should write it.
    pub field: String,
    /// The problem, with the value that was found.
    pub what: String,
    /// The remedy.
    pub remedy: String,
    /// Whether it can disappear by itself: a host name that does not resolve now.
    pub may_pass: bool,
}

/// Every problem of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The file's name as the operator gave it.
    pub file: String,
    /// At least one, in the order of the file.
    pub list: Vec<Problem>,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.list.iter().enumerate() {
            let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
            let field = if problem.field.is_empty() { String::new() } else { format!(" {}:", problem.field) };
            let newline = if number == 0 { "" } else { "\n" };
            write!(f, "{newline}{}{line}:{field} {}. Remedy: {}", self.file, problem.what, problem.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

impl Problems {
    /// Whether all of them can disappear by themselves.
    pub fn may_pass(&self) -> bool {
        self.list.iter().all(|problem| problem.may_pass)
    }
}

/// The only problems of a configuration are host names that do not resolve now.
#[derive(Debug)]
pub struct Unresolved(pub String);

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unresolved {}

/// The line (from 1) of a byte offset.
pub fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count()
}

/// The known word nearest to `word`, if it is near enough to be the intended one.
pub fn meant<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word = word.to_ascii_lowercase().replace('-', "_");
    let nearest = known.iter().map(|known| (distance(&word, &known.to_ascii_lowercase()), *known)).min()?;
    let tolerance = (word.chars().count() / 3).max(1);
    (nearest.0 <= tolerance).then_some(nearest.1)
}

/// Edits (insert, delete, replace, swap neighbours) from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let replace = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut least = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_edits() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
        assert_eq!(distance("mode", "moed"), 1);
    }

    #[test]
    fn near_words_are_guessed_and_far_ones_are_not() {
        let known = ["workers", "watchdog_ms", "listen", "RDGX"];
        assert_eq!(meant("worker", &known), Some("workers"));
        assert_eq!(meant("watchdog-ms", &known), Some("watchdog_ms"));
        assert_eq!(meant("rdgx", &known), Some("RDGX"));
        assert_eq!(meant("colour", &known), None);
    }

    #[test]
    fn lines_count_from_one() {
        assert_eq!(line_of("a\nb\nc", 0), 1);
        assert_eq!(line_of("a\nb\nc", 2), 2);
        assert_eq!(line_of("a\nb\nc", 99), 3);
    }
}
