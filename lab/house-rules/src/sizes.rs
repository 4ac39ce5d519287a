//! Limits on tracked files: a repository keeps summaries, with the commands that make their raw data again.

use std::fs;

use super::{Breach, root, tracked};

/// Bytes of a tracked file at most.
pub const LARGEST_FILE: u64 = 256 * 1024;
/// Where results are.
pub const RESULTS: &str = "lab/bench/results/";
/// Bytes of all tracked results together at most.
pub const ALL_RESULTS: u64 = 1_000_000;

/// Every tracked file with its length in bytes.
pub fn sizes() -> Vec<(String, u64)> {
    let root = root();
    let size = |path: String| {
        let length = fs::symlink_metadata(root.join(&path)).ok()?.len();
        Some((path, length))
    };
    tracked().into_iter().filter_map(size).collect()
}

/// Files that are too large, alone or together.
pub fn too_large(files: &[(String, u64)]) -> Vec<Breach> {
    let mut breaches: Vec<Breach> = files
        .iter()
        .filter(|(_, size)| *size > LARGEST_FILE)
        .map(|(path, size)| Breach {
            file: path.clone(),
            line: 0,
            what: format!("has {size} bytes; a tracked file has at most {LARGEST_FILE}"),
            remedy: "keep a result without single times and records (no `--full`), and say how the file is made again",
        })
        .collect();
    let results: u64 = files.iter().filter(|(path, _)| path.starts_with(RESULTS)).map(|(_, size)| size).sum();
    if results > ALL_RESULTS {
        breaches.push(Breach {
            file: RESULTS.to_owned(),
            line: 0,
            what: format!("has {results} bytes in all; tracked results have at most {ALL_RESULTS}"),
            remedy: "remove results that no document takes figures from; raw ones belong in lab/bench/results/raw",
        });
    }
    breaches
}
