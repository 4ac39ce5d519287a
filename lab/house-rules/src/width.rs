//! How wide tracked text may be: a line fits on half a screen, next to its other version in a comparison.

use super::{Breach, TextFile};

/// Characters of a line at most.
pub const COLUMNS: usize = 120;

/// Data: folders and files whose lines are records, written by a program or one table row each.
const DATA: [&str; 4] = [
    "lab/bench/results/",
    "lab/bench/definitions/*.toml",
    "lab/trial/plans/*.toml",
    "server/memcached/tests/conformance/cases.rs",
];
/// Data by the end of the name: lists of versions, exchanges, and messages of the compiler.
const DATA_ENDS: [&str; 3] = [".lock", ".txt", ".stderr"];

/// Lines that are too long, of a file that is no data.
pub fn too_wide(file: &TextFile) -> Vec<Breach> {
    if is_data(&file.path) {
        return Vec::new();
    }
    let lines = (1..).zip(file.text.lines()).map(|(number, line)| (number, line.chars().count()));
    lines
        .filter(|(_, columns)| *columns > COLUMNS)
        .map(|(line, columns)| Breach {
            file: file.path.clone(),
            line,
            what: format!("has {columns} columns; tracked text has at most {COLUMNS}"),
            remedy: "break the line; make a list of a table whose cells are sentences",
        })
        .collect()
}

fn is_data(path: &str) -> bool {
    let is_one = |data: &&str| match data.split_once('*') {
        Some((folder, end)) => path.starts_with(folder) && path.ends_with(end),
        None if data.ends_with('/') => path.starts_with(*data),
        None => path == *data,
    };
    DATA.iter().any(is_one) || DATA_ENDS.iter().any(|end| path.ends_with(end))
}
